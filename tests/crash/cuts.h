/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CUTS_H
#define POSTERN_TESTS_CUTS_H

/*
 * A deed that is done again and again, and each time the line to the database
 * is cut after another byte of it.
 *
 *   prepare   what must be there before, undisturbed
 *   act       the deed itself; the line is cut meanwhile
 *   judge     what the deed was told must be true, also after it was told
 *             again; undisturbed, and at the end the line must be whole
 *
 * A stand is a store that is reached by way of a cutter, and a link to the same
 * database that is never cut, for the truth.
 */

#include <libpq-fe.h>
#include <postern/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/cutter.h"

#define CUTS_SCHEMA "cuts"

/* One time of a deed. */
struct cuts_trial {
	char id[16]; /* of its message; as long as all others */
	int64_t seq;
	int r; /* what the deed was told */
};

struct cuts_stand {
	struct cutter *cutter;
	PGconn *link;
	char url[1024];   /* of the store, by way of the cutter */
	int retries;      /* as command_retries */
	long trial_count; /* so far */
	struct postern_error error;
	void *own; /* of the deeds */
};

struct cuts_deed {
	const char *name;
	bool slow; /* so that each byte has its turn only once */
	/* The store itself. */
	void (*open)(struct cuts_stand *stand);
	void (*close)(struct cuts_stand *stand);
	void (*prepare)(struct cuts_stand *stand, struct cuts_trial *trial);
	void (*act)(struct cuts_stand *stand, struct cuts_trial *trial);
	void (*judge)(struct cuts_stand *stand, struct cuts_trial *trial);
	/* What must be true of all trials together. */
	void (*conclude)(struct cuts_stand *stand);
};

/* A statement that says nothing. */
void cuts_do(struct cuts_stand *stand, const char *sql);

/* One text that the database says, or "" and a failed check. The first $1 of
   the statement, if any, is the parameter. */
const char *cuts_ask(struct cuts_stand *stand, const char *sql,
		const char *parameter);

/* Until nothing is under way of what was cut off: there is one line at most. */
void cuts_wait_quiet(struct cuts_stand *stand);

extern const struct cuts_deed cuts_accept;
extern const struct cuts_deed cuts_accept_first;
extern const struct cuts_deed cuts_accept_second;
extern const struct cuts_deed cuts_settle_done;
extern const struct cuts_deed cuts_settle_again;
extern const struct cuts_deed cuts_run_callback;
extern const struct cuts_deed cuts_run_first;
extern const struct cuts_deed cuts_run_one;
extern const struct cuts_deed cuts_run_second;
extern const struct cuts_deed cuts_run_three;

#endif
