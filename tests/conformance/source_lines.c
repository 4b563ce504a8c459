/* SPDX-License-Identifier: MIT */

/*
 * The source `lines` on a file as a target. A line counts as acknowledged when
 * the source counts it as done.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/source_target.h"
#include "source/kinds.h"
#include "source/lines.h"
#include "support/temp_dir.h"

#define LINE_MAX_COUNT 4000

static struct {
	struct temp_dir folder;
	char path[512];
	uint64_t ends[LINE_MAX_COUNT]; /* of the lines that are not blank */
	size_t count;
	uint64_t size;
	uint64_t done;
	struct postern_source *source;
} file;

static void append(const char *text) {
	int fd = open(file.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	size_t len = strlen(text);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len) {
		abort();
	}
	(void)close(fd);
	file.size += len;
}

static void open_file(void) {
	temp_dir_create(&file.folder);
	file.count = 0;
	file.size = 0;
	file.done = 0;
	file.source = NULL;
	temp_dir_name(&file.folder, "", "lines", file.path, sizeof file.path);
	append("\n"); /* a blank line is none */
}

static void close_file(void) {
	temp_dir_destroy(&file.folder);
}

static void put(const char *id) {
	char text[256];
	(void)snprintf(text, sizeof text,
			"{\"specversion\":\"1.0\",\"id\":\"%s\",\"source\":\"test\","
			"\"type\":\"t\",\"data\":\"%s\"}\n",
			id, id);
	append(text);
	file.ends[file.count++] = file.size;
}

static void put_bad(void) {
	append("not an event\n");
	file.ends[file.count++] = file.size;
}

static size_t acknowledged(bool exists) {
	size_t count = 0;
	if (exists) {
		file.done = postern__lines_done(file.source);
	}
	for (size_t i = 0; i < file.count; i++) {
		count += file.ends[i] <= file.done;
	}
	return count;
}

static struct postern_source *create(void) {
	const struct postern_source_setting settings[] = {
		{ "file", file.path },
	};
	struct postern_error error;
	struct postern_source *source;
	if (postern__source_create(postern__source_kind_find("lines"), settings, 1,
				&source, &error)) {
		abort();
	}
	file.source = source;
	return source;
}

const struct source_target source_target = {
	.name = "lines",
	.open = open_file,
	.close = close_file,
	.create = create,
	.put = put,
	.put_bad = put_bad,
	.acknowledged = acknowledged,
	.pauses = true,
};
