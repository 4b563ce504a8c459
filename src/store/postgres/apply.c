/* SPDX-License-Identifier: MIT */

/*
 * Applying a batch: one call of apply_1, which is one transaction and one round
 * trip, whatever the batch contains.
 *
 * Messages get their numbers here, before they are sent, and keep them when the
 * batch is sent again because the response was lost. So the rows that the first
 * try wrote are recognised by their number, and settlements by their fence:
 * applying a batch twice has the effect of applying it once, except that copies
 * are counted again. If the first try is still running, the second waits for it
 * at the first identity.
 *
 * Arrays are in the order of the numbers, in which all tables but one are
 * written: their indices grow at the end. Only the dedupe memory is written in
 * the order of keys, first those of messages, then those of handlers, so that
 * two batches cannot deadlock. A column that
 * has the same value in all rows is sent as one item.
 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/headers.h"
#include "base/point.h"
#include "core/error_group.h"
#include "store/postgres/apply.h"
#include "store/postgres/postgres.h"

static int compare_arrivals(const void *a, const void *b) {
	const struct arrival *left = *(struct arrival *const *)a;
	const struct arrival *right = *(struct arrival *const *)b;
	for (size_t i = 0; i < 3; i++) {
		int64_t x = left->key.words[i];
		int64_t y = right->key.words[i];
		if (x != y) {
			return x < y ? -1 : 1;
		}
	}
	return left->seq < right->seq ? -1 : left->seq > right->seq;
}

static bool is_enrolled(struct pg_store *self,
		const struct postern_accept *accept) {
	bool known = postern__pg_channel(self, accept->channel);
	for (size_t i = 0; known && i < accept->route_count; i++) {
		known = postern__pg_handler(self, accept->routes[i].handler);
	}
	return known;
}

static int check_accept(struct pg_connection *connection,
		const struct postern_accept *accept, struct postern_error *error) {
	struct pg_store *self = connection->store;
	if (is_enrolled(self, accept)) {
		return POSTERN_OK;
	}
	/* Another node, also a former one, may have enrolled it. */
	int r = postern__pg_directory_load(connection, error);
	return r != POSTERN_OK || is_enrolled(self, accept)
				   ? r
				   : postern__fail(error, POSTERN_E_INVALID,
							 "message '%s' names a channel or handler that is "
							 "not enrolled",
							 accept->message->id);
}

/* Allocates numbers and computes keys, once for all tries. */
static int prepare_arrivals(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	const struct postern_batch *batch = work->batch;
	size_t count = batch->accept_count;
	int64_t *seqs = malloc((count + 1) * sizeof *seqs);
	if (!seqs) {
		return postern__pg_no_memory(error);
	}
	int r = postern__pg_allocate_seqs(connection, count, seqs, error);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		struct postern_accept *accept = &batch->accepts[i];
		struct arrival *arrival = &work->arrivals[i];
		arrival->accept = accept;
		arrival->seq = seqs[i];
		work->by_key[i] = arrival;
		postern__pg_key(self, accept->channel, &accept->key, &arrival->key);
		postern__body_digest(self->hash_key, accept->message, arrival->digest);
		r = check_accept(connection, accept, error);
	}
	if (r != POSTERN_OK) {
		free(seqs);
		return r;
	}
	qsort(work->by_key, count, sizeof(struct arrival *), compare_arrivals);
	work->seqs = seqs;
	return POSTERN_OK;
}

static int16_t state_code(const struct postern_settlement *settlement) {
	switch (settlement->to) {
	case POSTERN_SETTLE_PENDING: return settlement->broke ? 0 : 1;
	case POSTERN_SETTLE_RETURNED: return settlement->shared ? -1 : 2;
	case POSTERN_SETTLE_DONE: return 3;
	case POSTERN_SETTLE_POISONED: return 4;
	case POSTERN_SETTLE_DISCARDED: return 5;
	}
	assert(false); /* the switch covers all values */
	return 0;
}

