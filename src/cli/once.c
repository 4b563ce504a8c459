/* SPDX-License-Identifier: MIT */
/*
 * `postern once`: a command that runs once for a handler and a key.
 *
 * The command runs in a child, under a lease that a thread renews. The store is
 * opened for each change of the marker and closed again. What the command did
 * is not known to be done before the marker says so: if this process dies, the
 * lease ends, and the next one runs the command again.
 */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <postern/guard.h>
#include <postern/handler.h>
#include <postern/sys/clock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/marks.h"
#include "cli/once_child.h"
#include "cli/out.h"
#include "cli/reply.h"

#define LEASE_MS_DEFAULT ((int64_t)30000)
/* Between two attempts to begin, or to record that it was done. */
#define PAUSE_MS_MIN ((int64_t)50)
#define PAUSE_MS_MAX ((int64_t)1000)

#define EXIT_CANNOT_RUN 126
#define EXIT_NO_PROGRAM 127

struct once {
	struct postern__cli *cli;
	const char *handler;
	const char *key;
	uint64_t fence;
	int64_t lease_ms;
	int64_t wait_ms;
	unsigned long duplicate_exit;
	char lease[POSTERN__DURATION_TEXT_MAX];
	int64_t until_ms; /* monotonic: the end of the lease, at the latest */

	pthread_t thread; /* renews */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool stopping;
	bool lost; /* the lease ended before it was renewed */
};

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

