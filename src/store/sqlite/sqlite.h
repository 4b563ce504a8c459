/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_SQLITE_SQLITE_H
#define POSTERN_STORE_SQLITE_SQLITE_H

/*
 * Declarations that the files of the SQLite store share. schema.c describes the
 * tables.
 *
 * There are two connections. The writer does all writes and all checkpoints,
 * for one caller at a time: the one inside the gate. The reader is opened
 * read-only and serves list, get, find and stats, one at a time behind a mutex,
 * so that reading never waits for a commit. A store opened read-only has only
 * the reader.
 *
 * The caller inside the gate owns the writer, the directory of channels and
 * handlers with their counts, and the next seq. They are cached in memory
 * because no other process changes them, also in a shared file (shared.c); they
 * change when a transaction has committed, and are loaded from the file again
 * when they may be wrong.
 */

#include <postern/sys/memory.h>
#include <postern/sys/store_kind.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "core/identity.h"

struct postern_clock;
struct sqlite_store;

/* connection.c, query.c: connections and statements. */

/* A power of two, well above the number of SQL texts in this directory. */
#define SQLITE_STATEMENT_COUNT 256
/* The highest parameter index whose value is remembered. */
#define SQLITE_PARAMETER_MAX 14

/* A prepared statement and the values bound to it last: most of them stay the
   same from one row of a batch to the next. */
struct sqlite_statement {
	const char *sql; /* NULL: none */
	sqlite3_stmt *handle;
	int64_t numbers[SQLITE_PARAMETER_MAX + 1];
	uint16_t are_numbers; /* a bit for each parameter */
	uint16_t are_null;
};

struct sqlite_connection {
	struct sqlite_store *store;
	sqlite3 *db;           /* NULL: closed */
	unsigned generation;   /* of the index when the connection was opened; see
							  watch.c */
	int64_t busy_until_ms; /* of a shared file: when to stop waiting */
	/* Prepared statements by the address of their text. */
	struct sqlite_statement cache[SQLITE_STATEMENT_COUNT];
};

/*
 * One use of a prepared statement:
 *
 *   postern__sqlite_query(&query, connection, "SELECT … ?1 …");
 *   postern__sqlite_bind_int(&query, 1, seq);
 *   while (postern__sqlite_row(&query)) { … }
 *   r = postern__sqlite_end(&query, error);
 *
 * The first failure is kept until the end; the calls in between do nothing
 * then.
 */
struct sqlite_query {
	struct sqlite_connection *connection;
	struct sqlite_statement *known;
	sqlite3_stmt *statement; /* its handle */
	int code;                /* of SQLite */
	bool done;
};

/* `sql` must be a literal: the cache finds it by its address. */
void postern__sqlite_query(struct sqlite_query *query,
		struct sqlite_connection *connection, const char *sql);
void postern__sqlite_bind_int(struct sqlite_query *query, int index,
		int64_t value);
/* NULL binds NULL. The text is not copied: it must live until the query's
   end. */
void postern__sqlite_bind_text(struct sqlite_query *query, int index,
		const char *text);
void postern__sqlite_bind_blob(struct sqlite_query *query, int index,
		const void *bytes, size_t len);
void postern__sqlite_bind_null(struct sqlite_query *query, int index);
/* The group of an error; 0 binds NULL. */
void postern__sqlite_bind_group(struct sqlite_query *query, int index,
		uint64_t group);
/* Steps to the next row; false: there is none, or the query failed. */
bool postern__sqlite_row(struct sqlite_query *query);
int64_t postern__sqlite_int(const struct sqlite_query *query, int column);
/* Ends the query: runs it if no row was read, resets it, and returns its
   result. */
int postern__sqlite_end(struct sqlite_query *query,
		struct postern_error *error);
/* The same, and returns the number of changed rows. */
int postern__sqlite_end_changes(struct sqlite_query *query, int *changes_out,
		struct postern_error *error);

/* Translates a code of SQLite; marks the writer as broken if it must be
   reopened. */
int postern__sqlite_fail(struct sqlite_connection *connection, int code,
		struct postern_error *error);

int postern__sqlite_connection_open(struct sqlite_connection *connection,
		struct sqlite_store *store, bool read_only, const char *parameters,
		struct postern_error *error);
