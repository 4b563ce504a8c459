/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_POSTGRES_H
#define POSTERN_STORE_POSTGRES_POSTGRES_H

/*
 * Shared by the files of the PostgreSQL store. schema/ documents the tables,
 * and has the functions that do an operation in one round trip.
 *
 * Any number of processes share one database, so nothing is cached here that
 * another process may change. Nothing relies on the state of a session either:
 * a pooler may give every transaction another one.
 *
 * An operation acquires a connection of the pool, does its work, and releases
 * it; postern__pg_do() is the frame of that, and retries operations whose
 * connection was lost. Renewals of the node and its locks have a connection of
 * their own, see postern__pg_do_tenure().
 */

#include <libpq-fe.h>
#include <postern/sys/memory.h>
#include <postern/sys/store_kind.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/identity.h"
#include "store/store.h"

struct pg_store;
struct postern__mark_keys;

/* pool.c: connections. */

/* How long a statement may run after it was cancelled, before the connection is
   closed. */
#define PG_CANCEL_MS INT64_C(2000)
#define PG_CONNECTION_MAX 64
/* After this time without a byte in either direction the session of a
   connection is checked, see silence.c. */
#define PG_SILENCE_MS INT64_C(3000)

/* Five characters and a zero byte. */
#define PG_SQLSTATE_SIZE 6

struct pg_connection {
	struct pg_store *store;
	PGconn *link; /* NULL: not connected */
	bool in_use;
	bool lost;      /* it cannot be used any more */
	bool refused;   /* the server refused it; only people can fix the cause */
	bool collided;  /* with another transaction; a retry may succeed */
	bool internal;  /* the cause of the last error was in the server, not in the
					   data */
	uint64_t epoch; /* changes with every connect */
	/* Monotonic: waiting for a result ends here; 0: after the command timeout.
	 */
	int64_t until_ms;
	/* The start of its session, in microseconds of the server's clock; 0: not
	   known, because there is a pooler. */
	int64_t session_start;
	/* There is no pooler: prepared statements stay. Whether the store's own are
	   prepared, those of pipelines and that of apply. names_epoch changes when
	   all are deallocated. */
	bool direct;
	bool own_named;
	bool apply_named;
	uint64_t names_epoch;
	/* While a handler uses it: the last SQLSTATE that the server returned and
	   its text, and the epoch in which that is recorded. */
	char sqlstate[PG_SQLSTATE_SIZE];
	char error_text[POSTERN_ERROR_TEXT_MAX];
	uint64_t watched_epoch;
	/* Buffers of the query that is being built. */
	struct postern__buf bytes;
	struct postern__buf text;
};

/* The work of an operation on a connection. `again`: an earlier try was begun,
   and may have taken effect. */
typedef int pg_work(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error);

/* Acquire a connection, do the work, release it. If there is no connection, or
   it was lost, or another transaction collided, the work is retried up to
   command_retries times; so it must be idempotent. */
int postern__pg_do(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error);
/* The same without retries. */
int postern__pg_do_once(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error);

/* For renewals: on a connection that nothing else uses, with a limit of a third
   of the term, but at least 2 s; term_ms 0: the term of the last call. If the
   connection does not respond in half of that time it is replaced. `ends`: the
   work ends the node; the limit is twice as long, at least 10 s, and there is
   one try. */
int postern__pg_do_tenure(struct pg_store *self, int64_t term_ms, bool ends,
		pg_work *work, void *context, struct postern_error *error);
/* Do the work on a connection that was lost and is still acquired: it is
   reconnected, so that an operation never waits for a second connection. */
int postern__pg_do_here(struct pg_connection *connection, pg_work *work,
		void *context, struct postern_error *error);

int postern__pg_acquire(struct pg_store *self, struct pg_connection **out,
		struct postern_error *error);
void postern__pg_release(struct pg_connection *connection);
/* All prepared statements were deallocated. */
void postern__pg_forget_names(struct pg_connection *connection);
/* Compare the backend pid that a session reports with the one that was reported
   on connecting, to detect a pooler, which reports one of its own. */
void postern__pg_note_session(struct pg_connection *connection, int64_t number);
void postern__pg_pool_init(struct pg_store *self);
void postern__pg_pool_finish(struct pg_store *self);

/* connection.c: one connection. */

