/* SPDX-License-Identifier: MIT */
/*
 * Collecting messages that another program staged in its own transaction. The
 * store removes them from staging and accepts them in one transaction; this
 * file routes each one and queues the deliveries that the store leased.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"

#include <assert.h>
#include <postern/sys/memory.h>

#define COLLECT_COUNT_MAX 1000
#define COLLECT_BYTES_MAX ((size_t)8 * 1024 * 1024)

struct collecting {
	struct postern_box *box;
	struct postern_generation *generation;
	struct postern__content **contents; /* in the order they were placed */
	size_t count;
};

static int place_staged(void *context, int64_t channel_id,
		const struct postern_message *message, struct postern_accept *accept,
		struct postern_error *error) {
	struct collecting *work = context;
	struct postern__channel *channel =
			postern__generation_channel_by_id(work->generation, channel_id);
	struct postern__content *content;
	assert(channel && work->count < COLLECT_COUNT_MAX);
	int r = postern__accept_staged(work->box, channel, message, &content,
			error);
	if (!r) {
		work->contents[work->count++] = content;
		*accept = content->accept;
	}
	return r;
}

static bool is_receipt(int code) {
	return code == POSTERN_OK || code == POSTERN_E_DUPLICATE ||
		   code == POSTERN_E_CONFLICT;
}

/* Emit the events of the collected messages and queue their leased runs.
   Returns how many were accepted. */
static size_t finish_collected(struct collecting *work,
		const struct postern_collection *collection, int r,
		const struct postern_error *error) {
	struct postern_box *box = work->box;
	size_t accepted = 0;
	for (size_t i = 0; i < work->count; i++) {
		struct postern__content *content = work->contents[i];
		int code = r;
		if (!r) {
			content->accept = collection->accepts[i];
			code = is_receipt(content->accept.code) ? POSTERN_OK
													: content->accept.code;
		}
		accepted += code == POSTERN_OK;
		postern__accept_decide(box, content, code, error);
	}
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < work->count; i++) {
		postern__accept_finish(box, work->contents[i]);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return accepted;
}

static int collect_batch(struct postern_box *box,
		struct postern_generation *generation, bool rests,
		struct postern_memory *memory, struct postern__collected *out,
		struct postern_error *error) {
	int64_t *channels = postern_memory_alloc(memory,
			(generation->channel_count + 1) * sizeof(*channels));
	struct collecting work = {
		.box = box,
		.generation = generation,
		.contents = postern_memory_alloc(memory,
				COLLECT_COUNT_MAX * sizeof(struct postern__content *)),
	};
	if (!channels || !work.contents) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < generation->channel_count; i++) {
		channels[i] = generation->channels[i]->id;
	}
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__right right = postern__right_of(box);
	(void)pthread_mutex_unlock(&box->mutex);
	struct postern_collection collection = {
		.node = right.node,
		.lock = postern__right_lock(&right),
		.channels = channels,
		.channel_count = generation->channel_count,
		.max = COLLECT_COUNT_MAX,
		.bytes_max = COLLECT_BYTES_MAX,
		.rests = rests,
		.place = place_staged,
		.context = &work,
	};
	struct postern_error failure = { 0 };
	postern__point("collect.before");
	int r = box->store->ops->collect(box->store, &collection, memory, &failure);
	postern__point("collect.after");
	out->accepted = finish_collected(&work, &collection, r, &failure);
	out->refused = r ? 0 : collection.refused;
	out->more = !r && collection.more;
	if (r && error) {
		*error = failure;
	}
	return r;
}

int postern__collect(struct postern_box *box, bool rests,
		struct postern__collected *out, struct postern_error *error) {
	*out = (struct postern__collected){ 0 };
	if (!box->store->ops->collect) {
		return POSTERN_OK;
	}
	struct postern_memory *memory = postern_memory_create();
	if (!memory) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	struct postern_generation *generation = postern__generation_acquire(box);
	int r = collect_batch(box, generation, rests, memory, out, error);
	postern__generation_release(generation);
	postern_memory_destroy(memory);
	return r;
}

int postern__stranded(struct postern_box *box, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error) {
	*count_out = 0;
	return box->store->ops->stranded
				   ? box->store->ops->stranded(box->store, max, memory, out,
							 count_out, error)
				   : POSTERN_OK;
}