/* Finalizes every statement, including those that handlers keep. */
void postern__sqlite_connection_close(struct sqlite_connection *connection);
/* Finalizes only those in the cache. */
void postern__sqlite_statements_finalize(struct sqlite_connection *connection);
/* Runs SQL that is used once, without the cache. */
int postern__sqlite_exec(struct sqlite_connection *connection, const char *sql,
		struct postern_error *error);
/* Reads one number with a statement without parameters; 0 if there is no
   row. */
int postern__sqlite_number(struct sqlite_connection *connection,
		const char *sql, int64_t *out, struct postern_error *error);

/* The store. */

struct sqlite_counts {
	int64_t pending;
	int64_t retrying;
	int64_t leased;
	int64_t poisoned;
	int64_t done;
	int64_t discarded;
};

struct sqlite_handler {
	int64_t owner;   /* its own id, or that of the handler it is an alias of */
	int64_t next_id; /* the owner's next id, the owner's own first; 0: last */
	/* Read only from the owner; without texts. */
	struct postern_halt pause;
	bool in_process;
	uint32_t max_crashes;
	struct sqlite_counts counts;  /* in committed transactions */
	struct sqlite_counts changes; /* in the open transaction */
};

struct sqlite_channel_counts {
	int64_t accepted;
	int64_t duplicates;
	int64_t conflicts;
	int64_t dropped;
	int64_t parked;
};

struct sqlite_channel {
	char *first_name; /* the source of messages that have none */
	bool closed;
	struct sqlite_channel_counts changes;
};

/* Admits one caller at a time; the others wait no longer than the timeout. */
struct sqlite_gate {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool held;
	pthread_t holder;
};

/* The unit of transact() that is running, see sandbox.c. */
struct sqlite_unit {
	pthread_mutex_t mutex; /* protects the next four against interrupt() */
	const void *context;
	bool active;
	bool running; /* the sandbox applies: not while it takes a marker */
	bool interrupted;
	bool rolled_back; /* the whole transaction was rolled back */
	const char
			*breach; /* what the unit did that is not allowed; NULL: nothing */
};

struct sqlite_file {
	char *path;      /* absolute, without symbolic links */
	char *lock_path; /* NULL if opened read-only */
	int lock_fd;     /* -1: not locked */
	int fd;          /* of the database, with the second lock; -1: not locked */
	dev_t device;
	ino_t inode;
	bool marked; /* the lock file says that the store is open */
	bool shared; /* the descriptor may not be closed, see park.c */
};

/* SQLite maps the index in regions of this size. */
#define SQLITE_INDEX_REGION_LEN 32768
#define SQLITE_LOG_HEADER_LEN 32
/* The header of a frame and the largest page. */
#define SQLITE_LOG_FRAME_LEN_MAX (24 + 65536)

/* The write-ahead log and its index, see watch.c. */
struct sqlite_watch {
	char *log_path; /* NULL: the files are not watched */
	char *index_path;
	int log_fd;
	ino_t log_inode;
	ino_t index_inode;
	_Atomic off_t index_len; /* the largest length seen */
	int bus_slot;            /* in bus.c; -1: none */
	atomic_uint repairs;     /* of the index */
	/* The header of the log, and the last frame of the last commit. */
	unsigned char header[SQLITE_LOG_HEADER_LEN];
	unsigned char frame[SQLITE_LOG_FRAME_LEN_MAX];
	unsigned char next[SQLITE_LOG_FRAME_LEN_MAX];
	unsigned char scratch[SQLITE_LOG_FRAME_LEN_MAX];
	size_t frame_len;
	off_t frame_at; /* 0: none yet */
	int committed;  /* length in frames after a commit that is not verified yet;
					   0: none */
};

/* One accept of a batch while it is applied, see apply.c. */
struct sqlite_arrival;

struct sqlite_store {
	struct postern_store base;
	struct postern_markers markers;
	struct sqlite_file file;
	struct sqlite_watch watch;
	const struct postern_clock *clock;
	const struct postern_random *random;
	int64_t command_timeout_ms;
	int64_t patience_ms; /* inside the gate: how long to wait for other
							processes */
	bool shared;
	bool read_only;
	bool created; /* the store was created by this opening */

	pthread_mutex_t reader_mutex;
	struct sqlite_connection reader;