/* Sets until_ms to the end of connect_timeout, if that is sooner: the first
   statements, which check the server, belong to connecting. The caller resets
   it. */
int postern__pg_connect(struct pg_connection *connection,
		struct postern_error *error);
/* Restore the settings of libpq that a handler may have changed. */
void postern__pg_link_reset(struct pg_connection *connection);
/* Where the connection leads, for messages; without secrets. */
const char *postern__pg_place(const struct pg_connection *connection);
void postern__pg_disconnect(struct pg_connection *connection);
/* Report the error of the result or of the connection, without secrets. */
int postern__pg_fail(struct pg_connection *connection, const PGresult *result,
		struct postern_error *error);
/* Close the connection, for tests that lose it at a crash point. */
int postern__pg_cut(struct pg_connection *connection,
		struct postern_error *error);
/* Wait for the result of what was sent, no longer than the command timeout; of
   several results it returns the last. */
int postern__pg_await(struct pg_connection *connection, PGresult **out,
		struct postern_error *error);
/* The same for a pipeline of at most `count` statements, no longer than
   patience_ms: returns the result of the statement with this index, or of the
   first that failed. */
int postern__pg_await_pipe(struct pg_connection *connection, size_t count,
		size_t index, int64_t patience_ms, PGresult **out,
		struct postern_error *error);
/* Flush the statements of a pipeline, reading results meanwhile. */
int postern__pg_pipe_flush(struct pg_connection *connection,
		struct postern_error *error);

/* silence.c: connections that do not respond. */

/* Distinguishes a session from a later one with the same pid. */
#define PG_SESSION_START "(extract(epoch FROM backend_start) * 1000000)::bigint"

/* What the server reports about the session of a connection. */
enum pg_session {
	PG_SESSION_UNKNOWN,  /* the server could not be asked */
	PG_SESSION_WORKING,  /* the statement is slow */
	PG_SESSION_SILENT,   /* no result will arrive; the session was terminated */
	PG_SESSION_NOT_ASKED /* enough other threads are asking; ask again soon */
};
enum pg_session postern__pg_ask_session(struct pg_connection *connection);
/* The connection is closed in a transaction without a time limit: the server
   may not notice, and would keep its locks, so its session is terminated. */
void postern__pg_end_session(struct pg_connection *connection);

/* query.c: statements and their parameters. */

#define PG_PARAMETER_MAX 56

/* The types of parameters, by their OIDs. */
enum pg_type {
	PG_BOOL = 16,
	PG_BYTEA = 17,
	PG_INT8 = 20,
	PG_INT2 = 21,
	PG_INT4 = 23,
	PG_TEXT = 25,
	PG_UUID = 2950
};

/*
 * One statement:
 *
 *   postern__pg_query(&query, connection);
 *   postern__pg_int8(&query, seq);
 *   postern__pg_array(&query, PG_TEXT);
 *   postern__pg_text(&query, "…");    an item, as long as the array is open
 *   postern__pg_array_end(&query);
 *   r = postern__pg_run(&query, "SELECT … FROM @open WHERE seq = $1", error);
 *   for (int row = 0; r == POSTERN_OK && row < postern__pg_rows(&query); …)
 *   postern__pg_end(&query);
 *
 * In the text, @ is the schema. Parameters and results are binary. If memory
 * runs out, run() reports it.
 */
struct pg_query {
	struct pg_connection *connection;
	PGresult *result;
	int count;
	Oid types[PG_PARAMETER_MAX];
	size_t starts[PG_PARAMETER_MAX];
	int lengths[PG_PARAMETER_MAX]; /* -1: NULL */
	size_t array;                  /* the offset of its header */
	uint32_t items;
	bool in_array;
	bool has_null;
};

void postern__pg_query(struct pg_query *query,
		struct pg_connection *connection);
void postern__pg_bool(struct pg_query *query, bool value);
void postern__pg_int2(struct pg_query *query, int16_t value);
void postern__pg_int4(struct pg_query *query, int64_t value);
void postern__pg_int8(struct pg_query *query, int64_t value);
/* A NULL pointer is SQL's NULL. */
void postern__pg_text(struct pg_query *query, const char *text);
void postern__pg_bytes(struct pg_query *query, const void *bytes, size_t len);
void postern__pg_uuid(struct pg_query *query, const uint8_t bytes[16]);
void postern__pg_null(struct pg_query *query, enum pg_type type);
void postern__pg_array(struct pg_query *query, enum pg_type type);
void postern__pg_array_end(struct pg_query *query);
void postern__pg_null_array(struct pg_query *query, enum pg_type type);
/* The group of an error; 0 is NULL. */
void postern__pg_group(struct pg_query *query, uint64_t group);

