/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_POSTGRES_H
#define POSTERN_STORE_POSTGRES_POSTGRES_H

/*
 * What the files of the PostgreSQL store share. schema/ says what is kept
 * where, and has the functions that do an operation in one round trip.
 *
 * Any number of processes share one database, so nothing is remembered here
 * that another may change. Nothing relies on the state of a session either: a
 * pooler may give every transaction another one.
 *
 * An operation takes a connection of the pool, does its work, and gives it
 * back; postern__pg_do() is the frame of that, and repeats what failed because
 * the connection was lost. Renewing the node, and its locks, have a connection
 * of their own, see postern__pg_do_tenure().
 */

#include <libpq-fe.h>
#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/siphash.h"
#include "store/store.h"

struct pg_store;

/* pool.c: connections. */

/* How long a statement may take to end after it was cancelled, before the line
   is cut. */
#define PG_CANCEL_MS INT64_C(2000)
#define PG_CONNECTION_MAX 64
/* A connection on which nothing has moved for so long is looked at, see
   silence.c. */
#define PG_SILENCE_MS INT64_C(3000)

struct pg_connection {
	struct pg_store *store;
	PGconn *link; /* NULL: not connected */
	bool taken;
	bool lost;      /* it cannot be used any more */
	bool hopeless;  /* it was refused in a way that only people can mend */
	bool collided;  /* with another transaction; it is worth a second try */
	bool internal;  /* the last failure was the server's, not of the data */
	uint64_t epoch; /* changes when it is connected again */
	/* Monotonic: no answer is waited for longer than this; 0: as long as a
	   command may take. */
	int64_t until_ms;
	/* Its session on the server, in microseconds of the server's clock; 0:
	   not known, because there is a pooler between. */
	int64_t session_start;
	/* No pooler is between: what is named on the server stays. Since when:
	   changes when the names are gone. And whether ours are among them, those
	   of transactions and that of apply. */
	bool direct;
	bool named;
	bool apply_named;
	uint64_t names;
	/* While handlers have it: the last SQLSTATE that anybody was told, what
	   was said, and the epoch since when that is watched. */
	char state[6];
	char said[POSTERN_ERROR_TEXT_MAX];
	uint64_t watched;
	/* Scratch of the query that is being made. */
	struct postern__buf bytes;
	struct postern__buf text;
};

/* What an operation does with a connection. `again`: it was begun before, and
   whether that took effect is not known. */
typedef int pg_work(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error);

/* Take a connection, work, give it back. What fails for want of a connection,
   or in a collision with another transaction, is tried again, command_retries
   times; so the work must come to the same if it was done before. */
int postern__pg_do(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error);
/* The same for what must not be tried again. */
int postern__pg_do_once(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error);

/* For what keeps the node alive: on a connection that nothing else uses, and no
   longer than a third of the term, but at least 2 s; 0: the term of the last
   call. If the connection does not answer in half of that time it is replaced.
   `ends`: what ends the node, twice as long, at least 10 s, and in one try. */
int postern__pg_do_tenure(struct pg_store *self, int64_t term_ms, bool ends,
		pg_work *work, void *context, struct postern_error *error);
/* Work on a connection that was lost and is still taken: it is connected anew.
   Whoever has lost one does not wait for another. */
int postern__pg_do_here(struct pg_connection *connection, pg_work *work,
		void *context, struct postern_error *error);

int postern__pg_take(struct pg_store *self, struct pg_connection **out,
		struct postern_error *error);
void postern__pg_give(struct pg_connection *connection);
/* All names on the server are gone. */
void postern__pg_forget_names(struct pg_connection *connection);
/* What a session says of its number: whether it is the one that we were told
   when we connected. A pooler tells one of its own. */
void postern__pg_saw_session(struct pg_connection *connection, int64_t number);
void postern__pg_pool_init(struct pg_store *self);
void postern__pg_pool_finish(struct pg_store *self);

/* connection.c: one connection. */

/* Sets until_ms to when connect_timeout is over, if that is sooner: the first
   statements, which ask who answers, belong to connecting. Reset it then. */