	struct sqlite_gate gate;
	struct sqlite_connection writer;
	int64_t now_max_ms; /* the latest time that the clock has shown, see clock.c
						 */
	bool broken;        /* reopen the writer before its next use */
	unsigned generation; /* of the index that the connections use */
	uint64_t epoch;      /* how often the writer was opened */
	struct sqlite_unit unit;
	uint8_t hash_key[POSTERN__SIPHASH_KEY_LEN];
	int64_t next_seq;
	/* By stored id; [0] is unused. */
	struct sqlite_handler *handlers;
	size_t handler_count;
	struct sqlite_channel *channels;
	size_t channel_count;
	/* All leases in the file belong to this node; 0: not known. Set inside the
	   gate. */
	_Atomic uint64_t only_node;

	/* With the reader's mutex: nothing was staged at this version of the file's
	   data. */
	bool nothing_staged;
	int64_t nothing_staged_at;
	size_t collected; /* inside the gate: how often collect() read rows */

	/* Buffers of apply(), reused from batch to batch. */
	struct sqlite_arrival *arrivals;
	size_t arrival_cap;
	struct postern__buf headers;
};

/* marker.c: markers. */

void postern__sqlite_markers_init(struct sqlite_store *self);
/* For the transaction that runs a unit with a mark: take the marker; *taken_out
   is false, and the unit has its code, if it is not unknown. */
int postern__sqlite_mark_take(struct sqlite_store *self,
		struct postern_unit *unit, bool *taken_out,
		struct postern_error *error);
/* After the unit: refuses it if its marker is not there any more. */
int postern__sqlite_mark_confirm(struct sqlite_store *self,
		struct postern_unit *unit, struct postern_error *error);

/* The store behind the common head. */
struct sqlite_store *postern__sqlite_from_base(struct postern_store *store);

int postern__sqlite_writer_open(struct sqlite_store *self,
		struct postern_error *error);
int postern__sqlite_reader_open(struct sqlite_store *self,
		struct postern_error *error);

/* Enter and leave the gate, which admits one writer at a time. Entering checks
   the files, reopens the writer if necessary, and fails if the file was removed
   or replaced. */
int postern__sqlite_gate_enter(struct sqlite_store *self,
		struct postern_error *error);
/* The same, but wait for other writers no longer than that, also in a
   transaction that is begun inside: POSTERN_E_BUSY. */
int postern__sqlite_gate_enter_within(struct sqlite_store *self,
		int64_t patience_ms, struct postern_error *error);
void postern__sqlite_gate_leave(struct sqlite_store *self);

/* Inside the gate. Changes of the directory's counts are written and applied by
   the commit and dropped by the rollback; a commit that fails has rolled
   back. */
int postern__sqlite_begin(struct sqlite_store *self,
		struct postern_error *error);
int postern__sqlite_commit(struct sqlite_store *self,
		struct postern_error *error);
void postern__sqlite_rollback(struct sqlite_store *self);
/* Commits if r is POSTERN_OK, else rolls back and returns r. */
int postern__sqlite_finish(struct sqlite_store *self, int r,
		struct postern_error *error);

/* Begin and end a read on the reader: acquires its mutex and opens one
   snapshot. */
int postern__sqlite_read_begin(struct sqlite_store *self,
		struct postern_error *error);
void postern__sqlite_read_end(struct sqlite_store *self);

/* clock.c: the clock. */

/* Inside the gate, like the others: records the latest time seen. */
int64_t postern__sqlite_now(struct sqlite_store *self);
/* Outside the gate, for reading: records nothing. */
int64_t postern__sqlite_now_read(const struct sqlite_store *self);
/* Makes due at once each delivery that became pending later than now. */
int postern__sqlite_clock_repair(struct sqlite_store *self, int64_t now,
		struct postern_error *error);
/* The same, but only if the clock went back since the last call. */
int postern__sqlite_clock_follow(struct sqlite_store *self, int64_t now,
		struct postern_error *error);

/* file.c: the file. */

/* Finds or creates the file and, unless read-only, locks it. */
int postern__sqlite_file_open(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error);
/* Fails if the path does not lead to the file that was opened. */
int postern__sqlite_file_check(const struct sqlite_file *file,
		struct postern_error *error);
/* Marks the store as open in the lock file. */
int postern__sqlite_file_mark(struct sqlite_file *file,
		struct postern_error *error);
/* Whether a process has the store open for writing; without the lock this is
   decided by the pid in the lock file. */
bool postern__sqlite_file_owned(const struct sqlite_file *file);
/* Whether the file is on a disk that is mounted read-only and has no
   write-ahead log, so that no process can change it. */
