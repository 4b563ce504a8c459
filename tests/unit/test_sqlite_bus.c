/* SPDX-License-Identifier: MIT */

/*
 * What a SIGBUS handler does about an index of SQLite that is truncated: it has
 * its recorded length again, empty, and at last more than that.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"
#include "store/store.h"
#include "tap.h"

#define REGION SQLITE_INDEX_REGION_LEN

struct index {
	char path[64];
	int fd;
	int slot;
};

static void index_init(struct index *index, off_t len) {
	(void)snprintf(index->path, sizeof index->path, "/tmp/test-bus-XXXXXX");
	index->fd = mkstemp(index->path);
	CHECK(index->fd >= 0);
	CHECK_INT(ftruncate(index->fd, len), 0);
	CHECK_INT(pwrite(index->fd, "head", 4, 0), 4);
	index->slot = postern__sqlite_bus_add(index->path, len);
	CHECK(index->slot >= 0);
}

static void index_finish(struct index *index) {
	postern__sqlite_bus_remove(index->slot);
	(void)close(index->fd);
	(void)unlink(index->path);
}

/* It has the length, and nothing in it. */
static void check_empty(const struct index *index, off_t len) {
	char head[4] = "full";
	struct stat status;
	CHECK_INT(fstat(index->fd, &status), 0);
	CHECK_INT(status.st_size, len);
	CHECK_INT(pread(index->fd, head, 4, 0), 4);
	CHECK(memcmp(head, "\0\0\0\0", 4) == 0);
}

static void truncated(void) {
	struct index index;
	index_init(&index, REGION);
	CHECK(!postern__sqlite_repair_indexes());
	CHECK_INT(postern__sqlite_bus_repairs(index.slot), 0);
	CHECK_INT(ftruncate(index.fd, REGION / 2), 0);
	CHECK(postern__sqlite_repair_indexes());
	check_empty(&index, REGION);
	/* Before and after. */
	CHECK_INT(postern__sqlite_bus_repairs(index.slot), 2);
	index_finish(&index);
}

static void grown(void) {
	struct index index;
	index_init(&index, REGION);
	/* Repairs do not help: the missing page is behind the recorded length. */
	CHECK(!postern__sqlite_repair_indexes());
	postern__sqlite_grow_indexes();
	check_empty(&index, 2 * REGION);
	CHECK_INT(postern__sqlite_bus_repairs(index.slot), 2);
	postern__sqlite_grow_indexes();
	check_empty(&index, 3 * REGION);
	/* A length that is known to be shorter changes nothing. */
	postern__sqlite_bus_set(index.slot, 2 * REGION);
	CHECK_INT(ftruncate(index.fd, 0), 0);
	CHECK(postern__sqlite_repair_indexes());
	check_empty(&index, 3 * REGION);
	index_finish(&index);
}

static void removed(void) {
	struct index index;
	struct stat status;
	index_init(&index, REGION);
	postern__sqlite_bus_remove(index.slot);
	CHECK_INT(ftruncate(index.fd, 0), 0);
	CHECK(!postern__sqlite_repair_indexes());
	postern__sqlite_grow_indexes();
	CHECK_INT(fstat(index.fd, &status), 0);
	CHECK_INT(status.st_size, 0);
	index_finish(&index);
}

static const struct tap_case cases[] = {
	{ "a truncated index is emptied and has its length again", truncated },
	{ "an index that grew unnoticed becomes longer", grown },
	{ "an index that is closed is left alone", removed },
};

int main(int argc, char **argv) {
	postern__sqlite_bus_catch();
	return tap_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
