/* SPDX-License-Identifier: MIT */

/*
 * The source `lines`: a CloudEvent in JSON per line of a file, a named pipe or
 * standard input.
 *
 * None of them can be acknowledged. A file is read from its beginning at every
 * start, and what was accepted before is a duplicate; so nothing is lost that
 * is in the file. What was read from a pipe exists only in this process, so a
 * line is kept in memory until it is accepted, and sent again while the store
 * is unavailable; a stop reads no further line and waits for those.
 *
 * With `follow` a file is read on as it grows; when it is replaced or
 * truncated, as log files are, the new one is read from its beginning, once
 * every line of the old one is accepted. That one is read to its end when its
 * replacement was seen, because a line may have been written in between. A
 * named pipe is kept open between its writers. Standard input ends when it
 * ends, also if it is a file.
 *
 * A line whose handler failed, in a channel that answers with that, is sent
 * again up to max_attempts times. Then it is given up, as one that is rejected
 * is at once: that is published if the channel has a channel for it.
 *
 * The tag of a message is the number of its line. A line is done if it is
 * blank, cannot be accepted, or is completed; the lag is the number of bytes
 * from the first line that is not.
 */

#include "source/lines.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <postern/source.h>
#include <postern/sys/clock.h>
#include <postern/sys/option.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/container.h"
#include "base/fail.h"
#include "base/json_scan.h"
#include "source/cloudevent.h"
#include "source/line_reader.h"

/* Lines that are read and not done; and their bytes, one line always. */
#define WINDOW 1000
#define WINDOW_BYTES_MAX ((size_t)16 * 1024 * 1024)
/* How often to look whether a file has grown or was replaced. */
#define FOLLOW_MS 200
#define IDLE_MS 5000

enum line_state { LINE_DONE, LINE_IN_FLIGHT, LINE_AGAIN };

/* A line that was read. */
struct line {
	enum line_state state;
	uint32_t attempts; /* that failed */
	bool given_up;
	char *reason; /* of the last failure, written by complete() */
	char *text;   /* until it is done */
	size_t len;
	uint64_t end; /* offset in the input */
};

enum input_kind { INPUT_FILE, INPUT_PIPE, INPUT_STREAM };

struct lines {
	struct postern_source base;
	char *path; /* "-": standard input */
	bool follow;
	uint32_t max_attempts;
	bool quarantines;
	struct postern_sink *sink;
	struct postern_completions *completions;
	struct postern_prefix *prefix;
	pthread_t thread;
	atomic_bool stopping;
	atomic_bool ending;

	/* Used by the thread alone. */
	int fd; /* -1: not open */
	enum input_kind input;
	dev_t device;
	ino_t inode;
	bool replaced; /* the path names another file */
	bool at_end;   /* of what is there now */
	bool finished; /* no more will come */
	struct postern__line_reader reader;
	struct line window[WINDOW]; /* of line n at n % WINDOW */
	size_t bytes;               /* of their texts */
	size_t again_count;         /* lines to be sent again */
	int64_t retry_at_ms;
	/* Up to here all lines are done; written by the thread alone. */
	atomic_uint_fast64_t done_offset;
};

static const struct postern_source_ops lines_ops;

static struct lines *from_base(struct postern_source *source) {
	assert(source->ops == &lines_ops);
	return container_of(source, struct lines, base);
}

uint64_t postern__lines_done(struct postern_source *source) {
	return from_base(source)->done_offset;
}

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

static struct line *line_at(struct lines *self, uint64_t number) {
	return &self->window[number % WINDOW];
}

static void line_done(struct lines *self, uint64_t number) {
	struct line *line = line_at(self, number);
	self->bytes -= line->len;
	free(line->text);
	free(line->reason);
	*line = (struct line){ .state = LINE_DONE, .end = line->end };
	uint64_t first = postern_prefix_done(self->prefix, number);
	if (first > number) {
		self->done_offset = line_at(self, first - 1)->end;
	}
}

