/* SPDX-License-Identifier: MIT */

/*
 * `postern send CHANNEL --lines FILE`: a file with a CloudEvent in JSON on each
 * line, sent in batches of events.
 *
 * Each line is read here first, so that a bad one is reported with its number
 * and does not spoil a batch. A batch may be sent again when a response was
 * lost: events have an identity, and what was accepted is then a duplicate.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json_scan.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/send.h"
#include "server/api.h"
#include "source/cloudevent.h"

#define READ_SIZE 65536
/* Events and bytes of one batch: one commit, and a request of bounded size. A
   longer event is a batch by itself. */
#define BATCH_COUNT_MAX 500
#define BATCH_LEN_MAX ((size_t)512 * 1024)
/* What every channel takes, however short its messages have to be. */
#define BATCH_LEN_ALWAYS ((size_t)128 * 1024)
/* Lines with an error that are printed; the summary counts all. */
#define ERRORS_PRINTED_MAX 20
/* Between two updates of the progress bar, and its columns. */
#define PROGRESS_MS 200
#define BAR_LEN 30

static const struct postern_header batch_headers[] = {
	{ "Content-Type", "application/cloudevents-batch+json" },
};

enum result { UNKNOWN, ACCEPTED, DUPLICATE, CONFLICT, REJECTED, RESULT_COUNT };

static const char *const result_names[RESULT_COUNT] = { "unavailable",
	"accepted", "duplicate", "conflict", "rejected" };

struct sending {
	struct postern__cli *cli;
	struct postern__client *client;
	const char *channel;
	struct postern__buf path;
	size_t line_len_max;
	size_t batch_len_max;

	int fd;
	const char *name;
	struct postern__buf input; /* read, and not yet cut into lines */
	size_t seen;               /* bytes of it without a line end */
	bool skipping;             /* the rest of a line that is too long */
	uint64_t line;             /* number of the last line, from 1 */

	struct postern__buf batch;
	uint64_t lines[BATCH_COUNT_MAX]; /* the numbers of its events */
	size_t count;

	uint64_t totals[RESULT_COUNT];
	uint64_t errors_printed;
	int64_t bytes_total; /* of the file; 0: unknown */
	int64_t bytes_read;
	int64_t progress_at_ms;
	bool progress;
};

static void clear_progress(const struct sending *self) {
	if (self->progress) {
		(void)fputs("\r\033[K", stderr);
	}
}

static void print_progress(struct sending *self) {
	const struct postern_clock *clock = postern_clock_system();
	int64_t now = clock->monotonic_ms(clock->context);
	if (!self->progress || now < self->progress_at_ms) {
		return;
	}
	self->progress_at_ms = now + PROGRESS_MS;
	uint64_t sent = self->totals[ACCEPTED] + self->totals[DUPLICATE];
	if (self->bytes_total > 0) {
		int64_t part = self->bytes_read < self->bytes_total ? self->bytes_read
															: self->bytes_total;
		int filled = (int)(part * BAR_LEN / self->bytes_total);
		(void)fprintf(stderr, "\r\033[K[%.*s%*s] %3d%%  %" PRIu64 " sent",
				filled, "==============================", BAR_LEN - filled, "",
				(int)(part * 100 / self->bytes_total), sent);
	} else {
		(void)fprintf(stderr, "\r\033[K%" PRIu64 " sent", sent);
	}
	(void)fflush(stderr);
}

/* Count the result of a line; print it if it needs attention. */
static void count_line(struct sending *self, uint64_t line, enum result result,
		const char *detail) {
	self->totals[result]++;
	if (result == ACCEPTED || result == DUPLICATE) {
		return;
	}
	if (self->errors_printed == ERRORS_PRINTED_MAX) {
		clear_progress(self);
		postern__err_print("further lines with errors are not printed");
	}
	if (self->errors_printed++ < ERRORS_PRINTED_MAX) {
		clear_progress(self);
		postern__err_print("%s, line %" PRIu64 ": %s", self->name, line,
				detail);
	}
}

static enum result result_of(const json_t *item) {
	const char *status = postern__reply_text(item, "status");
	for (int i = ACCEPTED; status && i < RESULT_COUNT; i++) {
		if (strcmp(status, result_names[i]) == 0) {
			return (enum result)i;
		}
	}
	return UNKNOWN;
}

static const char *detail_of(const json_t *item, enum result result) {
	const char *detail = postern__reply_text(item, "detail");
	if (detail) {
		return detail;
	}
	return result == CONFLICT
				   ? "conflict: this id was accepted with another body"
				   : "no result";
}

/* Count the results of a batch, up to the first event that has none because
   the store failed. Returns an exit status. */
static int count_batch(struct sending *self, const json_t *items) {
	bool failed = false;
	for (size_t i = 0; i < self->count; i++) {
		const json_t *item = json_array_get(items, i);
		enum result result = result_of(item);
		if (result == UNKNOWN) {
			failed = true;
			clear_progress(self);
			postern__err_print("%s, line %" PRIu64 ": %s", self->name,
					self->lines[i], detail_of(item, result));
			break;
		}
		count_line(self, self->lines[i], result, detail_of(item, result));
	}
	return failed ? POSTERN__EXIT_UNREACHABLE : POSTERN__EXIT_OK;
}

