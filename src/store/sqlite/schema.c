/* SPDX-License-Identifier: MIT */

/*
 * The tables, and how they are created and upgraded.
 *
 * The text below is the complete schema of version SCHEMA_VERSION: a new file
 * gets it in one transaction. To change it, change the text, raise the version,
 * and add to `migrations` the SQL that turns the previous version into the new
 * one. A file of an older version runs the missing steps in one transaction, so
 * an upgrade is complete or does not happen. Files of a newer version are
 * refused.
 *
 * The version is kept in postern_meta and not in user_version, and every name
 * begins with postern_, because business tables may be in the same file. The
 * application id is set only if it is not set yet.
 *
 * Why it is fast: a message is written once and never changed. The open
 * deliveries, which change, are in a narrow, small table of their own. A
 * delivery that is leased when it is created changes no index except its
 * primary key, so a delivery usually costs one insert, one delete, and one row
 * appended to the ledger. The indexes are partial and contain exceptions only.
 */

#include <stdio.h>
#include <string.h>

#include <postern/sys/random.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/sqlite/publish_sql.h"
#include "store/sqlite/sqlite.h"

#define SCHEMA_VERSION 4

/* "PSTN" */
#define APPLICATION_ID "1347638350"

/* clang-format off */
/* Also the last step from version 3 to 4. */
#define SQLITE_STAGING \
"-- Messages that a program has staged in its own transaction, until a node\n" \
"-- accepts them. channel: its id. headers as in postern_message. refused: why\n" \
"-- the row cannot be accepted. Programs insert into the view.\n" \
"CREATE TABLE postern_staged (\n" \
"	n INTEGER PRIMARY KEY,\n" \
"	channel INTEGER NOT NULL,\n" \
"	refused TEXT,\n" \
"	id TEXT NOT NULL,\n" \
"	source TEXT,\n" \
"	type TEXT NOT NULL,\n" \
"	subject TEXT,\n" \
"	time TEXT,\n" \
"	content_type TEXT,\n" \
"	correlation_id TEXT,\n" \
"	traceparent TEXT,\n" \
"	headers BLOB,\n" \
"	body BLOB NOT NULL\n" \
");\n" \
"CREATE INDEX postern_staged_waiting ON postern_staged (channel)\n" \
"	WHERE refused IS NULL;\n" \
"CREATE INDEX postern_staged_refused ON postern_staged (channel)\n" \
"	WHERE refused IS NOT NULL;\n" \
"CREATE VIEW postern_publish (" SQLITE_PUBLISH_COLUMNS ") AS\n" \
"	SELECT c.name, s.type, s.body, s.id, s.source, s.subject, NULL, s.time,\n" \
"		s.content_type, s.correlation_id, s.traceparent\n" \
"	FROM postern_staged s JOIN postern_channel c ON c.id = s.channel;\n" \
"CREATE TRIGGER main." SQLITE_PUBLISH_TRIGGER "\n" \
"	INSTEAD OF INSERT ON postern_publish\n" \
"BEGIN\n" \
SQLITE_PUBLISH_REFUSE("the store is not shared with other processes; open it as sqlite:FILE?shared=yes", \
"NOT EXISTS (SELECT 1 FROM postern_meta\n" \
"		WHERE name = 'shared' AND value = 1)") \
SQLITE_PUBLISH_BODY \
"END;\n"