int postern__pg_run(struct pg_query *query, const char *sql,
		struct postern_error *error);
/* The same for a statement that runs all the time: it is prepared under a name,
   so that it is parsed once. `named`: whether it is prepared on this
   connection; reset with all prepared statements. */
int postern__pg_run_named(struct pg_query *query, const char *name,
		const char *sql, bool *named, struct postern_error *error);
/*
 * Several statements in one round trip: begin, add each, end. Statements after
 * one that fails are not executed. `r`: the result of adding them; the query
 * gets the result of the statement with this index, of at most `count`, or of
 * the first that failed.
 */
int postern__pg_pipe_begin(struct pg_connection *connection,
		struct postern_error *error);
int postern__pg_pipe(struct pg_query *query, const char *sql,
		struct postern_error *error);
int postern__pg_pipe_text(struct pg_connection *connection, const char *sql,
		struct postern_error *error);
/* Prepare a statement, and add a prepared one. */
int postern__pg_pipe_prepare(struct pg_connection *connection, const char *name,
		const char *sql, struct postern_error *error);
int postern__pg_pipe_named(struct pg_query *query, const char *name,
		struct postern_error *error);
int postern__pg_pipe_end(struct pg_query *query, size_t count, size_t index,
		int64_t patience_ms, int r, struct postern_error *error);
/*
 * One statement, with others before and after it that have neither parameters
 * nor results, all in one round trip. Lists end with NULL. Statements after one
 * that fails are not executed.
 */
int postern__pg_run_between(struct pg_query *query, const char *const *before,
		const char *sql, const char *const *after, struct postern_error *error);
void postern__pg_end(struct pg_query *query);
/* A statement without parameters and without a result. */
int postern__pg_exec(struct pg_connection *connection, const char *sql,
		struct postern_error *error);
/* Several statements in one text. */
int postern__pg_script(struct pg_connection *connection, const char *sql,
		struct postern_error *error);
/* Returns the number of rows that the statement changed. */
int64_t postern__pg_changes(const struct pg_query *query);

int postern__pg_rows(const struct pg_query *query);
bool postern__pg_is_null(const struct pg_query *query, int row, int column);
/* Any integer type, or bool; returns 0 for NULL. */
int64_t postern__pg_get(const struct pg_query *query, int row, int column);
/* Copies the text; *out is NULL for NULL. Returns false if out of memory. */
bool postern__pg_get_text(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, const char **out);
/* Valid until the end of the query. */
const void *postern__pg_get_bytes(const struct pg_query *query, int row,
		int column, size_t *len_out);

/* An array in a result, item by item; integers and bools only. */
struct pg_items {
	const uint8_t *at;
	const uint8_t *end;
	size_t left;
};
/* No items for NULL. */
void postern__pg_items(const struct pg_query *query, int row, int column,
		struct pg_items *out);
bool postern__pg_next(struct pg_items *items, int64_t *out);

/* transaction.c: more than one statement. */

/* The server ends the session if it is idle for the command timeout, so that a
   process that stops in a transaction does not block others for long. */
int postern__pg_begin(struct pg_connection *connection,
		struct postern_error *error);
/* The same without that timeout, for handlers, which may run long; see
   begin_units_1. */
#define PG_BEGIN_UNITS "BEGIN ISOLATION LEVEL READ COMMITTED"
/* A read-only transaction in which all statements see one snapshot. */
int postern__pg_begin_read(struct pg_connection *connection,
		struct postern_error *error);
/* The same for changes that are not in a function: returns the time, and limits
   waiting for a row to the lock timeout. */
int postern__pg_begin_change(struct pg_connection *connection, int64_t *now_out,
		struct postern_error *error);
/* Commit if r is POSTERN_OK, else roll back and return r. */
int postern__pg_finish(struct pg_connection *connection, int r,
		struct postern_error *error);
/* The same for a transaction whose id is known: if the response to COMMIT is
   lost, the store waits until the database reports the status of the
   transaction. `confirm` reads whether its rows exist: POSTERN_E_STALE if not.
   */
