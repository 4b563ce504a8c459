/* SPDX-License-Identifier: MIT */
/*
 * Where a configuration is found, which files are refused, and secrets in files
 * of their own. Each case has a directory of its own.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "server/config.h"
#include "server/webhook_source.h"
#include "support/temp_dir.h"
#include "tap.h"
#include "webhook/webhook.h"

static struct temp_dir directory;
static char path[100];  /* of the configuration file */
static char other[100]; /* of a second file */

static void directory_create(void) {
	temp_dir_create(&directory);
	temp_dir_name(&directory, "", "f.yaml", path, sizeof path);
	temp_dir_name(&directory, "", "other", other, sizeof other);
}

static void directory_destroy(void) {
	temp_dir_destroy(&directory);
}

static void make_file(const char *name, const char *text, mode_t mode) {
	FILE *file = fopen(name, "w");
	if (!file || fputs(text, file) < 0 || fclose(file) != 0 ||
			chmod(name, mode) != 0) {
		abort();
	}
}

static char *const no_environment[] = { NULL };

static void check_refused(const struct postern__config_input *input, int code,
		const char *expected) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	int r = postern__config_load(input, &config, &error);
	if (r == POSTERN_OK) {
		FAIL("not refused; expected \"%s\"", expected);
		postern__config_destroy(config);
		return;
	}
	CHECK_INT(r, code);
	CHECK_CONTAINS(error.text, expected);
	CHECK_INT(postern__config_load(input, &config, NULL), code);
}

/* Checks the name and the number of workers of the file that is found. */
static void check_found(const struct postern__config_input *input,
		const char *name, unsigned workers) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	if (!CHECK_OK(postern__config_load(input, &config, &error), &error)) {
		return;
	}
	CHECK_STR(postern__config_name(config), name);
	CHECK_INT(postern__config_global(config)->workers, workers);
	postern__config_destroy(config);
}

static void search_order(void) {
	directory_create();
	char variable[160];
	const char *const search[] = { path, other, NULL };
	const char *const search_other[] = { "/nonexistent/dir/f", other, NULL };
	const char *const search_nothing[] = { "/nonexistent", "/etc/passwd/x",
		NULL };
	char *const environment[] = { variable, NULL };
	struct postern__config_input input = { .environment = environment,
		.search = search };
	make_file(path, "workers: 11", 0600);
	make_file(other, "workers: 22", 0600);

	(void)snprintf(variable, sizeof variable, "POSTERN_CONFIG=");
	check_found(&input, path, 11);
	input.search = search_other;
	check_found(&input, other, 22);
	(void)snprintf(variable, sizeof variable, "POSTERN_CONFIG=%s", path);
	check_found(&input, path, 11);
	input.path = other;
	check_found(&input, other, 22);
	input.path = NULL;
	input.environment = no_environment;
	input.search = search_nothing;
	check_found(&input, NULL, 4);
	directory_destroy();
}

static void own_places(void) {
	char before[4096];
	directory_create();
	struct postern__config_input input = { .environment = no_environment };
	temp_dir_name(&directory, "", "postern.yaml", path, sizeof path);
	make_file(path, "workers: 33", 0600);
	if (CHECK(getcwd(before, sizeof before)) &&
			CHECK_INT(chdir(directory.path), 0)) {
		check_found(&input, "postern.yaml", 33);
		CHECK_INT(chdir(before), 0);
	}
	directory_destroy();
}

static void process_environment(void) {
	directory_create();
	const char *const search[] = { path, NULL };
	struct postern__config_input input = { .search = search };
	CHECK_INT(setenv("POSTERN_WORKERS", "44", 1), 0);
	CHECK_INT(unsetenv("POSTERN_CONFIG"), 0);
	check_found(&input, NULL, 44);
	CHECK_INT(unsetenv("POSTERN_WORKERS"), 0);
	check_found(&input, NULL, 4);
	directory_destroy();
}

static void missing_files(void) {
	directory_create();
	char variable[] = "POSTERN_CONFIG=/nonexistent/f";
	char *const environment[] = { variable, NULL };
	struct postern__config_input input = { .environment = no_environment,
		.path = "/nonexistent/f" };
	check_refused(&input, POSTERN_E_NOTFOUND, "no file '/nonexistent/f'");
	input.path = NULL;
	input.environment = environment;
	check_refused(&input, POSTERN_E_NOTFOUND,
			"$POSTERN_CONFIG: no file '/nonexistent/f'");
	input.path = "";
	check_refused(&input, POSTERN_E_NOTFOUND, "no file ''");
	directory_destroy();
}

