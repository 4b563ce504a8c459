/* SPDX-License-Identifier: MIT */

/* The broker is one global, guarded by its mutex; a test has one at a time. */

#include "conformance/scripted_source.h"

#include <assert.h>
#include <poll.h>
#include <postern/sys/source.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/container.h"

#define MESSAGE_MAX 4000
#define PREFETCH 50
#define ID_MAX 32

enum message_state { QUEUED, DELIVERED, ACKNOWLEDGED };

static struct {
	pthread_mutex_t mutex;
	int changed; /* an eventfd: a message was put, or the connection cut */
	bool offsets;
	bool shuffled;
	unsigned random;
	unsigned connection;           /* changes when it is cut */
	char ids[MESSAGE_MAX][ID_MAX]; /* empty: a bad message */
	enum message_state states[MESSAGE_MAX];
	size_t count;
	size_t cursor;    /* offsets: the next to deliver */
	size_t committed; /* offsets: all before are acknowledged */
} broker;

static void open_broker(bool offsets) {
	memset(&broker, 0, sizeof broker);
	(void)pthread_mutex_init(&broker.mutex, NULL);
	broker.changed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	broker.offsets = offsets;
	broker.random = 1;
	broker.connection = 1;
}

void scripted_open_tags(void) {
	open_broker(false);
}

void scripted_open_offsets(void) {
	open_broker(true);
}

void scripted_close(void) {
	(void)close(broker.changed);
	(void)pthread_mutex_destroy(&broker.mutex);
}

void scripted_put(const char *id) {
	(void)pthread_mutex_lock(&broker.mutex);
	assert(broker.count < MESSAGE_MAX);
	(void)snprintf(broker.ids[broker.count++], ID_MAX, "%s", id);
	(void)pthread_mutex_unlock(&broker.mutex);
	(void)eventfd_write(broker.changed, 1);
}

void scripted_put_bad(void) {
	scripted_put("");
}

size_t scripted_acknowledged(bool exists) {
	(void)exists;
	(void)pthread_mutex_lock(&broker.mutex);
	size_t count = broker.committed;
	for (size_t i = 0; i < broker.count; i++) {
		count += broker.states[i] == ACKNOWLEDGED;
	}
	(void)pthread_mutex_unlock(&broker.mutex);
	return count;
}

void scripted_shuffle(void) {
	broker.shuffled = true;
}

/* With the mutex: what was not acknowledged is delivered again. */
static void cut_connection(void) {
	broker.connection++;
	broker.cursor = broker.committed;
	for (size_t i = 0; i < broker.count; i++) {
		if (broker.states[i] == DELIVERED) {
			broker.states[i] = QUEUED;
		}
	}
}

void scripted_disconnect(void) {
	(void)pthread_mutex_lock(&broker.mutex);
	cut_connection();
	(void)pthread_mutex_unlock(&broker.mutex);
	(void)eventfd_write(broker.changed, 1);
}

static unsigned roll(unsigned sides) {
	broker.random = broker.random * 1103515245U + 12345U;
	return (broker.random >> 16) % sides;
}

/* With the mutex: the next message of this connection; false: none. */
static bool next_message(unsigned connection, size_t *index_out) {
	if (connection != broker.connection) {
		return false;
	}
	if (broker.offsets) {
		if (broker.shuffled && broker.cursor > broker.committed &&
				roll(4) == 0) {
			broker.cursor--; /* the same once more */
		}
		*index_out = broker.cursor;
		return broker.cursor < broker.count && broker.cursor++ < MESSAGE_MAX;
	}
	size_t from = broker.shuffled && broker.count > 0
						  ? roll((unsigned)broker.count)
						  : 0;
	for (size_t i = 0; i < broker.count; i++) {
		size_t index = (from + i) % broker.count;
		if (broker.states[index] == QUEUED) {
			bool repeats = broker.shuffled && roll(4) == 0;
			broker.states[index] = repeats ? QUEUED : DELIVERED;
			*index_out = index;
			return true;
		}
	}
	return false;
}

struct scripted {
	struct postern_source base;
	struct postern_sink *sink;
	struct postern_completions *completions;
	struct postern_prefix *prefix;
	pthread_t thread;
	atomic_bool stopping;
	atomic_bool ending;
	/* Used by the thread alone. */
	unsigned connection;          /* 0: none */
	uint64_t position;            /* of the next message, from 1 */
	size_t indices[PREFETCH * 2]; /* of a position */
	size_t in_flight;             /* of any connection */
	bool holds;                   /* a message that the sink did not take */
	size_t held;
	bool failed; /* the store was unavailable: wait before the next */
};

static const struct postern_source_ops scripted_ops;

static struct scripted *from_base(struct postern_source *source) {
	assert(source->ops == &scripted_ops);
	return container_of(source, struct scripted, base);
}

/* A tag is valid for its connection only. */
static uint64_t tag_of(unsigned connection, uint64_t position) {
	return (uint64_t)connection << 32 | position;
}

static void connect_broker(struct scripted *self) {
	(void)pthread_mutex_lock(&broker.mutex);
	cut_connection(); /* a former one of a former source */
	self->connection = broker.connection;
	(void)pthread_mutex_unlock(&broker.mutex);
	self->position = 1;
	self->holds = false;
	postern_prefix_reset(self->prefix, 1);
	postern_sink_connected(self->sink);
}

/* Whether the connection still exists; if not, it is reported. */
static bool check_connection(struct scripted *self) {
	(void)pthread_mutex_lock(&broker.mutex);
	bool same = self->connection == broker.connection;
	(void)pthread_mutex_unlock(&broker.mutex);
	if (!same && self->connection != 0) {
		self->connection = 0;
		postern_sink_disconnected(self->sink, "the script cut the connection");
	}
	return same;
}