bool postern__sqlite_file_immutable(const struct sqlite_file *file);
void postern__sqlite_file_close(struct sqlite_file *file);

/* park.c: descriptors of shared files. */

/* -1: there is none of this file. */
int postern__sqlite_park_take(dev_t device, ino_t inode);
void postern__sqlite_park_put(int fd);

/* shared.c: a file that other processes write to. */

#define SQLITE_JOURNAL_MODE_MAX 16

/* How long a connection waits for the locks of others now. */
int64_t postern__sqlite_patience(const struct sqlite_connection *connection);
/* On a new connection: waits for the locks of other processes. */
void postern__sqlite_shared_wait(struct sqlite_connection *connection);
int postern__sqlite_journal_mode(struct sqlite_connection *connection,
		char out[SQLITE_JOURNAL_MODE_MAX], struct postern_error *error);
/* In a transaction: fails if the store is shared and the file has a write-ahead
   log. */
int postern__sqlite_shared_check(struct sqlite_connection *connection,
		struct postern_error *error);
/* Before a guest opens the file: makes sure that it exists, with tables and
   without a write-ahead log. `rest` is that of the URL. */
int postern__sqlite_guest_prepare(const char *rest, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error);
/* open.c: opens a store as its owner. */
int postern__sqlite_open_owned(const char *rest,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);

/* foreign.c: a connection of the caller. */

/* Takes a marker on the connection. */
typedef int postern__sqlite_mark_taker(struct sqlite_connection *connection,
		void *context, struct postern_error *error);

/* Calls `take` in the open transaction of a connection to a shared file; the
   transaction is unchanged if that fails. */
int postern__sqlite_foreign_take(struct sqlite_store *self, sqlite3 *db,
		int64_t wait_ms, postern__sqlite_mark_taker *take, void *context,
		struct postern_error *error);

/* watch.c: files that are removed, replaced or truncated while in use. */

/* On a new writer: installs the hook that checkpoints after a commit that
   leaves a long log. */
void postern__sqlite_watch_commits(struct sqlite_store *self);
/* Starts to watch; after the writer's first read, when the log and the index
   exist. */
int postern__sqlite_watch_begin(struct sqlite_store *self,
		struct postern_error *error);
/* Inside the gate, without a transaction: fails if the database, the log or the
   index was removed, replaced or truncated; a truncated index is repaired. */
int postern__sqlite_watch_check(struct sqlite_store *self,
		struct postern_error *error);
/* Before a COMMIT: fails if the transaction may have read from a lost index. */
int postern__sqlite_watch_before_commit(struct sqlite_store *self,
		struct postern_error *error);
/* Whether a connection may have read from an incomplete index: its results and
   its cached pages are not valid. */
bool postern__sqlite_watch_index_was_lost(
		const struct sqlite_connection *connection);
/* While no connection uses the index: empties it, so that SQLite rebuilds
   it. */
int postern__sqlite_watch_index_reset(struct sqlite_store *self,
		struct postern_error *error);
/* How often the index was lost so far. */
unsigned postern__sqlite_watch_generation(const struct sqlite_store *self);
/* After a COMMIT: fails if it is not in the log that the next opening reads. */
int postern__sqlite_watch_after_commit(struct sqlite_store *self,
		struct postern_error *error);
/* Outside the gate: whether the index can be read from. */
bool postern__sqlite_watch_index_readable(const struct sqlite_store *self);
/* Before the connections are closed: prevents the final checkpoint if a file is
   damaged. */
void postern__sqlite_watch_end(struct sqlite_store *self);
void postern__sqlite_watch_close(struct sqlite_watch *watch);

/* bus.c: an index that is truncated while SQLite uses it. */

/* Once, before threads are started: the process has a SIGBUS handler. */
void postern__sqlite_bus_catch(void);
/* Protects an index. Returns its slot; -1: there is no handler, or no free
   slot. */
int postern__sqlite_bus_add(const char *path, off_t len);
void postern__sqlite_bus_remove(int slot);
/* The index is at least this long. */
void postern__sqlite_bus_set(int slot, off_t len);
/* How often this index was repaired. */
unsigned postern__sqlite_bus_repairs(int slot);

/* schema.c: the schema. */

extern const char postern__sqlite_schema[];

/* Creates or upgrades the schema, in one transaction. */
int postern__sqlite_migrate(struct sqlite_store *self, bool no_migrate,
		struct postern_error *error);
