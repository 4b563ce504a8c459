/* SPDX-License-Identifier: MIT */

/*
 * The key rules in force, as texts in postern_meta: "rule CHANNEL HANDLER".
 */

#include <string.h>

#include "store/common.h"
#include "store/sqlite/sqlite.h"

static struct sqlite_connection *reading(struct sqlite_store *self) {
	return self->read_only ? &self->reader : &self->writer;
}

/* Reads what is kept; *out is NULL if nothing is. */
static int read_rule(struct sqlite_store *self, const char *name,
		struct postern_memory *memory, const char **out,
		struct postern_error *error) {
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, reading(self),
			"SELECT value FROM postern_meta WHERE name = ?1");
	postern__sqlite_bind_text(&query, 1, name);
	*out = NULL;
	if (postern__sqlite_row(&query)) {
		ok = postern__sqlite_text(query.statement, 0, memory, out);
	}
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

/* Whether the channel has accepted messages, and the store has markers. */
static int look_for_keys(struct sqlite_store *self, int64_t channel,
		bool *accepted_out, bool *marked_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, reading(self),
			"SELECT accepted > 0, EXISTS (SELECT 1 FROM postern_marker)"
			" FROM postern_channel WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, channel);
	bool found = postern__sqlite_row(&query);
	*accepted_out = found && postern__sqlite_int(&query, 0) != 0;
	*marked_out = found && postern__sqlite_int(&query, 1) != 0;
	return postern__sqlite_end(&query, error);
}

static int compare_rule(struct sqlite_store *self,
		struct postern_kept_rule *rule, struct postern_memory *memory,
		struct postern_error *error) {
	char name[POSTERN__RULE_NAME_MAX];
	bool accepted = false;
	bool marked = false;
	postern__rule_name(rule, name);
	int r = read_rule(self, name, memory, &rule->former, error);
	if (r == POSTERN_OK) {
		r = look_for_keys(self, rule->channel, &accepted, &marked, error);
	}
	if (r == POSTERN_OK) {
		rule->changed = postern__rule_changes(rule, accepted, marked);
	}
	return r;
}

static int write_rule(struct sqlite_store *self,
		const struct postern_kept_rule *rule, struct postern_error *error) {
	char name[POSTERN__RULE_NAME_MAX];
	struct sqlite_query query;
	postern__rule_name(rule, name);
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_meta (name, value) VALUES (?1, ?2)"
			" ON CONFLICT (name) DO UPDATE SET value = ?2");
	postern__sqlite_bind_text(&query, 1, name);
	postern__sqlite_bind_text(&query, 2, rule->rule);
	return postern__sqlite_end(&query, error);
}

static int keep_all(struct sqlite_store *self, struct postern_kept_rule *rules,
		size_t count, struct postern_memory *memory,
		struct postern_error *error) {
	int r = POSTERN_OK;
	bool refused = false;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = compare_rule(self, &rules[i], memory, error);
		refused = refused || (rules[i].changed && !rules[i].confirmed);
	}
	for (size_t i = 0; r == POSTERN_OK && !refused && i < count; i++) {
		if (!rules[i].former || strcmp(rules[i].former, rules[i].rule) != 0) {
			r = write_rule(self, &rules[i], error);
		}
	}
	return r;
}

/* Finds the ids of a rule by its names; 0: unknown. */
static int find_ids(struct sqlite_store *self, struct postern_kept_rule *rule,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, reading(self),
			"SELECT (SELECT channel FROM postern_channel_name WHERE name = ?1),"
			" (SELECT h.owner FROM postern_handler_key k"
			" JOIN postern_handler h ON h.id = k.handler WHERE k.key = ?2)");
	postern__sqlite_bind_text(&query, 1, rule->channel_name);
	postern__sqlite_bind_text(&query, 2, rule->handler_key);
	bool found = postern__sqlite_row(&query);
	rule->channel = found ? postern__sqlite_int(&query, 0) : 0;
	rule->handler = found ? postern__sqlite_int(&query, 1) : 0;
	return postern__sqlite_end(&query, error);
}

static int compare_all(struct sqlite_store *self,
		struct postern_kept_rule *rules, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = find_ids(self, &rules[i], error);
		if (r == POSTERN_OK && postern__rule_is_known(&rules[i])) {
			r = compare_rule(self, &rules[i], memory, error);
		}
	}
	postern__sqlite_read_end(self);
	return r;
}

int postern__sqlite_keep_rules(struct postern_store *store,
		struct postern_kept_rule *rules, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	if (self->read_only) {
		return compare_all(self, rules, count, memory, error);
	}
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = keep_all(self, rules, count, memory, error);
		r = postern__sqlite_finish(self, r, error);
	}
	postern__sqlite_gate_leave(self);
	return r;
}