int postern__pg_connect(struct pg_connection *connection,
		struct postern_error *error);
/* What libpq itself was told of the connection, as we have it. */
void postern__pg_link_reset(struct pg_connection *connection);
/* Where it leads, in words that hold no secret. */
const char *postern__pg_place(const struct pg_connection *connection);
void postern__pg_disconnect(struct pg_connection *connection);
/* Say what the server or the connection says, without secrets. */
int postern__pg_fail(struct pg_connection *connection, const PGresult *result,
		struct postern_error *error);
/* Cut the line, as a test wants it at some point. */
int postern__pg_cut(struct pg_connection *connection,
		struct postern_error *error);
/* Wait for the answer to what was sent, no longer than the command timeout;
   of several the last. */
int postern__pg_await(struct pg_connection *connection, PGresult **out,
		struct postern_error *error);
/* The same for a pipeline of at most `count` statements, and no longer than
   this: the answer to the one with this index, or to the first that failed. */
int postern__pg_await_pipe(struct pg_connection *connection, size_t count,
		size_t index, int64_t patience_ms, PGresult **out,
		struct postern_error *error);
/* Send what was put into a pipeline, reading what comes meanwhile. */
int postern__pg_push(struct pg_connection *connection,
		struct postern_error *error);

/* silence.c: connections that do not answer. */

/* What tells a session from a later one with the same number. */
#define PG_SESSION_START "(extract(epoch FROM backend_start) * 1000000)::bigint"

/* What the server reports of the session of a connection. */
enum pg_session {
	PG_SESSION_UNKNOWN,  /* it cannot be asked for */
	PG_SESSION_WORKING,  /* the answer takes its time */
	PG_SESSION_SILENT,   /* no answer will arrive; the session is ended */
	PG_SESSION_NOT_ASKED /* enough others are asking; try again soon */
};
enum pg_session postern__pg_ask_session(struct pg_connection *connection);
/* The connection is given up in a transaction without a time limit: the server
   may not notice, and would keep what is locked. */
void postern__pg_end_session(struct pg_connection *connection);

/* query.c: statements and their parameters. */

#define PG_PARAMETER_MAX 48

/* The types that are sent, by their numbers in the catalogue. */
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
 * In the text, @ is the schema. Parameters and results are binary. What does
 * not fit in memory is told by run().
 */
