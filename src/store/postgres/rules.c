/* SPDX-License-Identifier: MIT */

/*
 * The key rules in force, as texts in meta: "rule CHANNEL HANDLER". The table
 * is locked against other writers meanwhile, so that of two nodes with
 * different rules one is refused.
 */

#include <string.h>

#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	struct postern_kept_rule *rules;
	size_t count;
	struct postern_memory *memory;
};

static int compare_rule(struct pg_connection *connection,
		struct postern_kept_rule *rule, struct postern_memory *memory,
		struct postern_error *error) {
	char name[POSTERN__RULE_NAME_MAX];
	struct pg_query query;
	postern__rule_name(rule, name);
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_int4(&query, rule->channel);
	int r = postern__pg_run(&query,
			"SELECT (SELECT convert_from(value, 'UTF8') FROM @meta"
			" WHERE name = $1), EXISTS (SELECT 1 FROM @channel_tally"
			" WHERE channel = $2 AND accepted > 0),"
			" EXISTS (SELECT 1 FROM @marker)",
			error);
	if (r == POSTERN_OK &&
			!postern__pg_get_text(&query, 0, 0, memory, &rule->former)) {
		r = postern__pg_no_memory(error);
	}
	if (r == POSTERN_OK) {
		rule->changed =
				postern__rule_changes(rule, postern__pg_get(&query, 0, 1) != 0,
						postern__pg_get(&query, 0, 2) != 0);
	}
	postern__pg_end(&query);
	return r;
}

static int write_rule(struct pg_connection *connection,
		const struct postern_kept_rule *rule, struct postern_error *error) {
	char name[POSTERN__RULE_NAME_MAX];
	struct pg_query query;
	postern__rule_name(rule, name);
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_text(&query, rule->rule);
	int r = postern__pg_run(&query,
			"INSERT INTO @meta (name, value)"
			" VALUES ($1, convert_to($2, 'UTF8'))"
			" ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			error);
	postern__pg_end(&query);
	return r;
}

static int keep_all(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	bool refused = false;
	int r = postern__pg_exec(connection,
			"LOCK TABLE @meta IN SHARE ROW EXCLUSIVE MODE", error);
	for (size_t i = 0; r == POSTERN_OK && i < work->count; i++) {
		struct postern_kept_rule *rule = &work->rules[i];
		r = compare_rule(connection, rule, work->memory, error);
		refused = refused || (rule->changed && !rule->confirmed);
	}
	for (size_t i = 0; r == POSTERN_OK && !refused && i < work->count; i++) {
		const struct postern_kept_rule *rule = &work->rules[i];
		if (!rule->former || strcmp(rule->former, rule->rule) != 0) {
			r = write_rule(connection, rule, error);
		}
	}
	return r;
}

/* Finds the ids of a rule by its names; 0: unknown. */
static int find_ids(struct pg_connection *connection,
		struct postern_kept_rule *rule, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, rule->channel_name);
	postern__pg_text(&query, rule->handler_key);
	int r = postern__pg_run(&query,
			"SELECT coalesce((SELECT channel FROM @channel_name"
			" WHERE name = $1), 0),"
			" coalesce((SELECT h.owner FROM @handler_key k"
			" JOIN @handler h ON h.id = k.handler WHERE k.key = $2), 0)",
			error);
	if (r == POSTERN_OK) {
		rule->channel = postern__pg_get(&query, 0, 0);
		rule->handler = postern__pg_get(&query, 0, 1);
	}
	postern__pg_end(&query);
	return r;
}

static int compare_all(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	int r = POSTERN_OK;
	(void)again;
	for (size_t i = 0; r == POSTERN_OK && i < work->count; i++) {
		struct postern_kept_rule *rule = &work->rules[i];
		r = find_ids(connection, rule, error);
		if (r == POSTERN_OK && postern__rule_is_known(rule)) {
			r = compare_rule(connection, rule, work->memory, error);
		}
	}
	return r;
}

static int keep_in_transaction(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)again;
	int r = postern__pg_begin(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = keep_all(connection, context, error);
	return postern__pg_finish(connection, r, error);
}

int postern__pg_keep_rules(struct postern_store *store,
		struct postern_kept_rule *rules, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct work work = { rules, count, memory };
	struct pg_store *self = postern__pg_from_base(store);
	return postern__pg_do(self,
			self->read_only ? compare_all : keep_in_transaction, &work, error);
}
