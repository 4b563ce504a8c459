/* SPDX-License-Identifier: MIT */

/*
 * The runs of a handler that sends webhooks. The thread that starts a run makes
 * the request, the engine sends it, and the answer finishes the run. A run is
 * cancelled through its data slot, guarded by the handler's mutex: NULL before
 * and after the request, the request during it, and a mark if the cancel came
 * first.
 *
 * An answer that asks for a rest, or for no more messages, holds the handler in
 * the store, for all nodes, before its run is finished.
 */

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/container.h"
#include "base/fail.h"
#include "base/file.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "handler/kinds.h"
#include "webhook/request.h"

/* Answers of one moment ask for the same rest: the store is asked once. */
#define SAME_HOLD_MS 1000

struct webhook {
	struct postern_handler base;
	struct postern__webhook_target target;
	struct postern__arena arena; /* what the target refers to */
	char **secret_files;
	size_t secret_file_count;

	pthread_mutex_t mutex;
	/* With the mutex. */
	bool has_engine; /* since the first run */
	/* Read when they are needed first: a file may be missing before. */
	bool has_secrets;
	struct postern__webhook_secret secrets[WEBHOOK_SECRET_COUNT_MAX];
	size_t secret_count;

	/* The helper of the engine alone: by the monotonic clock, when the handler
	   was held last, and until when. */
	int64_t held_at_ms;
	int64_t held_until_ms;
};

/* Set instead of a request that does not exist yet. A deadline needs no mark:
   the request has it. */
static char mark_stop;

static const struct postern_handler_ops webhook_ops;

static struct webhook *from_base(struct postern_handler *handler) {
	assert(handler->ops == &webhook_ops);
	return container_of(handler, struct webhook, base);
}

static int64_t wall_ms(const struct postern_run *run) {
	return run->box->clock.wall_ms(run->box->clock.context);
}

static void finish(struct postern__webhook_request *request) {
	struct webhook *self = request->owner;
	struct postern_run *run = request->run;
	struct postern_outcome outcome = request->verdict.outcome;
	(void)pthread_mutex_lock(&self->mutex);
	bool stopped = request->cancel == 1 + (int)POSTERN_CANCEL_STOP;
	bool timed_out = request->cancel == 1 + (int)POSTERN_CANCEL_TIMEOUT;
	postern_run_set_data(run, NULL);
	(void)pthread_mutex_unlock(&self->mutex);
	/* An answer that was complete counts, also if it was cancelled. */
	bool aborted = outcome.kind != POSTERN_DONE;
	if (timed_out && aborted) {
		postern__outcome_setf(&outcome, POSTERN_RETRY,
				"timed out: '%s' has not answered completely",
				self->target.shown);
	}
	postern__webhook_request_destroy(request);
	if (stopped && aborted) {
		postern_run_return(run);
	} else {
		postern_run_finish(run, &outcome);
	}
}

/* On the thread for what may block. */
static void hold_and_finish(struct postern__webhook_transfer *transfer) {
	struct postern__webhook_request *request =
			container_of(transfer, struct postern__webhook_request, transfer);
	struct webhook *self = request->owner;
	struct postern__webhook_verdict *verdict = &request->verdict;
	struct postern_box *box = request->run->box;
	const char *key = postern_run_delivery(request->run)->handler;
	struct postern_error error;
	int64_t now_ms = postern__box_now_ms(box);
	int64_t until_ms = postern__time_after(now_ms, verdict->hold_ms);
	if (verdict->pauses) {
		int r = postern__hold_handler(box, key, POSTERN__HOLD_FOR_GOOD,
				verdict->outcome.reason, &error);
		if (r) {
			postern__outcome_unavailable(&verdict->outcome,
					"answered 410 Gone, and the handler cannot be paused: %s",
					error.text);
		}
	} else if (now_ms >= self->held_at_ms + SAME_HOLD_MS ||
			   until_ms >= self->held_until_ms + SAME_HOLD_MS) {
		/* If it fails, each message waits for its own backoff. */
		if (postern__hold_handler(box, key, verdict->hold_ms,
					verdict->outcome.reason, NULL) == POSTERN_OK) {
			self->held_at_ms = now_ms;
			self->held_until_ms = until_ms;
		}
	}
	finish(request);
}

/* On the thread of the engine. */
static void request_ended(struct postern__webhook_transfer *transfer,
		CURLcode code) {
	struct postern__webhook_request *request =
			container_of(transfer, struct postern__webhook_request, transfer);
	postern__webhook_request_judge(request, code, wall_ms(request->run));
	if (request->verdict.pauses || request->verdict.hold_ms > 0) {
		postern__webhook_engine_defer(transfer);
	} else {
		finish(request);
	}
}

/* With the mutex. */
static int read_secrets(struct webhook *self, struct postern_error *error) {
	struct postern__arena arena = { 0 };
	int r = POSTERN_OK;
	size_t count = self->secret_count;
	for (size_t i = 0; !r && i < self->secret_file_count; i++) {
		char *text;
		r = postern__secret_read(self->secret_files[i], &arena, &text, error);
		if (!r) {
			r = postern__webhook_secret_parse(text, &self->secrets[count++],
					error);
			explicit_bzero(text, strlen(text));
		}
	}
	postern__arena_finish(&arena);
	if (!r) {
		self->secret_count = count;
		self->has_secrets = true;
	}
	return r;
}

