/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_STORE_H
#define POSTERN_STORE_STORE_H

/*
 * The kinds of store in this library, which registry.c lists, and what they
 * have in common.
 */

#include <postern/error.h>
#include <postern/sys/store_kind.h>
#include <stddef.h>

struct postern__buf;

extern const struct postern_store_kind postern__memory_kind;
extern const struct postern_store_kind postern__sqlite_kind;
/* Only where libpq was found: POSTERN_POSTGRES. */
extern const struct postern_store_kind postern__pg_kind;
extern const struct postern_store_kind postern__pg_kind_too; /* postgresql: */

/* The kinds, NULL past the last. */
const struct postern_store_kind *postern__store_kind_at(size_t index);
/* The kind of a URL, and the URL without its scheme (may be NULL); NULL if
   there is none. */
const struct postern_store_kind *postern__store_kind_of(const char *url,
		const char **rest_out);
/* The kind with this name, the `name` of a store's operations; NULL if there is
   none. */
const struct postern_store_kind *postern__store_kind_named(const char *name);

/* A store that keeps no messages, for a box without an inbox: the URL is that
   of a store of markers, or NULL for no markers either. */
int postern__none_open(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);

/* Copies the options and sets defaults for those that are not set. */
int postern__store_options_complete(const struct postern_store_options *options,
		struct postern_store_options *out, struct postern_error *error);

/* Validates a store's URL and options (may be NULL) as far as that is possible
   without opening the store; it may keep markers only. An option that only
   other kinds have is POSTERN_E_UNSUPPORTED. */
int postern__store_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error);

/* The same for a URL that a person wrote: it is complete, and an error shows
   it, redacted, with the closest valid form. */
int postern__store_url_check(const char *url, struct postern_error *error);

/* Room for the forms of all kinds. */
#define POSTERN__STORE_FORMS_MAX 256

/* The URLs of all kinds: "sqlite:FILE, memory: or …". */
void postern__store_forms(char out[POSTERN__STORE_FORMS_MAX]);

/* The kind's examine(); nothing for a kind that is not shared. */
int postern__store_examine(const char *url,
		const struct postern_store_options *options,
		const struct postern_store_examiner *examiner,
		struct postern_error *error);

/* Writes the SQL that creates the schema of such a store, under its configured
   name; nothing if the store needs no schema. */
int postern__store_schema_write(const char *url,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error);

/* The name of the schema that holds such a store; "" if it has none. */
int postern__store_schema_name(const char *url,
		const struct postern_store_options *options,
		char out[POSTERN_SCHEMA_NAME_MAX], struct postern_error *error);

/* Longest path in a URL of a store, its zero byte included. */
#define POSTERN__STORE_FILE_MAX 4097

/* Copies the file of a store that is a file out of its URL; false for any
   other. */
bool postern__store_file(const char *url, char out[POSTERN__STORE_FILE_MAX]);
/* Where it is in the URL, up to '?'; NULL for any other. */
const char *postern__store_file_at(const char *url);

/*
 * Whether two stores, whose URLs are valid, are the same: NULL if not, else
 * "file" or "schema". Files are compared with all links resolved, whether they
 * exist or not; of other URLs the text is compared, so the same database under
 * another name is not detected.
 */
const char *postern__store_same_place(const char *url,
		const struct postern_store_options *options, const char *other_url,
		const struct postern_store_options *other_options);

/* Sets process-wide options of SQLite, which only the owner of the process may
   choose. Call it before anything else uses SQLite. */
void postern__sqlite_own_process(void);
/* For that process's SIGBUS handler: repairs the indexes of SQLite stores that
   were truncated while they were mapped. Returns whether it repaired one. Makes
   only system calls. */
bool postern__sqlite_repair_indexes(void);
/* The same after accesses that no repair helped: the indexes may have been
   longer than is recorded. Empties all of them and makes them longer. */
void postern__sqlite_grow_indexes(void);

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
