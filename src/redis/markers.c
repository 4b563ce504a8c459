/* SPDX-License-Identifier: MIT */

/*
 * The markers: a queue of calls in front of a few connections.
 *
 * A thread that finds a free connection takes what is queued, sends all of it
 * at once and passes the replies on; threads that come meanwhile are the next
 * batch. So many threads share few round trips, and a single one waits for
 * nothing.
 *
 * A call whose answer was lost is sent again: every kind of change may be
 * repeated with its fence. A call fails when its time is over, or at once if
 * the server's answer will not change by itself (reply.c).
 */

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/list.h"
#include "base/wait.h"
#include "redis/redis.h"

/* Calls that are sent at once. */
#define BATCH_MAX 64
/* Between two attempts; the first one follows at once. */
#define PAUSE_MS_FIRST 50
#define PAUSE_MS_MAX 1000
/* An attempt has this part of a call's time, so that a connection that is dead
   without a sign of it is given up. */
#define ATTEMPT_PARTS 4

/* One change, on the stack of its thread. */
struct call {
	struct postern__list link; /* in the queue */
	const struct postern_mark *mark;
	struct postern_mark_request *request;
	char *command;
	size_t command_len;
	bool full;   /* the command has the whole script */
	bool unsure; /* it was sent, and its reply was lost */
	int64_t until_ms;
	/* Posted when a connection is free for its thread to serve the queue, which
	   is counted with the mutex, and once when the call has ended. */
	sem_t wake;
	size_t offer_count;
	atomic_bool ended; /* set with the result */
	int code;
	struct postern_error error;
};

struct redis_markers {
	struct postern_markers base;
	struct postern__redis_address address;
	SSL_CTX *tls; /* NULL: without */
	char digest[REDIS_DIGEST_SIZE];
	const struct postern_clock *clock;
	const struct postern_clock *script_clock; /* NULL: the server's */
	int64_t timeout_ms;
	bool retries;

	pthread_mutex_t mutex; /* protects all below */
	struct postern__list queue;
	/* Those that no thread uses, the first free_count. */
	struct postern__redis_connection *free[REDIS_CONNECTION_MAX];
	size_t free_count;
	struct postern__redis_connection connections[REDIS_CONNECTION_MAX];
};

static const struct postern_marker_ops redis_ops;

static struct redis_markers *from_base(struct postern_markers *markers) {
	assert(markers->ops == &redis_ops);
	return container_of(markers, struct redis_markers, base);
}

static int64_t now_of(const struct redis_markers *self) {
	return self->clock->monotonic_ms(self->clock->context);
}

/* The calls that one thread sends together. */
struct batch {
	struct redis_markers *self;
	struct postern__redis_connection *connection;
	struct call *calls[BATCH_MAX]; /* that have no result yet */
	size_t count;
	int64_t pause_ms;
	int64_t until_ms;            /* the latest of all calls */
	struct postern_error reason; /* of its failure, if it fails */
};

/* The thread that waits leaves with its result at once; nobody touches the call
   after the post. Each call has a semaphore, so that the threads of a batch do
   not wake up to wait for one mutex. */
static void end_call(struct call *call, int code,
		const struct postern_error *why) {
	call->code = code;
	if (code) {
		call->error = *why;
	}
	atomic_store(&call->ended, true);
	(void)sem_post(&call->wake);
}

static void end_all(struct batch *batch, int code,
		const struct postern_error *why) {
	for (size_t i = 0; i < batch->count; i++) {
		end_call(batch->calls[i], code, why);
	}
	batch->count = 0;
}

static struct postern__redis_deadline
attempt_of(const struct redis_markers *self, int64_t until_ms) {
	int64_t now = now_of(self);
	int64_t part = self->timeout_ms / ATTEMPT_PARTS + 1;
	return (struct postern__redis_deadline){
		.clock = self->clock,
		.until_ms = now + part < until_ms ? now + part : until_ms,
	};
}

static int format_call(const struct redis_markers *self, struct call *call,
		const char *digest, struct postern_error *error) {
	int64_t now_ms = -1;
	if (self->script_clock) {
		now_ms = self->script_clock->wall_ms(self->script_clock->context);
	}
	return postern__redis_script_format(&self->address, digest, call->mark,
			call->request, now_ms, &call->command, &call->command_len, error);
}

