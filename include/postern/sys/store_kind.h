/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_KIND_H
#define POSTERN_SYS_STORE_KIND_H

/*
 * A kind of store: the row that describes its URLs and capabilities, and what
 * can be asked of it without opening a store.
 */

#include <postern/error.h>
#include <postern/sys/store.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called with an open connection of the store's client library (PGconn *),
   inside a read-only transaction. */
typedef int postern_store_look(void *context, void *connection,
		struct postern_error *error);

/* Called for each problem that was found; `code` is that of an error. */
typedef void postern_store_find(void *context, int code, const char *text);

/* The caller that examines a store, and the functions it is called back by. */
struct postern_store_examiner {
	postern_store_look *look;
	postern_store_find *find;
	void *context;
	bool listens; /* also check that notifications of other nodes arrive */
};

struct postern_staging; /* internal */

/* Longest name of a schema, its zero byte included. */
#define POSTERN_SCHEMA_NAME_MAX 64

/*
 * A kind of store: its URLs, what it is capable of, and the functions that need
 * no open store. Whatever differs between stores is in this row or in the
 * store's operations; no other code compares their names. `rest` is always the
 * URL without "scheme:".
 */
struct postern_store_kind {
	const char *name;   /* "postgres"; kinds of the same name differ only in
						   their scheme */
	const char *scheme; /* "postgresql" */
	const char *form;   /* of a URL, for people: "sqlite:FILE" */
	/* The operations of its stores, for what is known without opening one. */
	const struct postern_store_ops *ops;

	bool is_file;    /* `rest` is the path of its file */
	bool is_durable; /* outlives the last process */
	bool is_shared;  /* several processes use it, through a server */
	bool has_schema; /* is in a schema of a database: the option `schema` */
	bool has_connections; /* has the option `connections` */
	bool listens; /* other processes notify this one: the option `listen_url` */
	bool stages;  /* other programs may stage messages in transactions */

	/* The client library and its version; NULL: none. */
	const char *library;
	const char *(*library_version)(void);

	int (*open)(const char *rest, const struct postern_store_options *options,
			struct postern_store **out, struct postern_error *error);
	/* The SQL that creates or upgrades the schema, for people to read; "" if
	   there is none. A static text. */
	const char *(*schema)(void);
	/* Validate the URL and the options without opening anything:
	   POSTERN_E_INVALID. Called before every other function, and only with
	   options that the kind has. */
	int (*check)(const char *rest, const struct postern_store_options *options,
			struct postern_error *error);

	/* What a person should know about a valid URL, a static text; NULL:
	   nothing. The slot may be NULL. */
	const char *(*note)(const char *rest);

	/* With has_schema: the SQL that creates the schema under its configured
	   name, yours to free(); and that name. */
	int (*schema_sql)(const char *rest,
			const struct postern_store_options *options, char **out,
			struct postern_error *error);
	int (*schema_name)(const char *rest,
			const struct postern_store_options *options,
			char out[POSTERN_SCHEMA_NAME_MAX], struct postern_error *error);

	/*
	 * With is_shared: check that the server can keep what the store promises,
	 * as opening does before it writes anything; warnings go to
	 * options->listener. Then `look` is called to make further checks, and
	 * `find` is called for each problem that keeps a store that can be opened
	 * from working: missing rights, also those to create the store, or a
	 * listen_url through which no notification arrives; and, with POSTERN_OK,
	 * for each feature that is not available. The store need not exist, and
	 * nothing is created.
	 */
	int (*examine)(const char *rest,
			const struct postern_store_options *options,
			const struct postern_store_examiner *examiner,
			struct postern_error *error);
	/* With is_shared: break the connection that `look` was called with, from
	   another thread, so that `look` fails soon. */
	void (*end_look)(void *connection);

	/* Stage a message in a transaction of the caller, as postern_publish()
	   says. NULL in kinds without staging. */
	int (*publish)(const struct postern_staging *staging,
			struct postern_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
