/* SPDX-License-Identifier: MIT */

/*
 * What a transactional handler may do with the store's connection.
 *
 * Its writes must become durable together with its completion, so it must not
 * end the transaction, nor change the tables of this store, nor leave anything
 * on the connection that would affect the next message. While a unit runs,
 * SQLite asks the authorizer below about every statement it prepares and
 * refuses what is not allowed; the unit is then rolled back, whatever it
 * returns.
 *
 * Not every way to end a transaction is a statement that can be refused: INSERT
 * OR ROLLBACK and RAISE(ROLLBACK) are detected by a hook. Writes of such a unit
 * after that would be committed separately; another hook turns these commits
 * into rollbacks.
 *
 * Savepoints are allowed, except those of Postern. Foreign keys are enforced
 * and may be deferred to the end of the unit by their declaration.
 */

#include <string.h>
#include <strings.h>

#include "store/sqlite/publish_sql.h"
#include "store/sqlite/sqlite.h"

/* Pragmas that only return information. */
static const char *const pragmas[] = {
	"foreign_key_check",
	"foreign_key_list",
	"index_info",
	"index_list",
	"index_xinfo",
	"table_info",
	"table_list",
	"table_xinfo",
};

static bool is_postern_name(const char *name) {
	return name && strncasecmp(name, "postern_", strlen("postern_")) == 0;
}

static bool is_harmless_pragma(const char *name) {
	for (size_t i = 0; i < sizeof pragmas / sizeof pragmas[0]; i++) {
		if (strcasecmp(name, pragmas[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns what the statement does that is not allowed; NULL: nothing. */
static const char *statement_breach(int action, const char *first,
		const char *second) {
	switch (action) {
	case SQLITE_TRANSACTION: return "handler ended the transaction itself";
	case SQLITE_SAVEPOINT:
		return is_postern_name(second) ? "handler used a savepoint of postern"
									   : NULL;
	case SQLITE_ATTACH:
	case SQLITE_DETACH: return "handler attached or detached a database";
	case SQLITE_PRAGMA:
		return is_harmless_pragma(first)
					   ? NULL
					   : "handler used a pragma that changes the connection";
	case SQLITE_CREATE_TEMP_INDEX:
	case SQLITE_CREATE_TEMP_TABLE:
	case SQLITE_CREATE_TEMP_TRIGGER:
	case SQLITE_CREATE_TEMP_VIEW:
	case SQLITE_DROP_TEMP_INDEX:
	case SQLITE_DROP_TEMP_TABLE:
	case SQLITE_DROP_TEMP_TRIGGER:
	case SQLITE_DROP_TEMP_VIEW:
		return "handler created a temporary object, which would outlive the "
			   "message";
	case SQLITE_INSERT:
	case SQLITE_UPDATE:
	case SQLITE_DELETE:
	case SQLITE_CREATE_INDEX:
	case SQLITE_CREATE_TABLE:
	case SQLITE_CREATE_TRIGGER:
	case SQLITE_CREATE_VIEW:
	case SQLITE_CREATE_VTABLE:
	case SQLITE_DROP_INDEX:
	case SQLITE_DROP_TABLE:
	case SQLITE_DROP_TRIGGER:
	case SQLITE_DROP_VIEW:
	case SQLITE_DROP_VTABLE:
	case SQLITE_ALTER_TABLE:
		/* `second` is a table or a column, or NULL. */
		return is_postern_name(first) || (action != SQLITE_UPDATE &&
												 is_postern_name(second))
					   ? "handler changed a table of postern"
					   : NULL;
	default: return NULL;
	}
}

/* Whether this stages a message: an insert into the view, or something that its
   trigger does. No unit can create a trigger of that name. */
static bool publishes(int action, const char *first, const char *trigger) {
	return (trigger && strcmp(trigger, SQLITE_PUBLISH_TRIGGER) == 0) ||
		   (action == SQLITE_INSERT && first &&
				   strcasecmp(first, SQLITE_PUBLISH_VIEW) == 0);
}

static int authorize(void *context, int action, const char *first,
		const char *second, const char *database, const char *trigger) {
	struct sqlite_store *self = context;
	(void)database;
	if (!self->unit.running || publishes(action, first, trigger)) {
		return SQLITE_OK;
	}
	const char *breach = statement_breach(action, first, second);
	if (!breach) {
		return SQLITE_OK;
	}
	self->unit.breach = breach;
	return SQLITE_DENY;
}

/* Called before a commit; a non-zero result makes it a rollback. */
static int sandbox_on_commit(void *context) {
	struct sqlite_store *self = context;
	if (self->unit.running) {
		self->unit.rolled_back = true;
	}
	return self->unit.running;
}

static void sandbox_on_rollback(void *context) {
	struct sqlite_store *self = context;
	if (self->unit.running) {
		self->unit.rolled_back = true;
	}
}

void postern__sqlite_sandbox_install(struct sqlite_store *self) {
	/* Only once: setting it makes SQLite prepare every statement again. */
	(void)sqlite3_set_authorizer(self->writer.db, authorize, self);
	(void)sqlite3_commit_hook(self->writer.db, sandbox_on_commit, self);
	(void)sqlite3_rollback_hook(self->writer.db, sandbox_on_rollback, self);
}

void postern__sqlite_sandbox_enter(struct sqlite_store *self,
		const void *context) {
	(void)pthread_mutex_lock(&self->unit.mutex);
	self->unit.context = context;
	self->unit.active = true;
	self->unit.running = true;
	self->unit.interrupted = false;
	self->unit.rolled_back = false;
	self->unit.breach = NULL;
	(void)pthread_mutex_unlock(&self->unit.mutex);
}

void postern__sqlite_sandbox_leave(struct sqlite_store *self) {
	(void)pthread_mutex_lock(&self->unit.mutex);
	self->unit.active = false;
	self->unit.running = false;
	(void)pthread_mutex_unlock(&self->unit.mutex);
	self->unit.rolled_back =
			self->unit.rolled_back || sqlite3_get_autocommit(self->writer.db);
}

void postern__sqlite_sandbox_reset_statements(struct sqlite_store *self) {
	sqlite3_stmt *statement = NULL;
	while ((statement = sqlite3_next_stmt(self->writer.db, statement))) {
		if (sqlite3_stmt_busy(statement)) {
			(void)sqlite3_reset(statement); /* the unit got its result */
		}
	}
}

void postern__sqlite_interrupt(struct postern_store *store,
		const void *context) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	(void)pthread_mutex_lock(&self->unit.mutex);
	if (self->unit.active && (!context || context == self->unit.context)) {
		self->unit.interrupted = true;
		sqlite3_interrupt(self->writer.db);
	}
	(void)pthread_mutex_unlock(&self->unit.mutex);
}
