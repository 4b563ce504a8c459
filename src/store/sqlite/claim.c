/* SPDX-License-Identifier: MIT */

/*
 * Claiming: pick deliveries first, then lease them in one transaction.
 *
 * No other process writes, so picked deliveries are unchanged when they are
 * leased. If nothing is due, nothing is written. The store counts the pending
 * deliveries of each handler in memory: if no wanted handler has any, the file
 * is not read.
 *
 * Each id of a handler is queried separately, through an index of its pending
 * deliveries by due time, so the cost does not depend on the backlog or on
 * other handlers. The owner's id comes last: new deliveries are never stored
 * under an alias, so the deliveries of aliases cannot delay the others for
 * long.
 */

#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

struct pick {
	int64_t seq;
	int64_t handler;
	size_t want;
	enum postern_suspicion suspicion;
};

struct picks {
	struct pick *items;
	size_t count;
	size_t cap;
	bool no_memory;
};

static void picks_add(struct picks *picks, int64_t seq, int64_t handler,
		size_t want, enum postern_suspicion suspicion) {
	if (picks->count == picks->cap) {
		size_t cap = picks->cap ? 2 * picks->cap : 64;
		struct pick *items = realloc(picks->items, cap * sizeof *items);
		if (!items) {
			picks->no_memory = true;
			return;
		}
		picks->items = items;
		picks->cap = cap;
	}
	picks->items[picks->count++] = (struct pick){
		.seq = seq,
		.handler = handler,
		.want = want,
		.suspicion = suspicion,
	};
}

/* Whether the want's handler has pending deliveries; a paused handler gets
   nothing, and does not delay the others. */
static bool has_claimable(struct sqlite_store *self,
		const struct postern_want *want) {
	const struct sqlite_handler *owner =
			postern__sqlite_owner(self, want->handler);
	if (!owner ||
			postern__halt_holds(&owner->pause, postern__sqlite_now(self))) {
		return false;
	}
	postern__sqlite_each_id(self, id, want->handler) {
		if (self->handlers[id].counts.pending > 0) {
			return true;
		}
	}
	return false;
}

/* Whether a want of an in-process handler includes suspects that are stored
   under this id; *want_out is its index. */
static bool is_wanted_suspect(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t handler, size_t *want_out) {
	const struct sqlite_handler *owner = postern__sqlite_owner(self, handler);
	for (size_t i = 0; i < claim->want_count; i++) {
		const struct postern_want *want = &claim->wants[i];
		if (want->in_process && owner &&
				postern__sqlite_owner(self, want->handler) == owner) {
			*want_out = i;
			return has_claimable(self, want);
		}
	}
	return false;
}

/* Marks the pick as solo if no other member of its group is pending or leased:
   members whose handler is paused or not wanted remain when the others are
   claimed. */
static int mark_solo(struct sqlite_store *self, int64_t group,
		struct pick *pick, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT count(*) FROM postern_open INDEXED BY postern_open_suspect"
			" WHERE suspect > 0 AND suspect = ?1");
	postern__sqlite_bind_int(&query, 1, group);
	if (postern__sqlite_row(&query) && postern__sqlite_int(&query, 0) == 1) {
		pick->suspicion = POSTERN_SUSPECT_SOLO;
	}
	return postern__sqlite_end(&query, error);
}

/* Picks the oldest group of wanted suspects, whole; counts the others. */
static int pick_suspects(struct sqlite_store *self,
		const struct postern_claim *claim, struct picks *picks,
		uint64_t *waiting_out, struct postern_error *error) {
	uint64_t waiting = 0;
	int64_t group = 0;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT suspect, seq, handler FROM postern_open"
			" INDEXED BY postern_open_suspect"
			" WHERE suspect > 0 AND node IS NULL"
			" ORDER BY suspect, seq, handler");
	while (postern__sqlite_row(&query)) {
		int64_t handler = postern__sqlite_int(&query, 2);
		size_t want;
		if (!is_wanted_suspect(self, claim, handler, &want)) {
			continue;
		}
		if (claim->max > 0 &&
				(!group || group == postern__sqlite_int(&query, 0))) {
			group = postern__sqlite_int(&query, 0);
			picks_add(picks, postern__sqlite_int(&query, 1), handler, want,
					POSTERN_SUSPECT_GROUP);
		} else {
			waiting++;
		}
	}
	*waiting_out = waiting;
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK || picks->count != 1) {
		return r;
	}
	return mark_solo(self, group, &picks->items[0], error);
}

