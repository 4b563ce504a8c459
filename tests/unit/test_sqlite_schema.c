/* SPDX-License-Identifier: MIT */

/*
 * The tables of a SQLite store: how they are created in a file, beside other
 * tables, and upgraded from one version to the next.
 */

#include <stdlib.h>

#include "store/sqlite/sqlite.h"
#include "unit/sqlite_schema_1.h"
#include "unit/sqlite_stand.h"

#define VERSION "SELECT value FROM postern_meta WHERE name = 'schema'"

static void newer_schema(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK(file_exec(stand.path,
				"UPDATE postern_meta SET value = 5 WHERE name = 'schema'"));
		CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
				POSTERN_E_UNSUPPORTED);
		CHECK_CONTAINS(stand.error.text, "upgrade postern");
		stand.options.read_only = true;
		CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
				POSTERN_E_UNSUPPORTED);
	}
	stand_finish(&stand);
}

static void business_tables(void) {
	struct stand stand;
	stand_init(&stand);
	CHECK(file_exec(stand.path,
			"CREATE TABLE bill (n INTEGER); INSERT INTO bill VALUES (7);"
			"PRAGMA application_id = 5; PRAGMA user_version = 9"));
	if (stand_open(&stand)) {
		CHECK(stand_accept(&stand, "a") > 0);
		stand_close(&stand);
		CHECK_INT(file_number(stand.path, "SELECT n FROM bill"), 7);
		CHECK_INT(file_number(stand.path, "PRAGMA application_id"), 5);
		CHECK_INT(file_number(stand.path, "PRAGMA user_version"), 9);
	}
	stand_finish(&stand);
}

static void application_id(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK_INT(file_number(stand.path, "PRAGMA application_id"), 0x5053544e);
	}
	stand_finish(&stand);
}

/* The whole schema of the file, one statement after the other. */
static char *dump_schema(const char *path) {
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	char *text = NULL;
	if (sqlite3_open(path, &db) == SQLITE_OK &&
			sqlite3_prepare_v2(db,
					"SELECT group_concat(sql, x'0a') FROM (SELECT sql"
					" FROM sqlite_schema ORDER BY name)",
					-1, &statement, NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		text = strdup((const char *)sqlite3_column_text(statement, 0));
	}
	(void)sqlite3_finalize(statement); /* repeats the step's result */
	(void)sqlite3_close(db);           /* nothing is left open */
	return text;
}

static void printed_schema(void) {
	struct stand stand;
	char path[PATH_LEN_MAX];
	const char *schema = NULL;
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "printed.db", path, sizeof path);
	CHECK_OK(postern_store_schema("sqlite:x", &schema, &stand.error),
			&stand.error);
	if (stand_open(&stand) && CHECK(schema) && CHECK(file_exec(path, schema))) {
		stand_close(&stand);
		char *printed = dump_schema(path);
		char *made = dump_schema(stand.path);
		CHECK(made && strstr(made, "postern_open"));
		CHECK_STR(printed, made);
		free(printed);
		free(made);
	}
	stand_finish(&stand);
}

static int upgrade(struct stand *stand, const char *const *steps,
		int64_t newest) {
	return postern__sqlite_upgrade(postern__sqlite_from_base(stand->store), 1,
			steps, newest, &stand->error);
}

static void upgraded(void) {
	static const char *const steps[] = {
		"CREATE TABLE postern_second (n); INSERT INTO postern_second VALUES "
		"(1)",
		"UPDATE postern_second SET n = n + 1",
	};
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK_OK(upgrade(&stand, steps, 3), &stand.error);
		stand_close(&stand);
		CHECK_INT(file_number(stand.path, VERSION), 3);
		CHECK_INT(file_number(stand.path, "SELECT n FROM postern_second"), 2);
	}
	stand_finish(&stand);
}

static void upgrade_fails(void) {
	static const char *const steps[] = {
		"CREATE TABLE postern_second (n)",
		"INSERT INTO postern_second VALUES (1); INSERT INTO nowhere VALUES (1)",
	};
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK(upgrade(&stand, steps, 3) != POSTERN_OK);
		CHECK_CONTAINS(stand.error.text, "nowhere");
		stand_close(&stand);
		CHECK_INT(file_number(stand.path, VERSION), 4);
		CHECK_INT(file_number(stand.path, "SELECT count(*) FROM sqlite_schema"
										  " WHERE name = 'postern_second'"),
				0);
		CHECK(stand_open(&stand));
	}
	stand_finish(&stand);
}

/* Every column of every table, as one text per line. */
#define COLUMNS                                                             \
	"SELECT group_concat(t, x'0a') FROM (SELECT m.name || '.' || p.name ||" \
	" p.type || p.\"notnull\" || p.pk AS t FROM sqlite_schema m, "          \
	"pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY m.name, "  \
	"p.cid)"

static char *dump_columns(const char *path) {
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	char *text = NULL;
	if (sqlite3_open(path, &db) == SQLITE_OK &&
			sqlite3_prepare_v2(db, COLUMNS, -1, &statement, NULL) ==
					SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		text = strdup((const char *)sqlite3_column_text(statement, 0));
	}
	(void)sqlite3_finalize(statement); /* repeats the step's result */
	(void)sqlite3_close(db);           /* nothing is left open */
	return text;
}

static void from_version_1(void) {
	struct stand stand;
	char fresh[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "fresh.db", fresh, sizeof fresh);
	CHECK(file_exec(fresh, postern__sqlite_schema));
	CHECK(file_exec(stand.path, sqlite_schema_1));
	CHECK(file_exec(stand.path,
			"INSERT INTO postern_meta VALUES ('hash_key', zeroblob(16));"
			"INSERT INTO postern_channel (id, name) VALUES (1, 'orders');"
			"INSERT INTO postern_node VALUES (77, 5);"
			"INSERT INTO postern_message (seq, channel, received_at, id, type,"
			" body) VALUES (9, 1, 1, 'a', 't', x'00');"
			"INSERT INTO postern_seen VALUES (x'aa', 9, x'bb', 1)"));
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK_INT(file_number(stand.path, VERSION), 4);
		CHECK_INT(file_number(stand.path, "SELECT channel FROM postern_seen"),
				1);
		CHECK_INT(file_number(stand.path, "SELECT count(*) FROM postern_node"
										  " WHERE node = 77"),
				0);
		char *upgraded_columns = dump_columns(stand.path);
		char *fresh_columns = dump_columns(fresh);
		CHECK(fresh_columns && strstr(fresh_columns, "postern_lock.fence"));
		CHECK_STR(upgraded_columns, fresh_columns);
		free(upgraded_columns);
		free(fresh_columns);
	}
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "a newer schema is refused", newer_schema },
	{ "business tables in the same file are not changed", business_tables },
	{ "a file created by Postern has Postern's application id",
			application_id },
	{ "the printed schema is the one that is created", printed_schema },
	{ "an upgrade runs every step that is missing", upgraded },
	{ "an upgrade that fails changes nothing", upgrade_fails },
	{ "a file of version 1 becomes like a new one", from_version_1 },
};

TAP_MAIN(cases)
