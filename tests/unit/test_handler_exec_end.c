/* SPDX-License-Identifier: MIT */
/*
 * The exec kind and programs that do not end by themselves: timeouts, stops,
 * processes they leave behind, and a server that dies first.
 */
#include "handler_exec.h"

#include <sys/resource.h>

/* A deadline that leaves the shell time to start, even on a busy machine. */
#define SOON_MS 1000

static void times_out(void) {
	char path[PATH_MAX];
	struct postern_run run;
	struct postern_handler *handler =
			make_shell("sleep 999 & echo $! > \"$0\"; echo last words >&2; "
					   "sleep 999",
					file_path("slow", path));
	fake_init(&run, "hello", 5);
	run.deadline_ms = fake_now_ms() + SOON_MS;
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "timed out after ");
	CHECK_CONTAINS(run.outcome.reason, " s: last words");
	CHECK(is_gone_soon(read_pid(path)));
	CHECK(!has_children());
	handler->ops->destroy(handler);
}

static void too_late(void) {
	struct postern_run run;
	struct postern_handler *handler =
			make_shell("trap 'exit 0' TERM; while :; do sleep 0.01; done",
					NULL);
	fake_init(&run, "hello", 5);
	run.deadline_ms = fake_now_ms() + 200;
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "timed out");
	/* The deadline has passed already: the program is not started. */
	fake_init(&run, "hello", 5);
	run.deadline_ms = 1;
	fake_run(handler, &run);
	CHECK_CONTAINS(run.outcome.reason, "timed out after 0.0 s");
	handler->ops->destroy(handler);
}

static void will_not_end(void) {
	char path[PATH_MAX];
	struct postern_run run;
	struct postern_handler *handler =
			make_shell("trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > \"$0\"; "
					   "while :; do sleep 0.1; done' \"$0\" & while :; do "
					   "sleep 0.1; done",
					file_path("stubborn", path));
	fake_init(&run, "hello", 5);
	run.deadline_ms = fake_now_ms() + SOON_MS;
	int64_t start = fake_now_ms();
	fake_run(handler, &run);
	int64_t took = fake_now_ms() - start;
	CHECK(took >= SOON_MS + POSTERN__EXEC_GRACE_MS);
	CHECK(took < SOON_MS + POSTERN__EXEC_GRACE_MS + 5000);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "timed out after ");
	CHECK(is_gone_soon(read_pid(path)));
	CHECK(!has_children());
	handler->ops->destroy(handler);
}

static void terminates_group(void) {
	char path[PATH_MAX];
	struct postern_run run;
	/* The shell ends at once, the process it waits for prints something. */
	struct postern_handler *handler = make_shell(
			"sh -c 'trap \"sleep 0.2; echo goodbye >&2; exit\" TERM; "
			"echo $$ > \"$0\"; while :; do sleep 0.01; done' \"$0\" & wait",
			file_path("polite", path));
	fake_init(&run, "hello", 5);
	run.deadline_ms = fake_now_ms() + SOON_MS;
	int64_t start = fake_now_ms();
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, " s: goodbye");
	CHECK(fake_now_ms() - start < SOON_MS + POSTERN__EXEC_GRACE_MS);
	CHECK(is_gone_soon(read_pid(path)));
	handler->ops->destroy(handler);
}

static void leftovers(void) {
	char path[PATH_MAX];
	struct postern_run run;
	struct postern_handler *handler =
			make_shell("sleep 999 & echo $! > \"$0\"; exit 0",
					file_path("left", path));
	fake_init(&run, "hello", 5);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK(is_gone_soon(read_pid(path)));
	handler->ops->destroy(handler);
}

