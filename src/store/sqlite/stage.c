/* SPDX-License-Identifier: MIT */

/*
 * Who may stage messages by "insert into postern_publish".
 *
 * In a shared file every program may, and the schema's view and trigger serve
 * all of them. In a file that is not shared only the handlers of the process
 * that has it open may: another process must not write to its write-ahead log.
 * The trigger of the schema refuses every insert then, and the writer has a
 * temporary view of the same name, which SQLite finds first, with a trigger
 * that does not.
 *
 * The sandbox of a handler (sandbox.c) allows inserts into this view, and to
 * its trigger what it does.
 */

#include "base/fail.h"
#include "base/point.h"
#include "store/sqlite/publish_sql.h"
#include "store/sqlite/sqlite.h"

/* clang-format off */
static const char writer_view[] =
"CREATE TEMP VIEW postern_publish (" SQLITE_PUBLISH_COLUMNS ") AS\n"
"	SELECT * FROM main.postern_publish;\n"
"CREATE TEMP TRIGGER " SQLITE_PUBLISH_TRIGGER
" INSTEAD OF INSERT ON postern_publish\n"
"BEGIN\n"
SQLITE_PUBLISH_BODY
"END;\n";
/* clang-format on */

int postern__sqlite_stage_set_up(struct sqlite_store *self,
		struct postern_error *error) {
	return self->shared
				   ? POSTERN_OK
				   : postern__sqlite_exec(&self->writer, writer_view, error);
}

int postern__sqlite_stage_declare(struct sqlite_store *self,
		struct postern_error *error) {
	int64_t shared = 0;
	int r = postern__sqlite_number(&self->writer,
			"SELECT value FROM postern_meta WHERE name = 'shared'", &shared,
			error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_stage_set_up(self, error);
	}
	if (r != POSTERN_OK || (shared != 0) == self->shared) {
		return r;
	}
	r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT OR REPLACE INTO postern_meta VALUES ('shared', ?1)");
	postern__sqlite_bind_int(&query, 1, self->shared);
	r = postern__sqlite_end(&query, error);
	postern__point("sqlite-stage.declared");
	return postern__sqlite_finish(self, r, error);
}