int postern__pg_finish_known(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, int r, struct postern_error *error);

/* The store. */

struct pg_lease {
	int64_t seq;
	int64_t handler;
	uint64_t fence;
};

struct pg_uncertain_lease {
	struct pg_lease lease;
	bool claimed; /* by a claim, not by the batch that accepted it */
};

/* Leases that a node may have, see uncertain.c. */
struct pg_uncertain {
	uint64_t node;
	uint64_t noted; /* the order of the last additions; higher is later */
	struct pg_uncertain_lease *items;
	size_t count;
	size_t cap;
	bool claimed; /* some are of claims */
};
/* A process gets a new node id when its node has expired, and batches of a few
   former nodes may still be running. */
#define PG_UNCERTAIN_NODE_MAX 8

/* A handler that is running, see transact.c. */
struct pg_active {
	struct pg_active *next;
	struct pg_connection *connection;
	const void *context; /* of the unit */
	bool interrupted;
};
struct pg_actives {
	pthread_mutex_t mutex;
	pthread_cond_t ended;
	struct pg_active *first;
};

/* Whether the units of some handlers are worth a pipeline, see ahead.c. */
struct pg_pace {
	uint32_t penalty;
	uint32_t skip_count; /* transactions until the next try */
};
#define PG_PACE_COUNT 16

/* The due time up to which a handler's deliveries were claimed, see claim.c. */
struct pg_mark {
	int64_t handler;
	int64_t due_at;
	int64_t until_ms; /* monotonic: then the claim starts from the beginning */
};
#define PG_MARK_COUNT 64

/* When this process first read the last renewal of a node or a lock, see
   sightings.c. */
struct pg_sighting {
	uint64_t key;       /* the node, or postern__pg_lock_key() */
	int64_t renewed_at; /* by the database's clock */
	int64_t since_ms;   /* monotonic */
	int64_t term_ms;
	uint64_t look; /* the last pass in which it was read */
};
struct pg_sightings {
	struct pg_sighting *items;
	size_t count;
	size_t cap;
	uint64_t look;
};

struct pg_store {
	struct postern_store base;
	struct postern_markers markers;
	const struct postern_clock
			*clock; /* for timeouts, never for the store's times */
	const struct postern_random *random;
	/* NULL: the database's clock; tests set their own */
	const struct postern_clock *test_clock;
	int64_t command_timeout_ms;
	int64_t lock_timeout_ms;
	int64_t silence_ms; /* PG_SILENCE_MS */
	uint32_t command_retries;
	bool read_only;

	char *conninfo;        /* contains the password */
	char *place;           /* host, port and database, for messages */
	char *listen_conninfo; /* the same for listening; NULL: conninfo */
	char *listen_place;
	char *schema; /* quoted, with a dot behind it */
	char schema_name[POSTERN_SCHEMA_NAME_MAX];
	uint8_t hash_key[POSTERN__SIPHASH_KEY_LEN];

	struct pg_actives active;

	/* The connection that listens, see listen.c. */
	struct pg_connection listener;
	int stop_fd; /* an eventfd that ends postern__pg_wait() */

	pthread_mutex_t mutex; /* protects all below */
	pthread_cond_t released;
	struct pg_connection connections[PG_CONNECTION_MAX];
	size_t connection_max;
	/* Used by postern__pg_do_tenure() only; the condition signals that it is
	   free. */
	struct pg_connection renewal;
	pthread_cond_t renewal_free;
	int64_t term_ms; /* of the last call; 0: none */
	size_t asking;   /* threads that ask about a session, see silence.c */
	/* After connecting failed: when to try again, and the error. */
	int64_t connect_at_ms;
	uint32_t connect_failures;
	bool connect_refused;
	struct postern_error connect_error;
	uint64_t epoch;
	int64_t next_seq; /* of this process, up to seq_end */
	int64_t seq_end;
	int64_t seq_until_ms; /* then a new block is allocated, to keep the order */
	/* Known enrolled channels (their first names) and handlers, by id. */
	char **channels;
	size_t channel_count;
	bool *handlers;
	size_t handler_count;
	struct pg_uncertain uncertain[PG_UNCERTAIN_NODE_MAX];
	uint64_t uncertain_last; /* the highest `noted` */
	int64_t round;           /* in which batches are sent, see uncertain.c */
	struct pg_pace paces[PG_PACE_COUNT]; /* by handler id */
	struct pg_mark marks[PG_MARK_COUNT]; /* by handler id */
	size_t unvacuumed;        /* messages collected since the last vacuum, see
								 collect.c */
	int64_t left_reported_ms; /* monotonic: when a message that stays staged was
								 reported */
	pthread_mutex_t return_mutex; /* held while uncertain leases are returned;
									 locked before `mutex` */
	struct pg_sightings sightings;
	int64_t node_lease_ms; /* of the node that enrolled last; 0: none */
	/* Recoveries so far, up to 3, and whether one has read all leases; see
	   recover.c. */
	unsigned recoveries;
	bool scanned_all;
	/* The lock under which all leases were read, see recover.c. */
	char scanned_lock[POSTERN_LOCK_NAME_LEN_MAX + 1];
	uint64_t scanned_fence;
	int64_t now_max_ms; /* the latest time of the database's clock */
	bool warned;        /* that the server may lose committed data */
};