/* Wait before the lines that are to be sent again. */
static void retry_later(struct lines *self) {
	self->retry_at_ms = now_ms() + postern_sink_retry_delay_ms(self->sink);
}

static void take_completion(struct lines *self,
		const struct postern_completed *item) {
	struct line *line = line_at(self, item->tag);
	bool failed = item->verdict == POSTERN_VERDICT_FAILED;
	bool refused = item->verdict == POSTERN_VERDICT_REJECTED;
	/* A fault event that is refused itself is given up, too. */
	if (line->given_up ? item->verdict != POSTERN_VERDICT_UNAVAILABLE
					   : !failed && !refused &&
								 item->verdict != POSTERN_VERDICT_UNAVAILABLE) {
		line_done(self, item->tag);
		return;
	}
	line->attempts += failed || refused;
	line->given_up =
			line->given_up || refused || line->attempts >= self->max_attempts;
	line->state = LINE_AGAIN;
	self->again_count++;
	if (!line->given_up || item->verdict == POSTERN_VERDICT_UNAVAILABLE) {
		retry_later(self);
	}
}

static void take_completions(struct lines *self) {
	struct postern_completed items[64];
	size_t count;
	do {
		count = postern_completions_take(self->completions, items, 64);
		for (size_t i = 0; i < count; i++) {
			take_completion(self, &items[i]);
		}
	} while (count == 64);
}

/* A line that is no message; false: the source is paused. */
static bool refuse_line(struct lines *self, uint64_t number, const char *why) {
	const struct line *line = line_at(self, number);
	const struct postern_message message = {
		.size = sizeof(message),
		.transport = "lines",
		.body = line->text,
		.body_len = line->len,
	};
	/* It is given up if the channel keeps nothing. */
	if (self->quarantines && !line->given_up) {
		return postern_sink_quarantine(self->sink, NULL, &message, why, number);
	}
	if (!line->given_up) {
		postern_sink_reject(self->sink, number, why);
	}
	line_done(self, number);
	return true;
}

/* Send one line; false: the source is paused. */
static bool send_line(struct lines *self, uint64_t number) {
	struct line *line = line_at(self, number);
	struct postern__json_value event;
	struct postern_message message;
	struct postern_error error;
	struct postern__arena arena;
	postern__arena_init(&arena);
	int r = postern__json_scan(line->text, line->len, &event, &error);
	if (!r) {
		r = postern__cloudevent_read(&event, &arena, &message, &error);
	}
	/* Before the call: the completion may come during it. */
	line->state = LINE_IN_FLIGHT;
	bool taken = true;
	if (r == POSTERN_E_NOMEM) {
		retry_later(self);
		taken = false;
	} else if (r) {
		taken = refuse_line(self, number, error.text);
	} else {
		message.transport = "lines";
		taken = line->given_up ? postern_sink_fault(self->sink, NULL, &message,
										 line->attempts, line->reason, number)
							   : postern_sink_accept(self->sink, NULL, &message,
										 number);
	}
	if (!taken) {
		line->state = LINE_AGAIN;
		self->again_count++;
	}
	postern__arena_finish(&arena);
	return taken;
}

/* Send the lines again that were not taken; false: some are left. */
static bool send_again(struct lines *self) {
	uint64_t number = postern_prefix_first(self->prefix);
	while (self->again_count > 0 && now_ms() >= self->retry_at_ms) {
		if (line_at(self, number)->state == LINE_AGAIN) {
			self->again_count--;
			if (!send_line(self, number)) {
				break;
			}
		}
		number++;
	}
	return self->again_count == 0;
}

static bool window_has_room(const struct lines *self) {
	return self->reader.line + 1 - postern_prefix_first(self->prefix) <
				   WINDOW &&
		   self->bytes < WINDOW_BYTES_MAX;
}