/* Runs steps[version - 1] and all that follow up to the newest version, in one
   transaction. */
int postern__sqlite_upgrade(struct sqlite_store *self, int64_t version,
		const char *const *steps, int64_t newest, struct postern_error *error);
/* Fails if the schema is not of the version that this program reads. */
int postern__sqlite_check_schema(struct sqlite_connection *connection,
		struct postern_error *error);
/* Reads the key of the identity hash. */
int postern__sqlite_load_key(struct sqlite_connection *connection,
		struct postern_error *error);

/* directory.c: channels and handlers. */

/* Loads the directory, its counts and the next seq from the file. */
int postern__sqlite_directory_load(struct sqlite_store *self,
		struct postern_error *error);
void postern__sqlite_directory_unload(struct sqlite_store *self);
/* NULL: no such stored id. */
struct sqlite_handler *postern__sqlite_handler(struct sqlite_store *self,
		int64_t id);
/* All ids of the handler that owns a stored id, the owner's first. */
#define postern__sqlite_each_id(self, each, id)                             \
	for (int64_t each = postern__sqlite_handler((self), (id))->owner; each; \
			each = postern__sqlite_handler((self), each)->next_id)
/* Creates the delivery of a route that has none, which ends at once if the
   route is suppressed or refused. Uses seq, channel and message of the accept,
   the message only for a route with a key. Node 0: it is not leased. */
int postern__sqlite_route_add(struct sqlite_store *self, uint64_t node,
		const struct postern_accept *accept, struct postern_route *route,
		int64_t now, struct postern_error *error);
/* Whether an earlier route leads to the same handler. */
bool postern__sqlite_route_repeats(struct sqlite_store *self,
		const struct postern_route *routes, size_t index);
struct sqlite_handler *postern__sqlite_owner(struct sqlite_store *self,
		int64_t id);
struct sqlite_channel *postern__sqlite_channel(struct sqlite_store *self,
		int64_t id);
/* Writes the changed counts, before a commit. */
int postern__sqlite_counts_write(struct sqlite_store *self,
		struct postern_error *error);
/* Adds the changes to the committed counts, or drops them. */
void postern__sqlite_counts_end(struct sqlite_store *self, bool committed);
/* The id of the handler that has this key; 0: no handler has it. */
int postern__sqlite_resolve(struct sqlite_connection *connection,
		const char *key, int64_t *id_out, struct postern_error *error);

/* message.c: messages. */

int postern__sqlite_message_insert(struct sqlite_store *self, int64_t seq,
		int64_t channel, int64_t received_at,
		const struct postern_message *message, struct postern_error *error);

/* The columns that postern__sqlite_message_read() reads, in a FROM with m and
   c. */
#define SQLITE_MESSAGE_COLUMNS                                            \
	"m.id, coalesce(m.source, c.first_name, c.name), m.type, m.subject, " \
	"m.time,"                                                             \
	" m.content_type, m.correlation_id, m.traceparent, m.transport,"      \
	" m.headers, m.body, m.received_at"
int postern__sqlite_message_read(struct sqlite_query *query, int column,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error);
/* Copies a text column; *out is NULL if the column is NULL. False: out of
   memory. */
bool postern__sqlite_text(sqlite3_stmt *statement, int column,
		struct postern_memory *memory, const char **out);
int postern__sqlite_no_memory(struct postern_error *error);

/* delivery.c: deliveries. */

struct sqlite_delivery {
	int64_t seq;
	int64_t handler;
	enum postern_state state; /* ANY: there is no such delivery */
	uint64_t fence;
	uint32_t failures;
	uint32_t starts;
	uint32_t crashes;
	int64_t suspect;
	bool solo;
	uint64_t node;
	int64_t since; /* when the delivery became pending or leased */
};

/* All of these run inside a transaction. */
int postern__sqlite_delivery_find(struct sqlite_store *self, int64_t seq,
		int64_t handler, struct sqlite_delivery *out,
		struct postern_error *error);
/* Node 0: the delivery is pending. */
int postern__sqlite_delivery_insert(struct sqlite_store *self, int64_t seq,
		int64_t handler, uint64_t node, int64_t now,
		struct postern_error *error);
/* Makes a poisoned or discarded delivery pending. */
int postern__sqlite_delivery_reopen(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, int64_t now,
		struct postern_error *error);
/* Ends an open delivery (pending, or leased by an expired node). group: of the
   error that poisoned it, else 0. */
