/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_STORE_H
#define POSTERN_STORE_STORE_H

/*
 * The kinds of store in this library, which registry.c lists, and what they
 * have in common.
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

/* Validates a store's URL and options (may be NULL) as far as that is possible
   without opening the store. */
int postern__store_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error);

/* Called with an open connection, a PGconn *, inside a read-only
   transaction. */
typedef int postern__store_look(void *context, void *connection,
		struct postern_error *error);

/* Called for each problem that was found; `code` is that of an error. */
typedef void postern__store_find(void *context, int code, const char *text);

/* The caller that examines a store, and the functions it is called back by. */
struct postern__store_examiner {
	postern__store_look *look;
	postern__store_find *find;
	void *context;
	bool listens; /* also check that notifications of other nodes arrive */
};

/*
 * Checks that the server can keep what the store promises, as opening does
 * before it writes anything; warnings go to options->remark. Then `look` is
 * called to make further checks, and `find` is called for each problem that
 * keeps a store that can be opened from working: missing rights, also those to
 * create the store, or a listen_url through which no notification arrives; and,
 * with POSTERN_OK, for each feature that is not available. The store need not
 * exist, and nothing is created. Applies only to stores on a server: returns
 * POSTERN_OK at once for the others.
 */
int postern__store_examine(const char *url,
		const struct postern_store_options *options,
		const struct postern__store_examiner *examiner,
		struct postern_error *error);
/* The same for the part of the URL that follows "postgres:". */
int postern__pg_examine(const char *rest,
		const struct postern_store_options *options,
		const struct postern__store_examiner *examiner,
		struct postern_error *error);

/* Writes the SQL that creates the schema of such a store, under its configured
   name; nothing if the store needs no schema. */
int postern__store_schema_write(const char *url,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error);
int postern__pg_schema_write(const char *rest,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error);

/* Longest name of a schema, its zero byte included. */
#define POSTERN__SCHEMA_NAME_MAX 64

/* The name of the schema that holds such a store; "" if it has none. */
int postern__store_schema_name(const char *url,
		const struct postern_store_options *options,
		char out[POSTERN__SCHEMA_NAME_MAX], struct postern_error *error);
int postern__pg_schema_name(const char *rest,
		const struct postern_store_options *options,
		char out[POSTERN__SCHEMA_NAME_MAX], struct postern_error *error);

/* The check() of kinds that have neither schema nor connections. */
int postern__local_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);

/* Sets process-wide options of SQLite, which only the owner of the process may
   choose. Call it before anything else uses SQLite. */
void postern__sqlite_own_process(void);
/* For that process's SIGBUS handler: repairs the indexes of SQLite stores that
   were truncated while they were mapped. Returns whether it repaired one. Makes
   only system calls. */
bool postern__sqlite_repair_indexes(void);

/* A clock that went back by more than this was set back. A smaller step
   is normal clock adjustment and does not justify reading every pending
   delivery. */
#define POSTERN__CLOCK_STEP_MS 1000

/* The limit of what messages, deliveries and attempts occupy in a memory store;
   above it messages are rejected with POSTERN_E_UNAVAILABLE. */
#define POSTERN__MEMORY_BYTES_MAX ((size_t)1024 * 1024 * 1024)

/* Opens a memory store with its own limit. */
int postern__memory_open(size_t bytes_max,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);

#endif
