/* SPDX-License-Identifier: MIT */
/*
 * The exec kind with real programs: the shell, and this program itself, which
 * prints its environment when it is started as `… --child MODE`.
 */
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/utf8.h"
#include "handler_exec.h"

extern char **environ;

static char self_path[PATH_MAX];

static void print_args(int argc, char **argv) {
	for (int i = 0; i < argc; i++) {
		(void)dprintf(2, "%s|", argv[i]);
	}
}

static void print_env(void) {
	for (char **pair = environ; *pair; pair++) {
		(void)dprintf(2, "%s|", *pair);
	}
}

static void print_fds(void) {
	for (int fd = 0; fd < 1024; fd++) {
		char path[64];
		char target[64] = "";
		(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof target - 1) >= 0) {
			target[strcspn(target, ":")] = '\0';
			(void)dprintf(2, "%d=%s ", fd, target);
		}
	}
}

/* Prints a line of /proc/self/status as "name:value ". */
static void print_status(const char *name) {
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, name, strlen(name)) == 0) {
			line[strcspn(line, "\n")] = '\0';
			(void)dprintf(2, "%s%s ", name,
					line + strlen(name) + strspn(line + strlen(name), "\t "));
		}
	}
	if (file) {
		(void)fclose(file);
	}
}

/*
 * The number of ignored signals. The C library reserves two, which
 * posix_spawn() leaves ignored and a program cannot reset, for example under
 * make.
 */
static void print_ignored(void) {
	int count = 0;
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action) == 0 &&
				action.sa_handler == SIG_IGN) {
			count++;
		}
	}
	(void)dprintf(2, "ignored:%d ", count);
}

static void print_state(void) {
	char cwd[PATH_MAX];
	struct rlimit core;
	int death = 0;
	mode_t mask = umask(0);
	(void)getrlimit(RLIMIT_CORE, &core);
	(void)prctl(PR_GET_PDEATHSIG, &death);
	(void)dprintf(2, "leader:%d cwd:%s umask:%03o core:%d death:%d ",
			getpid() == getsid(0) && getpid() == getpgrp(),
			getcwd(cwd, sizeof cwd), mask, core.rlim_max == 0, death);
	print_status("SigBlk:");
	print_ignored();
	print_status("NoNewPrivs:");
}

static int child_main(int argc, char **argv) {
	const char *mode = argv[2];
	if (strcmp(mode, "args") == 0) {
		print_args(argc - 3, argv + 3);
	} else if (strcmp(mode, "env") == 0) {
		print_env();
	} else if (strcmp(mode, "fds") == 0) {
		print_fds();
	} else if (strcmp(mode, "state") == 0) {
		print_state();
	}
	_exit(1);
}

static void run_shell(const char *script, struct postern_run *run) {
	struct postern_handler *handler = make_shell(script, NULL);
	fake_init(run, "hello", 5);
	fake_run(handler, run);
	handler->ops->destroy(handler);
}

static void run_child(const char *mode, struct postern_run *run) {
	const char *argv[] = { self_path, "--child", mode };
	struct postern_handler *handler = make(argv, 3);
	fake_run(handler, run);
	handler->ops->destroy(handler);
}

static void write_file(const char *path, const void *bytes, size_t len,
		mode_t mode) {
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_INT(write(fd, bytes, len), len);
	CHECK(fchmod(fd, mode) == 0);
	CHECK(close(fd) == 0);
}

static void exit_codes(void) {
	static const struct {
		int code;
		enum postern_outcome_kind kind;
	} rows[] = {
		{ 0, POSTERN_DONE },
		{ 1, POSTERN_RETRY },
		{ 2, POSTERN_RETRY },
		{ 64, POSTERN_RETRY },
		{ 65, POSTERN_POISON },
		{ 66, POSTERN_RETRY },
		{ 69, POSTERN_HOLD },
		{ 75, POSTERN_RETRY },
		{ 99, POSTERN_RETRY },
		{ 100, POSTERN_POISON },
		{ 111, POSTERN_RETRY },
		{ 126, POSTERN_RETRY },
		{ 127, POSTERN_RETRY },
		{ 255, POSTERN_RETRY },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char script[32];
		char reason[32] = "";
		struct postern_run run;
		(void)snprintf(script, sizeof script, "exit %d", rows[i].code);
		if (rows[i].code != 0) {
			(void)snprintf(reason, sizeof reason, "exit code %d", rows[i].code);
		}
		run_shell(script, &run);
		CHECK_INT(run.outcome.kind, rows[i].kind);
		CHECK_STR(run.outcome.reason, reason);
	}
}