/* The server does not keep the script: send all of it. */
static int format_again(const struct redis_markers *self, struct call *call,
		struct postern_error *error) {
	redisFreeCommand(call->command);
	call->command = NULL;
	call->full = true;
	return format_call(self, call, NULL, error);
}

/* Send the commands of all calls as one piece. */
static int send_all(struct batch *batch,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	size_t len = 0;
	if (batch->count == 1) {
		return postern__redis_connection_send(batch->connection,
				batch->calls[0]->command, batch->calls[0]->command_len,
				deadline, error);
	}
	for (size_t i = 0; i < batch->count; i++) {
		len += batch->calls[i]->command_len;
	}
	char *bytes = malloc(len + 1);
	if (!bytes) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	len = 0;
	for (size_t i = 0; i < batch->count; i++) {
		memcpy(bytes + len, batch->calls[i]->command,
				batch->calls[i]->command_len);
		len += batch->calls[i]->command_len;
	}
	int r = postern__redis_connection_send(batch->connection, bytes, len,
			deadline, error);
	free(bytes);
	return r;
}

/* What came of one attempt. */
struct attempt {
	bool reconnect;
	bool again; /* after a pause */
	struct postern_error error;
};

/* Whether this reply says that an earlier try, whose reply was lost, released
   the lease. */
static bool was_released(const struct call *call, int code,
		const redisReply *reply) {
	return code == POSTERN_E_STALE && call->unsure &&
		   call->request->kind == POSTERN_MARK_RELEASE &&
		   reply->element[1]->integer == POSTERN_MARK_UNKNOWN;
}

/* The reply of one call. True: the call stays in the batch. */
static bool take_reply(struct batch *batch, struct call *call,
		const redisReply *reply, struct attempt *attempt) {
	struct postern_error why = { 0 };
	enum postern__redis_action action = REDIS_FAIL;
	int r = postern__redis_take_reply(reply, batch->self->address.place,
			call->request, &action, &why);
	if (was_released(call, r, reply)) {
		call->request->before = POSTERN_MARK_RUNNING;
		r = POSTERN_OK;
	}
	if (r && action == REDIS_EVAL && !call->full) {
		r = format_again(batch->self, call, &why);
		if (!r) {
			return true;
		}
	} else if (r && (action == REDIS_AGAIN || action == REDIS_RECONNECT)) {
		attempt->again = true;
		attempt->reconnect = attempt->reconnect || action == REDIS_RECONNECT;
		attempt->error = why;
		return true;
	}
	end_call(call, r, &why);
	return false;
}

/* Read a reply for each call; those that must be repeated stay. */
static int receive_all(struct batch *batch,
		const struct postern__redis_deadline *deadline,
		struct attempt *attempt) {
	size_t kept = 0;
	int r = POSTERN_OK;
	for (size_t i = 0; i < batch->count; i++) {
		struct call *call = batch->calls[i];
		redisReply *reply = NULL;
		if (!r) {
			r = postern__redis_connection_receive(batch->connection, deadline,
					&reply, &attempt->error);
		}
		call->unsure = call->unsure || r;
		if (r || take_reply(batch, call, reply, attempt)) {
			batch->calls[kept++] = call;
		}
		if (reply) {
			freeReplyObject(reply);
		}
	}
	batch->count = kept;
	return r;
}

/* Whether the batch goes on after this failure. */
static bool fails_for_good(const struct batch *batch) {
	return !batch->self->retries || now_of(batch->self) >= batch->until_ms;
}

static int connect_for(struct batch *batch,
		const struct postern__redis_deadline *deadline,
		struct attempt *attempt) {
	enum postern__redis_action action = REDIS_FAIL;
	int r = postern__redis_connection_open(batch->connection,
			&batch->self->address, batch->self->tls, deadline, &action,
			&attempt->error);
	if (r && (action == REDIS_FAIL || action == REDIS_DENIED)) {
		end_all(batch, r, &attempt->error);
	}
	attempt->again = attempt->again || r;
	return r;
}

/* Add the place to an error of the socket. */
static int fail_exchange(const struct batch *batch, int code,
		struct postern_error *error) {
	return postern__fail(error, code, "%s: %s", batch->self->address.place,
			error->text);
}

