/* SPDX-License-Identifier: MIT */

/*
 * Functions that several stores share.
 */

#include "store/common.h"

#include <postern/handler.h>
#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "store/store.h"

int postern__enrolment_check(const struct postern_enrolment *enrolment,
		struct postern_error *error) {
	const struct postern_enrol_handler *handlers = enrolment->handlers;
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		for (size_t j = 0; j < i; j++) {
			if (handlers[i].id == handlers[j].id) {
				return postern__fail(error, POSTERN_E_INVALID,
						"handlers '%s' and '%s' have the same stored id: check "
						"their keys and legacy keys",
						handlers[j].key, handlers[i].key);
			}
		}
	}
	return POSTERN_OK;
}

void postern__units_reset(struct postern_unit *units, size_t count) {
	for (size_t i = 0; i < count; i++) {
		units[i].code = POSTERN_OK;
		units[i].committed = false;
		units[i].duration_ms = 0;
		postern_outcome_set(&units[i].outcome, POSTERN_DONE, 0, NULL);
	}
}

bool postern__unit_completes(const struct postern_unit *unit) {
	return unit->code == POSTERN_OK &&
		   (unit->outcome.kind == POSTERN_DONE ||
				   unit->outcome.kind == POSTERN_DISCARD);
}

void postern__unit_refuse(struct postern_unit *unit, int code,
		const char *reason) {
	unit->code = code;
	if (reason) {
		(void)snprintf(unit->outcome.reason, sizeof unit->outcome.reason, "%s",
				reason);
	}
}

unsigned postern__filter_states(const struct postern_filter *filter) {
	unsigned states = ~0u;
	if (filter->state == POSTERN_STATE_RETRYING) {
		states = POSTERN__STATE_BIT(POSTERN_STATE_PENDING);
	} else if (filter->state != POSTERN_STATE_ANY) {
		states = POSTERN__STATE_BIT(filter->state);
	}
	if (filter->handler) {
		/* A parked message has no handler. */
		states &= ~POSTERN__STATE_BIT(POSTERN_STATE_PARKED);
	}
	return states;
}

void postern__sql_add_open_states(struct postern__buf *sql, unsigned states) {
	if (!(states & POSTERN__STATE_BIT(POSTERN_STATE_LEASED))) {
		postern__buf_append_text(sql, " AND d.node IS NULL");
	}
	if (!(states & POSTERN__STATE_BIT(POSTERN_STATE_PENDING))) {
		postern__buf_append_text(sql, " AND d.node IS NOT NULL");
	}
}

void postern__sql_add_ended_states(struct postern__buf *sql, unsigned states) {
	if ((states & POSTERN__STATES_ENDED) == POSTERN__STATES_ENDED) {
		return;
	}
	postern__buf_append_text(sql, " AND d.state IN (");
	const char *comma = "";
	for (unsigned i = POSTERN_STATE_DONE; i <= POSTERN_STATE_DISCARDED; i++) {
		if (states & POSTERN__STATE_BIT(i)) {
			postern__buf_printf(sql, "%s%u", comma, i);
			comma = ", ";
		}
	}
	postern__buf_append_text(sql, ")");
	if (!(states & POSTERN__STATE_BIT(POSTERN_STATE_DONE))) {
		/* The condition of the partial index must appear literally, or the
		   planner does not use the index. */
		postern__buf_append_text(sql, " AND d.state <> 3");
	}
}

int postern__rival_fail(uint64_t node, const char *host, int64_t pid,
		const char *lock_name, struct postern_error *error) {
	char where[100] = "";
	char how[100] = "without a lock";
	if (host && *host) {
		(void)snprintf(where, sizeof where, " (%.60s, pid %lld)", host,
				(long long)pid);
	}
	if (lock_name) {
		(void)snprintf(how, sizeof how, "under the lock '%.60s'", lock_name);
	}
	return postern__fail(error, POSTERN_E_BUSY,
			"node %016llx%s processes %s: stop it, or give all nodes the same "
			"'processing' and 'lock_name'",
			(unsigned long long)node, where, how);
}