static int pick_due(struct sqlite_store *self, int64_t id, bool in_process,
		size_t want, size_t max, int64_t now, struct picks *picks,
		struct postern_error *error) {
	/* A suspect whose handler is no longer in-process is no suspect any
	   more. */
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			in_process
					? "SELECT seq FROM postern_open INDEXED BY postern_open_due"
					  " WHERE handler = ?1 AND node IS NULL AND suspect = 0"
					  " AND due_at <= ?2 ORDER BY due_at, seq LIMIT ?3"
					: "SELECT seq FROM (SELECT * FROM (SELECT seq, due_at"
					  " FROM postern_open INDEXED BY postern_open_due"
					  " WHERE handler = ?1 AND node IS NULL AND suspect = 0"
					  " AND due_at <= ?2 ORDER BY due_at, seq LIMIT ?3)"
					  " UNION ALL SELECT seq, due_at FROM postern_open"
					  " INDEXED BY postern_open_suspect"
					  " WHERE suspect > 0 AND handler = ?1 AND node IS NULL"
					  " AND due_at <= ?2) ORDER BY due_at, seq LIMIT ?3");
	postern__sqlite_bind_int(&query, 1, id);
	postern__sqlite_bind_int(&query, 2, now);
	postern__sqlite_bind_int(&query, 3, (int64_t)max);
	while (postern__sqlite_row(&query)) {
		picks_add(picks, postern__sqlite_int(&query, 0), id, want,
				POSTERN_NO_SUSPECT);
	}
	return postern__sqlite_end(&query, error);
}

static size_t lesser(size_t a, size_t b) {
	return a < b ? a : b;
}

/* Picks for one want, its aliases first. */
static int pick_want(struct sqlite_store *self,
		const struct postern_claim *claim, size_t index, int64_t now,
		struct picks *picks, struct postern_error *error) {
	const struct postern_want *want = &claim->wants[index];
	int64_t owner = postern__sqlite_handler(self, want->handler)->owner;
	size_t end = picks->count + lesser(want->max, claim->max - picks->count);
	int r = POSTERN_OK;
	postern__sqlite_each_id(self, id, want->handler) {
		if (id != owner && self->handlers[id].counts.pending > 0 &&
				r == POSTERN_OK) {
			r = pick_due(self, id, want->in_process, index, end - picks->count,
					now, picks, error);
		}
	}
	return r == POSTERN_OK ? pick_due(self, owner, want->in_process, index,
									 end - picks->count, now, picks, error)
						   : r;
}

/* Whether an earlier want is of the same handler. */
static bool want_is_repeated(struct sqlite_store *self,
		const struct postern_claim *claim, size_t index) {
	const struct sqlite_handler *owner =
			postern__sqlite_owner(self, claim->wants[index].handler);
	for (size_t i = 0; i < index; i++) {
		if (postern__sqlite_owner(self, claim->wants[i].handler) == owner) {
			return true;
		}
	}
	return false;
}

static int pick_all(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t now, struct picks *picks,
		uint64_t *waiting_out, struct postern_error *error) {
	int r = pick_suspects(self, claim, picks, waiting_out, error);
	bool has_suspects = picks->count > 0;
	for (size_t i = 0; r == POSTERN_OK && i < claim->want_count; i++) {
		const struct postern_want *want = &claim->wants[i];
		if (picks->count >= claim->max || !has_claimable(self, want) ||
				(has_suspects && want->in_process) ||
				want_is_repeated(self, claim, i)) {
			continue;
		}
		r = pick_want(self, claim, i, now, picks, error);
	}
	if (r == POSTERN_OK && picks->no_memory) {
		r = postern__sqlite_no_memory(error);
	}
	return r;
}