struct pg_store *postern__pg_from_base(struct postern_store *store);
int postern__pg_no_memory(struct postern_error *error);
/* Add the time: NULL, which means the database's own, or a test's. */
void postern__pg_now(struct pg_query *query);
/* Add a node id; add a lock: its name and its fence, or two NULLs. */
void postern__pg_node(struct pg_query *query, uint64_t node);
void postern__pg_lock_of(struct pg_query *query,
		const struct postern_lock *lock);
int postern__pg_lost_lock(const struct postern_lock *lock,
		struct postern_error *error);

/* directory.c: enrolled channels and handlers. */

int postern__pg_note_channel(struct pg_store *self, int64_t id,
		const char *name, struct postern_error *error);
int postern__pg_note_handler(struct pg_store *self, int64_t id,
		struct postern_error *error);
/* Returns NULL if it is unknown. Valid as long as the store. */
const char *postern__pg_channel(struct pg_store *self, int64_t id);
bool postern__pg_handler(struct pg_store *self, int64_t id);
/* Load what other processes have enrolled. */
int postern__pg_directory_load(struct pg_connection *connection,
		struct postern_error *error);
void postern__pg_directory_finish(struct pg_store *self);

/* uncertain.c: leases that this node may have. */

/* `claimed`: by a claim, not by the batch that accepted them. */
void postern__pg_note_uncertain_leases(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed);
/* The node has expired: recovery makes its deliveries pending. */
void postern__pg_forget_uncertain_leases(struct pg_store *self, uint64_t node);
/* The round in which a batch is sent. */
int64_t postern__pg_round(struct pg_store *self);
/* Return the node's uncertain leases. `only_claimed`: only if some are of
   claims, and without waiting for batches. */
int postern__pg_return_uncertain_leases(struct pg_connection *connection,
		uint64_t node, bool only_claimed, struct postern_error *error);

/* sightings.c: how long other nodes have not renewed their leases. */

/* Note that a node or a lock was renewed at this time of the database for
   term_ms. */
void postern__pg_saw_renewal(struct pg_store *self, uint64_t key,
		int64_t renewed_at, int64_t term_ms);
/* Whether this process first read the last renewal at least its term ago;
   returns the time of that renewal. */
bool postern__pg_is_silent(struct pg_store *self, uint64_t key,
		int64_t *renewed_at_out);
uint64_t postern__pg_lock_key(const struct pg_store *self, const char *name);
/* Read which nodes have renewed their leases. */
int postern__pg_watch_nodes(struct pg_connection *connection, uint64_t node,
		struct postern_error *error);
/* The same, and expire nodes that did not renew for their term. *lost_out: such
   nodes have leases to recover. POSTERN_E_BUSY: another node is doing it. */
int postern__pg_expire_nodes(struct pg_connection *connection, uint64_t node,
		bool *lost_out, struct postern_error *error);

/* clock.c: the database's clock. */

/* Note a time that the database returned. */
void postern__pg_saw(struct pg_store *self, int64_t now);
/* Returns the latest of them. */
int64_t postern__pg_latest(struct pg_store *self);
/* All pending deliveries were checked at this time. */
void postern__pg_set_latest(struct pg_store *self, int64_t now);
/* Make deliveries due at once that are pending since a time after now. */
int postern__pg_clock_repair(struct pg_connection *connection,
		struct postern_error *error);