/* By delivery and fence. Settlements of one lease keep their order. */
static int compare_settlements(const void *a, const void *b) {
	const struct postern_settlement *left =
			*(struct postern_settlement *const *)a;
	const struct postern_settlement *right =
			*(struct postern_settlement *const *)b;
	if (left->seq != right->seq) {
		return left->seq < right->seq ? -1 : 1;
	}
	if (left->handler != right->handler) {
		return left->handler < right->handler ? -1 : 1;
	}
	if (left->fence != right->fence) {
		return left->fence < right->fence ? -1 : 1;
	}
	return left < right ? -1 : left > right;
}

static bool is_same_lease(const struct postern_settlement *a,
		const struct postern_settlement *b) {
	return a->seq == b->seq && a->handler == b->handler && a->fence == b->fence;
}

/* Sorted, so that two batches cannot deadlock. Only the first settlement of a
   lease can take effect. */
static void sort_settlements(struct work *work) {
	const struct postern_batch *batch = work->batch;
	struct postern_settlement **sorted = work->settlements;
	for (size_t i = 0; i < batch->settlement_count; i++) {
		batch->settlements[i].code = POSTERN_E_STALE;
		sorted[i] = &batch->settlements[i];
	}
	qsort(sorted, batch->settlement_count, sizeof *sorted, compare_settlements);
	size_t count = 0;
	for (size_t i = 0; i < batch->settlement_count; i++) {
		if (count == 0 || !is_same_lease(sorted[count - 1], sorted[i])) {
			sorted[count++] = sorted[i];
		}
	}
	work->settlement_count = count;
}

#define EACH_SETTLEMENT(type, add)                                     \
	do {                                                               \
		postern__pg_array(query, (type));                              \
		for (size_t i = 0; i < work->settlement_count; i++) {          \
			const struct postern_settlement *s = work->settlements[i]; \
			add;                                                       \
		}                                                              \
		postern__pg_array_end(query);                                  \
	} while (0)

/* Sends one item if all values are the same. */
#define EACH_VALUE(type, count, value, add)            \
	do {                                               \
		size_t last = (count);                         \
		int64_t first = 0;                             \
		bool same = true;                              \
		for (size_t i = 0; same && i < last; i++) {    \
			first = i == 0 ? (int64_t)(value) : first; \
			same = first == (int64_t)(value);          \
		}                                              \
		last = same && last > 0 ? 1 : last;            \
		postern__pg_array(query, (type));              \
		for (size_t i = 0; i < last; i++) {            \
			add(query, (value));                       \
		}                                              \
		postern__pg_array_end(query);                  \
	} while (0)

/* A lag below 10 ms is sent as 0: then most runs of a batch have the same
   value, and the server need not distinguish them. */
static int64_t sent_lag(const struct postern_settlement *settlement) {
	return settlement->lag_ms < 10 ? 0 : settlement->lag_ms;
}

#define EACH_END(type, value, add) \
	EACH_VALUE(type, work->settlement_count, value, add)

static void add_settlements(struct pg_query *query, const struct work *work) {
	struct postern_settlement *const *ends = work->settlements;
	EACH_SETTLEMENT(PG_INT8, postern__pg_int8(query, s->seq));
	EACH_END(PG_INT4, ends[i]->handler, postern__pg_int4);
	EACH_END(PG_INT8, (int64_t)ends[i]->fence, postern__pg_int8);
	EACH_END(PG_INT2, state_code(ends[i]), postern__pg_int2);
	EACH_END(PG_INT8, ends[i]->delay_ms, postern__pg_int8);
	EACH_END(PG_INT4, ends[i]->failures, postern__pg_int4);
	EACH_END(PG_INT8, ends[i]->duration_ms, postern__pg_int8);
	EACH_END(PG_INT8, sent_lag(ends[i]), postern__pg_int8);
	bool plain = true; /* the texts of done deliveries are not used */
	for (size_t i = 0; plain && i < work->settlement_count; i++) {
		plain = work->settlements[i]->to == POSTERN_SETTLE_DONE;
	}
	if (plain) {
		postern__pg_null_array(query, PG_TEXT);
		postern__pg_null_array(query, PG_TEXT);
		postern__pg_null_array(query, PG_INT8);
	} else {
		EACH_SETTLEMENT(PG_TEXT, postern__pg_text(query, s->outcome));
		EACH_SETTLEMENT(PG_TEXT, postern__pg_text(query, s->error));
		EACH_SETTLEMENT(PG_INT8, postern__pg_group(query, s->group));
	}
	postern__pg_int4(query, POSTERN_ATTEMPTS_KEPT);
}