static void reason_is_last_line(void) {
	struct postern_run run;
	run_shell("echo one >&2; echo two >&2; echo out; exit 3", &run);
	CHECK_STR(run.outcome.reason, "two");
	run_shell("printf 'no such order \\r\\n\\n  \\n' >&2; exit 65", &run);
	CHECK_STR(run.outcome.reason, "no such order");
	CHECK_INT(run.outcome.kind, POSTERN_POISON);
	run_shell("printf unfinished >&2; exit 1", &run);
	CHECK_STR(run.outcome.reason, "unfinished");
	run_shell("echo only on stdout; exit 1", &run);
	CHECK_STR(run.outcome.reason, "only on stdout");
	run_shell("echo; echo ' ' >&2; exit 1", &run);
	CHECK_STR(run.outcome.reason, "exit code 1");
	/* However much it is, and whatever it is made of. */
	run_shell("printf 'begin\\000'; head -c 30000000 /dev/zero; exit 1", &run);
	CHECK(strncmp(run.outcome.reason, "begin???", 8) == 0);
	CHECK_INT(strlen(run.outcome.reason), POSTERN_REASON_LEN_MAX);
	run_shell("echo asked to end; kill -TERM $$", &run);
	CHECK_STR(run.outcome.reason, "killed by SIGTERM: asked to end");
	run_shell("echo a warning >&2; exit 0", &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK_STR(run.outcome.reason, "");
}

static void reason_is_clean(void) {
	struct postern_run run;
	run_shell("printf 'a\\000b\\033[31m\\377c' >&2; exit 1", &run);
	CHECK_STR(run.outcome.reason, "a?b?[31m\xef\xbf\xbd"
								  "c");
	/* One line, longer than the captured part. */
	run_shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1", &run);
	CHECK_INT(strlen(run.outcome.reason), POSTERN_REASON_LEN_MAX);
	/* Cut between characters, wherever the captured part starts. */
	run_shell("i=0; while [ $i -lt 9000 ]; do printf '\xe2\x82\xac' >&2; "
			  "i=$((i+1)); done; exit 1",
			&run);
	CHECK(postern__utf8_valid(run.outcome.reason, strlen(run.outcome.reason)));
}

static void signals(void) {
	struct postern_run run;
	run_shell("kill -SEGV $$", &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_STR(run.outcome.reason, "killed by SIGSEGV");
	run_shell("echo bad >&2; kill -KILL $$", &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_STR(run.outcome.reason, "killed by SIGKILL: bad");
	run_shell("kill -40 $$", &run);
	CHECK_STR(run.outcome.reason, "killed by signal 40");
}

static void run_program(const char *path, struct postern_run *run) {
	struct postern_handler *handler = make(&path, 1);
	fake_init(run, "hello", 5);
	fake_run(handler, run);
	handler->ops->destroy(handler);
}

static void not_there(void) {
	char path[PATH_MAX];
	struct postern_run run;
	struct postern_error error;
	file_path("no/such", path);
	CHECK_INT(postern__exec_check(path, &error), POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(error.text, path);
	file_path("nothing", path);
	CHECK_INT(postern__exec_check(path, &error), POSTERN_E_NOTFOUND);
	run_program(path, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_CONTAINS(run.outcome.reason, path);
	CHECK_CONTAINS(run.outcome.reason, "No such file");
	/* The program may be installed later. */
	struct postern_handler *handler = make((const char *[]){ path }, 1);
	write_file(path, "#!/bin/sh\nexit 0\n", 17, 0755);
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK_INT(postern__exec_check(path, &error), POSTERN_OK);
	handler->ops->destroy(handler);
}

static void check_held(const char *path, const char *reason) {
	struct postern_run run;
	run_program(path, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_CONTAINS(run.outcome.reason, path);
	CHECK_CONTAINS(run.outcome.reason, reason);
}

static void not_runnable(void) {
	char path[PATH_MAX];
	char inner[PATH_MAX];
	struct postern_error error;
	file_path("plain", path);
	write_file(path, "#!/bin/sh\n", 10, 0644);
	CHECK_INT(postern__exec_check(path, &error), POSTERN_E_NOTFOUND);
	check_held(path, "not executable");
	file_path("plain/inner", inner);
	CHECK_INT(postern__exec_check(inner, &error), POSTERN_E_NOTFOUND);
	check_held(inner, "Not a directory");
	check_held(directory.path, "not a regular file");

	write_file(path, "#!/no/such/shell -x\n", 20, 0755);
	check_held(path, "No such file or directory (its interpreter "
					 "'/no/such/shell')");
	write_file(path, "#! /etc/passwd\n", 15, 0755);
	check_held(path, "Permission denied (its interpreter '/etc/passwd')");
	write_file(path, "exit 0\n", 7, 0755);
	check_held(path, "#!");
	CHECK(!has_children());
}

static void blames(void) {
	static const struct {
		int number;
		enum postern_outcome_kind kind;
	} rows[] = {
		{ ENOENT, POSTERN_HOLD },
		{ EACCES, POSTERN_HOLD },
		{ ENOEXEC, POSTERN_HOLD },
		{ ENOTDIR, POSTERN_HOLD },
		{ EISDIR, POSTERN_HOLD },
		{ ELOOP, POSTERN_HOLD },
		{ ENAMETOOLONG, POSTERN_HOLD },
		{ EPERM, POSTERN_HOLD },
		{ ELIBBAD, POSTERN_HOLD },
		{ ETXTBSY, POSTERN_HOLD },
		{ ENOMEM, POSTERN_SNOOZE },
		{ EAGAIN, POSTERN_SNOOZE },
		{ EMFILE, POSTERN_SNOOZE },
		{ ENFILE, POSTERN_SNOOZE },
		{ EIO, POSTERN_SNOOZE },
		{ E2BIG, POSTERN_RETRY },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(postern__exec_outcome_of(rows[i].number), rows[i].kind);
	}
}

static void interpreters(void) {
	static const struct {
		const char *text;
		const char *name; /* NULL: none */
	} rows[] = {
		{ "#!/bin/sh\nexit 0\n", "/bin/sh" },
		{ "#! /usr/bin/env python3\n", "/usr/bin/env" },
		{ "#!\t/bin/awk -f", "/bin/awk" },
		{ "#!", "" },
		{ "#", NULL },
		{ "", NULL },
		{ "exit 0\n", NULL },
		{ "\177ELF", NULL },
	};
	char path[PATH_MAX];
	char name[PATH_MAX];
	file_path("script", path);
	CHECK_INT(postern__exec_interpreter(path, name, sizeof name),
			POSTERN_E_NOTFOUND);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		write_file(path, rows[i].text, strlen(rows[i].text), 0755);
		int r = postern__exec_interpreter(path, name, sizeof name);
		CHECK_INT(r, rows[i].name ? POSTERN_OK : POSTERN_E_NOTFOUND);
		if (r == POSTERN_OK) {
			CHECK_STR(name, rows[i].name);
		}
	}
}

static void check_create_refused(const char *const *argv, size_t argc,
		const char *text) {
	struct postern_handler *handler = NULL;
	struct postern_error error = { 0 };
	const struct postern__exec_settings settings = { .argv = argv,
		.argc = argc };
	CHECK_INT(postern__exec_create(&settings, &handler, &error),
			POSTERN_E_INVALID);
	CHECK(!handler);
	CHECK_CONTAINS(error.text, text);
}

static void bad_args(void) {
	static const char *many[POSTERN__EXEC_ARG_COUNT_MAX + 1];
	char *big = malloc(POSTERN__EXEC_ARGS_LEN_MAX);
	memset(big, 'x', POSTERN__EXEC_ARGS_LEN_MAX - 1);
	big[POSTERN__EXEC_ARGS_LEN_MAX - 1] = '\0';
	for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
		many[i] = "/bin/true";
	}
	check_create_refused(NULL, 0, "the program is missing");
	check_create_refused((const char *[]){ "" }, 1, "the program is missing");
	check_create_refused((const char *[]){ "true" }, 1,
			"'true' must have an absolute path");
	check_create_refused((const char *[]){ "./true" }, 1, "absolute path");
	check_create_refused((const char *[]){ "/bin/true", NULL }, 2,
			"argument 1");
	check_create_refused(many, POSTERN__EXEC_ARG_COUNT_MAX + 1,
			"maximum is 64");
	check_create_refused((const char *[]){ "/bin/true", big }, 2, "exceed");
	free(big);

	struct postern_handler *handler = make(many, POSTERN__EXEC_ARG_COUNT_MAX);
	handler->ops->destroy(handler);
}

static void untrusted(void) {
	char path[PATH_MAX];
	char open_path[PATH_MAX];
	char link_path[PATH_MAX];
	const char *argv[] = { path };
	struct postern_run run;

	file_path("shared", path);
	write_file(path, "#!/bin/sh\n", 10, 0757);
	check_create_refused(argv, 1, "world-writable");
	/* Group-writable is allowed. */
	CHECK(chmod(path, 0775) == 0);
	struct postern_handler *handler = make(argv, 1);
	CHECK(chmod(path, 0777) == 0);
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_CONTAINS(run.outcome.reason, "world-writable");
	handler->ops->destroy(handler);

	file_path("open", open_path);
	CHECK(mkdir(open_path, 0700) == 0);
	CHECK(chmod(open_path, 0777) == 0);
	file_path("open/tool", path);
	write_file(path, "#!/bin/sh\n", 10, 0755);
	check_create_refused(argv, 1, "directory");
	/* A link from a trusted directory makes no difference. */
	file_path("link", link_path);
	CHECK(symlink(path, link_path) == 0);
	check_create_refused((const char *[]){ link_path }, 1, "directory");
	CHECK(chmod(open_path, 01777) == 0);
	handler = make(argv, 1);
	handler->ops->destroy(handler);
}

static void no_files_left(void) {
	struct postern_handler *handler = make_shell("exit 0", NULL);
	struct rlimit before;
	struct postern_run run;
	int count = count_fds();
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	/* Let the run fail at its first file, its second, …, until there are
	   enough. */
	for (unsigned more = 0; more < 12; more++) {
		int lowest = dup(0);
		(void)close(lowest);
		struct rlimit low = { (rlim_t)lowest + more, before.rlim_max };
		fake_init(&run, "hello", 5);
		CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
		fake_run(handler, &run);
		CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
		/* The thread that waits for programs has one until destroy(). */
		int kept = count_fds() - count;
		CHECK(kept == 0 || kept == 1);
		CHECK(!has_children());
		if (run.outcome.kind == POSTERN_DONE) {
			CHECK(more > 5);
			handler->ops->destroy(handler);
			CHECK_INT(count_fds(), count);
			return;
		}
		CHECK_INT(run.outcome.kind, POSTERN_SNOOZE);
		CHECK_INT(run.outcome.delay_ms, POSTERN_HINDERED_DELAY_MS);
		CHECK_CONTAINS(run.outcome.reason, "Too many open files");
	}
	FAIL("a run needs more than twelve files");
	handler->ops->destroy(handler);
}

static void status_reaped(void) {
	struct postern_run run;
	(void)signal(SIGCHLD, SIG_IGN);
	run_shell("exit 0", &run);
	(void)signal(SIGCHLD, SIG_DFL);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "SIGCHLD");
}

static void floods(void) {
	struct postern_run run;
	run_shell("head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2; "
			  "echo >&2; echo the end >&2; exit 4",
			&run);
	CHECK_STR(run.outcome.reason, "the end");
}

static void body_arrives(void) {
	char path[PATH_MAX];
	size_t len = 1024 * 1024 + 3;
	char *body = malloc(len);
	struct postern_run run;
	for (size_t i = 0; i < len; i++) {
		body[i] = (char)(i * 7 + i / 251);
	}
	write_file(file_path("body", path), body, len, 0600);
	struct postern_handler *handler = make_shell("cmp - \"$0\" >&2", path);
	fake_init(&run, body, len);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	body[len - 1]++;
	fake_init(&run, body, len);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	handler->ops->destroy(handler);
	free(body);

	handler = make_shell("[ \"$(wc -c)\" = 0 ]", NULL);
	fake_init(&run, NULL, 0);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);

	/* A pipe, not a socket: it can be opened again. */
	handler = make_shell("[ \"$(cat /dev/stdin)\" = hello ]", NULL);
	fake_init(&run, "hello", 5);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);
}

static void body_unread(void) {
	static const char *const scripts[] = {
		"exit 0",                        /* exits before the body is written */
		"exec <&-; sleep 0.2; exit 0",   /* closed early */
		"head -c 10 >/dev/null; exit 0", /* closed in the middle */
		"sleep 0.2; exit 0",             /* open, but not read */
		"sleep 0.2 & exec <&-; wait $!", /* kept open by another process */
	};
	size_t len = 1024 * 1024;
	char *body = calloc(1, len);
	sigset_t waiting;
	for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
		struct postern_run run;
		struct postern_handler *handler = make_shell(scripts[i], NULL);
		fake_init(&run, body, len);
		fake_run(handler, &run);
		CHECK_INT(run.outcome.kind, POSTERN_DONE);
		handler->ops->destroy(handler);
		CHECK(sigpending(&waiting) == 0);
		CHECK(!sigismember(&waiting, SIGPIPE));
	}
	free(body);
}