static void escaped(void) {
	char path[PATH_MAX];
	struct postern_run run;
	/* The process has our pipes, writes all the time, and left the group. */
	struct postern_handler *handler =
			make_shell("setsid sh -c 'echo $$ > \"$0\"; exec yes >&2' \"$0\" & "
					   "while ! [ -s \"$0\" ]; do sleep 0.01; done; exit 7",
					file_path("escaped", path));
	fake_init(&run, "hello", 5);
	int64_t start = fake_now_ms();
	fake_run(handler, &run);
	CHECK(fake_now_ms() - start < 10000);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	(void)kill(read_pid(path), SIGKILL);
	handler->ops->destroy(handler);

	/* After a timeout the run waits no longer than the grace. */
	handler = make_shell("setsid sleep 30 & echo $! > \"$0\"; sleep 999",
			file_path("escaped2", path));
	fake_init(&run, "hello", 5);
	run.deadline_ms = fake_now_ms() + SOON_MS;
	start = fake_now_ms();
	fake_run(handler, &run);
	CHECK(fake_now_ms() - start < 10000);
	CHECK_CONTAINS(run.outcome.reason, "timed out");
	(void)kill(read_pid(path), SIGKILL);
	handler->ops->destroy(handler);
}

/* A run on a thread of its own, cancelled from this one. */
struct job {
	struct postern_handler *handler;
	struct postern_run run;
	pthread_t thread;
};

static void *job_main(void *context) {
	struct job *job = context;
	fake_start(job->handler, &job->run);
	return NULL;
}

static void job_start(struct job *job, struct postern_handler *handler) {
	job->handler = handler;
	fake_init(&job->run, "hello", 5);
	CHECK(pthread_create(&job->thread, NULL, job_main, job) == 0);
}

static void cancel_stop(void) {
	static const char *const scripts[] = {
		"echo $$ > \"$0\"; sleep 999",
		"trap 'exit 0' TERM; echo $$ > \"$0\"; while :; do sleep 0.01; done",
	};
	for (size_t i = 0; i < 2; i++) {
		char path[PATH_MAX];
		struct job job;
		file_path("cancelled", path);
		(void)unlink(path);
		struct postern_handler *handler = make_shell(scripts[i], path);
		job_start(&job, handler);
		pid_t pid = read_pid(path);
		handler->ops->cancel(handler, &job.run, POSTERN_CANCEL_STOP);
		handler->ops->cancel(handler, &job.run, POSTERN_CANCEL_TIMEOUT);
		(void)pthread_join(job.thread, NULL);
		CHECK_INT(job.run.return_count, 1);
		CHECK_INT(job.run.finish_count, 0);
		CHECK(!is_alive(pid));
		/* A late cancel has no effect. */
		handler->ops->cancel(handler, &job.run, POSTERN_CANCEL_TIMEOUT);
		handler->ops->cancel(handler, &job.run, POSTERN_CANCEL_STOP);
		handler->ops->destroy(handler);
	}
	CHECK(!has_children());
}