/* With the mutex of the broker. */
static void acknowledge(struct scripted *self, uint64_t position,
		enum postern_verdict verdict) {
	size_t index = self->indices[position % (PREFETCH * 2)];
	if (verdict == POSTERN_VERDICT_UNAVAILABLE) {
		self->failed = true;
		if (!broker.offsets && broker.states[index] == DELIVERED) {
			broker.states[index] = QUEUED;
		}
	} else if (!broker.offsets) {
		broker.states[index] = ACKNOWLEDGED;
	} else {
		uint64_t before = postern_prefix_first(self->prefix);
		uint64_t first = postern_prefix_done(self->prefix, position);
		if (first > before) {
			/* An offset that was repeated may be behind the committed one. */
			size_t done = self->indices[(first - 1) % (PREFETCH * 2)] + 1;
			broker.committed =
					done > broker.committed ? done : broker.committed;
		}
	}
}

static void take_completions(struct scripted *self) {
	struct postern_completed items[PREFETCH];
	size_t count = postern_completions_take(self->completions, items, PREFETCH);
	self->in_flight -= count;
	(void)pthread_mutex_lock(&broker.mutex);
	for (size_t i = 0; i < count; i++) {
		unsigned connection = (unsigned)(items[i].tag >> 32);
		if (connection == self->connection && connection == broker.connection) {
			acknowledge(self, items[i].tag & UINT32_MAX, items[i].verdict);
		}
	}
	if (self->failed && broker.offsets) {
		/* An offset cannot be left out: begin again at the committed one. */
		cut_connection();
	}
	(void)pthread_mutex_unlock(&broker.mutex);
}

static bool fetch(struct scripted *self, size_t *index_out) {
	if (self->holds) {
		*index_out = self->held;
		return true;
	}
	/* The window of the prefix is as large as the table of indices. */
	bool room = self->in_flight < PREFETCH &&
				(!broker.offsets ||
						self->position - postern_prefix_first(self->prefix) <
								PREFETCH);
	(void)pthread_mutex_lock(&broker.mutex);
	bool found = room && next_message(self->connection, index_out);
	(void)pthread_mutex_unlock(&broker.mutex);
	return found;
}

static void read_messages(struct scripted *self) {
	size_t index;
	while (!self->stopping && fetch(self, &index)) {
		struct postern_message message = {
			.size = sizeof message,
			.id = broker.ids[index],
			.source = "test",
			.type = "t",
			.body = broker.ids[index],
			.body_len = strlen(broker.ids[index]),
		};
		self->indices[self->position % (PREFETCH * 2)] = index;
		self->held = index;
		self->holds = !postern_sink_accept(self->sink, NULL, &message,
				tag_of(self->connection, self->position));
		if (self->holds) {
			return;
		}
		self->position++;
		self->in_flight++;
	}
}

static void wait_for_change(struct scripted *self) {
	struct pollfd fds[] = {
		{ .fd = postern_completions_fd(self->completions), .events = POLLIN },
		{ .fd = broker.changed, .events = POLLIN },
	};
	bool waits = self->failed || self->connection == 0;
	int ms = waits ? (int)postern_sink_retry_delay_ms(self->sink) : 5000;
	/* While it waits, messages do not matter. */
	(void)poll(fds, waits ? 1 : 2, ms);
	eventfd_t value;
	(void)eventfd_read(broker.changed, &value);
	self->failed = false;
}

static void *scripted_loop(void *context) {
	struct scripted *self = context;
	connect_broker(self);
	while (!self->ending) {
		if (!check_connection(self)) {
			wait_for_change(self);
			if (!self->stopping) {
				connect_broker(self);
			}
		}
		take_completions(self);
		if (!self->failed) {
			read_messages(self);
		}
		wait_for_change(self);
	}
	take_completions(self);
	(void)check_connection(self);
	return NULL;
}

static int scripted_start(struct postern_source *source,
		struct postern_sink *sink, struct postern_error *error) {
	struct scripted *self = from_base(source);
	(void)error;
	self->sink = sink;
	self->stopping = false;
	self->ending = false;
	return pthread_create(&self->thread, NULL, scripted_loop, self) == 0
				   ? POSTERN_OK
				   : POSTERN_E_NOMEM;
}

static void scripted_complete(struct postern_source *source,
		const struct postern_completion *completion) {
	postern_completions_put(from_base(source)->completions, completion);
}

static void scripted_resume(struct postern_source *source) {
	postern_completions_wake(from_base(source)->completions);
}

static void scripted_stop(struct postern_source *source) {
	struct scripted *self = from_base(source);
	self->stopping = true;
	postern_completions_wake(self->completions);
}

static void scripted_end(struct postern_source *source) {
	struct scripted *self = from_base(source);
	self->ending = true;
	postern_completions_wake(self->completions);
	(void)pthread_join(self->thread, NULL);
	assert(self->in_flight == 0);
}

static void scripted_destroy(struct postern_source *source) {
	struct scripted *self = from_base(source);
	postern_completions_destroy(self->completions);
	postern_prefix_destroy(self->prefix);
	free(self);
}

static const struct postern_source_ops scripted_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "scripted",
	.tag_name = "delivery",
	.start = scripted_start,
	.complete = scripted_complete,
	.resume = scripted_resume,
	.stop = scripted_stop,
	.end = scripted_end,
	.destroy = scripted_destroy,
};

struct postern_source *scripted_create(void) {
	struct postern_error error;
	struct scripted *self = calloc(1, sizeof *self);
	if (!self ||
			postern_completions_create(PREFETCH, &self->completions, &error) ||
			postern_prefix_create(PREFETCH, &self->prefix, &error)) {
		abort();
	}
	self->base.ops = &scripted_ops;
	return &self->base;
}
