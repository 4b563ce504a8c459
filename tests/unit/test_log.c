/* SPDX-License-Identifier: MIT */

/* Log lines on a pipe, a socket, a terminal, a full disk and a closed file. */

#include "server/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <postern/sys/clock.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/utf8.h"
#include "tap.h"

static int64_t fixed_ms(void *context) {
	(void)context;
	return INT64_C(1700000000123);
}

static const struct postern_clock fixed = {
	.wall_ms = fixed_ms,
	.monotonic_ms = fixed_ms,
};

/* A log that writes to a pipe, and its output. */
struct pipe {
	int read_fd;
	int write_fd;
	struct postern__log log;
	char text[65536];
};

static void pipe_log_open(struct pipe *self, bool json,
		enum postern_level level) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) != 0) {
		abort();
	}
	self->read_fd = fds[0];
	self->write_fd = fds[1];
	(void)fcntl(self->read_fd, F_SETFL, O_NONBLOCK);
	postern__log_init(&self->log, self->write_fd, json, level, &fixed);
}

static const char *pipe_read(struct pipe *self) {
	size_t len = 0;
	ssize_t n;
	while ((n = read(self->read_fd, self->text + len,
					sizeof self->text - 1 - len)) > 0) {
		len += (size_t)n;
	}
	self->text[len] = '\0';
	return self->text;
}

static void pipe_log_close(struct pipe *self) {
	postern__log_finish(&self->log);
	(void)close(self->write_fd);
	if (self->read_fd >= 0) {
		(void)close(self->read_fd);
	}
}

static void text_lines(void) {
	struct pipe pipe;
	pipe_log_open(&pipe, false, POSTERN_LEVEL_INFO);
	postern__log(&pipe.log, POSTERN__LOG_HURRY, "delivery failed",
			postern__log_text("handler", "mail"), postern__log_int("seq", -12),
			postern__log_text("error", "say \"no\" = \\"),
			postern__log_text("none", NULL));
	CHECK_STR(pipe_read(&pipe),
			"2023-11-14T22:13:20.123Z warn  delivery failed "
			"event=stop_forced handler=mail "
			"seq=-12 error=\"say \\\"no\\\" = \\\\\" none=\"\"\n");
	pipe_log_close(&pipe);
}

static void json_lines(void) {
	struct pipe pipe;
	pipe_log_open(&pipe, true, POSTERN_LEVEL_INFO);
	postern__log(&pipe.log, POSTERN__LOG_FAILED, "a \"word\"",
			postern__log_text("handler", "mail"), postern__log_int("seq", 12));
	CHECK_STR(pipe_read(&pipe),
			"{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"error\","
			"\"event\":\"server_failed\",\"message\":\"a "
			"\\\"word\\\"\",\"handler\":\"mail\",\"seq\":12}"
			"\n");
	pipe_log_close(&pipe);
}

static void below_the_level(void) {
	struct pipe pipe;
	pipe_log_open(&pipe, false, POSTERN_LEVEL_WARN);
	postern__log(&pipe.log, POSTERN__LOG_SERVING, "not this");
	CHECK_STR(pipe_read(&pipe), "");
	postern__log(&pipe.log, POSTERN__LOG_HURRY, "this");
	CHECK_CONTAINS(pipe_read(&pipe), "this");
	pipe_log_close(&pipe);
}

static void hostile_values(void) {
	for (int json = 0; json < 2; json++) {
		struct pipe pipe;
		pipe_log_open(&pipe, json, POSTERN_LEVEL_INFO);
		postern__log(&pipe.log, POSTERN__LOG_SERVING, "a\nb\x1b[31m",
				postern__log_text("id",
						"x\r\n2023 error fake=1\x1b[2J\xff\xfe\xc2\x9b\x7f"));
		const char *text = pipe_read(&pipe);
		size_t len = strlen(text);
		CHECK(len > 0 && strchr(text, '\n') == text + len - 1);
		CHECK(postern__utf8_valid(text, len));
		CHECK(!postern__utf8_has_control(text, len - 1));
		pipe_log_close(&pipe);
	}
}

static void long_lines(void) {
	char *value = malloc(100001);
	if (!value) {
		abort();
	}
	/* '<' becomes six bytes in JSON. */
	memset(value, '<', 100000);
	value[100000] = '\0';
	for (int json = 0; json < 2; json++) {
		struct pipe pipe;
		pipe_log_open(&pipe, json, POSTERN_LEVEL_INFO);
		postern__log(&pipe.log, POSTERN__LOG_SERVING, value,
				postern__log_text("a", value), postern__log_text("b", value),
				postern__log_text("c", value), postern__log_int("d", 7));
		const char *text = pipe_read(&pipe);
		size_t len = strlen(text);
		CHECK(len <= POSTERN__LOG_LINE_MAX);
		CHECK(len > 0 && text[len - 1] == '\n');
		CHECK_CONTAINS(text, json ? "\"d\":7" : "d=7");
		json_t *parsed = json ? json_loads(text, 0, NULL) : NULL;
		CHECK(!json || parsed);
		json_decref(parsed);
		pipe_log_close(&pipe);
	}
	free(value);
}

