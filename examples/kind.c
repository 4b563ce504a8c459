/* SPDX-License-Identifier: MIT */
/*
 * A handler kind of your own: `append` writes a line for each message to a
 * file. It has two options and defaults of its own; the row at the end is all
 * that Postern has to know. A server that registers the same row can have such
 * handlers in its configuration:
 *
 *   handlers:
 *     journal:
 *       append: {file: journal.txt, prefix: "order "}
 *
 *   cc kind.c $(pkg-config --cflags --libs postern) && ./a.out
 */

#include <errno.h>
#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a handler of the kind is configured with. */
struct append_settings {
	const char *file;
	const char *prefix;
};

/* A handler: the common head comes first. */
struct append_handler {
	struct postern_handler base;
	char *file;
	char *prefix;
};

static int fail(struct postern_error *error, int code, const char *text) {
	if (error) {
		error->code = code;
		(void)snprintf(error->text, sizeof error->text, "%s", text);
	}
	return code;
}

/* Run one delivery, on a thread of the runner. */
static void append_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct append_handler *self = (struct append_handler *)handler;
	const struct postern_message *message = postern_run_message(run);
	struct postern_outcome outcome;

	postern_outcome_set(&outcome, POSTERN_DONE, 0, NULL);
	FILE *file = fopen(self->file, "a");
	if (!file) {
		/* No message could be written now. */
		postern_outcome_set(&outcome, POSTERN_HOLD, 0, strerror(errno));
	} else {
		(void)fprintf(file, "%s%s: %.*s\n", self->prefix, message->id,
				(int)message->body_len, (const char *)message->body);
		if (fclose(file) != 0) {
			postern_outcome_set(&outcome, POSTERN_RETRY, 0, strerror(errno));
		}
	}
	postern_run_finish(run, &outcome);
}

/* A run ends soon by itself, so there is nothing to cancel. */
static void append_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}

static void append_destroy(struct postern_handler *handler) {
	struct append_handler *self = (struct append_handler *)handler;
	free(self->file);
	free(self->prefix);
	free(self);
}

static const struct postern_handler_ops append_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = append_start,
	.cancel = append_cancel,
	.destroy = append_destroy,
};

/* Refuse settings that can never work. */
static int append_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct append_settings *settings = setup->settings;
	return settings && settings->file
				   ? POSTERN_OK
				   : fail(error, POSTERN_E_INVALID, "append needs a file");
}

static int append_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct append_settings *settings = setup->settings;
	struct append_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &append_ops;
	self->file = strdup(settings->file);
	self->prefix = strdup(settings->prefix ? settings->prefix : "");
	if (!self->file || !self->prefix) {
		append_destroy(&self->base);
		return fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = &self->base;
	return POSTERN_OK;
}

static const struct postern_option append_options[] = {
	{
			.name = "file",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct append_settings, file),
			.flags = POSTERN_OPTION_REQUIRED,
			.help = "the file that lines are added to",
	},
	{
			.name = "prefix",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct append_settings, prefix),
			.help = "the beginning of each line",
	},
};

static const struct postern_handler_kind append_kind = {
	.size = sizeof append_kind,
	.name = "append",
	.help = "a line in a file for each message",
	.options = append_options,
	.option_count = 2,
	.settings_size = sizeof(struct append_settings),
	.timeout_ms = 10000,
	.concurrency = 1, /* lines are written one after the other */
	.validate = append_validate,
	.create = append_create,
};

static int run(struct postern_box *box, struct postern_error *error) {
	const struct append_settings settings = {
		.file = "journal.txt",
		.prefix = "order ",
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "journal",
		.kind = "append",
		.settings = &settings,
	};
	const struct postern_message message = {
		.size = sizeof message,
		.id = "A-1",
		.body = "3 apples",
		.body_len = 8,
	};
	size_t count = 0;
	int r = postern_box_add_channel(box, "orders", NULL, error);
	if (!r) {
		r = postern_box_add_handler(box, "orders", &handler, error);
	}
	if (!r) {
		r = postern_box_start(box, error);
	}
	if (!r) {
		r = postern_box_accept(box, "orders", &message, NULL, error);
	}
	if (r == POSTERN_E_DUPLICATE) {
		printf("%s was accepted before\n", message.id);
		r = POSTERN_OK;
	}
	if (!r) {
		r = postern_box_process(box, 0, &count, error);
	}
	printf("delivered %zu\n", count);
	return r;
}

static void print_journal(void) {
	char line[100];
	FILE *file = fopen("journal.txt", "r");
	while (file && fgets(line, sizeof line, file)) {
		printf("journal.txt: %s", line);
	}
	if (file) {
		(void)fclose(file);
	}
}

int main(void) {
	struct postern_error error = { 0 };
	struct postern_box *box = NULL;
	int r = postern_handler_kind_register(&append_kind, &error);
	if (!r) {
		r = postern_box_open("sqlite:kind.db", NULL, &box, &error);
	}
	if (!r) {
		r = run(box, &error);
	}
	postern_box_destroy(box);
	if (r) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	print_journal();
	return 0;
}
