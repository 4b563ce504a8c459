/* SPDX-License-Identifier: MIT */

/*
 * Enrolling: resolves names to stored ids, permanently.
 *
 * A key names one stored handler. A handler owns itself until its key is
 * enrolled as a legacy key of another stored handler; then that handler owns
 * it, and it is an alias. An owner is never an alias.
 */

#include <postern/handler.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

static int key_insert(struct sqlite_store *self, const char *key,
		int64_t handler, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_handler_key (key, handler) VALUES (?1, ?2)");
	postern__sqlite_bind_text(&query, 1, key);
	postern__sqlite_bind_int(&query, 2, handler);
	return postern__sqlite_end(&query, error);
}

static int handler_insert(struct sqlite_store *self, const char *key,
		int64_t *id_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_handler (id, owner, key)"
			" SELECT n, n, ?1 FROM (SELECT coalesce(max(id), 0) + 1 AS n"
			" FROM postern_handler)");
	postern__sqlite_bind_text(&query, 1, key);
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK) {
		*id_out = sqlite3_last_insert_rowid(self->writer.db);
	}
	return r;
}

/* Resolves a new key: to the handler of one of its legacy keys, or to a new
   handler. */
static int new_key_resolve(struct sqlite_store *self,
		const struct postern_enrol_handler *handler, int64_t *id_out,
		struct postern_error *error) {
	int64_t id = 0;
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && !id && i < handler->legacy_key_count;
			i++) {
		r = postern__sqlite_resolve(&self->writer, handler->legacy_keys[i], &id,
				error);
	}
	if (r == POSTERN_OK && !id) {
		r = handler_insert(self, handler->key, &id, error);
	}
	if (r == POSTERN_OK) {
		r = key_insert(self, handler->key, id, error);
	}
	*id_out = id;
	return r;
}

/* Makes `to` the owner of all ids that `from` owns. A pause of either one is a
   pause of both. */
static int owner_update(struct sqlite_store *self, int64_t from, int64_t to,
		struct postern_error *error) {
	static const char *const statements[] = {
		/* The one that lasts longer, as postern__halt_outlasts() says. */
		"UPDATE postern_handler AS o SET (paused, paused_at, paused_until,"
		" pause_reason, pause_by) = (f.paused, f.paused_at, f.paused_until,"
		" f.pause_reason, f.pause_by) FROM postern_handler f"
		" WHERE o.id = ?2 AND f.id = ?1 AND f.paused AND (NOT o.paused"
		" OR o.paused_until <> 0 AND (f.paused_until = 0"
		" OR f.paused_until > o.paused_until))",
		"UPDATE postern_handler SET owner = ?2 WHERE owner = ?1",
	};
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < 2; i++) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &self->writer, statements[i]);
		postern__sqlite_bind_int(&query, 1, from);
		postern__sqlite_bind_int(&query, 2, to);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

static int handler_enrol(struct sqlite_store *self,
		const struct postern_enrol_handler *handler,
		struct postern_error *error) {
	int64_t id;
	int r = postern__sqlite_resolve(&self->writer, handler->key, &id, error);
	if (r == POSTERN_OK && !id) {
		r = new_key_resolve(self, handler, &id, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < handler->legacy_key_count; i++) {
		const char *key = handler->legacy_keys[i];
		int64_t known;
		r = postern__sqlite_resolve(&self->writer, key, &known, error);
		if (r == POSTERN_OK && !known) {
			r = key_insert(self, key, id, error);
		} else if (r == POSTERN_OK && known != id) {
			r = owner_update(self, known, id, error);
		}
	}
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_handler SET key = ?2, in_process = ?3,"
			" max_crashes = ?4, dedupe_ms = nullif(?5, 0) WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, id);
	postern__sqlite_bind_text(&query, 2, handler->key);
	postern__sqlite_bind_int(&query, 3, handler->in_process);
	postern__sqlite_bind_int(&query, 4, handler->max_crashes);
	postern__sqlite_bind_int(&query, 5, handler->dedupe_ms);
	return postern__sqlite_end(&query, error);
}

/* Returns the handler ids to the caller, now that all owners are final. */
static int resolve_all(struct sqlite_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->handler_count; i++) {
		struct postern_enrol_handler *handler = &enrolment->handlers[i];
		r = postern__sqlite_resolve(&self->writer, handler->key, &handler->id,
				error);
	}
	return r == POSTERN_OK ? postern__enrolment_check(enrolment, error) : r;
}

static int node_channels_write(struct sqlite_store *self,
		const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_node_channel WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
	int r = postern__sqlite_end(&query, error);
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->channel_count; i++) {
		postern__sqlite_query(&query, &self->writer,
				"INSERT OR IGNORE INTO postern_node_channel (node, channel)"
				" VALUES (?1, ?2)");
		postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
		postern__sqlite_bind_int(&query, 2, enrolment->channels[i].id);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

static int node_enrol(struct sqlite_store *self,
		const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT OR REPLACE INTO postern_node VALUES (?1, ?2, ?3)");
	postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
	int64_t now = postern__sqlite_now(self);
	postern__sqlite_bind_int(&query, 2, now);
	if (enrolment->node_lease_ms > 0) {
		postern__sqlite_bind_int(&query, 3, now + enrolment->node_lease_ms);
	} else {
		postern__sqlite_bind_null(&query, 3);
	}
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_node_handler WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
	r = postern__sqlite_end(&query, error);
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->handler_count; i++) {
		postern__sqlite_query(&query, &self->writer,
				"INSERT INTO postern_node_handler (node, handler)"
				" VALUES (?1, ?2)");
		postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
		postern__sqlite_bind_int(&query, 2, enrolment->handlers[i].id);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

/* An expired node is never enrolled again. */
static int reenrol_check(struct sqlite_store *self,
		const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	bool known = !enrolment->again;
	struct sqlite_query query;
	if (known) {
		return POSTERN_OK;
	}
	postern__sqlite_query(&query, &self->writer,
			"SELECT 1 FROM postern_node WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)enrolment->node);
	known = postern__sqlite_row(&query);
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !known
				   ? postern__fail(error, POSTERN_E_STALE,
							 "node %016llx has expired",
							 (unsigned long long)enrolment->node)
				   : r;
}

static int enrol_all(struct sqlite_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	int r = reenrol_check(self, enrolment, error);
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->channel_count; i++) {
		r = postern__sqlite_channel_enrol(self, &enrolment->channels[i], error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < enrolment->handler_count; i++) {
		r = handler_enrol(self, &enrolment->handlers[i], error);
	}
	if (r == POSTERN_OK) {
		r = resolve_all(self, enrolment, error);
	}
	if (r == POSTERN_OK) {
		r = node_enrol(self, enrolment, error);
	}
	if (r == POSTERN_OK) {
		r = node_channels_write(self, enrolment, error);
	}
	return r;
}

int postern__sqlite_enrol(struct postern_store *store,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = enrol_all(self, enrolment, error);
		bool enrolled = r == POSTERN_OK;
		if (enrolled) {
			/* Before the commit: nothing may fail after it. */
			r = postern__sqlite_directory_load(self, error);
		}
		r = postern__sqlite_finish(self, r, error);
		/* After a rollback the loaded directory is wrong: reload it before the
		   next use. */
		self->broken = self->broken || (enrolled && r != POSTERN_OK);
	}
	postern__sqlite_gate_leave(self);
	return r;
}