const char postern__sqlite_schema[] =
"-- The tables of Postern in SQLite. Times are milliseconds since 1970.\n"
"\n"
"-- schema: the version of these tables. hash_key: the secret of the hashes\n"
"-- in postern_seen. last_seq: the highest message number ever given to a\n"
"-- message that was removed since. shared: 1 if other processes may write to\n"
"-- this file.\n"
"CREATE TABLE postern_meta (\n"
"	name TEXT PRIMARY KEY,\n"
"	value\n"
") WITHOUT ROWID;\n"
"\n"
"-- Channels, with counts since the file was created (parked: now). name: the\n"
"-- present one. first_name: the one it was created with, NULL if that is still\n"
"-- its name. payload_ms, dedupe_ms: its last retention, NULL for none. closed: by an\n"
"-- operator; no message is accepted. max_size: the limit of a body, in bytes.\n"
"CREATE TABLE postern_channel (\n"
"	id INTEGER PRIMARY KEY,\n"
"	name TEXT NOT NULL UNIQUE,\n"
"	accepted INTEGER NOT NULL DEFAULT 0,\n"
"	duplicates INTEGER NOT NULL DEFAULT 0,\n"
"	conflicts INTEGER NOT NULL DEFAULT 0,\n"
"	dropped INTEGER NOT NULL DEFAULT 0,\n"
"	parked INTEGER NOT NULL DEFAULT 0,\n"
"	closed INTEGER NOT NULL DEFAULT 0,\n"
"	closed_at INTEGER NOT NULL DEFAULT 0,\n"
"	closed_reason TEXT,\n"
"	closed_by TEXT,\n"
"	first_name TEXT,\n"
"	payload_ms INTEGER,\n"
"	dedupe_ms INTEGER,\n"
"	max_size INTEGER NOT NULL DEFAULT 0\n"
");\n"
"\n"
"-- Every name a channel ever had.\n"
"CREATE TABLE postern_channel_name (\n"
"	name TEXT PRIMARY KEY,\n"
"	channel INTEGER NOT NULL\n"
") WITHOUT ROWID;\n"
"\n"
"-- Handlers. owner: itself, or the handler this one is an alias of. key: the\n"
"-- key of the last enrolment. paused_until: 0 if the pause has no end; once it\n"
"-- is past, the handler is not paused any more. The counts are of deliveries now, except done and\n"
"-- discarded, which are since the file was created. dedupe_ms: how long the owner's\n"
"-- keys are remembered, NULL: as the channel's retention says.\n"
"CREATE TABLE postern_handler (\n"
"	id INTEGER PRIMARY KEY,\n"
"	owner INTEGER NOT NULL,\n"
"	key TEXT NOT NULL,\n"
"	paused INTEGER NOT NULL DEFAULT 0,\n"
"	in_process INTEGER NOT NULL DEFAULT 0,\n"
"	max_crashes INTEGER NOT NULL DEFAULT 0,\n"
"	pending INTEGER NOT NULL DEFAULT 0,\n"
"	retrying INTEGER NOT NULL DEFAULT 0,\n"
"	leased INTEGER NOT NULL DEFAULT 0,\n"
"	poisoned INTEGER NOT NULL DEFAULT 0,\n"
"	done INTEGER NOT NULL DEFAULT 0,\n"
"	discarded INTEGER NOT NULL DEFAULT 0,\n"
"	paused_at INTEGER NOT NULL DEFAULT 0,\n"
"	paused_until INTEGER NOT NULL DEFAULT 0,\n"
"	pause_reason TEXT,\n"
"	pause_by TEXT,\n"
"	dedupe_ms INTEGER\n"
");\n"
"\n"
"-- Every key a handler ever had.\n"
"CREATE TABLE postern_handler_key (\n"
"	key TEXT PRIMARY KEY,\n"
"	handler INTEGER NOT NULL\n"
") WITHOUT ROWID;\n"
"\n"
"-- The nodes that are enrolled and not expired, and their handlers.\n"
"-- lives_until: NULL if the node lease never expires.\n"
"CREATE TABLE postern_node (\n"
"	node INTEGER PRIMARY KEY,\n"
"	renewed_at INTEGER NOT NULL,\n"
"	lives_until INTEGER\n"
");\n"
"CREATE TABLE postern_node_handler (\n"
"	node INTEGER NOT NULL,\n"
"	handler INTEGER NOT NULL,\n"
"	PRIMARY KEY (node, handler)\n"
") WITHOUT ROWID;\n"
"\n"
"-- The channels of these nodes.\n"
"CREATE TABLE postern_node_channel (\n"
"	node INTEGER NOT NULL,\n"
"	channel INTEGER NOT NULL,\n"
"	PRIMARY KEY (node, channel)\n"
") WITHOUT ROWID;\n"
"\n"
"-- Locks, and the node that holds them, 0 for none. fence: raised whenever\n"
"-- another node acquires the lock.\n"
"CREATE TABLE postern_lock (\n"
"	name TEXT PRIMARY KEY,\n"
"	node INTEGER NOT NULL,\n"
"	fence INTEGER NOT NULL,\n"
"	renewed_at INTEGER NOT NULL,\n"
"	held_until INTEGER NOT NULL\n"
") WITHOUT ROWID;\n"
"\n"
"-- Messages, never updated. source: NULL if it is the channel's first name.\n"
"-- transport: NULL for 'api'. headers: name, zero byte, value, zero byte, ...\n"
"CREATE TABLE postern_message (\n"
"	seq INTEGER PRIMARY KEY,\n"
"	channel INTEGER NOT NULL,\n"
"	received_at INTEGER NOT NULL,\n"
"	id TEXT NOT NULL,\n"
"	source TEXT,\n"
"	type TEXT NOT NULL,\n"
"	subject TEXT,\n"
"	time TEXT,\n"
"	content_type TEXT,\n"
"	correlation_id TEXT,\n"
"	traceparent TEXT,\n"
"	transport TEXT,\n"
"	headers BLOB,\n"
"	body BLOB NOT NULL\n"
");\n"
"\n"
"-- The dedupe memory, which may outlive the messages. key: 8 bytes\n"
"-- of the hash of the id, then 16 of the hash of channel, source and id,\n"
"-- combined with the scope (src/core/identity.h). scope: 0 for the message\n"
"-- itself, else the handler that has this key. digest: of the body.\n"
"CREATE TABLE postern_seen (\n"
"	key BLOB PRIMARY KEY,\n"
"	seq INTEGER NOT NULL,\n"
"	digest BLOB NOT NULL,\n"
"	at INTEGER NOT NULL,\n"
"	channel INTEGER NOT NULL,\n"
"	scope INTEGER NOT NULL DEFAULT 0\n"
") WITHOUT ROWID;\n"
"\n"
"-- Deliveries that are pending (node IS NULL) or leased, and since when. node:\n"
"-- -1 for a pull lease, which ends at due_at. A\n"
"-- pending one with a since later than now is older than a clock that was set\n"
"-- back. suspect: the group of deliveries one of which may have crashed its\n"
"-- process, 0 for none; solo: leased alone, so that its loss counts as a\n"
"-- crash. error_group: of the last error (src/core/error_group.h), NULL if none\n"
"-- was stored since it was opened. breaks: how often the connection broke under\n"
"-- it, NULL for never. With more than 13 columns SQLite would compare the keys\n"
"-- of this table and the ledger in a slower way.\n"
"CREATE TABLE postern_open (\n"
"	seq INTEGER NOT NULL,\n"
"	handler INTEGER NOT NULL,\n"
"	fence INTEGER NOT NULL,\n"
"	failures INTEGER NOT NULL,\n"
"	starts INTEGER NOT NULL,\n"
"	crashes INTEGER NOT NULL,\n"
"	suspect INTEGER NOT NULL,\n"
"	solo INTEGER NOT NULL,\n"
"	node INTEGER,\n"
"	due_at INTEGER NOT NULL,\n"
"	since INTEGER NOT NULL,\n"
"	error_group INTEGER,\n"
"	breaks INTEGER,\n"
"	PRIMARY KEY (seq, handler)\n"
") WITHOUT ROWID;\n"
"CREATE INDEX postern_open_due ON postern_open (handler, due_at, seq)\n"
"	WHERE node IS NULL AND suspect = 0;\n"
"CREATE INDEX postern_open_suspect ON postern_open (suspect)\n"
"	WHERE suspect > 0;\n"
"CREATE INDEX postern_open_group ON postern_open (error_group, seq, handler)\n"
"	WHERE error_group IS NOT NULL;\n"
"CREATE INDEX postern_open_pull ON postern_open (handler, due_at)\n"
"	WHERE node = -1;\n"
"\n"
"-- Deliveries that have ended. state: 3 done, 4 poisoned, 5 discarded.\n"
"-- handler: 0 for a parked message that was discarded. duration: of the last\n"
"-- run in ms, NULL if there was no run. error_group: of poisoned ones.\n"
"CREATE TABLE postern_ledger (\n"
"	seq INTEGER NOT NULL,\n"
"	handler INTEGER NOT NULL,\n"
"	state INTEGER NOT NULL,\n"
"	fence INTEGER NOT NULL,\n"
"	failures INTEGER NOT NULL,\n"
"	starts INTEGER NOT NULL,\n"
"	crashes INTEGER NOT NULL,\n"
"	finished_at INTEGER NOT NULL,\n"
"	duration INTEGER,\n"
"	error_group INTEGER,\n"
"	PRIMARY KEY (seq, handler)\n"
") WITHOUT ROWID;\n"
"CREATE INDEX postern_ledger_not_done ON postern_ledger (state, seq)\n"
"	WHERE state <> 3;\n"
"CREATE INDEX postern_ledger_group ON postern_ledger (error_group, seq, handler)\n"
"	WHERE error_group IS NOT NULL;\n"
"\n"
"-- An example of each group of errors, at most 1,000. Group 0 of a handler: all\n"
"-- that exceed this; handler 0: when unused examples were last removed.\n"
"CREATE TABLE postern_sample (\n"
"	error_group INTEGER NOT NULL,\n"
"	handler INTEGER NOT NULL,\n"
"	first_at INTEGER NOT NULL,\n"
"	last_at INTEGER NOT NULL,\n"
"	text TEXT NOT NULL,\n"
"	PRIMARY KEY (error_group, handler)\n"
") WITHOUT ROWID;\n"
"\n"
"-- The last attempts of a delivery, except those that ended as done.\n"
"CREATE TABLE postern_attempt (\n"
"	seq INTEGER NOT NULL,\n"
"	handler INTEGER NOT NULL,\n"
"	number INTEGER NOT NULL,\n"
"	fence INTEGER NOT NULL,\n"
"	started_at INTEGER NOT NULL,\n"
"	finished_at INTEGER NOT NULL,\n"
"	outcome TEXT NOT NULL,\n"
"	error TEXT,\n"
"	PRIMARY KEY (seq, handler, number)\n"
") WITHOUT ROWID;\n"
"\n"
"-- Messages whose type no handler wanted when they were accepted.\n"
"CREATE TABLE postern_parked (\n"
"	seq INTEGER PRIMARY KEY\n"
");\n"
"\n"
"-- Messages of which copies arrived: duplicates have the same body, conflicts\n"
"-- another one.\n"
"CREATE TABLE postern_duplicate (\n"
"	seq INTEGER PRIMARY KEY,\n"
"	duplicates INTEGER NOT NULL,\n"
"	duplicate_at INTEGER NOT NULL,\n"
"	conflicts INTEGER NOT NULL\n"
");\n"
"CREATE TABLE postern_conflict (\n"
"	seq INTEGER NOT NULL,\n"
"	number INTEGER NOT NULL,\n"
"	at INTEGER NOT NULL,\n"
"	body_len INTEGER NOT NULL,\n"
"	transport TEXT,\n"
"	PRIMARY KEY (seq, number)\n"
") WITHOUT ROWID;\n"
"\n"
"-- What handlers have done, by a hash of handler and key: src/store/marker.h.\n"
"-- lease_until: 0 if it is done, else until when it is running under the fence.\n"
"CREATE TABLE postern_marker (\n"
"	key BLOB PRIMARY KEY,\n"
"	fence INTEGER NOT NULL,\n"
"	lease_until INTEGER NOT NULL,\n"
"	at INTEGER NOT NULL\n"
") WITHOUT ROWID;\n"
"\n"
SQLITE_STAGING
"\n"
"INSERT INTO postern_meta (name, value) VALUES ('schema', 4);\n"
"INSERT INTO postern_meta (name, value) VALUES ('last_seq', 0);\n";
/* clang-format on */