static void no_files(void) {
	directory_create();
	struct postern__config_input input = { .environment = no_environment,
		.path = directory.path };
	check_refused(&input, POSTERN_E_INVALID, "is a directory");
	input.path = "/dev/zero";
	check_refused(&input, POSTERN_E_INVALID, "is not a regular file");
	input.path = path;
	CHECK_INT(mkfifo(path, 0600), 0);
	check_refused(&input, POSTERN_E_INVALID, "is not a regular file");
	CHECK_INT(unlink(path), 0);
	CHECK_INT(symlink(path, path), 0);
	check_refused(&input, POSTERN_E_INVALID, "cannot open");
	CHECK_INT(unlink(path), 0);

	struct sockaddr_un address = { .sun_family = AF_UNIX };
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	check_refused(&input, POSTERN_E_INVALID, "cannot open");
	(void)close(fd);
	CHECK_INT(unlink(path), 0);

	/* A file that is found in the search but cannot be read is an error. */
	const char *const search[] = { path, other, NULL };
	input.path = NULL;
	input.search = search;
	CHECK_INT(mkdir(path, 0700), 0);
	make_file(other, "workers: 5", 0600);
	check_refused(&input, POSTERN_E_INVALID, "is a directory");
	directory_destroy();
}

/* Root can read everything, so run as nobody for a moment. */
static void unreadable_files(void) {
	bool root = geteuid() == 0;
	directory_create();
	struct postern__config_input input = { .environment = no_environment,
		.path = path };
	make_file(path, "workers: 5", 0);
	CHECK_INT(chmod(directory.path, 0711), 0);
	if (root) {
		CHECK_INT(seteuid(65534), 0);
	}
	check_refused(&input, POSTERN_E_INVALID, "Permission denied");
	if (root) {
		CHECK_INT(seteuid(0), 0);
	}
	directory_destroy();
}

static void long_files(void) {
	directory_create();
	struct postern__config_input input = { .environment = no_environment,
		.path = path };
	make_file(path, "workers: 5\n", 0600);
	FILE *file = fopen(path, "a");
	if (CHECK(file != NULL)) {
		for (size_t i = 11; i < POSTERN__CONFIG_BYTES_MAX; i++) {
			(void)fputc('#', file);
		}
		CHECK_INT(fflush(file), 0);
		check_found(&input, path, 5);
		(void)fputc('#', file);
		CHECK_INT(fclose(file), 0);
		check_refused(&input, POSTERN_E_INVALID, "exceeds 1048576 bytes");
	}
	directory_destroy();
}

static void errors_name_the_file(void) {
	directory_create();
	char expected[200];
	struct postern__config_input input = { .environment = no_environment,
		.path = path };
	make_file(path, "workers: 5\nlease: 5m\n", 0600);
	(void)snprintf(expected, sizeof expected,
			"%s:2:1: 'lease' is not allowed at the top level", path);
	check_refused(&input, POSTERN_E_INVALID, expected);
	directory_destroy();
}

/* Load a configuration with `store_file: other`. */
static void check_secret(const char *text, mode_t mode, const char *store,
		const char *refused) {
	char yaml[200];
	struct postern__config_input input = { .environment = no_environment,
		.path = path };
	(void)snprintf(yaml, sizeof yaml, "store_file: %s\n", other);
	make_file(path, yaml, 0644);
	make_file(other, text, mode);
	if (refused) {
		check_refused(&input, POSTERN_E_INVALID, refused);
		check_refused(&input, POSTERN_E_INVALID, "f.yaml:1:13: store_file: ");
		return;
	}
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_STR(postern__config_store(config, 0)->values.store, store);
		postern__config_destroy(config);
	}
}