#define EACH_ARRIVAL(type, add)                                   \
	do {                                                          \
		postern__pg_array(query, (type));                         \
		for (size_t i = 0; i < work->batch->accept_count; i++) {  \
			const struct arrival *a = &work->arrivals[i];         \
			const struct postern_message *m = a->accept->message; \
			(void)m;                                              \
			add;                                                  \
		}                                                         \
		postern__pg_array_end(query);                             \
	} while (0)

static const char *source_of(struct pg_store *self, const struct arrival *a) {
	const char *source = a->accept->message->source;
	const char *name = postern__pg_channel(self, a->accept->channel);
	return strcmp(source, name) == 0 ? NULL : source;
}

static const char *transport_of(struct pg_store *self,
		const struct arrival *a) {
	const struct postern_message *message = a->accept->message;
	(void)self;
	return message->transport && strcmp(message->transport, "api") == 0
				   ? NULL
				   : message->transport;
}

/* Returns a message's value in a column of texts. */
typedef const char *pg_text_of(struct pg_store *self, const struct arrival *a);

#define TEXT_OF(name)                                   \
	static const char *name##_of(struct pg_store *self, \
			const struct arrival *a) {                  \
		(void)self;                                     \
		return a->accept->message->name;                \
	}

TEXT_OF(type)
TEXT_OF(subject)
TEXT_OF(time)
TEXT_OF(content_type)
TEXT_OF(correlation_id)
TEXT_OF(traceparent)