/* Reads the delivery before it is leased, and its message; *found_out: the
   delivery exists. */
static int read_pick(struct sqlite_store *self, const struct pick *pick,
		struct postern_memory *memory, struct postern_claimed *out,
		bool *found_out, struct postern_error *error) {
	int r = POSTERN_OK;
	struct sqlite_query query;
	*found_out = false;
	postern__sqlite_query(&query, &self->writer,
			"SELECT o.fence, o.failures, o.breaks, m.channel,"
			" " SQLITE_MESSAGE_COLUMNS " FROM postern_open o"
			" LEFT JOIN postern_message m ON m.seq = o.seq"
			" LEFT JOIN postern_channel c ON c.id = m.channel"
			" WHERE o.seq = ?1 AND o.handler = ?2 AND o.node IS NULL");
	postern__sqlite_bind_int(&query, 1, pick->seq);
	postern__sqlite_bind_int(&query, 2, pick->handler);
	if (postern__sqlite_row(&query)) {
		*found_out = true;
		*out = (struct postern_claimed){
			.seq = pick->seq,
			.handler = pick->handler,
			.want = pick->want,
			.channel = postern__sqlite_int(&query, 3),
			.fence = (uint64_t)postern__sqlite_int(&query, 0) + 1,
			.failures = (uint32_t)postern__sqlite_int(&query, 1),
			.breaks = (uint32_t)postern__sqlite_int(&query, 2),
			.suspicion = pick->suspicion,
		};
	}
	/* Without a channel, the message is missing. */
	if (*found_out && out->channel) {
		struct postern_message *message =
				postern_memory_alloc(memory, sizeof *message);
		r = message ? postern__sqlite_message_read(&query, 4, memory, message,
							  error)
					: postern__sqlite_no_memory(error);
		out->message = message;
		if (r == POSTERN_E_CORRUPT) {
			/* One damaged row must not block all the others. */
			out->message = NULL;
			r = POSTERN_OK;
		}
	}
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	return r == POSTERN_OK ? ended : r;
}

static int lease_pick(struct sqlite_store *self,
		const struct postern_claim *claim, const struct pick *pick, int64_t now,
		struct postern_memory *memory, struct postern_claimed *out,
		struct postern_error *error) {
	bool found;
	int r = read_pick(self, pick, memory, out, &found, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (!found) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' is damaged: an index refers to a delivery of message "
				"%lld "
				"that does not exist",
				self->file.path, (long long)pick->seq);
	}
	/* No RETURNING here: SQLite creates a temporary table for it. */
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET node = ?3, since = ?4, fence = ?5,"
			" starts = starts + 1, solo = ?6, suspect = iif(?7, suspect, 0),"
			" due_at = iif(?3 = -1, ?8, due_at)"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, pick->seq);
	postern__sqlite_bind_int(&query, 2, pick->handler);
	postern__sqlite_bind_int(&query, 3, (int64_t)claim->node);
	postern__sqlite_bind_int(&query, 4, now);
	postern__sqlite_bind_int(&query, 5, (int64_t)out->fence);
	postern__sqlite_bind_int(&query, 6,
			pick->suspicion == POSTERN_SUSPECT_SOLO);
	postern__sqlite_bind_int(&query, 7, pick->suspicion != POSTERN_NO_SUSPECT);
	postern__sqlite_bind_int(&query, 8, now + claim->lease_ms);
	postern__sqlite_count(self, pick->handler, POSTERN_STATE_PENDING,
			out->failures, -1);
	postern__sqlite_count(self, pick->handler, POSTERN_STATE_LEASED, 0, 1);
	return postern__sqlite_end(&query, error);
}