static void secret_files(void) {
	directory_create();
	check_secret("sqlite:/a.db", 0600, "sqlite:/a.db", NULL);
	check_secret("sqlite:/a b.db\n", 0640, "sqlite:/a b.db", NULL);
	check_secret("memory:\r\n", 0400, "memory:", NULL);
	check_secret("sqlite:a.db", 0644, NULL,
			"is world-readable (mode "
			"0644): chmod o-r");
	check_secret("", 0600, NULL, "must contain one line");
	check_secret("\n", 0600, NULL, "must contain one line");
	check_secret("memory:\nmemory:\n", 0600, NULL, "must contain one line");
	check_secret("memory:\n\n", 0600, NULL, "must contain one line");
	check_secret("nonsense", 0600, NULL,
			"the file does not contain a store URL");
	char text[5000];
	memset(text, 'a', sizeof text);
	text[sizeof text - 1] = '\0';
	check_secret(text, 0600, NULL, "exceeds 4096 bytes");

	FILE *file = fopen(other, "w");
	if (CHECK(file != NULL)) {
		(void)fwrite("mem\0ory:", 1, 8, file);
		CHECK_INT(fclose(file), 0);
		struct postern__config_input input = { .environment = no_environment,
			.path = path };
		check_refused(&input, POSTERN_E_INVALID, "contains a zero byte");
		CHECK_INT(unlink(other), 0);
		CHECK_INT(symlink("/etc/passwd", other), 0);
		check_refused(&input, POSTERN_E_INVALID, "is a symbolic link");
		CHECK_INT(unlink(other), 0);
		CHECK_INT(mkfifo(other, 0600), 0);
		check_refused(&input, POSTERN_E_INVALID, "is not a regular file");
	}
	directory_destroy();
}

static void secrets_and_precedence(void) {
	directory_create();
	char variable[200];
	char *const environment[] = { variable, NULL };
	struct postern__config_flag flags[] = { { "store-file", other },
		{ "store", "memory:" } };
	struct postern__config_input input = { .environment = environment,
		.path = path };
	make_file(path, "store: sqlite:of-the-file.db\n", 0644);
	make_file(other, "sqlite:/of-the-secret.db\n", 0600);
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };

	(void)snprintf(variable, sizeof variable, "POSTERN_STORE_FILE=%s", other);
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_STR(postern__config_store(config, 0)->values.store,
				"sqlite:/of-the-secret.db");
		postern__config_destroy(config);
	}
	(void)snprintf(variable, sizeof variable, "POSTERN_STORE=memory:");
	input.flags = flags;
	input.flag_count = 1;
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_STR(postern__config_store(config, 0)->values.store,
				"sqlite:/of-the-secret.db");
		postern__config_destroy(config);
	}
	input.flag_count = 2;
	check_refused(&input, POSTERN_E_INVALID,
			"--store: 'store' and 'store_file' cannot be combined");
	directory_destroy();
}

static void demo(void) {
	directory_create();
	postern__webhook_source_register();
	CHECK_OK(postern__webhook_register(NULL), NULL);
	char *const environment[] = { (char[]){ "POSTERN_CONFIG=/nonexistent" },
		(char[]){ "POSTERN_WORKERS=2" }, NULL };
	const struct postern__config_flag flag = { "store", "memory:" };
	struct postern__config_input input = { .environment = environment,
		.demo = true,
		.path = path };
	check_refused(&input, POSTERN_E_INVALID,
			"--demo has its own configuration: remove -c");
	input.path = NULL;
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_STR(postern__config_name(config), "(demo)");
		CHECK_STR(postern__config_store(config, 0)->values.store,
				"sqlite:postern-demo.db");
		CHECK_INT(postern__config_global(config)->workers, 2);
		CHECK_STR(postern__config_channel(config, 0)->name, "demo");
		CHECK_INT(postern__config_channel(config, 0)->handler_count, 6);
		CHECK_INT(postern__config_channel_count(config), 2);
		postern__config_destroy(config);
	}
	input.flags = &flag;
	input.flag_count = 1;
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_STR(postern__config_store(config, 0)->values.store, "memory:");
		postern__config_destroy(config);
	}
	/* Webhooks need to know where the server is. */
	const struct postern__config_flag nowhere = { "listen", "none" };
	input.flags = &nowhere;
	if (CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		CHECK_INT(postern__config_channel_count(config), 1);
		postern__config_destroy(config);
	}
	directory_destroy();
}

static const struct tap_case cases[] = {
	{ "the file is -c, then the variable's, then the first that exists",
			search_order },
	{ "./postern.yaml is found", own_places },
	{ "the environment of the process is used unless another is given",
			process_environment },
	{ "a file that is named must exist", missing_files },
	{ "a path that is no regular file is refused without waiting", no_files },
	{ "a file without read permission is refused", unreadable_files },
	{ "a file over 1 MiB is refused", long_files },
	{ "an error starts with the path, the line and the column",
			errors_name_the_file },
	{ "a secret is one line in a file that others cannot read", secret_files },
	{ "a secret's file has the precedence of the option itself",
			secrets_and_precedence },
	{ "the demo needs no file and accepts flags and variables", demo },
};

TAP_MAIN(cases)