static bool is_same_text(const char *a, const char *b) {
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* Sends NULL if all values are NULL, one item if all are the same. */
static void add_texts(struct pg_query *query, const struct work *work,
		pg_text_of *text_of) {
	struct pg_store *self = query->connection->store;
	size_t count = work->batch->accept_count;
	const char *first = count > 0 ? text_of(self, &work->arrivals[0]) : NULL;
	bool same = true;
	for (size_t i = 1; same && i < count; i++) {
		same = is_same_text(first, text_of(self, &work->arrivals[i]));
	}
	if (same && !first) {
		postern__pg_null_array(query, PG_TEXT);
		return;
	}
	postern__pg_array(query, PG_TEXT);
	for (size_t i = 0; i < (same ? 1 : count); i++) {
		postern__pg_text(query, text_of(self, &work->arrivals[i]));
	}
	postern__pg_array_end(query);
}

static int add_headers(struct pg_query *query, struct work *work,
		struct postern_error *error) {
	bool any = false;
	for (size_t i = 0; !any && i < work->batch->accept_count; i++) {
		any = work->arrivals[i].accept->message->header_count > 0;
	}
	if (!any) {
		postern__pg_null_array(query, PG_BYTEA);
		return POSTERN_OK;
	}
	int r = POSTERN_OK;
	postern__pg_array(query, PG_BYTEA);
	for (size_t i = 0; r == POSTERN_OK && i < work->batch->accept_count; i++) {
		const struct postern_message *m = work->arrivals[i].accept->message;
		if (m->header_count == 0) {
			postern__pg_null(query, PG_BYTEA);
			continue;
		}
		postern__buf_reset(&work->headers);
		r = postern__headers_pack(m->headers, m->header_count, &work->headers,
				error);
		postern__pg_bytes(query, postern__buf_text(&work->headers),
				work->headers.len);
	}
	postern__pg_array_end(query);
	return r;
}

static int add_accepts(struct pg_query *query, struct work *work,
		struct postern_error *error) {
	const struct arrival *arrivals = work->arrivals;
	size_t count = work->batch->accept_count;
	EACH_ARRIVAL(PG_INT8, postern__pg_int8(query, a->seq));
	postern__pg_array(query, PG_INT4);
	for (size_t i = 0; i < count; i++) {
		postern__pg_int4(query, work->by_key[i] - arrivals + 1);
	}
	postern__pg_array_end(query);
	EACH_ARRIVAL(PG_INT8, postern__pg_int8(query, a->key.words[0]));
	EACH_ARRIVAL(PG_INT8, postern__pg_int8(query, a->key.words[1]));
	EACH_ARRIVAL(PG_INT8, postern__pg_int8(query, a->key.words[2]));
	EACH_ARRIVAL(PG_UUID, postern__pg_uuid(query, a->digest));
	EACH_VALUE(PG_INT4, count, arrivals[i].accept->channel, postern__pg_int4);
	EACH_VALUE(PG_INT2, count, (int16_t)arrivals[i].accept->fate,
			postern__pg_int2);
	EACH_VALUE(PG_BOOL, count, arrivals[i].accept->key.is_id, postern__pg_bool);
	EACH_ARRIVAL(PG_TEXT, postern__pg_text(query, m->id));
	add_texts(query, work, source_of);
	add_texts(query, work, type_of);
	add_texts(query, work, subject_of);
	add_texts(query, work, time_of);
	add_texts(query, work, content_type_of);
	add_texts(query, work, correlation_id_of);
	add_texts(query, work, traceparent_of);
	add_texts(query, work, transport_of);
	int r = add_headers(query, work, error);
	EACH_ARRIVAL(PG_BYTEA, postern__pg_bytes(query, m->body, m->body_len));
	return r;
}

static void add_routes(struct pg_query *query, const struct work *work) {
	struct postern_route *const *routes = work->routes;
	size_t count = work->route_count;
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < work->batch->accept_count; i++) {
		const struct arrival *a = &work->arrivals[i];
		for (size_t j = 0; j < a->accept->route_count; j++) {
			postern__pg_int8(query, a->seq);
		}
	}
	postern__pg_array_end(query);
	EACH_VALUE(PG_INT4, count, routes[i]->handler, postern__pg_int4);
	EACH_VALUE(PG_BOOL, count, routes[i]->lease, postern__pg_bool);
	EACH_VALUE(PG_BOOL, count, routes[i]->retry_poisoned, postern__pg_bool);
	postern__pg_int4(query, POSTERN_CONFLICTS_KEPT);
}

static void add_refusals(struct pg_query *query, const struct work *work) {
	postern__pg_array(query, PG_INT4);
	for (size_t i = 0; i < work->route_count; i++) {
		if (work->routes[i]->refusal) {
			postern__pg_int4(query, (int64_t)i + 1);
		}
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_TEXT);
	for (size_t i = 0; i < work->route_count; i++) {
		if (work->routes[i]->refusal) {
			postern__pg_text(query, work->routes[i]->refusal);
		}
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < work->route_count; i++) {
		if (work->routes[i]->refusal) {
			postern__pg_int8(query,
					(int64_t)postern__error_group(work->routes[i]->refusal));
		}
	}
	postern__pg_array_end(query);
}

#define EACH_KEY(type, value, add)                      \
	do {                                                \
		postern__pg_array(query, (type));               \
		for (size_t i = 0; i < work->key_count; i++) {  \
			const struct route_key *k = &work->keys[i]; \
			add(query, (value));                        \
		}                                               \
		postern__pg_array_end(query);                   \
	} while (0)