static void try_once(struct batch *batch,
		const struct postern__redis_deadline *deadline,
		struct attempt *attempt) {
	bool fresh = !batch->connection->reader;
	if (fresh && connect_for(batch, deadline, attempt)) {
		return;
	}
	int r = send_all(batch, deadline, &attempt->error);
	if (!r) {
		r = receive_all(batch, deadline, attempt);
	}
	if (r) {
		(void)fail_exchange(batch, r, &attempt->error);
		/* A connection that was idle may have been closed long ago. */
		attempt->again = fresh;
		attempt->reconnect = true;
	}
	if (attempt->reconnect) {
		postern__redis_connection_close(batch->connection);
	}
}

static void sleep_ms(int64_t ms) {
	struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

static void pause_batch(struct batch *batch) {
	int64_t left = batch->until_ms - now_of(batch->self);
	if (left > 0) {
		sleep_ms(batch->pause_ms < left ? batch->pause_ms : left);
	}
	batch->pause_ms = batch->pause_ms * 2 < PAUSE_MS_MAX ? batch->pause_ms * 2
														 : PAUSE_MS_MAX;
}

/* What the server said before says more than an attempt that ran out of time.
 */
static void note_reason(struct batch *batch,
		const struct postern__redis_deadline *deadline,
		const struct attempt *attempt) {
	if (!batch->reason.code || now_of(batch->self) < deadline->until_ms) {
		batch->reason = attempt->error;
	}
}

/* Without the mutex. Every call has a result when it returns. */
static void run_batch(struct batch *batch) {
	batch->pause_ms = PAUSE_MS_FIRST;
	while (batch->count > 0) {
		struct attempt attempt = { 0 };
		struct postern__redis_deadline deadline =
				attempt_of(batch->self, batch->until_ms);
		try_once(batch, &deadline, &attempt);
		bool failed = attempt.again || attempt.reconnect;
		if (failed) {
			note_reason(batch, &deadline, &attempt);
		}
		if (batch->count > 0 && attempt.again && !fails_for_good(batch)) {
			pause_batch(batch);
		}
		if (batch->count > 0 && failed && fails_for_good(batch)) {
			end_all(batch, batch->reason.code, &batch->reason);
		}
	}
}

/* Mutex held: take what is queued. */
static void fill_batch(struct batch *batch) {
	struct postern__list *link;
	while (batch->count < BATCH_MAX &&
			(link = postern__list_pop_front(&batch->self->queue))) {
		struct call *call = container_of(link, struct call, link);
		batch->calls[batch->count++] = call;
		if (call->until_ms > batch->until_ms) {
			batch->until_ms = call->until_ms;
		}
	}
}

/* Mutex held, which is released meanwhile; a connection is free and calls are
   queued. */
static void serve(struct redis_markers *self) {
	struct batch batch = {
		.self = self,
		.connection = self->free[--self->free_count],
		.until_ms = INT64_MIN,
	};
	fill_batch(&batch);
	(void)pthread_mutex_unlock(&self->mutex);
	run_batch(&batch);
	(void)pthread_mutex_lock(&self->mutex);
	self->free[self->free_count++] = batch.connection;
	struct postern__list *next = postern__list_first(&self->queue);
	if (next) {
		struct call *call = container_of(next, struct call, link);
		call->offer_count++;
		(void)sem_post(&call->wake);
	}
}

/* Serve the queue if a connection is free, or give up if the call's time is
   over. Returns for how long to wait then, negative: for its result. */
static int64_t serve_or_leave(struct redis_markers *self, struct call *call) {
	struct postern_error why;
	bool queued = postern__list_linked(&call->link);
	int64_t left = call->until_ms - now_of(self);
	if (queued && self->free_count > 0) {
		serve(self);
		return 0;
	}
	if (queued && left <= 0) {
		postern__list_remove(&call->link);
		end_call(call,
				postern__fail(&why, POSTERN_E_UNAVAILABLE,
						"%s: all connections are in use", self->address.place),
				&why);
		return 0;
	}
	/* One that was taken gets its result from another thread. */
	return queued ? left : -1;
}

/* Wait for the result of a call, or produce it. */
static void complete_call(struct redis_markers *self, struct call *call) {
	size_t post_count = 0;
	(void)pthread_mutex_lock(&self->mutex);
	postern__list_push_back(&self->queue, &call->link);
	for (;;) {
		int64_t wait_ms = serve_or_leave(self, call);
		(void)pthread_mutex_unlock(&self->mutex);
		if (wait_ms != 0) {
			post_count += postern__wait_posted(&call->wake, wait_ms);
		}
		if (atomic_load(&call->ended)) {
			break;
		}
		(void)pthread_mutex_lock(&self->mutex);
	}
	/* Until all posts were made the call must not go away. */
	while (post_count < call->offer_count + 1) {
		post_count += postern__wait_posted(&call->wake, -1);
	}
}

static int redis_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	struct redis_markers *self = from_base(markers);
	struct call call = {
		.mark = mark,
		.request = request,
		.until_ms = now_of(self) + self->timeout_ms,
	};
	int r = format_call(self, &call, self->digest, error);
	if (r) {
		return r;
	}
	/* This cannot fail with these arguments. */
	(void)sem_init(&call.wake, 0, 0);
	complete_call(self, &call);
	(void)sem_destroy(&call.wake);
	redisFreeCommand(call.command);
	if (call.code) {
		return postern__fail(error, call.code, "%s", call.error.text);
	}
	return POSTERN_OK;
}