/* What the first run needs. */
static int prepare(struct webhook *self, struct postern_outcome *outcome) {
	struct postern_error error;
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->mutex);
	if (!self->has_secrets) {
		r = read_secrets(self, &error);
	}
	if (r) {
		postern__outcome_setf(outcome, POSTERN_HOLD, "secret: %s", error.text);
	} else if (!self->has_engine) {
		r = postern__webhook_engine_acquire(&error);
		self->has_engine = r == POSTERN_OK;
		if (r) {
			postern__outcome_unavailable(outcome, "%s", error.text);
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

/* From here on other threads can reach the request. False: it was cancelled
   before. */
static bool set_active(struct webhook *self,
		struct postern__webhook_request *request) {
	(void)pthread_mutex_lock(&self->mutex);
	bool stopped = postern_run_data(request->run) == &mark_stop;
	if (!stopped) {
		postern_run_set_data(request->run, request);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return !stopped;
}

static void webhook_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct webhook *self = from_base(handler);
	struct postern_outcome outcome = { .kind = POSTERN_DONE };
	struct postern__webhook_request *request = NULL;
	struct postern_error error;
	if (prepare(self, &outcome)) {
		postern_run_finish(run, &outcome);
		return;
	}
	int r = postern__webhook_request_create(&self->target, self->secrets,
			self->secret_count, run, wall_ms(run), &request, &error);
	if (r) {
		if (r == POSTERN_E_INVALID) {
			postern__outcome_setf(&outcome, POSTERN_POISON, "%s", error.text);
		} else {
			postern__outcome_unavailable(&outcome, "%s", error.text);
		}
		postern_run_finish(run, &outcome);
		return;
	}
	request->owner = self;
	request->transfer.ended = request_ended;
	request->transfer.deferred = hold_and_finish;
	if (set_active(self, request)) {
		postern__webhook_engine_start(&request->transfer);
	} else {
		postern__webhook_request_destroy(request);
		postern_run_return(run);
	}
}

static void webhook_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	struct webhook *self = from_base(handler);
	(void)pthread_mutex_lock(&self->mutex);
	void *data = postern_run_data(run);
	if (!data && why == POSTERN_CANCEL_STOP) {
		postern_run_set_data(run, &mark_stop);
	} else if (data && data != &mark_stop) {
		struct postern__webhook_request *request = data;
		/* The first reason is kept. */
		request->cancel = request->cancel ? request->cancel : 1 + (int)why;
		postern__webhook_engine_abort(&request->transfer);
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

static void webhook_destroy(struct postern_handler *handler) {
	struct webhook *self = from_base(handler);
	if (self->has_engine) {
		postern__webhook_engine_release();
	}
	(void)pthread_mutex_destroy(&self->mutex);
	explicit_bzero(self->secrets, sizeof self->secrets);
	postern__arena_finish(&self->arena);
	free(self);
}

static const struct postern_handler_ops webhook_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = webhook_start,
	.cancel = webhook_cancel,
	.destroy = webhook_destroy,
};

/* Copies a text; NULL stays NULL. False: out of memory. */
static bool copy(struct webhook *self, const char *text, char **out) {
	*out = text ? postern__arena_strdup(&self->arena, text) : NULL;
	return !text || *out;
}

static bool copy_list(struct webhook *self, const char *const *texts,
		size_t count, char **out) {
	bool ok = out;
	for (size_t i = 0; ok && i < count; i++) {
		ok = copy(self, texts[i], &out[i]);
	}
	return ok;
}

static bool copy_secret_files(struct webhook *self,
		const struct postern__webhook_sending *settings) {
	size_t first = settings->secret_file ? 1 : 0;
	self->secret_file_count = first + settings->secret_file_count;
	self->secret_files = postern__arena_array(&self->arena,
			self->secret_file_count, sizeof *self->secret_files);
	return self->secret_files &&
		   copy_list(self, &settings->secret_file, first, self->secret_files) &&
		   copy_list(self, settings->secret_files, settings->secret_file_count,
				   self->secret_files + first);
}

static bool copy_settings(struct webhook *self,
		const struct postern__webhook_sending *settings) {
	struct postern__webhook_target *target = &self->target;
	target->templated_host = settings->templated_host;
	target->connect_timeout_ms = settings->connect_timeout_ms;
	target->header_count = settings->header_count;
	target->headers = postern__arena_array(&self->arena, settings->header_count,
			sizeof *target->headers);
	target->blocks = postern__arena_array(&self->arena,
			settings->allow_private_count, sizeof *target->blocks);
	postern__webhook_url_shown(settings->url, target->shown,
			sizeof target->shown);
	return target->blocks && copy(self, settings->url, &target->url) &&
		   copy(self, settings->ca_file, &target->ca_file) &&
		   copy(self, settings->client_cert_file, &target->client_cert_file) &&
		   copy(self, settings->client_key_file, &target->client_key_file) &&
		   copy_list(self, settings->headers, settings->header_count,
				   target->headers) &&
		   copy_secret_files(self, settings);
}

static int fill(struct webhook *self,
		const struct postern__webhook_sending *settings,
		struct postern_error *error) {
	struct postern__webhook_target *target = &self->target;
	int r = POSTERN_OK;
	if (!copy_settings(self, settings)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; !r && i < settings->allow_private_count; i++) {
		r = postern__webhook_block_parse(settings->allow_private[i],
				&target->blocks[i], error);
	}
	target->guard = (struct postern__webhook_guard){
		.templated = target->templated_host,
		.blocks = target->blocks,
		.block_count = settings->allow_private_count,
	};
	if (!r && settings->secret) {
		r = postern__webhook_secret_parse(settings->secret, &self->secrets[0],
				error);
		self->secret_count = 1;
	}
	return r;
}

int postern__webhook_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	struct webhook *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &webhook_ops;
	self->held_at_ms = -SAME_HOLD_MS;
	(void)pthread_mutex_init(&self->mutex,
			NULL); /* no attributes: cannot fail */
	int r = fill(self, setup->settings, error);
	if (r) {
		webhook_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}
