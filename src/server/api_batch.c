/* SPDX-License-Identifier: MIT */

/*
 * POST /v1/channels/{channel}/messages with application/cloudevents-batch+json:
 * an array of events, answered with a result for each of them.
 *
 * An event that is refused does not affect its neighbours. The response is 200
 * as soon as one event has a result of its own; if the store failed for all of
 * them it is the error of the store, so that a sender sends the batch again.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/json_scan.h"
#include "base/json_text.h"
#include "core/inline.h"
#include "server/receipt.h"
#include "server/route.h"
#include "source/cloudevent.h"

/* Events of one batch. */
#define EVENT_COUNT_MAX 1000

struct item {
	struct batch *batch;
	struct postern_receipt receipt;
	const char *id; /* NULL: the event could not be read */
	const char *source;
};

/* A batch, until the last of its events has a receipt. */
struct batch {
	struct postern__arena arena;
	struct postern__response *response;
	postern__api_done *done;
	void *done_context;
	bool answered;         /* the channel runs its handlers before it answers */
	const char *store;     /* its name, which outlives the batch */
	atomic_size_t waiting; /* events without a receipt; one more while the
							  events are being queued */
	size_t count;
	struct item items[];
};

static void destroy_batch(struct batch *batch) {
	postern__arena_finish(&batch->arena);
	free(batch);
}

/* The number of events; -1: refused. */
static int count_events(struct postern__call *call,
		struct postern__json_value *array) {
	struct postern_error error;
	int r = postern__json_scan(call->request->body, call->request->body_len,
			array, &error);
	if (r || array->type != POSTERN__JSON_ARRAY) {
		postern__call_refuse(call, 400, "%s",
				r ? error.text : "a batch is a JSON array of events");
		return -1;
	}
	struct postern__json_walk walk = postern__json_enter(array);
	struct postern__json_value event;
	int count = 0;
	while (count <= EVENT_COUNT_MAX &&
			postern__json_next(&walk, NULL, &event)) {
		count++;
	}
	if (count > EVENT_COUNT_MAX) {
		postern__call_refuse(call, 413, "a batch has more than %d events",
				EVENT_COUNT_MAX);
		return -1;
	}
	return count;
}

/* NULL: out of memory. */
static struct batch *create_batch(const struct postern__call *call,
		const char *store, size_t count) {
	struct batch *batch =
			calloc(1, sizeof *batch + count * sizeof batch->items[0]);
	if (batch) {
		postern__arena_init(&batch->arena);
		batch->response = call->response;
		batch->done = call->done;
		batch->done_context = call->done_context;
		batch->store = store;
		batch->count = count;
	}
	return batch;
}

/* Read the event of one item; messages that were read are valid until the
   request ends. An event that cannot be read has its receipt now. */