_Static_assert(POSTERN_STATE_DONE == 3 && POSTERN_STATE_POISONED == 4 &&
					   POSTERN_STATE_DISCARDED == 5,
		"these numbers are on disk");

/* migrations[i] upgrades version i + 1 to version i + 2. */
static const char *const migrations[] = {
	/* Version 1 never removed a message, so each remembered id gets the channel
	   of its message. */
	"DROP TABLE postern_node;"
	"CREATE TABLE postern_node ("
	"	node INTEGER PRIMARY KEY,"
	"	renewed_at INTEGER NOT NULL,"
	"	lives_until INTEGER"
	");"
	"DELETE FROM postern_node_handler;"
	"CREATE TABLE postern_lock ("
	"	name TEXT PRIMARY KEY,"
	"	node INTEGER NOT NULL,"
	"	fence INTEGER NOT NULL,"
	"	renewed_at INTEGER NOT NULL,"
	"	held_until INTEGER NOT NULL"
	") WITHOUT ROWID;"
	"ALTER TABLE postern_seen ADD COLUMN channel INTEGER NOT NULL DEFAULT 0;"
	"UPDATE postern_seen SET channel = coalesce("
	"	(SELECT channel FROM postern_message m"
	"	WHERE m.seq = postern_seen.seq), 0);",
	"ALTER TABLE postern_seen ADD COLUMN scope INTEGER NOT NULL DEFAULT 0;",
	/* Version 4: operators say why, names of channels, runs, error groups.
	   order_hash was never used. */
	"ALTER TABLE postern_handler"
	" ADD COLUMN paused_at INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE postern_handler"
	" ADD COLUMN paused_until INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE postern_handler ADD COLUMN pause_reason TEXT;"
	"ALTER TABLE postern_handler ADD COLUMN pause_by TEXT;"
	"ALTER TABLE postern_handler ADD COLUMN dedupe_ms INTEGER;"
	"ALTER TABLE postern_channel"
	" ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE postern_channel"
	" ADD COLUMN closed_at INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE postern_channel ADD COLUMN closed_reason TEXT;"
	"ALTER TABLE postern_channel ADD COLUMN closed_by TEXT;"
	"CREATE TABLE postern_marker ("
	"	key BLOB PRIMARY KEY,"
	"	fence INTEGER NOT NULL,"
	"	lease_until INTEGER NOT NULL,"
	"	at INTEGER NOT NULL"
	") WITHOUT ROWID;"
	"ALTER TABLE postern_channel ADD COLUMN first_name TEXT;"
	"ALTER TABLE postern_channel ADD COLUMN payload_ms INTEGER;"
	"ALTER TABLE postern_channel ADD COLUMN dedupe_ms INTEGER;"
	"CREATE TABLE postern_channel_name ("
	"	name TEXT PRIMARY KEY,"
	"	channel INTEGER NOT NULL"
	") WITHOUT ROWID;"
	"INSERT INTO postern_channel_name SELECT name, id FROM postern_channel;"
	"ALTER TABLE postern_open RENAME COLUMN order_hash TO error_group;"
	"ALTER TABLE postern_open ADD COLUMN breaks INTEGER;"
	"ALTER TABLE postern_ledger ADD COLUMN error_group INTEGER;"
	"CREATE INDEX postern_open_group ON postern_open"
	"	(error_group, seq, handler) WHERE error_group IS NOT NULL;"
	"CREATE INDEX postern_open_pull ON postern_open (handler, due_at)"
	"	WHERE node = -1;"
	"CREATE INDEX postern_ledger_group ON postern_ledger"
	"	(error_group, seq, handler) WHERE error_group IS NOT NULL;"
	"CREATE TABLE postern_sample ("
	"	error_group INTEGER NOT NULL,"
	"	handler INTEGER NOT NULL,"
	"	first_at INTEGER NOT NULL,"
	"	last_at INTEGER NOT NULL,"
	"	text TEXT NOT NULL,"
	"	PRIMARY KEY (error_group, handler)"
	") WITHOUT ROWID;"
	"ALTER TABLE postern_channel"
	" ADD COLUMN max_size INTEGER NOT NULL DEFAULT 0;"
	"CREATE TABLE postern_node_channel ("
	"	node INTEGER NOT NULL,"
	"	channel INTEGER NOT NULL,"
	"	PRIMARY KEY (node, channel)"
	") WITHOUT ROWID;" SQLITE_STAGING,
};