/* Keep the last line of the reader until it is done; false: out of memory. */
static bool keep_line(struct lines *self, const struct postern__line *given) {
	uint64_t number = self->reader.line;
	struct line *line = line_at(self, number);
	if (given->blank || given->too_long) {
		line->end = self->reader.offset;
		line_done(self, number);
		return true;
	}
	char *text = malloc(given->len + 1);
	if (text) {
		memcpy(text, given->text, given->len);
		text[given->len] = '\0';
		line->text = text;
		line->len = given->len;
		line->end = self->reader.offset;
		self->bytes += given->len;
	}
	return text != NULL;
}

/* Send the lines that were read. Returns false if some are left: the source is
   paused, or too many lines are not done. */
static bool send_lines(struct lines *self) {
	struct postern__line line;
	while (!self->stopping && window_has_room(self)) {
		const struct postern__line_reader before = self->reader;
		if (!postern__line_reader_next(&self->reader, &line)) {
			return true;
		}
		if (!keep_line(self, &line)) {
			self->reader = before;
			return false;
		}
		if (line.too_long) {
			postern_sink_reject(self->sink, self->reader.line,
					"the line is too long");
		} else if (!line.blank && !send_line(self, self->reader.line)) {
			return false;
		}
	}
	return false;
}

static void close_input(struct lines *self) {
	if (self->fd > STDIN_FILENO) {
		(void)close(self->fd); /* close of a file that was only read */
	}
	self->fd = -1;
}

static void report_input(struct lines *self, const char *what,
		const char *why) {
	char text[POSTERN_ERROR_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "cannot %s '%.150s': %.60s", what,
			self->path, why);
	postern_sink_disconnected(self->sink, text);
}

static void reset_input(struct lines *self) {
	postern__line_reader_reset(&self->reader);
	postern_prefix_reset(self->prefix, 1);
	self->done_offset = 0;
	self->replaced = false;
	self->at_end = false;
	self->finished = false;
}

static void open_input(struct lines *self) {
	struct stat status;
	bool standard = strcmp(self->path, "-") == 0;
	/* A pipe that is open for writing, too, never ends. */
	bool pipe = !standard && self->follow && stat(self->path, &status) == 0 &&
				S_ISFIFO(status.st_mode);
	self->fd =
			standard ? STDIN_FILENO
					 : open(self->path, (pipe ? O_RDWR : O_RDONLY) | O_CLOEXEC |
												O_NOCTTY | O_NONBLOCK);
	if (self->fd < 0 || fstat(self->fd, &status) < 0) {
		report_input(self, "open", strerror(errno));
		close_input(self);
		return;
	}
	if (S_ISDIR(status.st_mode)) {
		report_input(self, "open", strerror(EISDIR));
		close_input(self);
		return;
	}
	bool file = S_ISREG(status.st_mode) && !standard;
	self->input = file ? INPUT_FILE : pipe ? INPUT_PIPE : INPUT_STREAM;
	self->device = status.st_dev;
	self->inode = status.st_ino;
	reset_input(self);
	postern_sink_connected(self->sink);
}

static bool was_truncated(struct lines *self) {
	struct stat status;
	return fstat(self->fd, &status) == 0 &&
		   (uint64_t)status.st_size <
				   postern__line_reader_position(&self->reader);
}

static bool was_replaced(struct lines *self) {
	struct stat status;
	return stat(self->path, &status) == 0 &&
		   (status.st_dev != self->device || status.st_ino != self->inode);
}

/* Nothing is there to be read now. */
static void end_reached(struct lines *self) {
	bool follows = self->follow && self->input == INPUT_FILE && !self->replaced;
	if (!follows && !self->reader.end) {
		self->reader.end = true; /* what remains is a line */
		return;
	}
	self->at_end = true;
	self->finished = !follows;
	if (self->finished && !self->replaced) {
		postern_sink_disconnected(self->sink, NULL);
	}
}

