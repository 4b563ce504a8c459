/* SPDX-License-Identifier: MIT */
/*
 * The exec kind: only argv reaches exec, no shell is involved. children.c runs
 * the programs; this file prepares their environment and classifies their ends.
 *
 * A run needs no worker while its program runs. Any thread cancels it through
 * the run's data slot, guarded by the handler's mutex: NULL before and after
 * the run, the job during it, and a mark if the cancel came first.
 */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/container.h"
#include "base/fail.h"
#include "handler/children.h"
#include "handler/exec_env.h"
#include "handler/kinds.h"

#include <postern/sys/option.h>

/* Exit codes of sysexits.h and of qmail by which programs that receive mail
   report a permanent error. */
#define EXIT_DATA_ERROR 65
#define EXIT_PERMANENT 100
/* EX_UNAVAILABLE: what the program needs does not work, whatever the
   message. */
#define EXIT_UNAVAILABLE 69

#define EXPLANATION_LEN_MAX (PATH_MAX + 40)

/* Programs of one handler at a time. */
#define CONCURRENCY_DEFAULT 16

struct exec_handler {
	struct postern_handler base;
	pthread_mutex_t mutex;
	bool has_children;           /* since the first run; with the mutex */
	struct postern__arena arena; /* argv */
	char **argv;                 /* ends with NULL */
	struct postern__exec_env env;
	const char *directory; /* NULL: "/" */
	/* Who runs it; NULL: the user of this process. */
	const struct postern__process_user *user;
};

struct job {
	struct postern__child child;
	struct exec_handler *handler;
	struct postern_run *run;
	atomic_int cancel;           /* POSTERN__PROCESS_GO, … */
	struct postern__arena arena; /* the environment */
	char **env;
};

/* Set instead of a job that does not exist yet. A deadline needs no mark: the
   run checks the time itself. */
static char mark_stop;

static const struct postern_handler_ops exec_ops;

static struct exec_handler *from_base(struct postern_handler *handler) {
	assert(handler->ops == &exec_ops);
	return container_of(handler, struct exec_handler, base);
}

static size_t trimmed_len(const char *text, size_t len) {
	while (len > 0 && strchr(" \t\r\n", text[len - 1])) {
		len--;
	}
	return len;
}

/* Why the program failed, in its own words: the last line of stderr that is not
   blank, or the beginning of stdout; *len_out may be 0. */
static const char *own_words(const struct postern__process_result *result,
		size_t *len_out) {
	size_t end = trimmed_len(result->tail, result->tail_len);
	if (end == 0) {
		*len_out = trimmed_len(result->output, result->output_len);
		return result->output;
	}
	size_t start = end;
	while (start > 0 && result->tail[start - 1] != '\n') {
		start--;
	}
	*len_out = end - start;
	return result->tail + start;
}

/* A NUL would end the reason, and programs may write any byte. */
static void mask_zeroes(char *bytes, size_t len) {
	for (size_t i = 0; i < len; i++) {
		bytes[i] = bytes[i] ? bytes[i] : '?';
	}
}

static void classify_exit(const struct postern__process_result *result,
		struct postern_outcome *outcome) {
	enum postern_outcome_kind kind = POSTERN_RETRY;
	size_t len;
	const char *line = own_words(result, &len);

	if (result->number == 0) {
		outcome->kind = POSTERN_DONE;
		return;
	}
	if (result->number == EXIT_DATA_ERROR || result->number == EXIT_PERMANENT) {
		kind = POSTERN_POISON;
	} else if (result->number == EXIT_UNAVAILABLE) {
		kind = POSTERN_HOLD;
	}
	if (len > 0) {
		postern__outcome_setf(outcome, kind, "%.*s", (int)len, line);
	} else {
		postern__outcome_setf(outcome, kind, "exit code %d", result->number);
	}
}

static void classify_signal(const struct postern__process_result *result,
		struct postern_outcome *outcome) {
	const char *name = sigabbrev_np(result->number);
	char number[24];
	size_t len;
	const char *line = own_words(result, &len);

	if (name) {
		(void)snprintf(number, sizeof number, "SIG%s", name);
	} else {
		(void)snprintf(number, sizeof number, "signal %d", result->number);
	}
	postern__outcome_setf(outcome, POSTERN_RETRY, "killed by %s%s%.*s", number,
			len > 0 ? ": " : "", (int)len, line);
}

static void classify_timeout(const struct postern__process_result *result,
		struct postern_outcome *outcome) {
	size_t len;
	const char *line = own_words(result, &len);

	postern__outcome_setf(outcome, POSTERN_RETRY,
			"timed out after %" PRId64 ".%" PRId64 " s%s%.*s",
			result->elapsed_ms / 1000, result->elapsed_ms % 1000 / 100,
			len > 0 ? ": " : "", (int)len, line);
}

