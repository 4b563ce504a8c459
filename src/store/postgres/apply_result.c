/* SPDX-License-Identifier: MIT */

/*
 * The result of apply_1, written into the batch.
 */

#include "store/postgres/apply.h"

/* The columns of the result of apply_1. */
enum {
	NOW,
	HELD,
	SETTLED,
	KNOWN,
	KNOWN_SEQ,
	KNOWN_SAME,
	OPENED,
	OPENED_FENCE,
	OPENED_AS,
	STORED,
	LEASED,
	SUPPRESSED,
	SUPPRESSED_BY,
	CLOSED,
	SESSION
};

static void read_settled(const struct pg_query *query, struct work *work) {
	struct pg_items items;
	int64_t position;
	if (postern__pg_is_null(query, 0, SETTLED)) {
		for (size_t i = 0; i < work->settlement_count; i++) {
			work->settlements[i]->code = POSTERN_OK;
		}
		return;
	}
	postern__pg_items(query, 0, SETTLED, &items);
	while (postern__pg_next(&items, &position)) {
		if (position > 0 && (size_t)position <= work->settlement_count) {
			work->settlements[position - 1]->code = POSTERN_OK;
		}
	}
}

/* Fill the receipts as if all messages were new; the functions below
   correct them. */
static void assume_new(struct work *work, int64_t now, bool held) {
	for (size_t i = 0; i < work->batch->accept_count; i++) {
		struct postern_accept *accept = work->arrivals[i].accept;
		bool dropped = accept->fate == POSTERN_FATE_DROP;
		accept->code = POSTERN_OK;
		accept->received_at_ms = now;
		accept->seq = dropped ? 0 : work->arrivals[i].seq;
		for (size_t j = 0; j < accept->route_count; j++) {
			struct postern_route *route = &accept->routes[j];
			route->opened = !route->refusal;
			route->stored = route->handler;
			route->leased = route->opened && route->lease && held;
			route->fence = route->leased ? 1 : 0;
			route->suppressed_by = 0;
		}
	}
}

/* Routes to handlers that are aliases or paused: the store returns the resolved
   handler id, and whether the delivery is leased. */
static void read_resolved(const struct pg_query *query, struct work *work) {
	struct pg_items stored;
	struct pg_items leased;
	int64_t id;
	int64_t is_leased;
	if (postern__pg_is_null(query, 0, STORED)) {
		return;
	}
	postern__pg_items(query, 0, STORED, &stored);
	postern__pg_items(query, 0, LEASED, &leased);
	for (size_t i = 0;
			i < work->route_count && postern__pg_next(&stored, &id) &&
			postern__pg_next(&leased, &is_leased);
			i++) {
		struct postern_route *route = work->routes[i];
		route->stored = id;
		route->opened = id != 0 && !route->refusal;
		route->leased = route->leased && id != 0 && is_leased;
		route->fence = route->leased ? 1 : 0;
	}
}

static void route_close(struct postern_route *route) {
	route->opened = false;
	route->leased = false;
	route->fence = 0;
}

static void read_suppressed(const struct pg_query *query, struct work *work) {
	struct pg_items routes;
	struct pg_items firsts;
	int64_t position;
	int64_t first;
	postern__pg_items(query, 0, SUPPRESSED, &routes);
	postern__pg_items(query, 0, SUPPRESSED_BY, &firsts);
	while (postern__pg_next(&routes, &position) &&
			postern__pg_next(&firsts, &first)) {
		if (position > 0 && (size_t)position <= work->route_count) {
			route_close(work->routes[position - 1]);
			work->routes[position - 1]->suppressed_by = first;
		}
	}
}

static void read_known(const struct pg_query *query, struct work *work) {
	struct pg_items known;
	struct pg_items seqs;
	struct pg_items same;
	int64_t position;
	int64_t seq;
	int64_t is_same;
	postern__pg_items(query, 0, KNOWN, &known);
	postern__pg_items(query, 0, KNOWN_SEQ, &seqs);
	postern__pg_items(query, 0, KNOWN_SAME, &same);
	while (postern__pg_next(&known, &position) &&
			postern__pg_next(&seqs, &seq) &&
			postern__pg_next(&same, &is_same)) {
		if (position < 1 || (size_t)position > work->batch->accept_count) {
			continue;
		}
		struct arrival *arrival = &work->arrivals[position - 1];
		struct postern_accept *accept = arrival->accept;
		if (seq != arrival->seq) {
			accept->code = is_same ? POSTERN_E_DUPLICATE : POSTERN_E_CONFLICT;
		}
		accept->seq = seq;
		for (size_t i = 0; i < accept->route_count; i++) {
			route_close(&accept->routes[i]);
		}
	}
}

static void read_opened(const struct pg_query *query, struct work *work) {
	struct pg_items opened;
	struct pg_items fences;
	struct pg_items ids;
	int64_t position;
	int64_t fence;
	int64_t id;
	postern__pg_items(query, 0, OPENED, &opened);
	postern__pg_items(query, 0, OPENED_FENCE, &fences);
	postern__pg_items(query, 0, OPENED_AS, &ids);
	while (postern__pg_next(&opened, &position) &&
			postern__pg_next(&fences, &fence) && postern__pg_next(&ids, &id)) {
		if (position < 1 || (size_t)position > work->route_count) {
			continue;
		}
		struct postern_route *route = work->routes[position - 1];
		route->opened = true;
		route->stored = id;
		route->leased = fence < 0;
		route->fence = (uint64_t)(fence < 0 ? -fence : fence);
	}
}

static bool is_closed(const struct pg_query *query, int64_t channel) {
	struct pg_items closed;
	int64_t id;
	postern__pg_items(query, 0, CLOSED, &closed);
	while (postern__pg_next(&closed, &id)) {
		if (id == channel) {
			return true;
		}
	}
	return false;
}

static void refuse_closed(const struct pg_query *query, struct work *work) {
	for (size_t i = 0; i < work->batch->accept_count; i++) {
		struct postern_accept *accept = work->arrivals[i].accept;
		bool closed = is_closed(query, accept->channel);
		accept->code = closed ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
		accept->seq = 0;
		for (size_t j = 0; closed && j < accept->route_count; j++) {
			route_close(&accept->routes[j]);
			accept->routes[j].suppressed_by = 0;
		}
	}
}

bool postern__pg_read_applied(const struct pg_query *query, struct work *work) {
	int64_t now = postern__pg_get(query, 0, NOW);
	postern__pg_saw(query->connection->store, now);
	postern__pg_note_session(query->connection,
			postern__pg_get(query, 0, SESSION));
	read_settled(query, work);
	if (!postern__pg_is_null(query, 0, CLOSED)) {
		refuse_closed(query, work);
		return true;
	}
	assume_new(work, now, postern__pg_get(query, 0, HELD) != 0);
	read_resolved(query, work);
	read_suppressed(query, work);
	read_known(query, work);
	read_opened(query, work);
	return false;
}