/* Read once. Standard input may block, so that it is polled first. */
static void read_input(struct lines *self) {
	struct postern_error error;
	struct pollfd ready = { .fd = self->fd, .events = POLLIN };
	long len = -1;
	int r = POSTERN_OK;
	if (self->input == INPUT_FILE || poll(&ready, 1, 0) == 1) {
		r = postern__line_reader_read(&self->reader, self->fd, &len, &error);
	}
	if (r) {
		report_input(self, "read", error.text);
		close_input(self);
		self->at_end = true;
	} else if (len == 0) {
		end_reached(self);
	} else {
		self->at_end = len < 0;
	}
}

static void report_lag(struct lines *self) {
	struct stat status;
	if (self->fd < 0 || self->input != INPUT_FILE ||
			fstat(self->fd, &status) < 0) {
		postern_sink_set_lag(self->sink, -1);
		return;
	}
	int64_t lag = (int64_t)status.st_size - (int64_t)self->done_offset;
	postern_sink_set_lag(self->sink, lag > 0 ? lag : 0);
}

static bool all_done(struct lines *self) {
	return postern_prefix_first(self->prefix) == self->reader.line + 1;
}

/* Read and send as much as possible. */
static void work(struct lines *self) {
	self->at_end = false;
	while (!self->at_end && !self->stopping && send_again(self)) {
		if (self->fd < 0 && all_done(self)) {
			open_input(self);
		}
		if (self->fd < 0 || !send_lines(self)) {
			return;
		}
		if (self->finished) {
			self->at_end = true;
		} else {
			read_input(self);
		}
		take_completions(self);
	}
}

static void wait_for_input(struct lines *self) {
	struct pollfd fds[] = {
		{ .fd = postern_completions_fd(self->completions), .events = POLLIN },
		{ .fd = self->fd, .events = POLLIN },
	};
	bool reads = self->fd >= 0 && self->at_end && !self->finished &&
				 !self->stopping && self->again_count == 0;
	int64_t ms = IDLE_MS;
	if (self->fd < 0 && !self->stopping) {
		ms = postern_sink_retry_delay_ms(self->sink);
	} else if (self->again_count > 0 && self->retry_at_ms > now_ms()) {
		ms = self->retry_at_ms - now_ms();
	} else if (reads && self->input == INPUT_FILE) {
		ms = FOLLOW_MS;
	}
	(void)poll(fds, reads && self->input != INPUT_FILE ? 2 : 1,
			(int)(ms < IDLE_MS ? ms : IDLE_MS));
}

/* At the end of a file that is followed: look for another one. Returns whether
   there is something to read. */
static bool look_for_next(struct lines *self) {
	bool follows = self->fd >= 0 && self->input == INPUT_FILE && self->follow;
	if (!follows || !self->at_end || self->stopping || !all_done(self)) {
		return false;
	}
	if (self->finished || was_truncated(self)) {
		close_input(self);
		return true;
	}
	self->replaced = was_replaced(self);
	return self->replaced;
}

static void *lines_loop(void *context) {
	struct lines *self = context;
	while (!self->ending) {
		take_completions(self);
		work(self);
		report_lag(self);
		if (!look_for_next(self)) {
			wait_for_input(self);
		}
	}
	take_completions(self);
	report_lag(self);
	return NULL;
}

static int lines_start(struct postern_source *source, struct postern_sink *sink,
		struct postern_error *error) {
	struct lines *self = from_base(source);
	self->sink = sink;
	postern_sink_set_quarantine(sink, self->quarantines);
	self->stopping = false;
	self->ending = false;
	self->retry_at_ms = 0;
	reset_input(self);
	int r = pthread_create(&self->thread, NULL, lines_loop, self);
	return r ? postern__fail(error, POSTERN_E_NOMEM,
					   "cannot start a thread: %s", strerror(r))
			 : POSTERN_OK;
}

static void lines_complete(struct postern_source *source,
		const struct postern_completion *completion) {
	struct lines *self = from_base(source);
	struct line *line = line_at(self, completion->tag);
	/* The thread leaves a line that is in flight alone. */
	if (completion->verdict == POSTERN_VERDICT_FAILED ||
			completion->verdict == POSTERN_VERDICT_REJECTED) {
		free(line->reason);
		line->reason = strdup(completion->error->text);
	}
	postern_completions_put(self->completions, completion);
}