struct pg_query {
	struct pg_connection *connection;
	PGresult *result;
	int count;
	Oid types[PG_PARAMETER_MAX];
	size_t starts[PG_PARAMETER_MAX];
	int lengths[PG_PARAMETER_MAX]; /* -1: NULL */
	size_t array;                  /* where its header is */
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
/* NULL is NULL. */
void postern__pg_text(struct pg_query *query, const char *text);
void postern__pg_bytes(struct pg_query *query, const void *bytes, size_t len);
void postern__pg_uuid(struct pg_query *query, const uint8_t bytes[16]);
void postern__pg_null(struct pg_query *query, enum pg_type type);
void postern__pg_array(struct pg_query *query, enum pg_type type);
void postern__pg_array_end(struct pg_query *query);
void postern__pg_null_array(struct pg_query *query, enum pg_type type);

int postern__pg_run(struct pg_query *query, const char *sql,
		struct postern_error *error);
/* The same for what runs all the time: under a name on the server, so that it
   is parsed once. `named`: whether this connection has it; forgotten with all
   names. */
int postern__pg_run_named(struct pg_query *query, const char *name,
		const char *sql, bool *named, struct postern_error *error);
/*
 * Several in one round trip: begin, put each into the pipe, end. What comes
 * after one that fails is not done. `r`: what came of it so far; the query gets
 * the answer to the one with this index, of at most `count`, or to the first
 * that failed.
 */
int postern__pg_pipe_begin(struct pg_connection *connection,
		struct postern_error *error);
int postern__pg_pipe(struct pg_query *query, const char *sql,
		struct postern_error *error);
int postern__pg_pipe_text(struct pg_connection *connection, const char *sql,
		struct postern_error *error);
/* Name a statement, and put what is named into the pipe. */
int postern__pg_pipe_prepare(struct pg_connection *connection, const char *name,
		const char *sql, struct postern_error *error);
int postern__pg_pipe_named(struct pg_query *query, const char *name,
		struct postern_error *error);
int postern__pg_pipe_end(struct pg_query *query, size_t count, size_t index,
		int64_t patience_ms, int r, struct postern_error *error);
/*
 * The same with statements before and after it that have neither parameters
 * nor results, all in one round trip. Lists end with NULL. What comes after a
 * statement that fails is not done.
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
/* How many rows the statement changed. */
int64_t postern__pg_changes(const struct pg_query *query);

int postern__pg_rows(const struct pg_query *query);
bool postern__pg_is_null(const struct pg_query *query, int row, int column);
/* Of any integer type, and of bool; 0 if it is NULL. */
int64_t postern__pg_get(const struct pg_query *query, int row, int column);
/* Copies; *out is NULL if it is NULL. False: no memory. */
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
/* None if it is NULL. */
void postern__pg_items(const struct pg_query *query, int row, int column,
		struct pg_items *out);
bool postern__pg_next(struct pg_items *items, int64_t *out);

/* transaction.c: more than one statement. */

/* A process that stops in the middle of it does not hold others up for long:
   the server ends what nothing is heard of for the command timeout. */
int postern__pg_begin(struct pg_connection *connection,
		struct postern_error *error);
/* The same for handlers, which take their time; see begin_units_1. */
int postern__pg_begin_units(struct pg_connection *connection,
		struct postern_error *error);
/* The same for looking: all of it sees one state of the database. */
int postern__pg_begin_look(struct pg_connection *connection,
		struct postern_error *error);
/* The same for changes that are not in a function: how late it is, and no row
   is waited for longer than the lock timeout. */
int postern__pg_begin_change(struct pg_connection *connection, int64_t *now_out,
		struct postern_error *error);
/* Commit if r is POSTERN_OK, else roll back and pass r on. */
int postern__pg_finish(struct pg_connection *connection, int r,
		struct postern_error *error);
/* The same for a transaction whose number is known: if the answer to COMMIT is
   lost, the database is asked what became of it, and waited for. `look` says
   whether what it wrote is there: POSTERN_E_STALE if not. */
int postern__pg_finish_known(struct pg_connection *connection, int64_t xid,
		pg_work *look, void *context, int r, struct postern_error *error);

/* The store. */

struct pg_lease {
	int64_t seq;
	int64_t handler;
	uint64_t fence;
};

struct pg_doubt {
	struct pg_lease lease;
	bool claimed; /* not by what accepted it */
};

/* What a node may have leased, see doubt.c. */
struct pg_doubts {
	uint64_t node;
	uint64_t noted; /* when it was last added to; higher is later */
	struct pg_doubt *items;
	size_t count;
	size_t cap;
	bool claimed; /* some were claimed */
};
/* A process has a new number when its node was found gone, and batches of a
   few former ones may still be under way. */
#define PG_DOUBT_NODE_MAX 8

/* A handler that is being run, see transact.c. */
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

/* How it goes with sending the statements of some handlers ahead, see
   ahead.c. */
struct pg_pace {
	uint32_t penalty;
	uint32_t rest; /* transactions until the next try */
};
#define PG_PACE_COUNT 16

/* How far the due deliveries of a handler were claimed, see claim.c. */
struct pg_mark {
	int64_t handler;
	int64_t due_at;
	int64_t until_ms; /* monotonic: then from the beginning */
};
#define PG_MARK_COUNT 64

/* When this process first saw the last renewal of a node or a lock, see
   sightings.c. */
struct pg_sighting {
	uint64_t key;       /* the node, or postern__pg_lock_key() */
	int64_t renewed_at; /* by the database's clock */
	int64_t since_ms;   /* monotonic */
	int64_t term_ms;
	uint64_t look; /* the last in which it was seen */
};
struct pg_sightings {
	struct pg_sighting *items;
	size_t count;
	size_t cap;
	uint64_t look;
};

struct pg_store {
	struct postern_store base;
	const struct postern_clock *clock; /* of waiting, never of the store */
	const struct postern_random *random;
	/* NULL: the database's. Only tests have one of their own. */
	const struct postern_clock *test_clock;
	int64_t command_timeout_ms;
	int64_t lock_timeout_ms;
	int64_t silence_ms; /* PG_SILENCE_MS */
	uint32_t command_retries;
	bool read_only;
	postern_remark *remark;
	void *remark_context;

