/* SPDX-License-Identifier: MIT */

/*
 * Faults by number. The linker (--wrap) replaces the library's allocations,
 * SQLite's configuration its own, and a wrapping store the calls of the store.
 */

#include "crash/faults.h"

#include <postern/sys/store.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fault_store.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

struct fault {
	unsigned long at; /* 0: never */
	atomic_ulong count;
};

static struct fault fault_memory;
static struct fault fault_sqlite;
static struct fault fault_call;
static struct fault fault_call_after;
static atomic_bool memory_armed;
static sqlite3_mem_methods sqlite_memory;
static struct fault_plan plan;

static bool fault_is_due(struct fault *fault) {
	return atomic_fetch_add(&fault->count, 1) + 1 == fault->at;
}

static bool memory_fails(void) {
	return atomic_load(&memory_armed) && fault_is_due(&fault_memory);
}

void *__wrap_malloc(size_t size) {
	return memory_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
	return memory_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
	return memory_fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text) {
	return memory_fails() ? NULL : __real_strdup(text);
}

static void *sqlite_malloc(int size) {
	return fault_is_due(&fault_sqlite) ? NULL : sqlite_memory.xMalloc(size);
}

static void *sqlite_realloc(void *old, int size) {
	return fault_is_due(&fault_sqlite) ? NULL
									   : sqlite_memory.xRealloc(old, size);
}

static void read_fault(const char *variable, struct fault *fault) {
	const char *value = getenv(variable);
	fault->at = value ? strtoul(value, NULL, 10) : 0;
}

static int fail_call(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	(void)context;
	(void)op;
	(void)batch;
	return fault_is_due(&fault_call) ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

static int fail_reply(void *context, enum fault_op op) {
	(void)context;
	(void)op;
	return fault_is_due(&fault_call_after) ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

void faults_begin(void) {
	const char *call = getenv("FAIL_CALL");
	read_fault("FAIL_MEMORY", &fault_memory);
	read_fault("FAIL_SQLITE", &fault_sqlite);
	read_fault("FAIL_CALL",
			call && strstr(call, ":after") ? &fault_call_after : &fault_call);
	plan.decide = fail_call;
	plan.decide_after = fail_reply;

	(void)sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory);
	sqlite3_mem_methods counted = sqlite_memory;
	counted.xMalloc = sqlite_malloc;
	counted.xRealloc = sqlite_realloc;
	(void)sqlite3_config(SQLITE_CONFIG_MALLOC, &counted);
}

void faults_arm(bool armed) {
	atomic_store(&memory_armed, armed);
}

struct postern_store *faults_wrap_taking(struct postern_store *store) {
	return fault_store_create_taking(store, &plan);
}

void faults_end(void) {
	const char *path = getenv("FAULTS_TOLD");
	FILE *file = path ? fopen(path, "w") : NULL;
	if (file) {
		(void)fprintf(file,
				"{\"calls\":%lu,\"answers\":%lu,\"memory\":%lu,"
				"\"sqlite\":%lu}\n",
				atomic_load(&fault_call.count),
				atomic_load(&fault_call_after.count),
				atomic_load(&fault_memory.count),
				atomic_load(&fault_sqlite.count));
		(void)fclose(file);
	}
}