/* url.c: the URL and the options of a store. */

/* To be finished, also after a failure. */
int postern__pg_parse(struct pg_store *self, const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);
void postern__pg_parse_finish(struct pg_store *self);
/* Validates without opening the store. */
int postern__pg_schema_sql(const char *rest,
		const struct postern_store_options *options, char **out,
		struct postern_error *error);
int postern__pg_schema_name(const char *rest,
		const struct postern_store_options *options,
		char out[POSTERN_SCHEMA_NAME_MAX], struct postern_error *error);
int postern__pg_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);

/* schema.c: tables and functions. */

/* Generated from schema/ by the build. */
extern const char postern__pg_schema[];
/* What people who run the script by hand run after it. */
extern const char postern__pg_schema_tail[];
/* Both for people, with the default name of the schema. */
extern const char postern__pg_schema_text[];
/* Creates or replaces the functions. */
extern const char postern__pg_functions[];
/* postern__pg_upgrades[i] changes the tables of version i + 1 to those of
   version i + 2. */
extern const char *const postern__pg_upgrades[];
extern const size_t postern__pg_upgrade_count;

/* Whether the class c of the catalogue is the table meta of a store. */
#define PG_IS_META                                          \
	" c.relname = 'meta' AND c.relkind = 'r' AND 2 = ("     \
	"SELECT count(*) FROM pg_attribute a"                   \
	" WHERE a.attrelid = c.oid AND (a.attname, a.atttypid)" \
	" IN (('name', 'text'::regtype), ('value', 'bytea'::regtype)))"

/* A subquery: the channels of nodes that are live at $1. */
#define PG_SERVED_CHANNELS                         \
	"(SELECT nc.channel FROM @node_channel nc"     \
	" JOIN @node_term live ON live.node = nc.node" \
	" WHERE live.lives_until IS NULL"              \
	" OR live.lives_until > coalesce($1, @now_ms()))"

/* must_exist: POSTERN_E_NOTFOUND if there are no tables. no_migrate:
   POSTERN_E_UNSUPPORTED if they have an older version. */
int postern__pg_migrate(struct pg_store *self, bool must_exist, bool no_migrate,
		struct postern_error *error);

/* channels.c: names and retention of channels. */

int postern__pg_enrol_channel(struct pg_connection *connection,
		struct postern_enrol_channel *channel, struct postern_error *error);
int postern__pg_keep_rules(struct postern_store *store,
		struct postern_kept_rule *rules, size_t count,
		struct postern_memory *memory, struct postern_error *error);
int postern__pg_read_retention(struct postern_store *store,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error);

/* upgrade.c: the schema of an older version. */

/* Upgrade it to the newest one, in the transaction of the connection. */
int postern__pg_upgrade(struct pg_connection *connection, int64_t version,
		struct postern_error *error);

/* examine.c: checks of the server. */

/* Refuses a server on which a store would not be durable. */
int postern__pg_check_server(struct pg_connection *connection,
		struct postern_error *error);

/* Report to a struct postern_store_examiner which privileges of a node the
   user lacks, if the tables exist. */