	char *conninfo;        /* has the password */
	char *place;           /* host, port and database, to be told */
	char *listen_conninfo; /* the same for the one who waits; NULL: the same */
	char *listen_place;
	char *schema; /* quoted, with a dot behind it */
	uint8_t hash_key[POSTERN__SIPHASH_KEY_LEN];

	struct pg_actives active;

	/* Of the one who waits, see listen.c. */
	struct pg_connection listener;
	int bell; /* an eventfd: stop waiting */

	pthread_mutex_t mutex; /* guards all below */
	pthread_cond_t given;
	struct pg_connection connections[PG_CONNECTION_MAX];
	size_t connection_max;
	/* Of postern__pg_do_tenure() alone, and signalled when it is free. */
	struct pg_connection keeper;
	pthread_cond_t kept;
	int64_t term_ms; /* the last that was given; 0: none */
	size_t asking;   /* threads that ask for a session, see silence.c */
	/* When connecting failed: not again before that, and why. */
	int64_t connect_at_ms;
	uint32_t connect_failures;
	bool connect_hopeless;
	struct postern_error connect_error;
	uint64_t epoch;
	int64_t next_seq; /* of this process, until seq_end */
	int64_t seq_end;
	int64_t seq_until_ms; /* then a new block is taken, to keep the order */
	/* What is enrolled, as far as it is known, by stored id; channels by their
	   name. */
	char **channels;
	size_t channel_count;
	bool *handlers;
	size_t handler_count;
	struct pg_doubts doubts[PG_DOUBT_NODE_MAX];
	uint64_t doubt_last; /* the highest `noted` of them */
	int64_t round;       /* in which batches are sent, see doubt.c */
	struct pg_pace paces[PG_PACE_COUNT]; /* by the handler's stored id */
	struct pg_mark marks[PG_MARK_COUNT]; /* the same */
	size_t unswept;       /* staged messages that were taken, see collect.c */
	int64_t left_told_ms; /* monotonic: when one that stays was remarked */
	pthread_mutex_t settling; /* one at a time settles them; comes first */
	struct pg_sightings sightings;
	int64_t node_lease_ms; /* of the node that enrolled last; 0: none */
	/* Recoveries so far, up to 3, and whether one looked at all leases; see
	   recover.c. */
	unsigned recoveries;
	bool scanned_all;
	/* The lock under which all leases were looked at, see recover.c. */
	char scanned_lock[POSTERN_LOCK_NAME_LEN_MAX + 1];
	uint64_t scanned_fence;
	int64_t now_max_ms; /* the latest the clock has been */
	bool warned;        /* of a server that may lose what it wrote */
};

struct pg_store *postern__pg_from_base(struct postern_store *store);
int postern__pg_no_memory(struct postern_error *error);
/* Add the time: NULL, that is, the database's own. */
void postern__pg_now(struct pg_query *query);
/* Add a node, and a lock: its name and its fence, or two NULLs. */
void postern__pg_node(struct pg_query *query, uint64_t node);
void postern__pg_lock_of(struct pg_query *query,
		const struct postern_lock *lock);
int postern__pg_lost_lock(const struct postern_lock *lock,
		struct postern_error *error);

/* directory.c: what is enrolled. */

int postern__pg_note_channel(struct pg_store *self, int64_t id,
		const char *name, struct postern_error *error);
int postern__pg_note_handler(struct pg_store *self, int64_t id,
		struct postern_error *error);
/* NULL: it is not known. Lives as long as the store. */
const char *postern__pg_channel(struct pg_store *self, int64_t id);
bool postern__pg_handler(struct pg_store *self, int64_t id);
/* Read what others have enrolled. */
int postern__pg_load(struct pg_connection *connection,
		struct postern_error *error);
void postern__pg_forget_all(struct pg_store *self);

/* doubt.c: leases that nobody here knows of. */

/* `claimed`: by a claim, not by what accepted them. */
void postern__pg_doubt(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed);
/* The node is gone: its leases are taken back by recovery. */
void postern__pg_forget_doubts(struct pg_store *self, uint64_t node);
/* In which a batch is sent. */
int64_t postern__pg_round(struct pg_store *self);
/* Give back what is leased of what is in doubt. `only_claimed`: unless nothing
   of it was claimed. */
int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		bool only_claimed, struct postern_error *error);