static void lines_resume(struct postern_source *source) {
	postern_completions_wake(from_base(source)->completions);
}

static void lines_stop(struct postern_source *source) {
	struct lines *self = from_base(source);
	self->stopping = true;
	postern_completions_wake(self->completions);
}

static void free_window(struct lines *self) {
	for (size_t i = 0; i < WINDOW; i++) {
		free(self->window[i].text);
		self->window[i] = (struct line){ 0 };
	}
	self->bytes = 0;
	self->again_count = 0;
}

static void lines_end(struct postern_source *source) {
	struct lines *self = from_base(source);
	self->ending = true;
	postern_completions_wake(self->completions);
	(void)pthread_join(self->thread, NULL);
	close_input(self);
	free_window(self);
}

static void lines_destroy(struct postern_source *source) {
	struct lines *self = from_base(source);
	free_window(self);
	postern__line_reader_finish(&self->reader);
	postern_completions_destroy(self->completions);
	postern_prefix_destroy(self->prefix);
	free(self->path);
	free(self);
}

static const struct postern_source_ops lines_ops = {
	.version = POSTERN_SOURCE_OPS_VERSION,
	.name = "lines",
	.tag_name = "line",
	.start = lines_start,
	.complete = lines_complete,
	.resume = lines_resume,
	.stop = lines_stop,
	.end = lines_end,
	.destroy = lines_destroy,
};

struct settings {
	const char *file;
	bool follow;
	uint64_t max_line_size;
	uint32_t max_attempts;
	int on_unacceptable; /* 0: reject, 1: quarantine */
};

static int lines_create(const void *given, struct postern_source **out,
		struct postern_error *error) {
	const struct settings *settings = given;
	struct lines *self = calloc(1, sizeof(*self));
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &lines_ops;
	self->fd = -1;
	self->follow = settings->follow;
	self->max_attempts = settings->max_attempts;
	self->quarantines = settings->on_unacceptable == 1;
	postern__line_reader_init(&self->reader, (size_t)settings->max_line_size);
	self->path = strdup(settings->file);
	int r = self->path ? POSTERN_OK
					   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (!r) {
		r = postern_completions_create(WINDOW, &self->completions, error);
	}
	if (!r) {
		r = postern_prefix_create(WINDOW, &self->prefix, error);
	}
	if (r) {
		lines_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}

static const struct postern_option lines_options[] = {
	{
			.name = "file",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct settings, file),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_PATH,
			.help = "a file or a named pipe; '-' for standard input",
			.form = "FILE",
	},
	{
			.name = "follow",
			.type = POSTERN_OPTION_SWITCH,
			.offset = offsetof(struct settings, follow),
			.fallback = "on",
			.help = "read on when the file grows or is replaced",
	},
	{
			.name = "max_line_size",
			.type = POSTERN_OPTION_SIZE,
			.offset = offsetof(struct settings, max_line_size),
			.min = 1024,
			.max = 2 * POSTERN_BODY_LEN_MAX,
			.fallback = "4MiB",
			.help = "longer lines are rejected",
	},
	{
			.name = "max_attempts",
			.type = POSTERN_OPTION_COUNT,
			.offset = offsetof(struct settings, max_attempts),
			.min = 1,
			.max = 1000000,
			.fallback = "5",
			.help = "modes guard and direct: how often a line that fails is "
					"sent before it is given up",
	},
	{
			.name = "on_unacceptable",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct settings, on_unacceptable),
			.choices = "reject|quarantine",
			.fallback = "reject",
			.help = "what happens to a line that can never be accepted",
	},
};

const struct postern_source_kind postern__lines_kind = {
	.size = sizeof(struct postern_source_kind),
	.name = "lines",
	.help = "a CloudEvent in JSON per line",
	.options = lines_options,
	.option_count = sizeof(lines_options) / sizeof(lines_options[0]),
	.settings_size = sizeof(struct settings),
	.create = lines_create,
};