int postern__pg_check_rights(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* The same for creating the tables, if they do not exist; and names in the
   schema that other objects have. */
int postern__pg_may_create(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* POSTERN_E_UNSUPPORTED, with the names, if the schema is not a store's and has
   objects with names that a store would use. */
int postern__pg_check_names(struct pg_connection *connection,
		struct postern_error *error);

/* Lend the connection to a struct postern_store_examiner. */
int postern__pg_lend_connection(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* message.c: messages. */

/* A key in seen, in the scope 0. */
struct pg_key {
	int64_t words[3];
};

void postern__pg_key(const struct pg_store *self, int64_t channel,
		const struct postern_dedupe_key *key, struct pg_key *out);
/* The first word of the key of an id. */
int64_t postern__pg_id_word(const struct pg_store *self, const char *id);
/* Allocates ascending numbers for new messages. */
int postern__pg_allocate_seqs(struct pg_connection *connection, size_t count,
		int64_t *out, struct postern_error *error);

/* The columns that postern__pg_message_read() reads, in a FROM with m and c. */
#define PG_MESSAGE_COLUMNS                                                \
	"m.id, coalesce(m.source, c.first_name, c.name), m.type, m.subject, " \
	"m.time,"                                                             \
	" m.content_type, m.correlation_id, m.traceparent, m.transport,"      \
	" m.headers, m.body, m.received_at"
#define PG_MESSAGE_COLUMN_COUNT 12
int postern__pg_message_read(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error);

/* listing.c */

/* Text that is not UTF-8 cannot be in the database, and the server refuses it
   as a parameter. NULL is valid. */
bool postern__pg_is_text(const char *text);

/* tally.c: counters. */

/* Replace appended counts by their sums, a limited number of them. */
int postern__pg_fold_tallies(struct pg_connection *connection,
		struct postern_error *error);

/* apply.c: in a transaction that the caller has begun. */

int postern__pg_apply_within(struct pg_connection *connection,
		struct postern_batch *batch, struct postern_error *error);

/* ahead.c: units whose statements are sent in one pipeline. */

/* Whether all units allow it, and a pipeline is worth a try. */
bool postern__pg_may_send_ahead(struct pg_store *self,
		const struct postern_unit *units, size_t count);
/* Runs all units in one pipeline. POSTERN_E_BUSY: nothing was done, and each
   unit is to be run by itself. */
int postern__pg_send_ahead(struct pg_store *self, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error);

/* transact.c: confirms a COMMIT, for postern__pg_finish_known(). The context is
   a struct pg_units. */

struct pg_units {
	struct postern_unit *units;
	size_t count;
};
pg_work postern__pg_confirm_units;

/* node_stats.c: nodes and locks, in the caller's read transaction. */

int postern__pg_node_stats(struct pg_connection *connection,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error);

/* The operations, each in the file of its name. */

int postern__pg_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error);
int postern__pg_apply(struct postern_store *store, struct postern_batch *batch,
		struct postern_error *error);
int postern__pg_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error);
int postern__pg_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error);
void postern__pg_interrupt(struct postern_store *store, const void *context);
/* Asks the server to cancel the running statement. */
void postern__pg_cancel(const struct pg_connection *connection);
int postern__pg_recover(struct postern_store *store,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error);
int postern__pg_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error);
int postern__pg_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error);
int postern__pg_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error);
/* reserve.c */
int postern__pg_reserve(struct postern_store *store,
		struct postern_reservation *reservation, struct postern_error *error);
int postern__pg_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error);
int postern__pg_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error);
/* Changes of a handler and of a channel; context: the struct postern_edit. */
int postern__pg_edit_handler(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);
int postern__pg_edit_channel(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);
/* The halt in a row, from this column on: whether, since when, until when (0:
   no end), reason, author. Without a memory, without the texts. Returns false
   if out of memory. */
bool postern__pg_halt(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, struct postern_halt *out);
int postern__pg_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error);
int postern__pg_get_detail(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error);
int postern__pg_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error);
int postern__pg_stranded(struct postern_store *store, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error);
int postern__pg_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error);
int postern__pg_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error);
int postern__pg_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error);
int postern__pg_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node,
		struct postern_error *error);
int postern__pg_engage(struct postern_store *store, uint64_t node,
		const char *lock_name, struct postern_error *error);
/* Tests whether LISTEN works, without needing the tables. */
int postern__pg_try_listen(struct pg_store *self, struct postern_error *error);
int postern__pg_wait(struct postern_store *store, int64_t ms, bool *woken_out,
		struct postern_error *error);
void postern__pg_end_wait(struct postern_store *store);
int postern__pg_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error);
int postern__pg_groups(struct postern_store *store,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error);
int postern__pg_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error);

/* marker.c: markers. */

void postern__pg_markers_init(struct pg_store *self);
/* The marker as two parameters: an array of handlers' hashes, and one of keys.
 */
void postern__pg_mark(struct pg_query *query, const struct postern_mark *mark);
/* The same in C, in the order in which the database locks them. */
void postern__pg_mark_keys(const struct pg_store *self,
		const struct postern_mark *mark, struct postern__mark_keys *out);
/* The hash of the handler in a key, as the database has it. */
int64_t postern__pg_mark_handler(const uint8_t *key);
struct pg_store *postern__pg_from_markers(struct postern_markers *markers);
/* marker_take.c: postern_marker_ops.take(). */
int postern__pg_mark_take(struct postern_markers *markers, void *transaction,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		enum postern_mark_state *before_out, struct postern_error *error);

#endif
