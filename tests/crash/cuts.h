/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CUTS_H
#define POSTERN_TESTS_CUTS_H

/*
 * An action that is repeated, and each time the connection to the database is
 * cut after another byte of it.
 *
 *   prepare   sets up what the action needs; not cut
 *   act       the action itself; the connection is cut meanwhile
 *   check     what the action returned must be true, also after it was
 *             repeated; not cut, and at its end the connection must work
 *
 * A stand is a store that is reached through a cutter, and a connection to the
 * same database that is never cut, to read the state.
 */

#include <libpq-fe.h>
#include <postern/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/cutter.h"

#define CUTS_SCHEMA "cuts"

/* One repetition of an action. */
struct cuts_trial {
	char id[16]; /* of its message; all have the same length */
	int64_t seq;
	int r; /* what the action returned */
};

struct cuts_stand {
	struct cutter *cutter;
	PGconn *link;
	char url[1024];   /* of the store, through the cutter */
	int retries;      /* as command_retries */
	long trial_count; /* up to now */
	struct postern_error error;
	void *own; /* state of the actions */
};

struct cuts_action {
	const char *name;
	bool slow; /* the ways to end a connection alternate, to save time */
	/* Open and close the store or box. */
	void (*open)(struct cuts_stand *stand);
	void (*close)(struct cuts_stand *stand);
	void (*prepare)(struct cuts_stand *stand, struct cuts_trial *trial);
	void (*act)(struct cuts_stand *stand, struct cuts_trial *trial);
	void (*check)(struct cuts_stand *stand, struct cuts_trial *trial);
	/* Check counters over all trials. */
	void (*check_totals)(struct cuts_stand *stand);
};

/* Run a statement that returns no rows. */
void cuts_exec(struct cuts_stand *stand, const char *sql);

/* The only value that the query returns, or "" and a failed check. `parameter`
   is $1 of the query, or NULL. */
const char *cuts_query(struct cuts_stand *stand, const char *sql,
		const char *parameter);

/* Wait until the sessions of cut connections have ended: the store has one
   connection at most. */
void cuts_wait_quiet(struct cuts_stand *stand);

extern const struct cuts_action cuts_accept;
extern const struct cuts_action cuts_accept_first;
extern const struct cuts_action cuts_accept_second;
extern const struct cuts_action cuts_settle_done;
extern const struct cuts_action cuts_settle_again;
extern const struct cuts_action cuts_run_callback;
extern const struct cuts_action cuts_run_first;
extern const struct cuts_action cuts_run_one;
extern const struct cuts_action cuts_run_second;
extern const struct cuts_action cuts_run_three;

#endif
