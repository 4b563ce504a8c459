/* SPDX-License-Identifier: MIT */
/*
 * The postern command with one more handler kind, which nothing outside this
 * file knows: `copy` writes the body of each message to a file of a directory.
 *
 *   copy: {into: /var/copies, suffix: .txt, times: 2, hold: off,
 *          wait: /var/go, rest: 2h}
 *
 * With `wait` it waits until there is such a file. With `rest` it does not
 * write but asks not to be called for that long, as a service with a limit
 * does.
 */

#include <errno.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "core/maintenance.h"
#include "core/run.h"

struct copy_settings {
	const char *into;
	const char *suffix;
	uint32_t times;
	bool hold;
	const char *wait;
	int64_t rest_ms;
};

struct copy_handler {
	struct postern_handler base;
	char into[512];
	char suffix[64];
	uint32_t times;
	bool hold;
	char wait[512];
	int64_t rest_ms;
};

static int fail(struct postern_error *error, int code, const char *text,
		const char *value) {
	error->code = code;
	(void)snprintf(error->text, sizeof error->text, "%s '%s'", text, value);
	return code;
}

static void write_copy(const struct copy_handler *self,
		const struct postern_message *message,
		struct postern_outcome *outcome) {
	char path[1024];
	(void)snprintf(path, sizeof path, "%s/%s%s", self->into, message->id,
			self->suffix);
	FILE *file = fopen(path, "wb");
	if (!file) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, strerror(errno));
		return;
	}
	for (uint32_t i = 0; i < self->times; i++) {
		(void)fwrite(message->body, 1, message->body_len, file);
	}
	(void)fclose(file);
}

static void copy_start(struct postern_handler *handler,
		struct postern_run *run) {
	const struct copy_handler *self = (struct copy_handler *)handler;
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, POSTERN_DONE, 0, NULL);
	while (self->wait[0] && access(self->wait, F_OK) != 0) {
		(void)usleep(10 * 1000);
	}
	if (self->rest_ms > 0) {
		(void)postern__hold_handler(run->box,
				postern_run_delivery(run)->handler, self->rest_ms,
				"called too often", NULL);
		postern_outcome_set(&outcome, POSTERN_SNOOZE, 1, NULL);
	} else if (self->hold) {
		postern_outcome_set(&outcome, POSTERN_HOLD, 0, "nothing is copied");
	} else {
		write_copy(self, postern_run_message(run), &outcome);
	}
	postern_run_finish(run, &outcome);
}

static void copy_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}

static void copy_destroy(struct postern_handler *handler) {
	free(handler);
}

static const struct postern_handler_ops copy_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = copy_start,
	.cancel = copy_cancel,
	.destroy = copy_destroy,
};

static int copy_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct copy_settings *settings = setup->settings;
	return settings->into[0] == '/'
				   ? POSTERN_OK
				   : fail(error, POSTERN_E_INVALID,
							 "not an absolute directory:", settings->into);
}

static int copy_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct copy_settings *settings = setup->settings;
	struct copy_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return fail(error, POSTERN_E_NOMEM, "out of memory for", setup->key);
	}
	self->base.ops = &copy_ops;
	(void)snprintf(self->into, sizeof self->into, "%s", settings->into);
	(void)snprintf(self->suffix, sizeof self->suffix, "%s", settings->suffix);
	self->times = settings->times;
	self->hold = settings->hold;
	(void)snprintf(self->wait, sizeof self->wait, "%s",
			settings->wait ? settings->wait : "");
	self->rest_ms = settings->rest_ms;
	*out = &self->base;
	return POSTERN_OK;
}

static int copy_check(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct copy_settings *settings = setup->settings;
	if (access(settings->into, F_OK) != 0) {
		return fail(error, POSTERN_E_NOTFOUND, "no directory", settings->into);
	}
	return access(settings->into, W_OK) == 0
				   ? POSTERN_OK
				   : fail(error, POSTERN_E_INVALID, "cannot write to",
							 settings->into);
}

#define AT(member) offsetof(struct copy_settings, member)

/* clang-format off */
static const struct postern_option copy_options[] = {
	{ .name = "into", .type = POSTERN_OPTION_TEXT, .offset = AT(into), .flags = POSTERN_OPTION_REQUIRED, .help = "the directory" },
	{ .name = "suffix", .type = POSTERN_OPTION_TEXT, .offset = AT(suffix), .fallback = ".copy" },
	{ .name = "times", .type = POSTERN_OPTION_COUNT, .offset = AT(times), .min = 1, .max = 9, .fallback = "1" },
	{ .name = "hold", .type = POSTERN_OPTION_SWITCH, .offset = AT(hold), .fallback = "off" },
	{ .name = "wait", .type = POSTERN_OPTION_TEXT, .offset = AT(wait), .flags = POSTERN_OPTION_HIDDEN },
	{ .name = "rest", .type = POSTERN_OPTION_DURATION, .offset = AT(rest_ms), .max = 86400000, .fallback = "none", .flags = POSTERN_OPTION_NONE | POSTERN_OPTION_HIDDEN },
};
/* clang-format on */

static const int64_t copy_backoff[] = { 50, 100 };

static const struct postern_handler_kind copy_kind = {
	.size = sizeof copy_kind,
	.name = "copy",
	.help = "a file for each message",
	.options = copy_options,
	.option_count = sizeof copy_options / sizeof copy_options[0],
	.settings_size = sizeof(struct copy_settings),
	.in_process = true,
	.timeout_ms = 7000,
	.max_attempts = 3,
	.concurrency = 2,
	.backoff_ms = copy_backoff,
	.backoff_count = 2,
	.validate = copy_validate,
	.create = copy_create,
	.check = copy_check,
};

int main(int argc, char **argv) {
	struct postern_error error;
	if (postern_handler_kind_register(&copy_kind, &error) != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 99;
	}
	return postern__cli_main(argc, argv);
}