#define FIXED_ENV                                                        \
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin|" \
	"LANG=C.UTF-8|"

static void environment(void) {
	struct postern_run run;
	CHECK(setenv("SECRET_OF_THE_SERVER", "1", 1) == 0);
	fake_init(&run, "", 0);
	run_child("env", &run);
	CHECK_STR(run.outcome.reason,
			FIXED_ENV "CE_ID=m-1|CE_SOURCE=orders|CE_TYPE=order.placed|"
					  "POSTERN_HANDLER=mail|POSTERN_CHANNEL=orders|"
					  "POSTERN_ATTEMPT=2|POSTERN_FENCE=5|");

	fake_init(&run, "", 0);
	run.message.subject = "o=1 $(id); `id`";
	run.message.time = "2026-01-02T03:04:05Z";
	run.message.content_type = "text/plain";
	run.message.traceparent = "00-1-2-01"; /* none */
	run.message.correlation_id = "c 1";
	run.message.headers = (struct postern_header[]){
		{ "LD_PRELOAD", "x" },
		{ "X-Shop.id", "() { :; }; a=b" },
		{ "x-shop_ID", "the second of one name" },
		{ "ce-tenant", "" },
	};
	run.message.header_count = 4;
	run.delivery.attempt = UINT32_MAX;
	run.delivery.fence = UINT64_MAX;
	run_child("env", &run);
	CHECK_STR(run.outcome.reason,
			FIXED_ENV "CE_ID=m-1|CE_SOURCE=orders|CE_TYPE=order.placed|"
					  "CE_SUBJECT=o=1 $(id); `id`|"
					  "CE_TIME=2026-01-02T03:04:05Z|"
					  "CE_DATACONTENTTYPE=text/plain|"
					  "CE_CORRELATIONID=c 1|"
					  "POSTERN_HANDLER=mail|POSTERN_CHANNEL=orders|"
					  "POSTERN_ATTEMPT=4294967295|"
					  "POSTERN_FENCE=18446744073709551615|"
					  "CE_HEADER_LD_PRELOAD=x|"
					  "CE_HEADER_X_SHOP_ID=() { :; }; a=b|"
					  "CE_HEADER_CE_TENANT=|");
}