/* The keys that handlers have of their own. */
static void add_route_keys(struct pg_query *query, const struct work *work) {
	EACH_KEY(PG_INT4, k->message, postern__pg_int4);
	EACH_KEY(PG_INT4, k->route, postern__pg_int4);
	EACH_KEY(PG_INT8, k->key.words[0], postern__pg_int8);
	EACH_KEY(PG_INT8, k->key.words[1], postern__pg_int8);
	EACH_KEY(PG_INT8, k->key.words[2], postern__pg_int8);
}

/* Whether any settlement may have taken effect already. */
static bool settles_again(const struct postern_batch *batch) {
	bool again = false;
	for (size_t i = 0; !again && i < batch->settlement_count; i++) {
		again = batch->settlements[i].again;
	}
	return again;
}

static void collect_routes(const struct pg_store *self, struct work *work) {
	work->route_count = 0;
	work->key_count = 0;
	for (size_t i = 0; i < work->batch->accept_count; i++) {
		struct postern_accept *accept = work->arrivals[i].accept;
		for (size_t j = 0; j < accept->route_count; j++) {
			struct postern_route *route = &accept->routes[j];
			work->routes[work->route_count++] = route;
			if (route->key) {
				struct route_key *key = &work->keys[work->key_count++];
				key->message = (int64_t)i + 1;
				key->route = (int64_t)work->route_count;
				postern__pg_key(self, accept->channel, route->key, &key->key);
			}
		}
	}
}

static void work_finish(struct work *work) {
	postern__buf_finish(&work->headers);
	free(work->arrivals);
	free(work->by_key);
	free(work->routes);
	free(work->keys);
	free(work->settlements);
	free(work->seqs);
}

/* Returns false if out of memory. */
static bool work_init(struct work *work, struct postern_batch *batch) {
	size_t routes = 0;
	size_t keys = 0;
	for (size_t i = 0; i < batch->accept_count; i++) {
		const struct postern_accept *accept = &batch->accepts[i];
		routes += accept->route_count;
		for (size_t j = 0; j < accept->route_count; j++) {
			keys += accept->routes[j].key != NULL;
		}
	}
	*work = (struct work){
		.batch = batch,
		.arrivals = calloc(batch->accept_count + 1, sizeof *work->arrivals),
		.by_key = calloc(batch->accept_count + 1, sizeof(struct arrival *)),
		.routes = calloc(routes + 1, sizeof(struct postern_route *)),
		.keys = calloc(keys + 1, sizeof(struct route_key)),
		.settlements = calloc(batch->settlement_count + 1,
				sizeof(struct postern_settlement *)),
	};
	postern__buf_init(&work->headers,
			POSTERN_HEADERS_LEN_MAX + 2 * POSTERN_HEADER_COUNT_MAX);
	if (!work->arrivals || !work->by_key || !work->routes || !work->keys ||
			!work->settlements) {
		work_finish(work);
		return false;
	}
	sort_settlements(work);
	return true;
}

static int apply_batch(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error);

/* Nothing was accepted, because some of the messages are for closed channels:
   accepts the others, under the numbers that they have. */
