/* SPDX-License-Identifier: MIT */
/*
 * One event, three handlers: each is tracked by itself.
 *
 * The mail server is down for the first delivery. When the broker delivers the
 * event again, only the mail is sent: what the others did is done.
 */

#include <postern/postern.h>
#include <stdio.h>
#include <string.h>

static bool mail_server_works;

static void run(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	if (strcmp(call->handler, "send-email-v1") == 0 && !mail_server_works) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0,
				"the mail server is down");
	}
}

static const char *describe(int r, const struct postern_error *error) {
	if (r == POSTERN_OK) {
		return "ran";
	}
	return r == POSTERN_E_DUPLICATE ? "was done before" : error->text;
}

/* Returns whether to acknowledge: only if all handlers are done. */
static bool deliver(struct postern_guard *guard, const char *event_id) {
	static const char *const handlers[] = { "reserve-stock-v1", "send-email-v1",
		"update-report-v1" };
	bool all = true;
	for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++) {
		const struct postern_guarded guarded = {
			.size = sizeof guarded,
			.handler = handlers[i],
			.key = event_id,
		};
		struct postern_error error;
		int r = postern_guard_run(guard, &guarded, run, NULL, NULL, &error);
		(void)printf("  %s: %s\n", handlers[i], describe(r, &error));
		all = all && (r == POSTERN_OK || r == POSTERN_E_DUPLICATE);
	}
	(void)printf("  %s\n", all ? "acknowledge" : "requeue");
	return all;
}

int main(void) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("memory:", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)printf("first delivery\n");
	(void)deliver(guard, "order-created-1");
	mail_server_works = true;
	(void)printf("second delivery\n");
	bool all = deliver(guard, "order-created-1");
	postern_guard_destroy(guard);
	return all ? 0 : 1;
}