/* sightings.c: how long other nodes have been silent. */

/* A node or a lock was renewed at this time of the database for this long, as
   it is known now. */
void postern__pg_saw_renewal(struct pg_store *self, uint64_t key,
		int64_t renewed_at, int64_t term_ms);
/* Whether the last renewal that was seen was seen that long ago; which it
   was. */
bool postern__pg_is_silent(struct pg_store *self, uint64_t key,
		int64_t *renewed_at_out);
uint64_t postern__pg_lock_key(const struct pg_store *self, const char *name);
/* See which nodes have renewed themselves. */
int postern__pg_watch_nodes(struct pg_connection *connection, uint64_t node,
		struct postern_error *error);
/* The same, and end nodes that were silent for their lease. *lost_out: leases
   of such nodes are to be recovered. POSTERN_E_BUSY: somebody else is at it. */
int postern__pg_expire_nodes(struct pg_connection *connection, uint64_t node,
		bool *lost_out, struct postern_error *error);

/* clock.c: the clock. */

/* What the database's clock has said. */
void postern__pg_saw(struct pg_store *self, int64_t now);
/* The latest it has said. */
int64_t postern__pg_latest(struct pg_store *self);
/* Everything pending was looked at by this time. */
void postern__pg_set_latest(struct pg_store *self, int64_t now);
/* Make due at once what is pending since later than now. */
int postern__pg_clock_repair(struct pg_connection *connection,
		struct postern_error *error);

/* url.c: what was asked for. */

/* To be finished, also after a failure. */
int postern__pg_parse(struct pg_store *self, const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);
void postern__pg_parse_finish(struct pg_store *self);
/* Whether it could be parsed. */
int postern__pg_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error);

/* schema.c: tables and functions. */

/* Made of schema/ when building. */
extern const char postern__pg_schema[];
/* What those run behind it who do it by hand. */
extern const char postern__pg_schema_tail[];
/* Both for people, with the usual name of the schema. */
extern const char postern__pg_schema_text[];

/* Whether the class c of the catalogue is our table meta, and not somebody
   else's. */
#define PG_IS_META                                          \
	" c.relname = 'meta' AND c.relkind = 'r' AND 2 = ("     \
	"SELECT count(*) FROM pg_attribute a"                   \
	" WHERE a.attrelid = c.oid AND (a.attname, a.atttypid)" \
	" IN (('name', 'text'::regtype), ('value', 'bytea'::regtype)))"

/* The channels of the nodes that are alive at $1, a subquery. */
#define PG_SERVED_CHANNELS                         \
	"(SELECT nc.channel FROM @node_channel nc"     \
	" JOIN @node_term live ON live.node = nc.node" \
	" WHERE live.lives_until IS NULL"              \
	" OR live.lives_until > coalesce($1, @now_ms()))"

/* must_exist: POSTERN_E_NOTFOUND if there is none. */
int postern__pg_migrate(struct pg_store *self, bool must_exist,
		struct postern_error *error);

/* examine.c: the server itself. */

/* Refuse a server on which a store could not keep what it promises. */
int postern__pg_judge(struct pg_connection *connection,
		struct postern_error *error);

/* Tell a struct postern__store_examiner what the user could not do of all that
   a node does, if the schema is there. */
