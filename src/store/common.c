/* SPDX-License-Identifier: MIT */

/*
 * Functions that several stores share.
 */

#include "store/common.h"

#include <postern/handler.h>
#include <stdio.h>

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
