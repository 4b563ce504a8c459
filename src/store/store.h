/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_STORE_H
#define POSTERN_STORE_STORE_H

/*
 * The kinds of store in this library, for registry.c, which has the only list
 * of them, and what they have in common.
 */

#include <postern/error.h>
#include <postern/sys/store.h>
#include <stddef.h>

struct postern__buf;

extern const struct postern_store_kind postern__memory_kind;
extern const struct postern_store_kind postern__sqlite_kind;
/* Only where libpq was found: POSTERN_POSTGRES. */
extern const struct postern_store_kind postern__pg_kind;
extern const struct postern_store_kind postern__pg_kind_too; /* postgresql: */

/* Whether a store could be opened by this URL and these options (may be NULL),
   as far as that can be told without doing it. */
int postern__store_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error);

/* Gets an open connection, a PGconn *, in a transaction that can only read. */
typedef int postern__store_look(void *context, void *connection,
		struct postern_error *error);

/* Gets what was found to be wrong; `code` as an error has it. */
typedef void postern__store_find(void *context, int code, const char *text);

/* Who examines a store, and is told of it. */
struct postern__store_examiner {
	postern__store_look *look;
	postern__store_find *find;
	void *context;
	bool listens; /* whether nodes would hear of each other is asked, too */
};

/*
 * Whether what a store stands on can keep what the store promises, as it is
 * seen to before anything is written; what is worth a warning goes to
 * options->remark. Then `look` may look around, and `find` is told what keeps
 * a store that can be opened from working: rights that are missing, also those
 * to make it, a listen_url at which nothing is heard; and, with POSTERN_OK,
 * what it works without. The store itself need not be there, and nothing is
 * made. Only of stores on a server: POSTERN_OK at once for the others.
 */
int postern__store_examine(const char *url,
		const struct postern_store_options *options,
		const struct postern__store_examiner *examiner,
		struct postern_error *error);
/* The same, of what is behind "postgres:". */
int postern__pg_examine(const char *rest,
		const struct postern_store_options *options,
		const struct postern__store_examiner *examiner,
		struct postern_error *error);

/* The SQL that makes the schema of such a store, under the name that it has;
   nothing if it needs none. */
int postern__store_schema_write(const char *url,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error);
int postern__pg_schema_write(const char *rest,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error);

/* Longest name of a schema, its zero byte included. */
#define POSTERN__SCHEMA_NAME_MAX 64

/* The schema in which such a store is; "" if it is in none. */
int postern__store_schema_name(const char *url,
		const struct postern_store_options *options,
		char out[POSTERN__SCHEMA_NAME_MAX], struct postern_error *error);
int postern__pg_schema_name(const char *rest,
		const struct postern_store_options *options,
		char out[POSTERN__SCHEMA_NAME_MAX], struct postern_error *error);

/* The check of kinds that have neither schema nor connections. */
int postern__local_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);

/* Settings of SQLite for the whole process, which only its owner may choose:
   before anything else uses SQLite. */
void postern__sqlite_own_process(void);
/* For that process's handler of SIGBUS: repair indexes of SQLite stores that
   were truncated while they were mapped. Whether there was one. Makes nothing
   but system calls. */
bool postern__sqlite_repair_indexes(void);

/* A clock that is back by more than this was set; less than that is a clock
   being steered, which is not worth a look at every pending delivery. */
#define POSTERN__CLOCK_STEP_MS 1000

/* What messages, deliveries and attempts may take in a memory store; past it
   messages are refused with POSTERN_E_UNAVAILABLE. */
#define POSTERN__MEMORY_BYTES_MAX ((size_t)1024 * 1024 * 1024)

/* Open a memory store with a limit of its own. */
int postern__memory_open(size_t bytes_max,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);

#endif