int postern__sqlite_delivery_close(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, enum postern_state state,
		uint64_t group, int64_t now, struct postern_error *error);
int postern__sqlite_attempt_insert(struct sqlite_store *self, int64_t seq,
		int64_t handler, uint64_t fence, int64_t started_at,
		int64_t finished_at, const char *outcome, const char *text,
		struct postern_error *error);
/* groups.c: keeps an example of a group; 0: nothing to keep. */
int postern__sqlite_sample_keep(struct sqlite_store *self, uint64_t group,
		int64_t handler, const char *text, int64_t now,
		struct postern_error *error);
/* Removes the examples that no delivery uses. */
int postern__sqlite_samples_purge(struct sqlite_store *self, int64_t now,
		struct postern_error *error);
/* Adds n to the count of a handler's deliveries in this state. */
void postern__sqlite_count(struct sqlite_store *self, int64_t handler,
		enum postern_state state, uint32_t failures, int n);

int postern__sqlite_settle(struct sqlite_store *self, uint64_t node,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error);
/* Ends a lease that was verified in the same transaction, as done or discarded.
   `starts`: how often the delivery was started; `deleted`: its row in
   postern_open is already deleted. */
int postern__sqlite_settle_held(struct sqlite_store *self, uint32_t starts,
		bool deleted, struct postern_settlement *settlement, int64_t now,
		struct postern_error *error);
/* Subtracts one ended delivery from the counts, because its unit was rolled
   back. */
void postern__sqlite_uncount_ended(struct sqlite_store *self, int64_t handler,
		bool done);

/* tenure.c: nodes and locks. */

/* When the file is opened: removes all nodes and frees all locks. */
int postern__sqlite_nodes_expire_all(struct sqlite_store *self,
		struct postern_error *error);
/* Inside a transaction: removes nodes whose lease has expired, except one. */
int postern__sqlite_nodes_expire(struct sqlite_store *self, uint64_t except,
		int64_t now, struct postern_error *error);
/* Whether the node holds the lock under that fence; true if lock is NULL. */
int postern__sqlite_holds_lock(struct sqlite_store *self, uint64_t node,
		const struct postern_lock *lock, bool *holds_out,
		struct postern_error *error);
/* The same; POSTERN_E_STALE if it does not. */
int postern__sqlite_check_lock(struct sqlite_store *self, uint64_t node,
		const struct postern_lock *lock, struct postern_error *error);

/* apply.c: a batch within a transaction of its caller. */

int postern__sqlite_batch_apply(struct sqlite_store *self,
		struct postern_batch *batch, int64_t now, struct postern_error *error);
/* After the commit. */
void postern__sqlite_batch_end(struct sqlite_store *self,
		const struct postern_batch *batch);

/* stage.c: who may stage messages. */

/* Prepares a writer, once the file has its tables. */
int postern__sqlite_stage_set_up(struct sqlite_store *self,
		struct postern_error *error);
/* When the file is opened: the same, and declares in it whether it is
   shared. */
int postern__sqlite_stage_declare(struct sqlite_store *self,
		struct postern_error *error);

/* sandbox.c: the sandbox around a unit. */

/* Installs the hooks on a newly opened writer. */
void postern__sqlite_sandbox_install(struct sqlite_store *self);
void postern__sqlite_sandbox_enter(struct sqlite_store *self,
		const void *context);
void postern__sqlite_sandbox_leave(struct sqlite_store *self);
/* Resets statements that units left unfinished: they would prevent the
   transaction or its savepoint from ending. */
void postern__sqlite_sandbox_reset_statements(struct sqlite_store *self);

/* listing.c: listing. */

#define SQLITE_LISTING_SOURCES 3

enum sqlite_listing_kind {
	SQLITE_LISTING_ROWS,
	SQLITE_LISTING_COUNT, /* one row for each source: the number of rows */
	SQLITE_LISTING_GROUPS /* the group, the handler, the count, the key */
};

/* An iteration over deliveries, newest message first, or oldest. */
struct sqlite_listing {
	struct sqlite_connection *connection;
	enum sqlite_listing_kind kind;
	bool oldest;
	struct postern__buf ids; /* of the filter, as JSON */
	struct {
		sqlite3_stmt *statement; /* NULL: at the end */
		int64_t seq;
		int64_t handler;
	} sources[SQLITE_LISTING_SOURCES];
	int current; /* the source of the current row; -1: none yet */
};