static int lease_all(struct sqlite_store *self,
		const struct postern_claim *claim, const struct picks *picks,
		int64_t now, struct postern_memory *memory, struct postern_claims *out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	size_t bytes = 0;
	for (size_t i = 0; r == POSTERN_OK && i < picks->count; i++) {
		const struct pick *pick = &picks->items[i];
		struct postern_claimed *item = &out->items[i];
		if (pick->suspicion == POSTERN_NO_SUSPECT && bytes > claim->bytes_max) {
			break;
		}
		r = lease_pick(self, claim, pick, now, memory, item, error);
		bytes += r == POSTERN_OK && item->message ? item->message->body_len : 0;
		out->count++;
	}
	return r;
}

/* Lowers *next to the time until the next delivery of this id is due. */
static int next_due_of(struct sqlite_store *self, int64_t id, int64_t now,
		int64_t *next, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT due_at FROM (SELECT due_at FROM postern_open"
			" INDEXED BY postern_open_due"
			" WHERE handler = ?1 AND node IS NULL AND suspect = 0"
			" ORDER BY due_at LIMIT 1)"
			" UNION ALL SELECT due_at FROM postern_open"
			" INDEXED BY postern_open_suspect"
			" WHERE suspect > 0 AND handler = ?1 AND node IS NULL");
	postern__sqlite_bind_int(&query, 1, id);
	while (postern__sqlite_row(&query)) {
		int64_t due = postern__sqlite_int(&query, 0);
		int64_t wait = due > now ? due - now : 0;
		*next = *next < 0 || wait < *next ? wait : *next;
	}
	return postern__sqlite_end(&query, error);
}

static int next_due(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t now, int64_t *out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	int64_t next = -1;
	for (size_t i = 0; next != 0 && i < claim->want_count; i++) {
		if (!has_claimable(self, &claim->wants[i])) {
			continue;
		}
		postern__sqlite_each_id(self, id, claim->wants[i].handler) {
			r = r == POSTERN_OK ? next_due_of(self, id, now, &next, error) : r;
		}
	}
	*out = next;
	return r;
}

static int claim_in_gate(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t now, struct picks *picks,
		struct postern_memory *memory, struct postern_claims *out,
		struct postern_error *error) {
	int r = pick_all(self, claim, now, picks, &out->suspects_waiting, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (picks->count == 0) {
		return next_due(self, claim, now, &out->next_due_ms, error);
	}
	out->items = postern_memory_alloc(memory,
			picks->count * sizeof(struct postern_claimed));
	if (!out->items) {
		return postern__sqlite_no_memory(error);
	}
	postern__point("sqlite-claim.picked");
	r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = lease_all(self, claim, picks, now, memory, out, error);
	if (r == POSTERN_OK) {
		r = next_due(self, claim, now, &out->next_due_ms, error);
	}
	r = postern__sqlite_finish(self, r, error);
	if (r == POSTERN_OK && self->only_node != claim->node &&
			claim->node != POSTERN_NODE_PULL) {
		self->only_node = 0;
	}
	return r;
}

int postern__sqlite_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct picks picks = { 0 };
	struct postern_claims claims = { .next_due_ms = -1 };
	bool any = false;
	int64_t now = postern__sqlite_now(self);
	r = postern__sqlite_check_lock(self, claim->node, claim->lock, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_clock_follow(self, now, error);
	}
	for (size_t i = 0; !any && i < claim->want_count; i++) {
		any = has_claimable(self, &claim->wants[i]);
	}
	if (r == POSTERN_OK && claim->ended) {
		r = postern__sqlite_claim_ended(self, claim, now, memory, &claims,
				error);
	} else if (r == POSTERN_OK && any) {
		r = claim_in_gate(self, claim, now, &picks, memory, &claims, error);
	}
	postern__sqlite_gate_leave(self);
	free(picks.items);
	if (r == POSTERN_OK) {
		*out = claims;
	}
	return r;
}