static void traces(void) {
	static const char trace[] = "TRACEPARENT=00-"
								"0af7651916cd43dd8448eb211c80319c-";
	struct postern_run run;
	char first[POSTERN_REASON_LEN_MAX + 1] = "";
	for (int i = 0; i < 2; i++) {
		fake_init(&run, "", 0);
		run.message.traceparent =
				"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
		run_child("env", &run);
		const char *found = strstr(run.outcome.reason, trace);
		CHECK(found && strncmp(found + strlen(trace) + 16, "-01|", 4) == 0);
		CHECK(!strstr(run.outcome.reason, "b7ad6b7169203331"));
		CHECK(strcmp(first, run.outcome.reason) != 0);
		memcpy(first, run.outcome.reason, sizeof first);
	}
}

/* The variables, the directory and the user of a handler. */
static void own_place(void) {
	static const char *const given[] = { "PATH=/opt/bin", "SHOP=a=b c",
		"EMPTY=" };
	const char *argv[] = { self_path, "--child", "env" };
	struct postern__exec_settings settings = {
		.argv = argv,
		.argc = 3,
		.env = given,
		.env_count = 3,
	};
	struct postern_handler *handler = NULL;
	struct postern_error error = { 0 };
	struct postern_run run;
	CHECK_OK(postern__exec_create(&settings, &handler, &error), &error);
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_CONTAINS(run.outcome.reason,
			"PATH=/opt/bin|SHOP=a=b c|EMPTY=|LANG=C.UTF-8|CE_ID=m-1|");
	handler->ops->destroy(handler);

	const char *pwd[] = { "/bin/sh", "-c", "pwd >&2; exit 1" };
	settings = (struct postern__exec_settings){ .argv = pwd,
		.argc = 3,
		.cwd = "/usr/bin" };
	CHECK_OK(postern__exec_create(&settings, &handler, &error), &error);
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_STR(run.outcome.reason, "/usr/bin");
	handler->ops->destroy(handler);

	settings.cwd = "/none";
	CHECK_OK(postern__exec_create(&settings, &handler, &error), &error);
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_STR(run.outcome.reason,
			"cannot prepare to run '/bin/sh': chdir: No such file or "
			"directory");
	handler->ops->destroy(handler);
}

