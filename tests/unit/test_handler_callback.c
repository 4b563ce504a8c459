/* SPDX-License-Identifier: MIT */
/*
 * The callback kind: the arguments of a callback, and the handling of its
 * outcome, valid or not.
 */
#include <stdlib.h>

#include "base/utf8.h"
#include "handler/kinds.h"
#include "handler_fake.h"

static struct {
	int count;
	const struct postern_message *message;
	const struct postern_delivery *delivery;
	struct postern_outcome initial;
	struct postern_outcome outcome;
} last_call;

static void record_call(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	CHECK(context == &last_call);
	last_call.count++;
	last_call.message = message;
	last_call.delivery = delivery;
	last_call.initial = *outcome;
	*outcome = last_call.outcome;
}

static struct postern_handler *make_callback(bool transactional) {
	struct postern_handler *handler = NULL;
	struct postern_error error;
	memset(&last_call, 0, sizeof last_call);
	CHECK_OK(postern__callback_create(record_call, &last_call, transactional,
					 &handler, &error),
			&error);
	return handler;
}

static void is_called(void) {
	struct postern_handler *handler = make_callback(false);
	struct postern_run run;
	fake_init(&run, "x", 1);
	fake_run(handler, &run);
	CHECK_INT(last_call.count, 1);
	CHECK(last_call.message == &run.message);
	CHECK(last_call.delivery == &run.delivery);
	CHECK_INT(last_call.initial.kind, POSTERN_DONE);
	CHECK_STR(last_call.initial.reason, "");
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);
}

static void outcomes_pass(void) {
	static const enum postern_outcome_kind kinds[] = { POSTERN_DONE,
		POSTERN_RETRY, POSTERN_RETRY_AFTER, POSTERN_SNOOZE, POSTERN_POISON,
		POSTERN_DISCARD, POSTERN_HOLD };
	struct postern_handler *handler = make_callback(false);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		struct postern_run run;
		fake_init(&run, NULL, 0);
		last_call.outcome.kind = kinds[i];
		last_call.outcome.delay_ms = 1234;
		(void)snprintf(last_call.outcome.reason,
				sizeof last_call.outcome.reason, "because");
		fake_run(handler, &run);
		CHECK_INT(run.outcome.kind, kinds[i]);
		CHECK_INT(run.outcome.delay_ms, 1234);
		CHECK_STR(run.outcome.reason, "because");
	}
	handler->ops->destroy(handler);
}

static void no_such_kind(void) {
	struct postern_handler *handler = make_callback(false);
	struct postern_run run;
	int number = 42;
	fake_init(&run, NULL, 0);
	memcpy(&last_call.outcome.kind, &number, sizeof number);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "42");
	handler->ops->destroy(handler);
}

static void bad_reason(void) {
	struct postern_handler *handler = make_callback(false);
	struct postern_run run;
	fake_init(&run, NULL, 0);
	last_call.outcome.kind = POSTERN_POISON;
	/* No zero byte, not UTF-8. */
	memset(last_call.outcome.reason, 0xff, sizeof last_call.outcome.reason);
	fake_run(handler, &run);
	size_t len = strnlen(run.outcome.reason, sizeof run.outcome.reason);
	CHECK(len > 0 && len <= POSTERN_REASON_LEN_MAX);
	CHECK(postern__utf8_valid(run.outcome.reason, len));

	fake_init(&run, NULL, 0);
	(void)snprintf(last_call.outcome.reason, sizeof last_call.outcome.reason,
			"a\x1b[2Jb\nc");
	fake_run(handler, &run);
	CHECK_STR(run.outcome.reason, "a?[2Jb c");
	handler->ops->destroy(handler);
}

static void what_it_is(void) {
	struct postern_handler *handler = make_callback(true);
	CHECK_STR(postern__callback_kind.name, "callback");
	CHECK(postern__callback_kind.in_process);
	CHECK(!handler->ops->batches);
	CHECK(handler->transactional);
	handler->ops->destroy(handler);
	handler = make_callback(false);
	CHECK(!handler->transactional);
	struct postern_run run;
	fake_init(&run, NULL, 0);
	handler->ops->cancel(handler, &run, POSTERN_CANCEL_STOP);
	CHECK_INT(run.finish_count + run.return_count, 0);
	handler->ops->destroy(handler);
}

static void without_function(void) {
	struct postern_handler *handler = NULL;
	struct postern_error error;
	CHECK_INT(postern__callback_create(NULL, NULL, false, &handler, &error),
			POSTERN_E_INVALID);
	CHECK(!handler);
}

static const struct tap_case cases[] = {
	{ "a callback gets message and delivery, and its outcome is done at first",
			is_called },
	{ "every outcome is passed on unchanged", outcomes_pass },
	{ "an invalid outcome is a retry", no_such_kind },
	{ "a reason is terminated, cut and cleaned", bad_reason },
	{ "a callback is in process and cannot be cancelled", what_it_is },
	{ "a callback without a function is refused", without_function },
};

TAP_MAIN(cases)
