/* SPDX-License-Identifier: MIT */

/*
 * `postern send CHANNEL --lines FILE`: a file with a CloudEvent in JSON on each
 * line, sent in batches of events.
 *
 * Each line is read here first, so that a bad one is reported with its number
 * and does not spoil a batch. A batch that the server refuses as a whole is
 * halved, until the line that is to blame is alone. A batch may be sent again
 * when a response was lost or the store failed for some of it: events have an
 * identity, and what was accepted is then a duplicate.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
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
#include "source/line_reader.h"

/* Events and bytes of one batch: few commits, and a request of bounded size. A
   longer event is a batch by itself. */
#define BATCH_COUNT_MAX 500
#define BATCH_LEN_MAX ((size_t)512 * 1024)
/* What every channel takes, however short its messages have to be. */
#define BATCH_LEN_ALWAYS ((size_t)128 * 1024)
/* Lines with an error that are printed; the summary counts all. */
#define ERRORS_PRINTED_MAX 20
/* How often a batch is sent again while the store fails, and the delay before
   the first time, which doubles. */
#define TRIES_MAX 6
#define RETRY_NS INT64_C(100000000)
/* Between two updates of the progress bar, and its columns. */
#define PROGRESS_MS 200
#define BAR_LEN 30

static const struct postern_header batch_headers[] = {
	{ "Content-Type", "application/cloudevents-batch+json" },
};

enum result {
	UNAVAILABLE, /* no result */
	ACCEPTED,
	DUPLICATE,
	CONFLICT,
	REJECTED,
	DROPPED, /* accepted, but no handler wants it */
	RESULT_COUNT
};

static const char *const result_names[RESULT_COUNT] = { "unavailable",
	"accepted", "duplicate", "conflict", "rejected", "dropped" };

/* An event of the batch. */
struct event {
	uint64_t line;
	size_t begin; /* in the buffer of the batch */
	size_t len;
	enum result result;
};

struct sending {
	struct postern__cli *cli;
	struct postern__client *client;
	const char *channel;
	struct postern__buf path;
	size_t line_len_max;
	size_t batch_len_max;

	int fd;
	const char *name;
	struct postern__line_reader reader;

	struct postern__buf batch; /* the events, separated by commas */
	struct event events[BATCH_COUNT_MAX];
	size_t count;
	struct postern__buf request;

	uint64_t totals[RESULT_COUNT];
	uint64_t unavailable_from; /* the first line without a result; 0: none */
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
	uint64_t sent = self->totals[ACCEPTED] + self->totals[DUPLICATE] +
					self->totals[DROPPED];
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
	if (result == ACCEPTED || result == DUPLICATE || result == DROPPED) {
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
	if (json_is_true(json_object_get(item, "dropped"))) {
		return DROPPED;
	}
	/* From a channel that runs its handlers before it answers. */
	if (status && strcmp(status, "done") == 0) {
		return ACCEPTED;
	}
	if (status && strcmp(status, "failed") == 0) {
		return REJECTED;
	}
	for (int i = ACCEPTED; status && i < RESULT_COUNT; i++) {
		if (strcmp(status, result_names[i]) == 0) {
			return (enum result)i;
		}
	}
	return UNAVAILABLE;
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

static void set_result(struct sending *self, struct event *event,
		enum result result, const char *detail) {
	if (event->result == UNAVAILABLE && result != UNAVAILABLE) {
		event->result = result;
		count_line(self, event->line, result, detail);
	}
}

/* Note the results of events [first, first + count). Returns whether all have
   one. */
static bool read_results(struct sending *self, size_t first, size_t count,
		const json_t *items) {
	bool all = true;
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(items, i);
		enum result result = result_of(item);
		struct event *event = &self->events[first + i];
		set_result(self, event, result, detail_of(item, result));
		all = all && event->result != UNAVAILABLE;
	}
	return all;
}

/* Send events [first, first + count) once. */
static int post_events(struct sending *self, size_t first, size_t count,
		struct postern__reply *answer) {
	const struct event *last = &self->events[first + count - 1];
	size_t begin = self->events[first].begin;
	postern__buf_reset(&self->request);
	postern__buf_append_char(&self->request, '[');
	postern__buf_append(&self->request, postern__buf_text(&self->batch) + begin,
			last->begin + last->len - begin);
	postern__buf_append_char(&self->request, ']');
	if (self->request.failed) {
		postern__err_print("send: out of memory");
		return POSTERN__EXIT_FAILED;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&self->path),
		.transport = "cli",
		.headers = batch_headers,
		.header_count = 1,
		.body = postern__buf_text(&self->request),
		.body_len = self->request.len,
	};
	return postern__client_call_any(self->cli, self->client, &request, false,
			answer);
}

