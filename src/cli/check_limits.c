/* SPDX-License-Identifier: MIT */
/*
 * The limits of `postern check` for monitoring. The limit of poisoned
 * deliveries is for a store, that of the age for each handler.
 */

#include "cli/check_limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"

#define TEXT_MAX 512

int postern__limits_read(const struct postern__cli *cli,
		struct postern__limits *out) {
	const char *age = postern__args_value(&cli->args, "max-age");
	struct postern_error error;
	unsigned long poisoned = 0;
	*out = (struct postern__limits){
		.has_poisoned = postern__args_has(&cli->args, "max-poisoned"),
		.has_age = age != NULL,
	};
	int r = postern__cli_count(cli, "max-poisoned", 0, UINT32_MAX, &poisoned);
	out->poisoned_max = poisoned;
	if (r == POSTERN__EXIT_OK && age &&
			postern__duration_parse(age, &out->age_ms_max, &error)) {
		r = postern__cli_usage(cli, "--max-age: %s", error.text);
	}
	return r;
}

static void check_poisoned(const struct postern__limits *limits,
		const struct postern_stats *stats, postern__limits_report *report,
		void *context) {
	const struct postern_handler_stats *most = NULL;
	uint64_t total = 0;
	for (size_t i = 0; i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		total += handler->poisoned;
		if (!most || handler->poisoned > most->poisoned) {
			most = handler;
		}
	}
	if (most && total > limits->poisoned_max) {
		char text[TEXT_MAX];
		(void)snprintf(text, sizeof text,
				"%" PRIu64 " deliver%s poisoned, and --max-poisoned is %" PRIu64
				"; most to handler '%s' (%" PRIu64
				"): see 'postern list --state poisoned'",
				total, total == 1 ? "y is" : "ies are", limits->poisoned_max,
				most->key, most->poisoned);
		report(context, text);
	}
}

static void check_age(const struct postern__limits *limits,
		const struct postern_stats *stats,
		const struct postern_handler_stats *handler,
		postern__limits_report *report, void *context) {
	int64_t age = stats->now_ms - handler->oldest_pending_at_ms;
	if (handler->oldest_pending_at_ms == 0 || age <= limits->age_ms_max) {
		return;
	}
	char age_text[POSTERN__DURATION_TEXT_MAX];
	char max_text[POSTERN__DURATION_TEXT_MAX];
	char text[TEXT_MAX];
	/* Whole seconds are exact enough, and shorter. */
	postern__duration_format(age >= 1000 ? age / 1000 * 1000 : age, age_text);
	postern__duration_format(limits->age_ms_max, max_text);
	(void)snprintf(text, sizeof text,
			"the oldest message with a pending delivery to handler '%s' is %s "
			"old, and --max-age is %s%s",
			handler->key, age_text, max_text,
			handler->paused ? "; the handler is paused" : "");
	report(context, text);
}

void postern__limits_check(const struct postern__limits *limits,
		const struct postern_stats *stats, postern__limits_report *report,
		void *context) {
	if (limits->has_poisoned) {
		check_poisoned(limits, stats, report, context);
	}
	for (size_t i = 0; limits->has_age && i < stats->handler_count; i++) {
		check_age(limits, stats, &stats->handlers[i], report, context);
	}
}