static int redis_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	(void)markers;
	(void)expiry;
	return postern__fail(error, POSTERN_E_UNSUPPORTED,
			"Redis expires markers by itself, after the 'ttl' of the URL");
}

static void redis_destroy(struct postern_markers *markers) {
	struct redis_markers *self = from_base(markers);
	for (size_t i = 0; i < self->address.connections; i++) {
		postern__redis_connection_close(&self->connections[i]);
	}
	SSL_CTX_free(self->tls);
	(void)pthread_mutex_destroy(&self->mutex);
	postern__redis_address_wipe(&self->address);
	free(self);
}

static const struct postern_marker_ops redis_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "redis",
	.change = redis_change,
	.expire = redis_expire,
	.destroy = redis_destroy,
};

int postern__redis_session_open(struct postern_markers *markers,
		struct postern__redis_session *session, struct postern_error *error) {
	struct redis_markers *self = from_base(markers);
	enum postern__redis_action action;
	*session = (struct postern__redis_session){
		.deadline = attempt_of(self, INT64_MAX),
		.place = self->address.place,
	};
	return postern__redis_connection_open(&session->connection, &self->address,
			self->tls, &session->deadline, &action, error);
}

void postern__redis_session_close(struct postern__redis_session *session) {
	postern__redis_connection_close(&session->connection);
}

void postern__redis_use_clock(struct postern_markers *markers,
		const struct postern_clock *clock) {
	from_base(markers)->script_clock = clock;
}

/* The first connection is opened at once: a wrong address or password, or a
   replica, is reported when the markers are opened. */
static int open_first(struct redis_markers *self, struct postern_error *error) {
	struct postern__redis_deadline deadline = attempt_of(self, INT64_MAX);
	enum postern__redis_action action;
	int r = postern__redis_script_digest(self->digest, error);
	if (!r && self->address.tls) {
		r = postern__redis_tls_create(&self->address, &self->tls, error);
	}
	return r ? r
			 : postern__redis_connection_open(self->free[self->free_count - 1],
					   &self->address, self->tls, &deadline, &action, error);
}

int postern__redis_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error) {
	struct redis_markers *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &redis_ops;
	self->clock = options->clock;
	self->timeout_ms = options->command_timeout_ms;
	self->retries = options->command_retries > 0;
	(void)pthread_mutex_init(&self->mutex, NULL);
	postern__list_init(&self->queue);
	int r = postern__redis_address_parse(url, &self->address, error);
	if (!r && options->connections > 0) {
		self->address.connections = options->connections < REDIS_CONNECTION_MAX
											? options->connections
											: REDIS_CONNECTION_MAX;
	}
	for (size_t i = 0; !r && i < self->address.connections; i++) {
		self->connections[i].socket.fd = -1;
		self->free[self->free_count++] = &self->connections[i];
	}
	if (!r) {
		r = open_first(self, error);
	}
	if (r) {
		redis_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}