/* Columns of the current row. */
enum {
	SQLITE_ROW_SEQ,
	SQLITE_ROW_HANDLER,
	SQLITE_ROW_STATE,
	SQLITE_ROW_FENCE,
	SQLITE_ROW_FAILURES,
	SQLITE_ROW_STARTS,
	SQLITE_ROW_CRASHES,
	SQLITE_ROW_NEXT_AT,
	SQLITE_ROW_LEASED_AT,
	SQLITE_ROW_FINISHED_AT,
	SQLITE_ROW_NODE,
	SQLITE_ROW_ERROR,
	SQLITE_ROW_GROUP,
	SQLITE_ROW_KEY,
	SQLITE_ROW_ID,
	SQLITE_ROW_SOURCE,
	SQLITE_ROW_TYPE,
	SQLITE_ROW_CHANNEL,
	SQLITE_ROW_RECEIVED_AT
};

/* Adds the SQL functions that a listing uses to a new connection. */
int postern__sqlite_listing_set_up(struct sqlite_connection *connection,
		struct postern_error *error);
/* `states` is a set of bits 1 << enum postern_state. End the listing also if
   this fails. */
int postern__sqlite_listing_begin(struct sqlite_listing *listing,
		struct sqlite_connection *connection, enum sqlite_listing_kind kind,
		const struct postern_query *query, unsigned states,
		struct postern_error *error);
/* Of the kind COUNT: how many deliveries match. */
int postern__sqlite_listing_count(struct sqlite_listing *listing,
		uint64_t *count_out, struct postern_error *error);
/* *statement_out is NULL at the end. */
int postern__sqlite_listing_next(struct sqlite_listing *listing,
		sqlite3_stmt **statement_out, struct postern_error *error);
void postern__sqlite_listing_end(struct sqlite_listing *listing);
/* False: out of memory. */
bool postern__sqlite_listing_read(sqlite3_stmt *statement,
		struct postern_memory *memory, struct postern_row *out);

/* The operations of the store. */

int postern__sqlite_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error);
int postern__sqlite_apply(struct postern_store *store,
		struct postern_batch *batch, struct postern_error *error);
int postern__sqlite_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error);
int postern__sqlite_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error);
void postern__sqlite_interrupt(struct postern_store *store,
		const void *context);
int postern__sqlite_recover(struct postern_store *store,
		const struct postern_recovery *request, struct postern_recovered *out,
		struct postern_error *error);
int postern__sqlite_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error);
/* channels.c */
/* The channel with this name, present or former; inside the gate. *id_out is
   unchanged if there is none. */
int postern__sqlite_channel_find(struct sqlite_store *self, const char *name,
		int64_t *id_out, struct postern_error *error);
int postern__sqlite_channel_enrol(struct sqlite_store *self,
		struct postern_enrol_channel *channel, struct postern_error *error);
/* pull.c: pull leases. */
int postern__sqlite_claim_ended(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t now,
		struct postern_memory *memory, struct postern_claims *out,
		struct postern_error *error);
int postern__sqlite_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error);
int postern__sqlite_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error);
int postern__sqlite_keep_rules(struct postern_store *store,
		struct postern_kept_rule *rules, size_t count,
		struct postern_memory *memory, struct postern_error *error);
int postern__sqlite_read_retention(struct postern_store *store,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error);

int postern__sqlite_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error);
int postern__sqlite_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error);
/* The halt in a row of a handler or a channel, from this column on: whether,
   since when, until when (0: no end), reason, author. Texts are valid until the
   next row. */
void postern__sqlite_halt(const struct sqlite_query *query, int column,
		struct postern_halt *out);
int postern__sqlite_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error);
int postern__sqlite_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error);
int postern__sqlite_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error);
int postern__sqlite_get(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error);
int postern__sqlite_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error);
/* node_stats.c: reads the nodes and locks between read_begin and read_end;
   out->handlers is already set. */
int postern__sqlite_node_stats(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error);
int postern__sqlite_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error);
int postern__sqlite_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error);
int postern__sqlite_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error);
int postern__sqlite_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node,
		struct postern_error *error);
int postern__sqlite_groups(struct postern_store *store,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error);
int postern__sqlite_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error);
int postern__sqlite_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error);
struct postern_staging;
int postern__sqlite_publish(const struct postern_staging *staging,
		struct postern_error *error);
int postern__sqlite_stranded(struct postern_store *store, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error);

#endif