/* 0: the file has no tables of Postern. */
static int read_version(struct sqlite_connection *connection, int64_t *out,
		struct postern_error *error) {
	int64_t has_tables = 0;
	int r = postern__sqlite_number(connection,
			"SELECT count(*) FROM sqlite_schema WHERE name = 'postern_meta'",
			&has_tables, error);
	if (r != POSTERN_OK || has_tables == 0) {
		*out = 0;
		return r;
	}
	return postern__sqlite_number(connection,
			"SELECT value FROM postern_meta WHERE name = 'schema'", out, error);
}

static int check_version(const struct sqlite_connection *connection,
		int64_t version, struct postern_error *error) {
	const char *path = connection->store->file.path;
	if (version > SCHEMA_VERSION) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' has schema version %lld, this version of postern knows "
				"%d; upgrade postern",
				path, (long long)version, SCHEMA_VERSION);
	}
	if (version < 0) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' has schema version %lld", path, (long long)version);
	}
	return POSTERN_OK;
}

int postern__sqlite_check_schema(struct sqlite_connection *connection,
		struct postern_error *error) {
	const char *path = connection->store->file.path;
	int64_t version;
	int r = read_version(connection, &version, error);
	if (r == POSTERN_OK) {
		r = check_version(connection, version, error);
	}
	if (r == POSTERN_OK && version == 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"'%s' has no tables of postern yet", path);
	} else if (r == POSTERN_OK && version < SCHEMA_VERSION) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' has schema version %lld, not %d; run postern migrate",
				path, (long long)version, SCHEMA_VERSION);
	}
	return r;
}