static void bad_place(void) {
	static const struct {
		const char *env;
		const char *cwd;
		const char *user;
		const char *text;
	} rows[] = {
		{ "1A=x", NULL, NULL, "env: '1A' is not a name of a variable" },
		{ "A-B=x", NULL, NULL, "env: 'A-B' is not a name of a variable" },
		{ "=x", NULL, NULL, "env: '' is not a name of a variable" },
		{ "CE_ID=x", NULL, NULL, "env: 'CE_ID' is set by the message" },
		{ "POSTERN_FENCE=1", NULL, NULL, "'POSTERN_FENCE' is set by" },
		{ "TRACEPARENT=1", NULL, NULL, "'TRACEPARENT' is set by" },
		{ "A=x", "/tmp", "no-such-user", "user: there is no user 'no-such-" },
	};
	const char *argv[] = { "/bin/true" };
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct postern__exec_settings settings = {
			.argv = argv,
			.argc = 1,
			.env = &rows[i].env,
			.env_count = 1,
			.cwd = rows[i].cwd,
			.user = rows[i].user,
		};
		struct postern_handler *handler = NULL;
		struct postern_error error = { 0 };
		CHECK_INT(postern__exec_create(&settings, &handler, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, rows[i].text);
	}
}

static void arguments(void) {
	char first[] = "a b";
	const char *argv[] = { self_path, "--child", "args", first, "$HOME", "'",
		"", "*" };
	struct postern_run run;
	struct postern_handler *handler = make(argv, 8);
	first[0] = 'X'; /* the handler has a copy */
	fake_init(&run, "", 0);
	fake_run(handler, &run);
	CHECK_STR(run.outcome.reason, "a b|$HOME|'||*|");
	handler->ops->destroy(handler);
}