int postern__pg_rights(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* The same of making it, if it is not; and of names in its schema that are
   taken. */
int postern__pg_may_create(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* POSTERN_E_UNSUPPORTED, with the names: the schema has something that we would
   make, and is not ours. */
int postern__pg_check_names(struct pg_connection *connection,
		struct postern_error *error);

/* Have a struct postern__store_examiner look around. */
int postern__pg_lend(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* message.c: messages. */

#define PG_DIGEST_LEN 16

/* The key in seen: the id's part first. */
struct pg_identity {
	int64_t words[3];
};

void postern__pg_identity(const struct pg_store *self, int64_t channel,
		const char *source, const char *id, struct pg_identity *out);
/* The first word of an identity: of the id alone. */
int64_t postern__pg_identity_id(const struct pg_store *self, const char *id);
/* Numbers for so many new messages, ascending. */
int postern__pg_take_seqs(struct pg_connection *connection, size_t count,
		int64_t *out, struct postern_error *error);

/* What postern__pg_message_read() reads, in a FROM with m and c. */
#define PG_MESSAGE_COLUMNS                                           \
	"m.id, coalesce(m.source, c.name), m.type, m.subject, m.time,"   \
	" m.content_type, m.correlation_id, m.traceparent, m.transport," \
	" m.headers, m.body, m.received_at"
#define PG_MESSAGE_COLUMN_COUNT 12
int postern__pg_message_read(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error);

/* listing.c: deliveries that match a filter. */

/* The columns of the answer. */
enum {
	PG_ROW_SEQ,
	PG_ROW_HANDLER, /* as stored; 0 for none */
	PG_ROW_STATE,
	PG_ROW_FENCE,
	PG_ROW_FAILURES,
	PG_ROW_STARTS,
	PG_ROW_CRASHES,
	PG_ROW_NEXT_AT,
	PG_ROW_LEASED_AT,
	PG_ROW_FINISHED_AT,
	PG_ROW_ERROR,
	PG_ROW_KEY,
	PG_ROW_ID,
	PG_ROW_SOURCE,
	PG_ROW_TYPE,
	PG_ROW_CHANNEL,
	PG_ROW_RECEIVED_AT
};

struct pg_listing {
	const struct postern_query *query; /* its limit is not looked at */
	unsigned states;                   /* a bit for each that is wanted */
	bool handled; /* none of messages that no handler wanted */
	int64_t max;  /* 0: no limit */
};

/* Begins and runs a query; end it. Newest message first, the handlers of one
   message by stored id. */
int postern__pg_listing_run(struct pg_query *query,
		struct pg_connection *connection, const struct pg_listing *listing,
		struct postern_error *error);
/* False: no memory. */
bool postern__pg_listing_read(const struct pg_query *query, int row,
		struct postern_memory *memory, struct postern_row *out);
/* What is not UTF-8 is nowhere in the database, and the server refuses to
   look for it. NULL is fine. */
bool postern__pg_is_text(const char *text);

/* tally.c: counts. */

/* Put rows that were counted together, a bounded number of them. */
int postern__pg_fold_tallies(struct pg_connection *connection,
		struct postern_error *error);

/* apply.c: in a transaction that is under way. */

int postern__pg_apply_within(struct pg_connection *connection,
		struct postern_batch *batch, struct postern_error *error);

/* ahead.c: units whose statements are sent ahead. */

/* Whether all can be, and it is worth a try. */
bool postern__pg_may_send_ahead(struct pg_store *self,
		const struct postern_unit *units, size_t count);
/* All in one go; POSTERN_E_BUSY: nothing was done, each is to be run by
   itself. */
int postern__pg_send_ahead(struct pg_store *self, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error);

/* transact.c: for whoever asks what became of a COMMIT. The context is a
   struct pg_units. */

struct pg_units {
	struct postern_unit *units;
	size_t count;
};
pg_work postern__pg_look_for_units;

/* node_stats.c: nodes and locks, while looking. */

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
/* Asks the server to end what it does. */
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
int postern__pg_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, bool *paused_out,
		struct postern_error *error);
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
/* Whether LISTEN works at all, without the schema. */
int postern__pg_try_listen(struct pg_store *self, struct postern_error *error);
int postern__pg_wait(struct postern_store *store, int64_t ms, bool *woken_out,
		struct postern_error *error);
void postern__pg_end_wait(struct postern_store *store);
int postern__pg_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error);
int postern__pg_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error);

#endif
