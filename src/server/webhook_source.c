/* SPDX-License-Identifier: MIT */
/*
 * A request is a tag, counted from 1. What waits for its completion is in a
 * table by tag, from before the sink takes the message, because the completion
 * may come first.
 *
 * The mutex is not held while the sink is called. A sink that was ended takes
 * nothing, and the HTTP server ends before the runner and its sinks are
 * destroyed.
 */

#include "server/webhook_source.h"

#include <assert.h>
#include <postern/source.h>
#include <postern/sys/option.h>
#include <postern/sys/source.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/container.h"
#include "base/fail.h"
#include "runner/runner.h"

#define WAITING_BUCKETS 256

struct waiting {
	struct waiting *next; /* in its bucket */
	uint64_t tag;
	postern_accepted *done;
	void *context;
};

struct postern__webhook_source {
	struct postern_source base;
	struct postern__arena arena; /* texts and secrets */
	struct postern__webhook_settings settings;

	pthread_mutex_t mutex;
	/* All below is guarded by the mutex. */
	struct postern_sink *sink; /* NULL: not started */
	bool stopping;
	uint64_t last_tag;
	struct waiting *waiting[WAITING_BUCKETS];
};

static const struct postern_source_ops webhook_ops;

static struct postern__webhook_source *from_base(struct postern_source *base) {
	assert(base->ops == &webhook_ops);
	return container_of(base, struct postern__webhook_source, base);
}

const struct postern__webhook_settings *postern__webhook_source_settings(
		const struct postern__webhook_source *source) {
	return &source->settings;
}

struct postern__webhook_source *
postern__webhook_source_find(const struct postern_runner *runner,
		const char *channel, const char *name) {
	const char *fed;
	struct postern_source *base;
	for (size_t i = 0; (base = postern__sources_at(runner, i, &fed)); i++) {
		if (base->ops == &webhook_ops && strcmp(fed, channel) == 0 &&
				strcmp(from_base(base)->settings.name, name) == 0) {
			return from_base(base);
		}
	}
	return NULL;
}

/* The next tag, and the sink to use it with; NULL: none. */
static struct postern_sink *next_tag(struct postern__webhook_source *source,
		uint64_t *tag_out) {
	(void)pthread_mutex_lock(&source->mutex);
	*tag_out = ++source->last_tag;
	struct postern_sink *sink = source->sink;
	(void)pthread_mutex_unlock(&source->mutex);
	return sink;
}

void postern__webhook_source_refuse(struct postern__webhook_source *source,
		const char *why) {
	uint64_t tag;
	struct postern_sink *sink = next_tag(source, &tag);
	if (sink) {
		postern_sink_reject(sink, tag, why);
	}
}

static void add_waiting(struct postern__webhook_source *source,
		struct waiting *waiting) {
	struct waiting **bucket = &source->waiting[waiting->tag % WAITING_BUCKETS];
	(void)pthread_mutex_lock(&source->mutex);
	waiting->next = *bucket;
	*bucket = waiting;
	(void)pthread_mutex_unlock(&source->mutex);
}

static struct waiting *remove_waiting(struct postern__webhook_source *source,
		uint64_t tag) {
	(void)pthread_mutex_lock(&source->mutex);
	struct waiting **place = &source->waiting[tag % WAITING_BUCKETS];
	while (*place && (*place)->tag != tag) {
		place = &(*place)->next;
	}
	struct waiting *found = *place;
	if (found) {
		*place = found->next;
	}
	(void)pthread_mutex_unlock(&source->mutex);
	return found;
}

static bool is_stopping(struct postern__webhook_source *source) {
	(void)pthread_mutex_lock(&source->mutex);
	bool stopping = source->stopping || !source->sink;
	(void)pthread_mutex_unlock(&source->mutex);
	return stopping;
}

enum postern__webhook_taken
postern__webhook_source_accept(struct postern__webhook_source *source,
		const struct postern_message *message, postern_accepted *done,
		void *context) {
	struct waiting *waiting = malloc(sizeof *waiting);
	if (!waiting) {
		return POSTERN__WEBHOOK_FULL;
	}
	uint64_t tag;
	struct postern_sink *sink = next_tag(source, &tag);
	*waiting = (struct waiting){ .tag = tag, .done = done, .context = context };
	add_waiting(source, waiting);
	if (sink && postern_sink_accept(sink, NULL, message, tag)) {
		return POSTERN__WEBHOOK_TAKEN;
	}
	free(remove_waiting(source, tag));
	return is_stopping(source) ? POSTERN__WEBHOOK_STOPPED
							   : POSTERN__WEBHOOK_FULL;
}

static void webhook_complete(struct postern_source *base,
		const struct postern_completion *completion) {
	struct waiting *waiting = remove_waiting(from_base(base), completion->tag);
	assert(waiting);
	const struct postern_receipt receipt = {
		.seq = completion->seq,
		.error = *completion->error,
	};
	waiting->done(waiting->context, &receipt);
	free(waiting);
}

static void webhook_resume(struct postern_source *base) {
	(void)base; /* senders try again by themselves */
}

static void set_sink(struct postern__webhook_source *source,
		struct postern_sink *sink, bool stopping) {
	(void)pthread_mutex_lock(&source->mutex);
	source->sink = sink;
	source->stopping = stopping;
	(void)pthread_mutex_unlock(&source->mutex);
}

static int webhook_start(struct postern_source *base, struct postern_sink *sink,
		struct postern_error *error) {
	(void)error;
	set_sink(from_base(base), sink, false);
	postern_sink_connected(sink);
	return POSTERN_OK;
}

static void webhook_stop(struct postern_source *base) {
	struct postern__webhook_source *source = from_base(base);
	(void)pthread_mutex_lock(&source->mutex);
	source->stopping = true;
	(void)pthread_mutex_unlock(&source->mutex);
}

static void webhook_end(struct postern_source *base) {
	set_sink(from_base(base), NULL, true);
}

static void webhook_destroy(struct postern_source *base) {
	struct postern__webhook_source *source = from_base(base);
	(void)pthread_mutex_destroy(&source->mutex);
	postern__arena_finish(&source->arena);
	free(source);
}

static const struct postern_source_ops webhook_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "webhook",
	.tag_name = "request",
	.start = webhook_start,
	.complete = webhook_complete,
	.resume = webhook_resume,
	.stop = webhook_stop,
	.end = webhook_end,
	.destroy = webhook_destroy,
};

static int webhook_create(const void *given, struct postern_source **out,
		struct postern_error *error) {
	struct postern__webhook_source *source = calloc(1, sizeof *source);
	if (!source || pthread_mutex_init(&source->mutex, NULL)) {
		free(source);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	source->base.ops = &webhook_ops;
	postern__arena_init(&source->arena);
	int r = postern__webhook_settings_read(given, &source->arena,
			&source->settings, error);
	if (r) {
		webhook_destroy(&source->base);
		return r;
	}
	*out = &source->base;
	return POSTERN_OK;
}

void postern__webhook_source_register(void) {
	const struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = webhook_ops.name,
		.help = "requests that their sender signs",
		.options = postern__webhook_options,
		.option_count = postern__webhook_option_count,
		.settings_size = postern__webhook_settings_size,
		.create = webhook_create,
	};
	/* If there is no room, the kind is refused as an unknown one. */
	(void)postern_source_kind_register(&kind, NULL);
}