static int apply_open(struct pg_connection *connection, struct work *work,
		bool again, struct postern_error *error) {
	const struct postern_batch *batch = work->batch;
	size_t count = batch->accept_count;
	struct postern_accept *accepts = calloc(count, sizeof *accepts);
	struct postern_batch open = {
		.node = batch->node,
		.lock = batch->lock,
		.accepts = accepts,
	};
	struct work rest;
	for (size_t i = 0; accepts && i < count; i++) {
		if (batch->accepts[i].code == POSTERN_OK) {
			accepts[open.accept_count++] = batch->accepts[i];
		}
	}
	if (!accepts || !work_init(&rest, &open)) {
		free(accepts);
		return postern__pg_no_memory(error);
	}
	size_t next = 0;
	for (size_t i = 0; i < count; i++) {
		if (batch->accepts[i].code == POSTERN_OK) {
			rest.arrivals[next] = work->arrivals[i];
			rest.arrivals[next].accept = &accepts[next];
			rest.by_key[next] = &rest.arrivals[next];
			next++;
		}
	}
	qsort(rest.by_key, next, sizeof(struct arrival *), compare_arrivals);
	rest.seqs = work->seqs;
	int r = next > 0 ? apply_batch(connection, &rest, again, error)
					 : POSTERN_OK;
	rest.seqs = NULL;
	for (size_t i = count; r == POSTERN_OK && i-- > 0;) {
		if (batch->accepts[i].code == POSTERN_OK) {
			batch->accepts[i] = accepts[--next];
		}
	}
	work->unanswered = work->unanswered || rest.unanswered;
	work_finish(&rest);
	free(accepts);
	return r;
}

static int apply_batch(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	const struct postern_batch *batch = work->batch;
	int r = POSTERN_OK;
	if (!work->seqs) {
		r = prepare_arrivals(connection, work, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	collect_routes(connection->store, work);
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, batch->node);
	postern__pg_int8(&query, postern__pg_round(connection->store));
	postern__pg_now(&query);
	postern__pg_lock_of(&query, batch->lock);
	postern__pg_bool(&query, again || settles_again(batch));
	postern__pg_text(&query, timeout);
	add_settlements(&query, work);
	r = add_accepts(&query, work, error);
	add_routes(&query, work);
	add_route_keys(&query, work);
	add_refusals(&query, work);
	postern__point("postgres-apply.before");
	if (r == POSTERN_OK) {
		r = postern__pg_run_named(&query, "postern_apply",
				"SELECT *, pg_backend_pid() FROM @apply_1($1, $2, $3, $4, $5,"
				" $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
				" $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,"
				" $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42,"
				" $43, $44, $45, $46, $47, $48, $49, $50, $51, $52)",
				&connection->apply_named, error);
	}
	postern__point("postgres-apply.after");
	if (r == POSTERN_OK && postern__point_fails("postgres-apply.unheard")) {
		r = postern__pg_cut(connection, error);
	}
	work->unanswered = work->unanswered || connection->lost;
	bool closed = false;
	if (r == POSTERN_OK) {
		closed = postern__pg_read_applied(&query, work);
	}
	postern__pg_end(&query);
	return closed ? apply_open(connection, work, again, error) : r;
}

/* Note leases that the batch may have acquired although it failed. */
static void note_accepted_leases(struct pg_store *self,
		const struct work *work) {
	for (size_t i = 0; i < work->batch->accept_count; i++) {
		const struct arrival *arrival = &work->arrivals[i];
		for (size_t j = 0; j < arrival->accept->route_count; j++) {
			const struct postern_route *route = &arrival->accept->routes[j];
			const struct pg_lease lease = { arrival->seq, route->handler, 1 };
			if (route->lease) {
				postern__pg_note_uncertain_leases(self, work->batch->node,
						&lease, 1, false);
			}
		}
	}
}

int postern__pg_apply(struct postern_store *store, struct postern_batch *batch,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct work work;
	if (!work_init(&work, batch)) {
		return postern__pg_no_memory(error);
	}
	int r = postern__pg_do(self, apply_batch, &work, error);
	if (r != POSTERN_OK && work.unanswered) {
		note_accepted_leases(self, &work);
	}
	work_finish(&work);
	return r;
}

int postern__pg_apply_within(struct pg_connection *connection,
		struct postern_batch *batch, struct postern_error *error) {
	struct work work;
	if (!work_init(&work, batch)) {
		return postern__pg_no_memory(error);
	}
	int r = apply_batch(connection, &work, false, error);
	work_finish(&work);
	return r;
}