static void nothing_inherited(void) {
	struct postern_run run;
	int file = open("/dev/null", O_RDONLY);
	int high = fcntl(file, F_DUPFD, 500);
	CHECK(file >= 0 && high >= 500);
	fake_init(&run, "", 0);
	run_child("fds", &run);
	CHECK_STR(run.outcome.reason, "0=pipe 1=pipe 2=pipe");

	/* A server can be started without a stdin and a stdout. */
	(void)fflush(stdout);
	int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
	int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
	(void)close(0);
	(void)close(1);
	fake_init(&run, "hello", 5);
	run_child("fds", &run);
	CHECK_STR(run.outcome.reason, "0=pipe 1=pipe 2=pipe");
	fake_init(&run, "hello", 5);
	struct postern_handler *handler =
			make_shell("[ \"$(cat)\" = hello ]", NULL);
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);
	CHECK(fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0);
	CHECK(dup2(in, 0) == 0 && dup2(out, 1) == 1);
	(void)close(in);
	(void)close(out);
	(void)close(file);
	(void)close(high);
}

static void on_signal(int number) {
	(void)number;
}

static void state(void) {
	struct postern_run run;
	sigset_t some;
	sigset_t before;
	sigset_t after;
	(void)sigemptyset(&some);
	(void)sigaddset(&some, SIGTERM);
	(void)sigaddset(&some, SIGUSR1);
	(void)pthread_sigmask(SIG_BLOCK, &some, &before);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, on_signal);
	fake_init(&run, "", 0);
	run_child("state", &run);
	CHECK_STR(run.outcome.reason,
			"leader:1 cwd:/ umask:077 core:1 death:9 "
			"SigBlk:0000000000000000 ignored:0 NoNewPrivs:1");
	/* The signal mask of this process is unchanged. */
	(void)pthread_sigmask(SIG_SETMASK, &before, &after);
	CHECK(sigismember(&after, SIGUSR1) && !sigismember(&after, SIGPIPE));
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
}