/* Whether the events themselves are the reason for this response. */
static bool is_refusal(int status) {
	return status == 400 || status == 413 || status == 422;
}

/* Whether the same request may succeed soon. */
static bool is_overload(const struct postern__reply *answer, bool all) {
	return answer->status == 429 || (answer->status == 200 && !all);
}

/* Send events [first, first + count) until each has a result, or the store
   fails for too long. *refused_out: none has, because of one of them. */
static int send_events(struct sending *self, size_t first, size_t count,
		bool *refused_out) {
	int r = POSTERN__EXIT_OK;
	int64_t delay_ns = RETRY_NS;
	for (int tries = 1; r == POSTERN__EXIT_OK; tries++) {
		struct postern__reply answer = { 0 };
		bool all = false;
		r = post_events(self, first, count, &answer);
		if (r == POSTERN__EXIT_OK && answer.status == 200) {
			all = read_results(self, first, count,
					json_object_get(answer.json, "items"));
		}
		bool again = r == POSTERN__EXIT_OK && is_overload(&answer, all) &&
					 tries < TRIES_MAX;
		*refused_out = r == POSTERN__EXIT_OK && is_refusal(answer.status);
		if (*refused_out && count == 1) {
			const char *detail = postern__reply_text(answer.json, "detail");
			set_result(self, &self->events[first], REJECTED,
					detail ? detail : "refused");
		} else if (r == POSTERN__EXIT_OK && !again && !all && !*refused_out) {
			clear_progress(self);
			r = answer.status == 200 ? POSTERN__EXIT_UNREACHABLE
									 : postern__send_problem(self->cli,
											   self->channel, &answer);
		}
		json_decref(answer.json);
		if (!again) {
			break;
		}
		postern__clock_sleep_until_ns(postern__clock_ns() + delay_ns);
		delay_ns *= 2;
	}
	return r;
}

/* The same; a refused batch is halved. The stack is bounded by the halving. */
static int send_halves(struct sending *self, size_t first, size_t count) {
	bool refused = false;
	int r = send_events(self, first, count, &refused);
	if (r == POSTERN__EXIT_OK && refused && count > 1) {
		size_t half = count / 2;
		r = send_halves(self, first, half);
		if (r == POSTERN__EXIT_OK) {
			r = send_halves(self, first + half, count - half);
		}
	}
	return r;
}

/* Count the events that have no result, and empty the batch. */
static void end_batch(struct sending *self) {
	for (size_t i = 0; i < self->count; i++) {
		if (self->events[i].result == UNAVAILABLE) {
			self->totals[UNAVAILABLE]++;
			if (self->unavailable_from == 0) {
				self->unavailable_from = self->events[i].line;
			}
		}
	}
	postern__buf_reset(&self->batch);
	self->count = 0;
}