/* Write until lines are lost, and check that each call returns. */
static void check_full(struct pipe *pipe) {
	char value[1000];
	memset(value, 'x', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	for (int i = 0; i < 2000; i++) {
		postern__log(&pipe->log, POSTERN__LOG_SERVING, "line",
				postern__log_text("value", value));
	}
	CHECK(pipe->log.lost_count > 0);
	uint64_t lost = pipe->log.lost_count;
	(void)pipe_read(pipe);
	(void)pipe_read(pipe);
	postern__log(&pipe->log, POSTERN__LOG_SERVING, "room again");
	char expected[64];
	(void)snprintf(expected, sizeof expected,
			"could not be written event=log_lost count=%llu",
			(unsigned long long)lost);
	const char *text = pipe_read(pipe);
	CHECK_CONTAINS(text, expected);
	CHECK_CONTAINS(text, "room again");
	CHECK_INT(pipe->log.lost_count, 0);
}

static void full_pipe(void) {
	struct pipe pipe;
	pipe_log_open(&pipe, false, POSTERN_LEVEL_INFO);
	check_full(&pipe);
	int flags = fcntl(pipe.write_fd, F_GETFL);
	CHECK(!(flags & O_NONBLOCK)); /* the file description is shared */
	pipe_log_close(&pipe);
}

static void full_socket(void) {
	struct pipe pipe;
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
		abort();
	}
	pipe.read_fd = fds[0];
	pipe.write_fd = fds[1];
	(void)fcntl(pipe.read_fd, F_SETFL, O_NONBLOCK);
	postern__log_init(&pipe.log, pipe.write_fd, false, POSTERN_LEVEL_INFO,
			&fixed);
	check_full(&pipe);
	pipe_log_close(&pipe);
}

/* A terminal accepts a part of a line and then blocks. */
static void full_terminal(void) {
	struct pipe pipe;
	int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	const char *name = ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0
							   ? ptsname(ours)
							   : NULL;
	pipe.read_fd = ours;
	pipe.write_fd = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
	if (!CHECK(pipe.write_fd >= 0)) {
		return;
	}
	(void)fcntl(pipe.read_fd, F_SETFL, O_NONBLOCK);
	postern__log_init(&pipe.log, pipe.write_fd, false, POSTERN_LEVEL_INFO,
			&fixed);
	(void)alarm(30);
	check_full(&pipe);
	(void)alarm(0);
	pipe_log_close(&pipe);
}

static void closed_reader(void) {
	(void)signal(SIGPIPE, SIG_IGN);
	struct pipe pipe;
	pipe_log_open(&pipe, false, POSTERN_LEVEL_INFO);
	(void)close(pipe.read_fd);
	pipe.read_fd = -1;
	postern__log(&pipe.log, POSTERN__LOG_SERVING, "line");
	CHECK_INT(pipe.log.lost_count, 1);
	pipe_log_close(&pipe);

	struct postern__log log;
	postern__log_init(&log, -1, false, POSTERN_LEVEL_INFO, &fixed);
	postern__log(&log, POSTERN__LOG_SERVING, "line");
	CHECK_INT(log.lost_count, 1);
	postern__log_finish(&log);
}

static void full_disk(void) {
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	if (!CHECK(fd >= 0)) {
		return;
	}
	struct postern__log log;
	postern__log_init(&log, fd, false, POSTERN_LEVEL_INFO, &fixed);
	postern__log(&log, POSTERN__LOG_SERVING, "line");
	postern__log(&log, POSTERN__LOG_SERVING, "line");
	CHECK_INT(log.lost_count, 2);
	postern__log_finish(&log);
	(void)close(fd);
}

static void limit(void) {
	struct postern__log_limit bucket = { .burst = 3, .interval_ms = 100 };
	uint64_t suppressed = 99;
	for (int i = 0; i < 3; i++) {
		CHECK(postern__log_limit_take(&bucket, 1000, &suppressed));
		CHECK_INT(suppressed, 0);
	}
	CHECK(!postern__log_limit_take(&bucket, 1000, &suppressed));
	CHECK(!postern__log_limit_take(&bucket, 1099, &suppressed));
	CHECK(postern__log_limit_take(&bucket, 1100, &suppressed));
	CHECK_INT(suppressed, 2);
	CHECK(!postern__log_limit_take(&bucket, 1100, &suppressed));
	/* After a long time the bucket has the burst, no more. */
	for (int i = 0; i < 3; i++) {
		CHECK(postern__log_limit_take(&bucket, 1000000, &suppressed));
	}
	CHECK(!postern__log_limit_take(&bucket, 1000000, &suppressed));
}

static const struct tap_case cases[] = {
	{ "text lines quote values with special characters", text_lines },
	{ "JSON lines are valid JSON", json_lines },
	{ "lines below the level are not written", below_the_level },
	{ "no value can break a line or control a terminal", hostile_values },
	{ "a long line is cut and stays valid JSON", long_lines },
	{ "a full pipe loses lines, never blocks, and the loss is logged",
			full_pipe },
	{ "a full socket loses lines, never blocks, and the loss is logged",
			full_socket },
	{ "a full terminal loses lines, never blocks, and the loss is logged",
			full_terminal },
	{ "a closed stderr counts lost lines", closed_reader },
	{ "a full disk counts lost lines", full_disk },
	{ "a rate limit allows a burst and then one line in each interval", limit },
};

TAP_MAIN(cases)