static int send_batch(struct sending *self) {
	if (self->count == 0) {
		return POSTERN__EXIT_OK;
	}
	postern__buf_append_char(&self->batch, ']');
	if (self->batch.failed) {
		postern__err_print("send: out of memory");
		return POSTERN__EXIT_FAILED;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&self->path),
		.transport = "cli",
		.headers = batch_headers,
		.header_count = 1,
		.body = postern__buf_text(&self->batch),
		.body_len = self->batch.len,
	};
	struct postern__reply answer = { 0 };
	int r = postern__client_call_any(self->cli, self->client, &request, false,
			&answer);
	if (r == POSTERN__EXIT_OK && answer.status == 200) {
		r = count_batch(self, json_object_get(answer.json, "items"));
	} else if (r == POSTERN__EXIT_OK) {
		clear_progress(self);
		r = postern__send_problem(self->cli, self->channel, &answer);
	}
	json_decref(answer.json);
	postern__buf_reset(&self->batch);
	self->count = 0;
	print_progress(self);
	return r;
}

/* Why a line is not an event; NULL: it is one. */
static const char *check_line(const char *text, size_t len,
		struct postern_error *error) {
	struct postern__json_value event;
	struct postern_message message;
	struct postern__arena arena;
	postern__arena_init(&arena);
	int r = postern__json_scan(text, len, &event, error);
	if (!r) {
		r = postern__cloudevent_read(&event, &arena, &message, error);
	}
	postern__arena_finish(&arena);
	return r ? error->text : NULL;
}

static bool is_blank_line(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (!strchr(" \t\r", text[i])) {
			return false;
		}
	}
	return true;
}

/* Add one line to the batch; full batches are sent. */
static int add_line(struct sending *self, const char *text, size_t len) {
	struct postern_error error;
	self->line++;
	if (is_blank_line(text, len)) {
		return POSTERN__EXIT_OK;
	}
	const char *problem = check_line(text, len, &error);
	if (problem) {
		count_line(self, self->line, REJECTED, problem);
		return POSTERN__EXIT_OK;
	}
	int r = POSTERN__EXIT_OK;
	if (self->count == BATCH_COUNT_MAX ||
			(self->count > 0 && self->batch.len + len > self->batch_len_max)) {
		r = send_batch(self);
	}
	postern__buf_append_char(&self->batch, self->count == 0 ? '[' : ',');
	postern__buf_append(&self->batch, text, len);
	self->lines[self->count++] = self->line;
	return r;
}

/* A line that is not complete and has no end in sight. */
static void skip_long_line(struct sending *self) {
	char limit[POSTERN__SIZE_TEXT_MAX];
	char text[POSTERN__SIZE_TEXT_MAX + 64];
	if (!self->skipping) {
		postern__size_format(self->line_len_max, limit);
		(void)snprintf(text, sizeof text, "the line exceeds %s", limit);
		count_line(self, ++self->line, REJECTED, text);
	}
	self->skipping = true;
	postern__buf_reset(&self->input);
	self->seen = 0;
}

/* Cut what was read into lines; at the end of the file the rest is one. */
static int cut_lines(struct sending *self, bool end) {
	int r = POSTERN__EXIT_OK;
	size_t begin = 0;
	while (r == POSTERN__EXIT_OK) {
		const char *text = postern__buf_text(&self->input);
		size_t from = begin > self->seen ? begin : self->seen;
		const char *stop = memchr(text + from, '\n', self->input.len - from);
		if (!stop && !(end && begin < self->input.len)) {
			break;
		}
		size_t len =
				stop ? (size_t)(stop - text) - begin : self->input.len - begin;
		if (self->skipping) {
			self->skipping = false;
		} else {
			r = add_line(self, text + begin, len);
		}
		begin += len + (stop != NULL);
	}
	postern__buf_drop(&self->input, begin);
	self->seen = self->input.len;
	if (self->input.len > self->line_len_max) {
		skip_long_line(self);
	}
	return r;
}

static int read_lines(struct sending *self) {
	int r = POSTERN__EXIT_OK;
	bool end = false;
	while (r == POSTERN__EXIT_OK && !end) {
		char *place = postern__buf_reserve(&self->input, READ_SIZE);
		if (!place) {
			postern__err_print("send: out of memory");
			return POSTERN__EXIT_FAILED;
		}
		ssize_t len = read(self->fd, place, READ_SIZE);
		if (len < 0 && errno == EINTR) {
			continue;
		}
		if (len < 0) {
			clear_progress(self);
			postern__err_print("send: cannot read %s: %s", self->name,
					strerror(errno));
			return POSTERN__EXIT_FAILED;
		}
		end = len == 0;
		postern__buf_commit(&self->input, (size_t)len);
		self->bytes_read += len;
		r = cut_lines(self, end);
	}
	return r == POSTERN__EXIT_OK ? send_batch(self) : r;
}