/* Why exec failed although the program itself is fine; "" if that is not
   known. */
static void explain_exec(const char *program, int number,
		char out[static EXPLANATION_LEN_MAX]) {
	char interpreter[PATH_MAX];
	out[0] = '\0';
	if (access(program, X_OK) < 0) {
		return;
	}
	bool script = postern__exec_interpreter(program, interpreter,
						  sizeof interpreter) == POSTERN_OK;
	if (script && access(interpreter, X_OK) < 0) {
		(void)snprintf(out, EXPLANATION_LEN_MAX, " (its interpreter '%s')",
				interpreter);
	} else if (number == ENOENT) {
		(void)snprintf(out, EXPLANATION_LEN_MAX,
				" (the interpreter it names is missing)");
	} else if (number == ENOEXEC) {
		(void)snprintf(out, EXPLANATION_LEN_MAX,
				" (a script without a '#!' line?)");
	}
}

/* A program that is missing or cannot be executed is missing for every message;
   so is whatever keeps this node from preparing a process. */
static void classify_not_started(const struct exec_handler *self,
		const struct postern__process_result *result,
		struct postern_outcome *outcome) {
	enum postern_outcome_kind kind = postern__exec_outcome_of(result->number);
	char text[EXPLANATION_LEN_MAX + PATH_MAX];
	char explanation[EXPLANATION_LEN_MAX];

	if (strcmp(result->step, "exec") == 0) {
		explain_exec(self->argv[0], result->number, explanation);
		(void)snprintf(text, sizeof text, "cannot run '%s': %s%s",
				self->argv[0], strerror(result->number), explanation);
	} else {
		(void)snprintf(text, sizeof text, "cannot prepare to run '%s': %s: %s",
				self->argv[0], result->step, strerror(result->number));
	}
	if (kind == POSTERN_SNOOZE) {
		postern__outcome_unavailable(outcome, "%s", text);
	} else {
		postern__outcome_setf(outcome, kind, "%s", text);
	}
}

/* Classify the end of the program. False: the lease is to be returned. */
static bool classify_end(const struct exec_handler *self,
		struct postern__process_result *result,
		struct postern_outcome *outcome) {
	mask_zeroes(result->tail, result->tail_len);
	mask_zeroes(result->output, result->output_len);
	switch (result->end) {
	case POSTERN__PROCESS_EXITED: classify_exit(result, outcome); return true;
	case POSTERN__PROCESS_KILLED: classify_signal(result, outcome); return true;
	case POSTERN__PROCESS_TIMED_OUT:
		/* Even with exit code 0: the deadline has passed. */
		classify_timeout(result, outcome);
		return true;
	case POSTERN__PROCESS_STOPPED:
		/* Even with exit code 0: many programs exit with 0 on SIGTERM, whether
		   or not they have finished. */
		return false;
	case POSTERN__PROCESS_NOT_RUN:
		classify_not_started(self, result, outcome);
		return true;
	case POSTERN__PROCESS_NO_MEANS:
		postern__outcome_unavailable(outcome, "cannot start '%s': %s: %s",
				self->argv[0], result->step, strerror(result->number));
		return true;
	case POSTERN__PROCESS_LOST: break;
	}
	postern__outcome_setf(outcome, POSTERN_RETRY,
			"exit code of '%s' unknown: this process ignores SIGCHLD or reaps "
			"all children",
			self->argv[0]);
	return true;
}

static void job_destroy(struct job *job) {
	postern__arena_finish(&job->arena);
	free(job);
}

static struct job *job_create(struct exec_handler *self,
		struct postern_run *run) {
	struct job *job = calloc(1, sizeof *job);
	if (!job) {
		return NULL;
	}
	job->handler = self;
	job->run = run;
	postern__arena_init(&job->arena);
	atomic_init(&job->cancel, POSTERN__PROCESS_GO);
	job->env = postern__exec_env_make(&self->env, postern_run_message(run),
			postern_run_delivery(run), &job->arena);
	if (!job->env) {
		job_destroy(job);
		return NULL;
	}
	return job;
}

/* From here on other threads can reach the job, or no longer. */
static void set_active_job(struct exec_handler *self, struct postern_run *run,
		struct job *job) {
	(void)pthread_mutex_lock(&self->mutex);
	if (job && postern_run_data(run) == &mark_stop) {
		atomic_store(&job->cancel, POSTERN__PROCESS_STOP);
	}
	postern_run_set_data(run, job);
	(void)pthread_mutex_unlock(&self->mutex);
}

