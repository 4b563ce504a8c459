/* SPDX-License-Identifier: MIT */

/*
 * The handler kind behind "publish: {channel: NAME}" if that channel is in
 * another store: the message is accepted there, and the delivery is done when
 * that is durable. If the server dies in between, the message is accepted
 * again under the same id, as a duplicate.
 *
 * A run waits for the commit of the other store on no thread. A job joins the
 * run to the accept; the accept cannot be cancelled, so a run that is cancelled
 * leaves its job, and the receipt that arrives later is not used.
 */

#include <assert.h>
#include <postern/box.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "server/publish_channel.h"
#include "server/stores.h"

#define TIMEOUT_MS 30000
#define CONCURRENCY 500

struct elsewhere {
	struct postern_handler base;
	const struct postern__stores *stores; /* NULL: this is no server */
	char *store;
	char *channel;
};

struct job {
	struct postern_run *run; /* with the mutex; NULL: it has finished */
};

/* Of all handlers: a job may outlive its handler. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Set instead of a job that does not exist yet. */
static struct job stopped;

static const struct postern_handler_ops elsewhere_ops;

static struct elsewhere *from_base(struct postern_handler *handler) {
	assert(handler->ops == &elsewhere_ops);
	return container_of(handler, struct elsewhere, base);
}

/* The run of a job, for whoever finishes it; NULL: somebody else does. */
static struct postern_run *take_run(struct job *job) {
	(void)pthread_mutex_lock(&mutex);
	struct postern_run *run = job->run;
	job->run = NULL;
	if (run) {
		postern_run_set_data(run, NULL);
	}
	(void)pthread_mutex_unlock(&mutex);
	return run;
}

static enum postern_outcome_kind outcome_of(int code) {
	switch (code) {
	case POSTERN_OK:
	case POSTERN_E_DUPLICATE: return POSTERN_DONE;
	case POSTERN_E_CONFLICT:
	case POSTERN_E_INVALID: return POSTERN_POISON;
	case POSTERN_E_BUSY: return POSTERN_SNOOZE; /* its queue is full */
	default: return POSTERN_HOLD;
	}
}

static void finish(struct postern_run *run, const struct postern_error *error) {
	struct postern_outcome outcome;
	enum postern_outcome_kind kind = outcome_of(error->code);
	postern_outcome_set(&outcome, kind,
			kind == POSTERN_SNOOZE ? POSTERN_HINDERED_DELAY_MS : 0,
			kind == POSTERN_DONE ? NULL : error->text);
	postern_run_finish(run, &outcome);
}

/* The other store has decided. */
static void accepted(void *context, const struct postern_receipt *receipt) {
	struct job *job = context;
	struct postern_run *run = take_run(job);
	free(job);
	if (run) {
		finish(run, &receipt->error);
	}
}

/* Join the run to a job; NULL: the run has ended. */
static struct job *create_job(struct postern_run *run) {
	struct postern_error error;
	struct job *job = malloc(sizeof *job);
	(void)pthread_mutex_lock(&mutex);
	bool stops = postern_run_data(run) == &stopped;
	if (job && !stops) {
		job->run = run;
		postern_run_set_data(run, job);
	}
	(void)pthread_mutex_unlock(&mutex);
	if (stops) {
		free(job);
		job = NULL;
		postern_run_return(run);
	} else if (!job) {
		(void)postern__fail(&error, POSTERN_E_BUSY, "out of memory");
		finish(run, &error);
	}
	return job;
}

static void elsewhere_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct elsewhere *self = from_base(handler);
	struct postern_error error;
	const struct postern__open_store *store =
			self->stores ? postern__stores_find(self->stores, self->store)
						 : NULL;
	if (!store || !store->box) {
		(void)postern__fail(&error, POSTERN_E_UNAVAILABLE,
				"channel '%s' is in the store '%s', which only a server has "
				"open: run 'postern serve'",
				self->channel, self->store);
		finish(run, &error);
		return;
	}
	struct job *job = create_job(run);
	if (!job) {
		return;
	}
	int r = postern_box_accept_async(store->box, self->channel,
			postern_run_message(run), accepted, job, &error);
	if (r) {
		struct postern_run *left = take_run(job);
		free(job);
		if (left) {
			finish(left, &error);
		}
	}
}

static void elsewhere_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	struct postern_outcome outcome;
	(void)handler;
	(void)pthread_mutex_lock(&mutex);
	struct job *job = postern_run_data(run);
	bool ours = job && job != &stopped && job->run;
	if (ours) {
		job->run = NULL;
		postern_run_set_data(run, NULL);
	} else if (!job && why == POSTERN_CANCEL_STOP) {
		postern_run_set_data(run, &stopped);
	}
	(void)pthread_mutex_unlock(&mutex);
	if (ours && why == POSTERN_CANCEL_STOP) {
		postern_run_return(run);
	} else if (ours) {
		postern_outcome_set(&outcome, POSTERN_RETRY, 0,
				"the other store has not accepted the message in time; whether "
				"it does is unknown");
		postern_run_finish(run, &outcome);
	}
}

static void elsewhere_destroy(struct postern_handler *handler) {
	struct elsewhere *self = from_base(handler);
	free(self->store);
	free(self->channel);
	free(self);
}

static const struct postern_handler_ops elsewhere_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = elsewhere_start,
	.cancel = elsewhere_cancel,
	.destroy = elsewhere_destroy,
};

static int elsewhere_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct postern__publish_elsewhere *settings = setup->settings;
	struct elsewhere *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &elsewhere_ops;
	self->stores = *settings->stores;
	self->store = strdup(settings->store);
	self->channel = strdup(settings->channel);
	if (!self->store || !self->channel) {
		elsewhere_destroy(&self->base);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = &self->base;
	return POSTERN_OK;
}

/* Without options: no configuration names it. */
const struct postern_handler_kind postern__publish_elsewhere_kind = {
	.size = sizeof(struct postern_handler_kind),
	.name = "publish_elsewhere",
	.help = "a channel of another store",
	.settings_size = sizeof(struct postern__publish_elsewhere),
	.asynchronous = true,
	.timeout_ms = TIMEOUT_MS,
	.concurrency = CONCURRENCY,
	.create = elsewhere_create,
};