static void what_it_is(void) {
	struct postern_handler *handler = make_shell("exit 0", NULL);
	CHECK_STR(postern__exec_kind.name, "exec");
	CHECK(!postern__exec_kind.in_process);
	CHECK(!handler->ops->batches);
	CHECK(!handler->transactional);
	handler->ops->destroy(handler);
}

static const struct tap_case cases[] = {
	{ "an exec handler is neither in process nor transactional", what_it_is },
	{ "exit code 0 is done, 65 and 100 are poison, 69 is hold, all else a "
	  "retry",
			exit_codes },
	{ "the last line of stderr is the reason, or the beginning of stdout",
			reason_is_last_line },
	{ "a reason is cleaned and cut", reason_is_clean },
	{ "a program killed by a signal is a retry that names the signal",
			signals },
	{ "a missing program is a hold until it exists", not_there },
	{ "a program that cannot be run is a hold with its path and the reason",
			not_runnable },
	{ "a missing program is the handler's fault, a lack of memory the "
	  "machine's",
			blames },
	{ "the interpreter is the first word of a script", interpreters },
	{ "bad arguments are refused", bad_args },
	{ "a program that everyone can write is refused", untrusted },
	{ "a run without free file descriptors counts no attempt and leaks none",
			no_files_left },
	{ "an exit code that was reaped elsewhere is a retry", status_reaped },
	{ "unlimited output on stdout and stderr is read and dropped", floods },
	{ "the body arrives on stdin byte for byte", body_arrives },
	{ "a program need not read the body", body_unread },
	{ "the environment is exactly as documented", environment },
	{ "each attempt passes on the trace with a span of its own", traces },
	{ "a handler has variables and a directory of its own", own_place },
	{ "bad variables, directories and users are refused", bad_place },
	{ "arguments are passed unchanged, without a shell", arguments },
	{ "no open file is inherited", nothing_inherited },
	{ "session, directory, umask, signals and limits are reset", state },
};

int main(int argc, char **argv) {
	if (argc > 2 && strcmp(argv[1], "--child") == 0) {
		return child_main(argc, argv);
	}
	if (readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0) {
		perror("/proc/self/exe");
		return 1;
	}
	return exec_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