/* On the thread of the children. */
static void job_ended(struct postern__child *child) {
	struct job *job = container_of(child, struct job, child);
	struct postern_run *run = job->run;
	struct postern_outcome outcome = { .kind = POSTERN_DONE };

	bool finished = classify_end(job->handler, &child->result, &outcome);
	set_active_job(job->handler, run, NULL);
	job_destroy(job);
	if (finished) {
		postern_run_finish(run, &outcome);
	} else {
		postern_run_return(run);
	}
}

/* The first run needs the thread of the children. */
static int acquire_children(struct exec_handler *self,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&self->mutex);
	int r = self->has_children ? POSTERN_OK : postern__children_acquire(error);
	self->has_children = r == POSTERN_OK;
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

/* Start the program; false: the outcome is why not. */
static bool start_program(struct exec_handler *self, struct postern_run *run,
		struct postern_outcome *outcome) {
	struct postern_error error;

	int r = postern__exec_check(self->argv[0], &error);
	if (r == POSTERN_E_UNAVAILABLE) {
		postern__outcome_unavailable(outcome, "%s", error.text);
		return false;
	}
	if (r != POSTERN_OK) {
		postern__outcome_setf(outcome, POSTERN_HOLD, "%s", error.text);
		return false;
	}
	if (acquire_children(self, &error) != POSTERN_OK) {
		postern__outcome_unavailable(outcome, "%s", error.text);
		return false;
	}
	struct job *job = job_create(self, run);
	if (!job) {
		postern__outcome_unavailable(outcome, "out of memory");
		return false;
	}
	const struct postern_message *message = postern_run_message(run);
	job->child.ended = job_ended;
	job->child.order = (struct postern__process_order){
		.argv = self->argv,
		.envp = job->env,
		.directory = self->directory,
		.user = self->user,
		.input = message->body,
		.input_len = message->body_len,
		.run = run,
		.cancel = &job->cancel,
	};
	set_active_job(self, run, job);
	postern__children_start(&job->child);
	return true;
}

static void exec_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct postern_outcome outcome = { .kind = POSTERN_DONE };
	if (!start_program(from_base(handler), run, &outcome)) {
		postern_run_finish(run, &outcome);
	}
}

static void exec_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	struct exec_handler *self = from_base(handler);
	bool stop = why == POSTERN_CANCEL_STOP;

	(void)pthread_mutex_lock(&self->mutex);
	void *data = postern_run_data(run);
	if (!data && stop) {
		postern_run_set_data(run, &mark_stop);
	} else if (data && data != &mark_stop) {
		struct job *job = data;
		int go = POSTERN__PROCESS_GO;
		/* The first reason is kept. */
		(void)atomic_compare_exchange_strong(&job->cancel, &go,
				stop ? POSTERN__PROCESS_STOP : POSTERN__PROCESS_TIME_OUT);
		postern__children_wake();
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

static void exec_destroy(struct postern_handler *handler) {
	struct exec_handler *self = from_base(handler);
	if (self->has_children) {
		postern__children_release();
	}
	(void)pthread_mutex_destroy(&self->mutex);
	postern__arena_finish(&self->arena);
	free(self);
}

static const struct postern_handler_ops exec_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = false,
	.start = exec_start,
	.cancel = exec_cancel,
	.destroy = exec_destroy,
};

static int check_args(const char *const *argv, size_t argc,
		struct postern_error *error) {
	size_t len = 0;

	if (argc == 0 || !argv || !argv[0] || !argv[0][0]) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the program is missing");
	}
	if (argv[0][0] != '/') {
		return postern__fail(error, POSTERN_E_INVALID,
				"the program '%.80s' must have an absolute path", argv[0]);
	}
	if (argc > POSTERN__EXEC_ARG_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%zu arguments are too many; the maximum is %d", argc,
				POSTERN__EXEC_ARG_COUNT_MAX);
	}
	for (size_t i = 0; i < argc; i++) {
		if (!argv[i]) {
			return postern__fail(error, POSTERN_E_INVALID,
					"argument %zu is missing", i);
		}
		len += strnlen(argv[i], POSTERN__EXEC_ARGS_LEN_MAX) + 1;
	}
	if (len > POSTERN__EXEC_ARGS_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the arguments exceed %d bytes", POSTERN__EXEC_ARGS_LEN_MAX);
	}
	return POSTERN_OK;
}

static int check_program(const char *program, struct postern_error *error) {
	/* A missing program may be installed later. */
	struct postern_error found;
	if (postern__exec_check(program, &found) == POSTERN_E_INVALID) {
		return postern__fail(error, POSTERN_E_INVALID, "%s", found.text);
	}
	return POSTERN_OK;
}