static void print_summary(const struct sending *self) {
	uint64_t events = 0;
	for (int i = ACCEPTED; i < RESULT_COUNT; i++) {
		events += self->totals[i];
	}
	if (self->cli->json) {
		json_t *json = json_object();
		(void)json_object_set_new(json, "events",
				json_integer((json_int_t)events));
		for (int i = ACCEPTED; i < RESULT_COUNT; i++) {
			(void)json_object_set_new(json, result_names[i],
					json_integer((json_int_t)self->totals[i]));
		}
		postern__reply_print(json);
		json_decref(json);
		return;
	}
	(void)printf("%" PRIu64 " events: %" PRIu64 " accepted, %" PRIu64
				 " duplicate, %" PRIu64 " conflict, %" PRIu64 " rejected\n",
			events, self->totals[ACCEPTED], self->totals[DUPLICATE],
			self->totals[CONFLICT], self->totals[REJECTED]);
}

static int send_all_lines(struct sending *self) {
	int r = postern__client_begin(self->cli, POSTERN__NEED_ACCEPT,
			&self->client);
	if (r) {
		return r;
	}
	r = read_lines(self);
	clear_progress(self);
	print_summary(self);
	if (r) {
		postern__err_print("send: stopped after line %" PRIu64
						   "; send the file again: what was accepted will be a "
						   "duplicate",
				self->line);
	} else if (self->totals[CONFLICT] + self->totals[REJECTED] > 0) {
		r = POSTERN__EXIT_FAILED;
	}
	postern__client_destroy(self->client);
	return r;
}

/* The lines bring everything that these flags could set. */
static int check_flags(const struct postern__cli *cli) {
	static const char *const flags[] = { "id", "type", "source", "subject",
		"time", "content-type", "correlation-id", "traceparent", "header",
		"body" };
	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
		if (postern__args_has(&cli->args, flags[i])) {
			return postern__cli_usage(cli,
					"--%s cannot be combined with --lines: each line is a "
					"whole event",
					flags[i]);
		}
	}
	if (postern__args_operand(&cli->args, 1)) {
		return postern__cli_usage(cli, "FILE and --lines cannot be combined");
	}
	return POSTERN__EXIT_OK;
}

static int open_lines(struct sending *self) {
	const char *path = postern__args_value(&self->cli->args, "lines");
	struct stat status;
	bool standard = strcmp(path, "-") == 0;
	self->name = standard ? "standard input" : path;
	self->fd = standard ? STDIN_FILENO
						: open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (self->fd < 0 || fstat(self->fd, &status) < 0) {
		postern__err_print("send: cannot read %s: %s", self->name,
				strerror(errno));
		return POSTERN__EXIT_FAILED;
	}
	self->bytes_total = S_ISREG(status.st_mode) ? status.st_size : 0;
	return POSTERN__EXIT_OK;
}

/* The longest line is the longest request, less its brackets. A channel that
   is unknown here may be known to a server, which has limits of its own. */
static void set_limits(struct sending *self) {
	const struct postern__api api = {
		.config = self->cli->config,
		.body_len_max = POSTERN_BODY_LEN_MAX,
	};
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&self->path),
		.headers = batch_headers,
		.header_count = 1,
	};
	bool known = postern__config_channel_named(self->cli->config,
						 self->channel) != NULL;
	self->line_len_max = postern__api_body_len_max(&api, &request) - 2;
	self->batch_len_max = known ? BATCH_LEN_MAX : BATCH_LEN_ALWAYS;
	if (self->batch_len_max > self->line_len_max) {
		self->batch_len_max = self->line_len_max;
	}
}

int postern__send_lines(struct postern__cli *cli) {
	struct sending self = {
		.cli = cli,
		.channel = postern__args_operand(&cli->args, 0),
		.fd = -1,
		.progress = !cli->json && isatty(STDERR_FILENO),
	};
	postern__buf_init(&self.path, POSTERN__API_PATH_LEN_MAX);
	int r = check_flags(cli);
	if (r == POSTERN__EXIT_OK) {
		r = postern__send_path(cli, self.channel, &self.path);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_configure(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_files(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__send_check_channel(cli, self.channel);
	}
	if (r == POSTERN__EXIT_OK) {
		r = open_lines(&self);
	}
	if (r == POSTERN__EXIT_OK) {
		set_limits(&self);
		postern__buf_init(&self.input, self.line_len_max + 2 * READ_SIZE);
		postern__buf_init(&self.batch, self.line_len_max + BATCH_LEN_MAX + 2);
		r = send_all_lines(&self);
		postern__buf_finish(&self.input);
		postern__buf_finish(&self.batch);
	}
	if (self.fd > STDIN_FILENO) {
		(void)close(self.fd); /* close of a file that was only read */
	}
	postern__buf_finish(&self.path);
	return r;
}