static struct postern_group *tally_find(struct postern__tally *tally,
		const struct postern_group *wanted) {
	for (size_t i = 0; i < tally->count; i++) {
		if (tally->groups[i].group == wanted->group &&
				strcmp(tally->groups[i].handler, wanted->handler) == 0) {
			return &tally->groups[i];
		}
	}
	return NULL;
}

static bool tally_reserve(struct postern__tally *tally) {
	if (tally->count < tally->cap) {
		return true;
	}
	size_t cap = tally->cap > 0 ? 2 * tally->cap : 16;
	struct postern_group *groups =
			postern_memory_alloc(tally->memory, cap * sizeof *groups);
	if (!groups) {
		return false;
	}
	if (tally->count > 0) {
		memcpy(groups, tally->groups, tally->count * sizeof *groups);
	}
	tally->groups = groups;
	tally->cap = cap;
	return true;
}

bool postern__tally_add(struct postern__tally *tally,
		const struct postern_group *group) {
	struct postern_group *known = tally_find(tally, group);
	if (known) {
		known->count += group->count;
		known->first_at_ms = group->first_at_ms < known->first_at_ms
									 ? group->first_at_ms
									 : known->first_at_ms;
		known->last_at_ms = group->last_at_ms > known->last_at_ms
									? group->last_at_ms
									: known->last_at_ms;
		return true;
	}
	if (!tally_reserve(tally)) {
		return false;
	}
	struct postern_group added = *group;
	added.handler = postern_memory_text(tally->memory, group->handler);
	added.example = postern_memory_text(tally->memory, group->example);
	if (!added.handler || !added.example) {
		return false;
	}
	tally->groups[tally->count++] = added;
	return true;
}

static int compare_groups(const void *a, const void *b) {
	const struct postern_group *left = a;
	const struct postern_group *right = b;
	if (left->count != right->count) {
		return left->count > right->count ? -1 : 1;
	}
	int order = strcmp(left->handler, right->handler);
	return order != 0 ? order
					  : (left->group > right->group) -
								(left->group < right->group);
}

void postern__tally_sort(struct postern__tally *tally) {
	if (tally->count > 0) {
		qsort(tally->groups, tally->count, sizeof *tally->groups,
				compare_groups);
	}
}

static char lower(char c) {
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool begins_with(const char *text, const char *part) {
	while (*part && lower(*text) == lower(*part)) {
		text++;
		part++;
	}
	return !*part;
}

bool postern__error_contains(const char *text, const char *part) {
	for (; text && *text; text++) {
		if (begins_with(text, part)) {
			return true;
		}
	}
	return false;
}

void postern__store_report(const struct postern_store *store,
		enum postern_event_kind kind, const char *error, const char *text) {
	struct postern_event event = {
		.size = sizeof event,
		.kind = kind,
		.error = error,
		.text = text,
	};
	postern_store_report(store, &event);
}

void postern__suppressed_text(int64_t seq,
		char out[POSTERN__SUPPRESSED_TEXT_MAX]) {
	(void)snprintf(out, POSTERN__SUPPRESSED_TEXT_MAX, "suppressed by #%lld",
			(long long)seq);
}

void postern__rule_name(const struct postern_kept_rule *rule,
		char out[POSTERN__RULE_NAME_MAX]) {
	(void)snprintf(out, POSTERN__RULE_NAME_MAX, "rule %lld %lld",
			(long long)rule->channel, (long long)rule->handler);
}

bool postern__rule_is_known(const struct postern_kept_rule *rule) {
	return rule->channel != 0 && (rule->handler != 0 || !rule->handler_key);
}

bool postern__rule_changes(const struct postern_kept_rule *rule, bool accepted,
		bool marked) {
	if (!rule->former || strcmp(rule->former, rule->rule) == 0) {
		return false;
	}
	return (accepted && rule->former[0]) || (marked && rule->guarded);
}
