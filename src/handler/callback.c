/* SPDX-License-Identifier: MIT */
/*
 * The callback kind: a function of the program, called on the thread of the
 * run. It can crash the process and cannot be interrupted; the outcome that it
 * writes is validated.
 */

#include <assert.h>
#include <postern/sys/handler.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/point.h"
#include "base/utf8.h"
#include "handler/kinds.h"

struct callback_handler {
	struct postern_handler base;
	postern_callback *function;
	void *context;
};

static const struct postern_handler_ops callback_ops;

static struct callback_handler *from_base(struct postern_handler *handler) {
	assert(handler->ops == &callback_ops);
	return container_of(handler, struct callback_handler, base);
}

static bool is_kind(enum postern_outcome_kind kind) {
	switch (kind) {
	case POSTERN_DONE:
	case POSTERN_RETRY:
	case POSTERN_RETRY_AFTER:
	case POSTERN_SNOOZE:
	case POSTERN_POISON:
	case POSTERN_DISCARD:
	case POSTERN_HOLD: return true;
	}
	return false;
}

/* Validate the outcome that the function wrote. */
static void sanitize_outcome(struct postern_outcome *outcome) {
	if (!is_kind(outcome->kind)) {
		/* Treated as a failure: the effect of the function is unknown, and the
		   outcome may be valid next time. */
		postern__outcome_setf(outcome, POSTERN_RETRY,
				"the callback returned an invalid outcome %d",
				(int)outcome->kind);
		return;
	}
	if (outcome->reason[0] == '\0') {
		return;
	}
	char text[sizeof outcome->reason];
	size_t len = strnlen(outcome->reason, sizeof outcome->reason);
	memcpy(text, outcome->reason, len);
	(void)postern__utf8_clean(text, len, outcome->reason,
			sizeof outcome->reason);
}

static void callback_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct callback_handler *self = from_base(handler);
	struct postern_outcome outcome = { .kind = POSTERN_DONE };

	self->function(self->context, postern_run_message(run),
			postern_run_delivery(run), &outcome);
	postern__point("callback.returned");
	sanitize_outcome(&outcome);
	postern_run_finish(run, &outcome);
}

static void callback_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	/* A function cannot be made to return. */
	(void)handler;
	(void)run;
	(void)why;
}

static void callback_destroy(struct postern_handler *handler) {
	free(from_base(handler));
}

static const struct postern_handler_ops callback_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = false,
	.start = callback_start,
	.cancel = callback_cancel,
	.destroy = callback_destroy,
};

int postern__callback_create(postern_callback *function, void *context,
		bool transactional, struct postern_handler **out,
		struct postern_error *error) {
	if (!function) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the callback is missing");
	}
	struct callback_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &callback_ops;
	self->base.transactional = transactional;
	self->function = function;
	self->context = context;
	*out = &self->base;
	return POSTERN_OK;
}

static int create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct postern__callback_settings *settings = setup->settings;
	return postern__callback_create(settings ? settings->function : NULL,
			settings ? settings->context : NULL,
			settings && settings->transactional, out, error);
}

const struct postern_handler_kind postern__callback_kind = {
	.size = sizeof postern__callback_kind,
	.name = "callback",
	.help = "a function of the program",
	.settings_size = sizeof(struct postern__callback_settings),
	.in_process = true,
	.timeout_ms = POSTERN_TIMEOUT_DEFAULT,
	.create = create,
};