static int schema_fill(struct sqlite_store *self, struct postern_error *error) {
	uint64_t key[POSTERN__SIPHASH_KEY_LEN / sizeof(uint64_t)];
	for (size_t i = 0; i < sizeof key / sizeof key[0]; i++) {
		key[i] = self->random->next(self->random->context);
	}
	int64_t application = 0;
	int r = postern__sqlite_exec(&self->writer, postern__sqlite_schema, error);
	postern__point("sqlite-schema.made");
	if (r == POSTERN_OK) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &self->writer,
				"INSERT INTO postern_meta (name, value) VALUES ('hash_key', "
				"?1)");
		postern__sqlite_bind_blob(&query, 1, key, sizeof key);
		r = postern__sqlite_end(&query, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_number(&self->writer, "PRAGMA application_id",
				&application, error);
	}
	if (r == POSTERN_OK && application == 0) {
		r = postern__sqlite_exec(&self->writer,
				"PRAGMA application_id = " APPLICATION_ID, error);
	}
	return r;
}

static int schema_create(struct sqlite_store *self,
		struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	return r == POSTERN_OK ? postern__sqlite_finish(self,
									 schema_fill(self, error), error)
						   : r;
}

int postern__sqlite_upgrade(struct sqlite_store *self, int64_t version,
		const char *const *steps, int64_t newest, struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (; r == POSTERN_OK && version < newest; version++) {
		r = postern__sqlite_exec(&self->writer, steps[version - 1], error);
		postern__point("sqlite-upgrade.step");
	}
	if (r == POSTERN_OK) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &self->writer,
				"UPDATE postern_meta SET value = ?1 WHERE name = 'schema'");
		postern__sqlite_bind_int(&query, 1, newest);
		r = postern__sqlite_end(&query, error);
	}
	return postern__sqlite_finish(self, r, error);
}