static int check_settings(const struct postern__exec_settings *settings,
		struct postern_error *error) {
	int r = check_args(settings->argv, settings->argc, error);
	return r == POSTERN_OK ? postern__exec_env_check(settings->env,
									 settings->env_count, error)
						   : r;
}

static char **copy_args(const struct postern__exec_settings *settings,
		struct postern__arena *arena) {
	char **argv = postern__arena_array(arena, settings->argc + 1, sizeof *argv);
	for (size_t i = 0; argv && i < settings->argc; i++) {
		argv[i] = postern__arena_strdup(arena, settings->argv[i]);
		argv = argv[i] ? argv : NULL;
	}
	return argv;
}

/* Copy what the settings have, and look up what they name. */
static int fill(struct exec_handler *self,
		const struct postern__exec_settings *settings,
		struct postern_error *error) {
	const char *home = NULL;
	if (settings->user) {
		int r = postern__exec_user_find(settings->user, &self->arena,
				&self->user, &home, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	self->argv = copy_args(settings, &self->arena);
	self->directory =
			settings->cwd ? postern__arena_strdup(&self->arena, settings->cwd)
						  : NULL;
	if (!self->argv || (settings->cwd && !self->directory) ||
			!postern__exec_env_init(&self->env, settings->env,
					settings->env_count, settings->user, home, &self->arena)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return POSTERN_OK;
}

int postern__exec_create(const struct postern__exec_settings *settings,
		struct postern_handler **out, struct postern_error *error) {
	int r = check_settings(settings, error);
	if (r == POSTERN_OK) {
		r = check_program(settings->argv[0], error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	struct exec_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &exec_ops;
	(void)pthread_mutex_init(&self->mutex,
			NULL); /* no attributes: cannot fail */
	postern__arena_init(&self->arena);
	r = fill(self, settings, error);
	if (r != POSTERN_OK) {
		exec_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}

static int validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	static const struct postern__exec_settings none;
	return check_settings(setup->settings ? setup->settings : &none, error);
}

static int create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	return postern__exec_create(setup->settings, out, error);
}

static int check_directory(const char *cwd, struct postern_error *error) {
	struct stat status;
	return !cwd || (stat(cwd, &status) == 0 && S_ISDIR(status.st_mode))
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOTFOUND,
							 "cwd: there is no directory '%.200s'", cwd);
}

static int check(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct postern__exec_settings *settings = setup->settings;
	const char *program = settings->argv[0];
	char interpreter[PATH_MAX];
	int r = postern__exec_check(program, error);
	if (r == POSTERN_OK &&
			postern__exec_interpreter(program, interpreter,
					sizeof interpreter) == POSTERN_OK &&
			access(interpreter, X_OK) < 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"cannot run '%s': its interpreter '%s': %s", program,
				interpreter, strerror(errno));
	}
	if (r == POSTERN_OK) {
		r = check_directory(settings->cwd, error);
	}
	/* A program that is not safe to run is refused with the handler. */
	return r == POSTERN_E_NOTFOUND ? POSTERN_E_INVALID : POSTERN_OK;
}

static const struct postern_option options[] = {
	{
			.name = "exec",
			.type = POSTERN_OPTION_TEXTS,
			.offset = offsetof(struct postern__exec_settings, argv),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_HIDDEN,
			.min = 1,
			.max = POSTERN__EXEC_ARG_COUNT_MAX,
			.help = "a program and its arguments; no shell",
			.form = "[\"/bin/prog\", \"arg\"]",
	},
	{
			.name = "env",
			.type = POSTERN_OPTION_TEXTS,
			.offset = offsetof(struct postern__exec_settings, env),
			.flags = POSTERN_OPTION_BESIDE | POSTERN_OPTION_PAIRS |
					 POSTERN_OPTION_SECRET,
			.max = POSTERN__EXEC_ENV_COUNT_MAX,
			.help = "variables of the program",
			.form = "{NAME: value}",
	},
	{
			.name = "cwd",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__exec_settings, cwd),
			.flags = POSTERN_OPTION_BESIDE | POSTERN_OPTION_PATH,
			.help = "the directory in which the program starts",
			.form = "DIRECTORY",
	},
	{
			.name = "user",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__exec_settings, user),
			.flags = POSTERN_OPTION_BESIDE,
			.help = "who runs the program, of a server that runs as root",
			.form = "USER",
	},
};

const struct postern_handler_kind postern__exec_kind = {
	.size = sizeof postern__exec_kind,
	.name = "exec",
	.help = "a program of this machine",
	.options = options,
	.option_count = sizeof options / sizeof options[0],
	.settings_size = sizeof(struct postern__exec_settings),
	.asynchronous = true,
	.concurrency = CONCURRENCY_DEFAULT,
	.validate = validate,
	.create = create,
	.check = check,
};