static void cancel_timeout(void) {
	char path[PATH_MAX];
	struct job job;
	struct postern_handler *handler = make_shell("echo $$ > \"$0\"; sleep 999",
			file_path("overdue", path));
	job_start(&job, handler);
	pid_t pid = read_pid(path);
	handler->ops->cancel(handler, &job.run, POSTERN_CANCEL_TIMEOUT);
	(void)pthread_join(job.thread, NULL);
	CHECK_INT(job.run.finish_count, 1);
	CHECK_INT(job.run.return_count, 0);
	CHECK_INT(job.run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(job.run.outcome.reason, "timed out");
	CHECK(!is_alive(pid));
	handler->ops->destroy(handler);
}

static void cancel_first(void) {
	char path[PATH_MAX];
	struct postern_run run;
	struct postern_handler *handler =
			make_shell("echo > \"$0\"", file_path("started", path));
	fake_init(&run, "hello", 5);
	handler->ops->cancel(handler, &run, POSTERN_CANCEL_STOP);
	fake_start(handler, &run);
	CHECK_INT(run.return_count, 1);
	CHECK_INT(run.finish_count, 0);
	CHECK(access(path, F_OK) < 0);
	handler->ops->destroy(handler);
}

static void server_dies(void) {
	char path[PATH_MAX];
	struct postern_handler *handler = make_shell("echo $$ > \"$0\"; sleep 999",
			file_path("orphan", path));
	pid_t server = fork();
	if (server == 0) {
		struct postern_run run;
		fake_init(&run, "hello", 5);
		fake_start(handler, &run);
		_exit(0);
	}
	pid_t program = read_pid(path);
	CHECK(is_alive(program));
	CHECK(kill(server, SIGKILL) == 0);
	CHECK(waitpid(server, NULL, 0) == server);
	CHECK(is_gone_soon(program));
	handler->ops->destroy(handler);
}

static void many_at_once(void) {
	enum { JOB_COUNT = 8, ROUND_COUNT = 6 };
	static struct job jobs[JOB_COUNT];
	static const char *const scripts[] = { "cat > /dev/null", "exit 75",
		"sleep 999", "echo x >&2; exit 65" };
	struct postern_handler *handlers[4];
	int count = count_fds();
	for (size_t i = 0; i < 4; i++) {
		handlers[i] = make_shell(scripts[i], NULL);
	}
	for (int round = 0; round < ROUND_COUNT; round++) {
		for (size_t i = 0; i < JOB_COUNT; i++) {
			job_start(&jobs[i], handlers[i % 4]);
		}
		for (size_t i = 0; i < JOB_COUNT; i++) {
			handlers[2]->ops->cancel(handlers[i % 4], &jobs[i].run,
					i < 4 ? POSTERN_CANCEL_STOP : POSTERN_CANCEL_TIMEOUT);
			if (i % 4 == 2) {
				/* As the box does: repeated until the run has ended. */
				while (jobs[i].run.finish_count + jobs[i].run.return_count ==
						0) {
					handlers[2]->ops->cancel(handlers[2], &jobs[i].run,
							POSTERN_CANCEL_TIMEOUT);
					pause_ms(1);
				}
			}
		}
		for (size_t i = 0; i < JOB_COUNT; i++) {
			(void)pthread_join(jobs[i].thread, NULL);
			CHECK_INT(jobs[i].run.finish_count + jobs[i].run.return_count, 1);
		}
	}
	for (size_t i = 0; i < 4; i++) {
		handlers[i]->ops->destroy(handlers[i]);
	}
	CHECK_INT(count_fds(), count);
	CHECK(!has_children());
}

#define CROWD_COUNT 8

static void ends_at_file_limit(void) {
	static struct postern_run runs[CROWD_COUNT];
	char path[CROWD_COUNT][PATH_MAX];
	struct postern_handler *handlers[CROWD_COUNT];
	struct rlimit before;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	for (int i = 0; i < CROWD_COUNT; i++) {
		char name[16];
		(void)snprintf(name, sizeof name, "crowd%d", i);
		handlers[i] = make_shell("echo $$ > \"$0\"; exec sleep 999",
				file_path(name, path[i]));
		fake_init(&runs[i], "", 0);
		handlers[i]->ops->start(handlers[i], &runs[i]);
	}
	pid_t pids[CROWD_COUNT];
	for (int i = 0; i < CROWD_COUNT; i++) {
		pids[i] = read_pid(path[i]);
	}
	/* Each waits for three descriptors, and the thread for one. */
	struct rlimit low = { 3 * CROWD_COUNT + 1, before.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
	for (int i = 0; i < CROWD_COUNT; i++) {
		(void)kill(pids[i], SIGTERM);
	}
	int ended = 0;
	for (int tries = 0; ended < CROWD_COUNT && tries < 1000; tries++) {
		pause_ms(10);
		ended = 0;
		for (int i = 0; i < CROWD_COUNT; i++) {
			ended += runs[i].finish_count;
		}
	}
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK_INT(ended, CROWD_COUNT);
	for (int i = 0; i < CROWD_COUNT; i++) {
		handlers[i]->ops->destroy(handlers[i]);
	}
	CHECK(!has_children());
}

static const struct tap_case cases[] = {
	{ "a timeout ends the program and its children", times_out },
	{ "an exit code after the timeout does not count", too_late },
	{ "a program that ignores SIGTERM is killed a second later", will_not_end },
	{ "the whole group gets SIGTERM before SIGKILL", terminates_group },
	{ "processes that a program leaves in its group are killed", leftovers },
	{ "a pipe held by a process outside the group does not block the run",
			escaped },
	{ "a run cancelled by a stop is returned", cancel_stop },
	{ "a run cancelled by a timeout is a retry", cancel_timeout },
	{ "a run cancelled before its start starts no program", cancel_first },
	{ "a program does not outlive the server", server_dies },
	{ "parallel runs leak no file and no child process", many_at_once },
	{ "as many programs as the file limit allows are seen to end",
			ends_at_file_limit },
};

int main(int argc, char **argv) {
	return exec_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