static bool read_item(struct postern__call *call, struct item *item,
		const struct postern__json_value *event,
		struct postern_message *message) {
	struct postern_error *error = &item->receipt.error;
	if (postern__cloudevent_read(event, &call->arena, message, error)) {
		return false;
	}
	message->transport = call->request->transport;
	struct postern__arena *arena = &item->batch->arena;
	item->id = postern__arena_strdup(arena, message->id);
	item->source = postern__arena_strdup(arena, message->source);
	if (!item->id || !item->source) {
		item->id = NULL;
		(void)postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return item->id != NULL;
}

static const char *status_name(int code, bool answered) {
	switch (code) {
	case POSTERN_OK: return answered ? "done" : "accepted";
	case POSTERN_E_DUPLICATE: return "duplicate";
	case POSTERN_E_CONFLICT: return "conflict";
	case POSTERN_E_INVALID: return "rejected";
	case POSTERN_E_FAILED: return "failed";
	default: return "unavailable";
	}
}

static bool has_result(const struct item *item) {
	return strcmp(status_name(item->receipt.error.code, false),
				   "unavailable") != 0;
}

/* Whether the code concerns the channel or the store, and sending the batch
   again does not help. */
static bool is_lasting(int code) {
	return code == POSTERN_E_NOTFOUND || code == POSTERN_E_UNSUPPORTED ||
		   code == POSTERN_E_CORRUPT;
}

/* The event whose error is the response to the whole batch; NULL: none. */
static const struct item *find_failed(const struct batch *batch) {
	const struct item *failed = batch->count > 0 ? &batch->items[0] : NULL;
	for (size_t i = 0; i < batch->count; i++) {
		if (is_lasting(batch->items[i].receipt.error.code)) {
			return &batch->items[i];
		}
		if (has_result(&batch->items[i])) {
			failed = NULL;
		}
	}
	return failed;
}

static void write_item(struct postern__buf *body, const struct batch *batch,
		const struct item *item) {
	int code = item->receipt.error.code;
	postern__json_open(body, '{');
	postern__json_pair_text(body, "status", status_name(code, batch->answered));
	if (batch->answered &&
			(code == POSTERN_OK || code == POSTERN_E_DUPLICATE)) {
		postern__write_answered(body, batch->store, item->id, item->source);
	} else if (code == POSTERN_OK || code == POSTERN_E_DUPLICATE ||
			   code == POSTERN_E_CONFLICT) {
		postern__write_identity(body, batch->store, item->id, item->source,
				item->receipt.seq);
		postern__write_parked(body, &item->receipt);
	} else {
		postern__json_pair_text(body, "id", item->id);
		postern__json_pair_text(body, "source", item->source);
		postern__json_pair_text(body, "detail", item->receipt.error.text);
	}
	postern__json_close(body, '}');
}

static void write_batch(struct batch *batch) {
	struct postern__response *response = batch->response;
	const struct item *failed = find_failed(batch);
	if (failed) {
		postern__write_receipt(response, &failed->receipt, batch->answered,
				batch->store, failed->id, failed->source);
		return;
	}
	response->status = 200;
	struct postern__buf *body = &response->body;
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < batch->count; i++) {
		write_item(body, batch, &batch->items[i]);
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
}

/* So many events have their receipts; the last one completes the response. */
static void finish_events(struct batch *batch, size_t count) {
	if (atomic_fetch_sub(&batch->waiting, count) == count) {
		write_batch(batch);
		postern__response_check(batch->response);
		batch->done(batch->done_context);
		destroy_batch(batch);
	}
}

static void finish_item(void *context, const struct postern_receipt *receipt) {
	struct item *item = context;
	item->receipt = *receipt;
	finish_events(item->batch, 1);
}

/* Queue every event; the response is completed by the last receipt, on
   whichever thread. */
static void queue_batch(struct postern__call *call, struct postern_box *box,
		struct batch *batch, struct postern__json_walk walk) {
	struct postern__json_value event;
	size_t refused = 0;
	atomic_init(&batch->waiting, batch->count + 1);
	for (size_t i = 0; i < batch->count; i++) {
		struct item *item = &batch->items[i];
		struct postern_message message;
		(void)postern__json_next(&walk, NULL, &event);
		if (!read_item(call, item, &event, &message) ||
				postern_box_accept_async(box, call->parts[0], &message,
						finish_item, item, &item->receipt.error)) {
			refused++;
		}
	}
	call->pending = true;
	finish_events(batch, refused + 1);
}

/* The same in a process that has no runner. */
static void accept_batch(struct postern__call *call, struct postern_box *box,
		struct batch *batch, struct postern__json_walk walk) {
	struct postern__json_value event;
	struct postern_message *messages = postern__arena_array(&call->arena,
			batch->count + 1, sizeof *messages);
	struct postern_receipt *receipts = postern__arena_array(&call->arena,
			batch->count + 1, sizeof *receipts);
	struct item **items = postern__arena_array(&call->arena, batch->count + 1,
			sizeof(struct item *));
	if (!messages || !receipts || !items) {
		postern__call_refuse(call, 503, "out of memory");
		return;
	}
	size_t count = 0;
	for (size_t i = 0; i < batch->count; i++) {
		(void)postern__json_next(&walk, NULL, &event);
		items[count] = &batch->items[i];
		count += read_item(call, items[count], &event, &messages[count]);
	}
	struct postern_error error;
	int r = postern_box_accept_batch(box, call->parts[0], messages, count,
			receipts, &error);
	for (size_t i = 0; i < count; i++) {
		items[i]->receipt =
				r ? (struct postern_receipt){ .error = error } : receipts[i];
	}
	write_batch(batch);
}

void postern__accept_batch(struct postern__call *call,
		const struct postern__open_store *store) {
	struct postern__json_value array;
	int count = count_events(call, &array);
	if (count < 0) {
		return;
	}
	struct batch *batch = create_batch(call, store->name, (size_t)count);
	if (!batch) {
		postern__call_refuse(call, 503, "out of memory");
		return;
	}
	batch->answered = postern__box_runs_inline(store->box, call->parts[0]);
	for (size_t i = 0; i < batch->count; i++) {
		batch->items[i].batch = batch;
	}
	if (call->done) {
		queue_batch(call, store->box, batch, postern__json_enter(&array));
	} else {
		accept_batch(call, store->box, batch, postern__json_enter(&array));
		destroy_batch(batch);
	}
}
