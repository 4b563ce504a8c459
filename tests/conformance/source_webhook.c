/* SPDX-License-Identifier: MIT */

/*
 * Webhooks as a target. The transport is a thread that has many requests open
 * and sends again what was not answered with success. The source is behind
 * another one, which lets the thread use it from start() to end() only, as the
 * HTTP server does. Signatures and HTTP are tested with the server.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/container.h"
#include "conformance/source_target.h"
#include "server/webhook_source.h"
#include "source/kinds.h"
#include "tap.h"

#define MESSAGE_MAX 4000
#define ID_MAX 32

enum request_state { UNSENT, OPEN, ANSWERED };

static struct {
	pthread_mutex_t mutex;
	char ids[MESSAGE_MAX][ID_MAX];
	enum request_state states[MESSAGE_MAX];
	size_t count;

	pthread_t thread;
	atomic_bool ends;
	pthread_mutex_t using; /* held while the thread uses the source */
	struct postern__webhook_source *source; /* NULL: it does not run */
} sender;

/* What the runner has instead of the source. */
struct outer {
	struct postern_source base;
	struct postern_source *inner;
};

static struct postern_source *inner_of(struct postern_source *base) {
	return container_of(base, struct outer, base)->inner;
}

static void use_source(struct postern_source *source) {
	(void)pthread_mutex_lock(&sender.using);
	sender.source = (struct postern__webhook_source *)source;
	(void)pthread_mutex_unlock(&sender.using);
}

static int outer_start(struct postern_source *base, struct postern_sink *sink,
		struct postern_error *error) {
	struct postern_source *inner = inner_of(base);
	int r = inner->ops->start(inner, sink, error);
	use_source(inner);
	return r;
}

static void outer_complete(struct postern_source *base,
		const struct postern_completion *completion) {
	struct postern_source *inner = inner_of(base);
	inner->ops->complete(inner, completion);
}

static void outer_resume(struct postern_source *base) {
	struct postern_source *inner = inner_of(base);
	inner->ops->resume(inner);
}

static void outer_stop(struct postern_source *base) {
	struct postern_source *inner = inner_of(base);
	inner->ops->stop(inner);
}

static void outer_end(struct postern_source *base) {
	struct postern_source *inner = inner_of(base);
	use_source(NULL);
	inner->ops->end(inner);
}

static void outer_destroy(struct postern_source *base) {
	struct postern_source *inner = inner_of(base);
	inner->ops->destroy(inner);
	free(container_of(base, struct outer, base));
}

static const struct postern_source_ops outer_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "webhook",
	.tag_name = "request",
	.start = outer_start,
	.complete = outer_complete,
	.resume = outer_resume,
	.stop = outer_stop,
	.end = outer_end,
	.destroy = outer_destroy,
};

static struct postern_source *create(void) {
	static const struct postern_source_setting settings[] = {
		{ "name", "test" },
		{ "verify", "none" },
	};
	struct outer *outer = calloc(1, sizeof *outer);
	struct postern_error error;
	if (!outer) {
		abort();
	}
	outer->base.ops = &outer_ops;
	postern__webhook_source_register();
	CHECK_OK(postern__source_create(postern__source_kind_find("webhook"),
					 settings, 2, &outer->inner, &error),
			&error);
	return &outer->base;
}

static void set_state(size_t index, enum request_state state) {
	(void)pthread_mutex_lock(&sender.mutex);
	sender.states[index] = state;
	(void)pthread_mutex_unlock(&sender.mutex);
}

static enum request_state state_of(size_t index) {
	(void)pthread_mutex_lock(&sender.mutex);
	enum request_state state = sender.states[index];
	(void)pthread_mutex_unlock(&sender.mutex);
	return state;
}

/* A response: any but 5xx ends the request. */
static void answered(void *context, const struct postern_receipt *receipt) {
	enum request_state *state = context;
	int code = receipt->error.code;
	bool ends = code == POSTERN_OK || code == POSTERN_E_DUPLICATE ||
				code == POSTERN_E_CONFLICT || code == POSTERN_E_INVALID;
	set_state((size_t)(state - sender.states), ends ? ANSWERED : UNSENT);
}

static void send_one(size_t index) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = sender.ids[index],
		.source = "test",
		.type = "t",
		.body = sender.ids[index],
		.body_len = strlen(sender.ids[index]),
	};
	set_state(index, OPEN);
	if (postern__webhook_source_accept(sender.source, &message, answered,
				&sender.states[index]) != POSTERN__WEBHOOK_TAKEN) {
		set_state(index, UNSENT);
	}
}

static size_t count_put(void) {
	(void)pthread_mutex_lock(&sender.mutex);
	size_t count = sender.count;
	(void)pthread_mutex_unlock(&sender.mutex);
	return count;
}

static void *send_all(void *context) {
	const struct timespec pause = { .tv_nsec = 1000000 };
	(void)context;
	while (!sender.ends) {
		for (size_t i = 0; i < count_put(); i++) {
			(void)pthread_mutex_lock(&sender.using);
			if (sender.source && state_of(i) == UNSENT) {
				send_one(i);
			}
			(void)pthread_mutex_unlock(&sender.using);
		}
		(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

static void open_sender(void) {
	memset(&sender, 0, sizeof sender);
	(void)pthread_mutex_init(&sender.mutex, NULL);
	(void)pthread_mutex_init(&sender.using, NULL);
	CHECK(pthread_create(&sender.thread, NULL, send_all, NULL) == 0);
}

static void close_sender(void) {
	sender.ends = true;
	(void)pthread_join(sender.thread, NULL);
	(void)pthread_mutex_destroy(&sender.using);
	(void)pthread_mutex_destroy(&sender.mutex);
}

static void put(const char *id) {
	(void)pthread_mutex_lock(&sender.mutex);
	(void)snprintf(sender.ids[sender.count++], ID_MAX, "%s", id);
	(void)pthread_mutex_unlock(&sender.mutex);
}

static void put_bad(void) {
	put("");
}

static size_t acknowledged(bool exists) {
	size_t count = 0;
	(void)exists;
	for (size_t i = 0; i < count_put(); i++) {
		count += state_of(i) == ANSWERED;
	}
	return count;
}

const struct source_target source_target = {
	.name = "webhook",
	.open = open_sender,
	.close = close_sender,
	.create = create,
	.put = put,
	.put_bad = put_bad,
	.acknowledged = acknowledged,
	.pauses = true,
};