int postern__sqlite_migrate(struct sqlite_store *self, bool no_migrate,
		struct postern_error *error) {
	int64_t version;
	int r = read_version(&self->writer, &version, error);
	if (r == POSTERN_OK) {
		r = check_version(&self->writer, version, error);
	}
	if (r != POSTERN_OK || version == SCHEMA_VERSION) {
		return r;
	}
	if (version > 0 && no_migrate) {
		return postern__sqlite_check_schema(&self->writer, error);
	}
	self->created = version == 0;
	return version == 0 ? schema_create(self, error)
						: postern__sqlite_upgrade(self, version, migrations,
								  SCHEMA_VERSION, error);
}

int postern__sqlite_load_key(struct sqlite_connection *connection,
		struct postern_error *error) {
	struct sqlite_store *self = connection->store;
	bool found = false;
	struct sqlite_query query;
	postern__sqlite_query(&query, connection,
			"SELECT value FROM postern_meta WHERE name = 'hash_key'");
	if (postern__sqlite_row(&query) &&
			sqlite3_column_bytes(query.statement, 0) == sizeof self->hash_key) {
		memcpy(self->hash_key, sqlite3_column_blob(query.statement, 0),
				sizeof self->hash_key);
		found = true;
	}
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK && !found) {
		r = postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' is damaged: its hash key is missing", self->file.path);
	}
	return r;
}
