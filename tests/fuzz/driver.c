/* SPDX-License-Identifier: MIT */

/*
 * Runs a fuzz target over the files of its corpus, in any build and without
 * libFuzzer, so that inputs which once failed are repeated in every test run.
 * Arguments are files and directories; each file is a case with a line of TAP,
 * and a target that aborts ends the program after the file's name was printed.
 */

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "fuzz.h"

static unsigned case_count;

static void run_input(const char *name, const uint8_t *data, size_t len) {
	/* Printed first, in case the target aborts. */
	(void)printf("# %s\n", name);
	(void)fflush(stdout);
	(void)LLVMFuzzerTestOneInput(data, len);
	(void)printf("ok %u - %s\n", ++case_count, name);
}

static void run_file(const char *path, const char *name) {
	FILE *file = fopen(path, "rb");
	struct stat status;
	if (!file || fstat(fileno(file), &status) != 0) {
		(void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	size_t len = (size_t)status.st_size;
	/* The exact size, so that a sanitizer detects a read past the end. */
	uint8_t *data = malloc(len > 0 ? len : 1);
	MUST(data);
	MUST(fread(data, 1, len, file) == len);
	(void)fclose(file);
	run_input(name, data, len);
	free(data);
}

static int is_not_hidden(const struct dirent *entry) {
	return entry->d_name[0] != '.';
}

static void run_directory(const char *path) {
	struct dirent **entries;
	int count = scandir(path, &entries, is_not_hidden, alphasort);
	if (count <= 0) {
		(void)fprintf(stderr, "%s: no corpus\n", path);
		exit(1);
	}
	for (int i = 0; i < count; i++) {
		char name[4096];
		(void)snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
		run_file(name, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		struct stat status;
		if (stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode)) {
			run_directory(argv[i]);
		} else {
			run_file(argv[i], argv[i]);
		}
	}
	run_input("empty input", (const uint8_t *)"", 0);
	(void)printf("1..%u\n", case_count);
	return 0;
}