static void sleep_ms(int64_t ms) {
	struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

/* Change the marker under the fence of this process; *status_out is 409 if the
   lease was lost. */
static int change(struct once *once, const char *verb, const char *lease,
		int *status_out, json_t **out) {
	const struct postern__marks_order order = {
		.verb = verb,
		.handler = once->handler,
		.key = once->key,
		.fence = once->fence,
		.lease = lease,
	};
	int64_t at_ms = now_ms(); /* the lease begins later, in the store */
	int r = postern__marks_change(once->cli, &order, status_out, out);
	if (r == POSTERN__EXIT_OK && lease && *status_out == 200) {
		once->until_ms = at_ms + once->lease_ms;
	}
	return r;
}

static int print_busy(const struct once *once, int64_t left_ms) {
	char left[POSTERN__DURATION_TEXT_MAX];
	postern__duration_format((left_ms + 999) / 1000 * 1000, left);
	postern__err_print("once: '%s' is doing '%s' now; its lease ends in %s "
					   "unless it is renewed",
			once->handler, once->key, left);
	return POSTERN__EXIT_UNREACHABLE;
}

/* A duplicate is no news in a crontab; a person may wonder. */
static int print_duplicate(const struct once *once) {
	if (isatty(STDERR_FILENO)) {
		postern__note_print("'%s' has done '%s' before", once->handler,
				once->key);
	}
	return (int)once->duplicate_exit;
}

/* Become the one who does it; *begun_out. Else the exit status is returned. */
static int begin(struct once *once, bool *begun_out) {
	int64_t wait_until_ms = now_ms() + once->wait_ms;
	int64_t pause_ms = PAUSE_MS_MIN;
	for (;;) {
		json_t *answer = NULL;
		int status;
		int r = change(once, "begin", once->lease, &status, &answer);
		if (r) {
			return r;
		}
		const char *result = postern__reply_text(answer, "result");
		bool busy = result && strcmp(result, "busy") == 0;
		int64_t left_ms = (int64_t)postern__reply_count(answer, "left_ms");
		*begun_out = result && strcmp(result, "first") == 0;
		json_decref(answer);
		if (!busy) {
			return *begun_out ? POSTERN__EXIT_OK : print_duplicate(once);
		}
		int64_t rest_ms = wait_until_ms - now_ms();
		if (rest_ms <= 0) {
			return print_busy(once, left_ms);
		}
		sleep_ms(pause_ms < rest_ms ? pause_ms : rest_ms);
		pause_ms = 2 * pause_ms < PAUSE_MS_MAX ? 2 * pause_ms : PAUSE_MS_MAX;
	}
}

static void print_lost(const struct once *once) {
	postern__err_print("once: warning: the lease of '%s' for '%s' was lost "
					   "while the command was running; another process may "
					   "run it at the same time",
			once->handler, once->key);
}

/* Renew the lease. Returns after how long to do it again. */
static int64_t renew(struct once *once) {
	json_t *answer = NULL;
	int status = 0;
	int r = change(once, "extend", once->lease, &status, &answer);
	json_decref(answer);
	if (r == POSTERN__EXIT_OK && status == 200) {
		return once->lease_ms / 3;
	}
	once->lost = r == POSTERN__EXIT_OK || now_ms() >= once->until_ms;
	if (once->lost) {
		print_lost(once);
	}
	return once->lease_ms / 10;
}

static void *renew_loop(void *context) {
	struct once *once = context;
	int64_t due_ms = now_ms() + once->lease_ms / 3;
	(void)pthread_mutex_lock(&once->mutex);
	while (!once->stopping && !once->lost) {
		int64_t left_ms = due_ms - now_ms();
		if (left_ms > 0) {
			postern__wait(&once->wake, &once->mutex, left_ms);
			continue;
		}
		(void)pthread_mutex_unlock(&once->mutex);
		int64_t after_ms = renew(once);
		due_ms = now_ms() + after_ms;
		(void)pthread_mutex_lock(&once->mutex);
	}
	(void)pthread_mutex_unlock(&once->mutex);
	return NULL;
}

static void stop_renewing(struct once *once) {
	(void)pthread_mutex_lock(&once->mutex);
	once->stopping = true;
	(void)pthread_cond_broadcast(&once->wake);
	(void)pthread_mutex_unlock(&once->mutex);
	(void)pthread_join(once->thread, NULL);
}

/* If this fails, the lease ends by itself. */
static void release(struct once *once) {
	json_t *answer = NULL;
	int status;
	(void)change(once, "release", NULL, &status, &answer);
	json_decref(answer);
}

/* The command succeeded: record it, as long as the lease lasts. */
static int finish(struct once *once) {
	json_t *answer = NULL;
	int status = 0;
	int r;
	do {
		r = change(once, "finish", NULL, &status, &answer);
	} while (r == POSTERN__EXIT_UNREACHABLE && now_ms() < once->until_ms &&
			 (sleep_ms(PAUSE_MS_MAX), true));
	json_decref(answer);
	if (r) {
		postern__err_print("once: the command succeeded, but that cannot be "
						   "recorded: it will run again");
		return r;
	}
	if (status != 200) {
		postern__err_print("once: the command succeeded, but its lease was "
						   "lost: another process may have run it, too");
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

static int fail_start(struct once *once, const char *program, int number) {
	postern__err_print("once: cannot run '%s': %s", program, strerror(number));
	release(once);
	return number == ENOENT ? EXIT_NO_PROGRAM : EXIT_CANNOT_RUN;
}

static int run_command(struct once *once, char *const *argv) {
	char fence[24];
	pid_t pid;
	(void)snprintf(fence, sizeof fence, "%" PRIu64, once->fence);
	int number = 0;
	if (setenv("POSTERN_HANDLER", once->handler, 1) ||
			setenv("POSTERN_KEY", once->key, 1) ||
			setenv("POSTERN_FENCE", fence, 1)) {
		number = errno;
	}
	if (number == 0) {
		number = postern__once_start(argv, &pid);
	}
	if (number) {
		return fail_start(once, argv[0], number);
	}
	bool renews = pthread_create(&once->thread, NULL, renew_loop, once) == 0;
	if (!renews) {
		postern__err_print("once: warning: cannot start a thread: the lease "
						   "is not renewed");
	}
	int status = postern__once_wait(pid);
	if (renews) {
		stop_renewing(once);
	}
	if (status == 0) {
		return finish(once);
	}
	release(once);
	return status;
}

/* Read a duration; *out is not changed without the flag. */
static int read_duration(const struct postern__cli *cli, const char *flag,
		int64_t min_ms, int64_t *out) {
	struct postern_error error;
	const char *text = postern__args_value(&cli->args, flag);
	if (!text) {
		return POSTERN__EXIT_OK;
	}
	if (postern__duration_parse(text, out, &error)) {
		return postern__cli_usage(cli, "--%s: %s", flag, error.text);
	}
	if (*out < min_ms || *out > POSTERN_DURATION_MS_MAX) {
		return postern__cli_usage(cli, "--%s: '%s' is not %s to 3650d", flag,
				text, min_ms ? "1s" : "0");
	}
	return POSTERN__EXIT_OK;
}

static int read_flags(struct once *once) {
	int r = postern__marks_duplicate_exit(once->cli, &once->duplicate_exit);
	if (r == POSTERN__EXIT_OK) {
		r = read_duration(once->cli, "lease", POSTERN_GUARD_LEASE_MS_MIN,
				&once->lease_ms);
	}
	if (r == POSTERN__EXIT_OK) {
		r = read_duration(once->cli, "wait", 0, &once->wait_ms);
	}
	postern__duration_format(once->lease_ms, once->lease);
	return r;
}

/* The command and its arguments, yours to free(); they are borrowed. */
static char **command_of(const struct postern__cli *cli) {
	size_t count = postern__args_operand_count(&cli->args);
	char **argv = calloc(count, sizeof *argv);
	for (size_t i = 2; argv && i < count; i++) {
		/* execvp() does not change what it is given. */
		argv[i - 2] = (char *)(uintptr_t)postern__args_operand(&cli->args, i);
	}
	return argv;
}

static int run(struct once *once, char *const *argv) {
	bool begun = false;
	int r = postern__marks_begin(once->cli);
	if (r == POSTERN__EXIT_OK) {
		r = begin(once, &begun);
	}
	return begun ? run_command(once, argv) : r;
}

int postern__command_once(struct postern__cli *cli) {
	struct once once = {
		.cli = cli,
		.handler = postern__args_operand(&cli->args, 0),
		.key = postern__args_operand(&cli->args, 1),
		.fence = postern__marks_fence(),
		.lease_ms = LEASE_MS_DEFAULT,
		.mutex = PTHREAD_MUTEX_INITIALIZER,
	};
	if (cli->args.operands_before > 2) {
		/* Its flags would be taken for those of 'once'. */
		return postern__cli_usage(cli,
				"put '--' before the command: postern once HANDLER KEY -- "
				"CMD...");
	}
	int r = read_flags(&once);
	if (r) {
		return r;
	}
	char **argv = command_of(cli);
	if (!argv || postern__wait_init(&once.wake)) {
		free(argv);
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	r = run(&once, argv);
	(void)pthread_cond_destroy(&once.wake);
	free(argv);
	return r;
}