static int send_batch(struct sending *self) {
	if (self->count == 0) {
		return POSTERN__EXIT_OK;
	}
	int r = send_halves(self, 0, self->count);
	end_batch(self);
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

static void reject_long_line(struct sending *self) {
	char limit[POSTERN__SIZE_TEXT_MAX];
	char text[POSTERN__SIZE_TEXT_MAX + 64];
	postern__size_format(self->line_len_max, limit);
	(void)snprintf(text, sizeof text, "the line exceeds %s", limit);
	count_line(self, self->reader.line, REJECTED, text);
}

static void add_event(struct sending *self, const char *text, size_t len) {
	if (self->count > 0) {
		postern__buf_append_char(&self->batch, ',');
	}
	self->events[self->count++] = (struct event){
		.line = self->reader.line,
		.begin = self->batch.len,
		.len = len,
	};
	postern__buf_append(&self->batch, text, len);
}

/* Add one line to the batch; a full batch is sent first. */
static int add_line(struct sending *self, const char *text, size_t len) {
	struct postern_error error;
	const char *problem = check_line(text, len, &error);
	if (problem) {
		count_line(self, self->reader.line, REJECTED, problem);
		return POSTERN__EXIT_OK;
	}
	int r = POSTERN__EXIT_OK;
	if (self->count == BATCH_COUNT_MAX ||
			(self->count > 0 &&
					self->batch.len + 1 + len > self->batch_len_max)) {
		r = send_batch(self);
	}
	/* Also after a failure, so that the line is counted as not sent. */
	add_event(self, text, len);
	if (self->batch.failed && r == POSTERN__EXIT_OK) {
		postern__err_print("send: out of memory");
		r = POSTERN__EXIT_FAILED;
	}
	return r;
}

/* Add the lines that were read. */
static int add_lines(struct sending *self) {
	struct postern__line line;
	int r = POSTERN__EXIT_OK;
	while (r == POSTERN__EXIT_OK &&
			postern__line_reader_next(&self->reader, &line)) {
		if (line.too_long) {
			reject_long_line(self);
		} else if (!line.blank) {
			r = add_line(self, line.text, line.len);
		}
	}
	return r;
}

/* Send what there is before waiting for more of a pipe. The read may not wait:
   another process may have made the pipe non-blocking. */
static int send_before_wait(struct sending *self) {
	struct pollfd ready = { .fd = self->fd, .events = POLLIN };
	if (poll(&ready, 1, 0) != 0) {
		return POSTERN__EXIT_OK;
	}
	int r = send_batch(self);
	if (r == POSTERN__EXIT_OK) {
		(void)poll(&ready, 1, -1); /* interrupted: nothing is read yet */
	}
	return r;
}

/* Read once, and add the lines. */
static int read_some(struct sending *self) {
	struct postern_error error;
	long len = 0;
	if (postern__line_reader_read(&self->reader, self->fd, &len, &error)) {
		clear_progress(self);
		postern__err_print("send: cannot read %s: %s", self->name, error.text);
		return POSTERN__EXIT_FAILED;
	}
	self->reader.end = len == 0;
	self->bytes_read += len > 0 ? len : 0;
	return add_lines(self);
}

static int read_lines(struct sending *self) {
	int r = POSTERN__EXIT_OK;
	while (r == POSTERN__EXIT_OK && !self->reader.end) {
		r = send_before_wait(self);
		if (r == POSTERN__EXIT_OK) {
			r = read_some(self);
		}
	}
	if (r == POSTERN__EXIT_OK) {
		return send_batch(self);
	}
	end_batch(self); /* lines that were read and not sent */
	return r;
}

static void print_summary(const struct sending *self) {
	uint64_t events = 0;
	for (int i = 0; i < RESULT_COUNT; i++) {
		events += self->totals[i];
	}
	if (self->cli->json) {
		json_t *json = json_object();
		(void)json_object_set_new(json, "events",
				json_integer((json_int_t)events));
		for (int i = 0; i < RESULT_COUNT; i++) {
			(void)json_object_set_new(json, result_names[i],
					json_integer((json_int_t)self->totals[i]));
		}
		postern__reply_print(json);
		json_decref(json);
		return;
	}
	(void)printf("%" PRIu64 " event%s: %" PRIu64 " accepted, %" PRIu64
				 " duplicate, %" PRIu64 " conflict, %" PRIu64 " rejected",
			events, events == 1 ? "" : "s", self->totals[ACCEPTED],
			self->totals[DUPLICATE], self->totals[CONFLICT],
			self->totals[REJECTED]);
	if (self->totals[DROPPED] > 0) {
		(void)printf(", %" PRIu64 " dropped (no handler wants them)",
				self->totals[DROPPED]);
	}
	if (self->totals[UNAVAILABLE] > 0) {
		(void)printf(", %" PRIu64 " without a result",
				self->totals[UNAVAILABLE]);
	}
	(void)printf("\n");
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
	if (r == POSTERN__EXIT_UNREACHABLE && self->unavailable_from > 0) {
		postern__err_print("send: lines from %" PRIu64
						   " on have no result; send the file again: what was "
						   "accepted will be a duplicate",
				self->unavailable_from);
	} else if (r == POSTERN__EXIT_OK &&
			   self->totals[CONFLICT] + self->totals[REJECTED] > 0) {
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
		r = postern__cli_need_files(cli, false, true);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__send_check_channel(cli, self.channel);
	}
	if (r == POSTERN__EXIT_OK) {
		r = open_lines(&self);
	}
	if (r == POSTERN__EXIT_OK) {
		set_limits(&self);
		postern__line_reader_init(&self.reader, self.line_len_max);
		postern__buf_init(&self.batch, self.line_len_max + BATCH_LEN_MAX + 2);
		postern__buf_init(&self.request, self.line_len_max + BATCH_LEN_MAX + 4);
		r = send_all_lines(&self);
		postern__line_reader_finish(&self.reader);
		postern__buf_finish(&self.batch);
		postern__buf_finish(&self.request);
	}
	if (self.fd > STDIN_FILENO) {
		(void)close(self.fd); /* close of a file that was only read */
	}
	postern__buf_finish(&self.path);
	return r;
}
