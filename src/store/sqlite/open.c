/* SPDX-License-Identifier: MIT */

/*
 * Opening and closing a SQLite store.
 *
 * The order matters: the file is locked before SQLite opens it, the writer
 * checks that the file can be written durably and creates the schema, and only
 * then the reader is opened. Closing is the reverse: the writer is the last
 * connection, so that SQLite copies the write-ahead log into the file and
 * removes it; the lock is released last of all.
 */

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <postern/message.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/point.h"
#include "base/wait.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"
#include "store/store.h"

#define COMMAND_TIMEOUT_MS_DEFAULT 30000

static const struct postern_store_ops sqlite_ops;

struct sqlite_store *postern__sqlite_from_base(struct postern_store *store) {
	assert(store->ops == &sqlite_ops);
	return container_of(store, struct sqlite_store, base);
}

int postern__sqlite_reader_open(struct sqlite_store *self,
		struct postern_error *error) {
	/* On a read-only disk SQLite cannot create the files that it needs to read
	   WAL; but then the file cannot change either. */
	self->nothing_staged = false; /* a new connection counts from anew */
	bool immutable =
			self->read_only && postern__sqlite_file_immutable(&self->file);
	int r = postern__sqlite_connection_open(&self->reader, self, true,
			immutable ? "?immutable=1" : "", error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_check_schema(&self->reader, error);
	}
	return r;
}

/* Opens a shared file that another process may own. */
static int open_guest(struct sqlite_store *self, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	struct postern_store_options reading = *options;
	reading.read_only = true; /* it is not locked */
	int r = postern__sqlite_file_open(&self->file, path, &reading, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_writer_open(self, error);
	}
	postern__point("sqlite-guest.writer");
	if (r == POSTERN_OK) {
		r = postern__sqlite_reader_open(self, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_load_key(&self->reader, error);
	}
	return r;
}

static int open_files(struct sqlite_store *self, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	int r = postern__sqlite_file_open(&self->file, path, options, error);
	if (r == POSTERN_OK && !options->read_only) {
		r = postern__sqlite_writer_open(self, error);
		postern__point("sqlite-open.writer");
		if (r == POSTERN_OK) {
			r = postern__sqlite_migrate(self, options->no_migrate, error);
		}
		postern__point("sqlite-open.migrated");
		if (r == POSTERN_OK) {
			r = postern__sqlite_stage_declare(self, error);
		}
		if (r == POSTERN_OK) {
			r = postern__sqlite_directory_load(self, error);
		}
		postern__point("sqlite-open.loaded");
		if (r == POSTERN_OK) {
			r = postern__sqlite_nodes_expire_all(self, error);
		}
		if (r == POSTERN_OK) {
			r = postern__sqlite_clock_repair(self, postern__sqlite_now(self),
					error);
		}
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_reader_open(self, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_load_key(&self->reader, error);
	}
	if (r == POSTERN_OK && !options->read_only) {
		r = postern__sqlite_watch_begin(self, error);
	}
	if (r == POSTERN_OK && !options->read_only) {
		r = postern__sqlite_file_mark(&self->file, error);
	}
	postern__point("sqlite-open.after");
	return r;
}

/* Logs the path of a new store, so that one created by mistake, in another
   directory, is noticed. */
static void report_created(const struct sqlite_store *self) {
	struct postern__buf text;
	if (!self->created) {
		return;
	}
	postern__buf_init(&text, PATH_MAX + 64);
	postern__buf_append_text(&text, "created store sqlite:");
	postern__buf_append_text(&text, self->file.path);
	if (postern__buf_check(&text, "the file's name", NULL) == POSTERN_OK) {
		postern__store_report(&self->base, POSTERN_EVENT_STORE_CREATED, NULL,
				postern__buf_text(&text));
	}
	postern__buf_finish(&text);
}

static void sqlite_destroy(struct postern_store *store) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	postern__point("sqlite-close.before");
	postern__sqlite_watch_end(self);
	postern__sqlite_connection_close(&self->reader);
	postern__point("sqlite-close.reader");
	postern__sqlite_connection_close(&self->writer);
	postern__point("sqlite-close.writer");
	postern__sqlite_watch_close(&self->watch);
	postern__sqlite_file_close(&self->file);
	postern__sqlite_directory_unload(self);
	postern__buf_finish(&self->headers);
	free(self->arrivals);
	(void)pthread_mutex_destroy(&self->reader_mutex);
	(void)pthread_mutex_destroy(&self->gate.mutex);
	(void)pthread_cond_destroy(&self->gate.opened);
	(void)pthread_mutex_destroy(&self->unit.mutex);
	free(self);
}

static void store_init(struct sqlite_store *self,
		const struct postern_store_options *options) {
	self->base.ops = &sqlite_ops;
	postern__sqlite_markers_init(self);
	self->base.listener = options->listener;
	self->base.listener_context = options->listener_context;
	self->file.lock_fd = -1;
	self->file.fd = -1;
	self->watch.log_fd = -1;
	self->watch.bus_slot = -1;
	self->clock = options->clock;
	self->random = options->random;
	self->read_only = options->read_only;
	self->command_timeout_ms = options->command_timeout_ms > 0
									   ? options->command_timeout_ms
									   : COMMAND_TIMEOUT_MS_DEFAULT;
	postern__buf_init(&self->headers,
			POSTERN_HEADERS_LEN_MAX + 2 * POSTERN_HEADER_COUNT_MAX);
	/* These cannot fail on Linux. */
	(void)pthread_mutex_init(&self->reader_mutex, NULL);
	(void)pthread_mutex_init(&self->gate.mutex, NULL);
	(void)postern__wait_init(&self->gate.opened);
	(void)pthread_mutex_init(&self->unit.mutex, NULL);
}

/* sqlite_check() has refused any other parameter. */
static bool is_shared(const char *rest) {
	return rest[strcspn(rest, "?")] != '\0';
}

static int store_open(const char *rest,
		const struct postern_store_options *options, bool guest,
		struct postern_store **out, struct postern_error *error) {
	char *path = strndup(rest, strcspn(rest, "?"));
	struct sqlite_store *self = calloc(1, sizeof *self);
	if (!self || !path) {
		free(path);
		free(self);
		return postern__sqlite_no_memory(error);
	}
	store_init(self, options);
	self->shared = is_shared(rest);
	self->file.shared = self->shared;
	int r = POSTERN_OK;
	if (guest) {
		r = postern__sqlite_guest_prepare(rest, path, options, error);
	}
	if (r == POSTERN_OK) {
		r = guest ? open_guest(self, path, options, error)
				  : open_files(self, path, options, error);
	}
	free(path);
	if (r != POSTERN_OK) {
		sqlite_destroy(&self->base);
		return r;
	}
	report_created(self);
	*out = &self->base;
	return POSTERN_OK;
}

int postern__sqlite_open_owned(const char *rest,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	return store_open(rest, options, false, out, error);
}

static int sqlite_open(const char *rest,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	bool guest =
			is_shared(rest) && options->markers_only && !options->read_only;
	return store_open(rest, options, guest, out, error);
}

void postern__sqlite_own_process(void) {
	/* To count allocations, SQLite acquires a mutex for each, and nothing reads
	   the count. If SQLite is already in use, it goes on counting. */
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	postern__sqlite_bus_catch();
}

static const char *sqlite_schema(void) {
	return postern__sqlite_schema;
}

static const struct postern_store_ops sqlite_ops = {
	.version = POSTERN_STORE_OPS_VERSION,
	.name = "sqlite",
	.transactional = true,
	.dialect = POSTERN_SQL_SQLITE,
	.exclusive = true,
	.enrol = postern__sqlite_enrol,
	.apply = postern__sqlite_apply,
	.claim = postern__sqlite_claim,
	.transact = postern__sqlite_transact,
	.interrupt = postern__sqlite_interrupt,
	.recover = postern__sqlite_recover,
	.orphans = postern__sqlite_orphans,
	.unpark = postern__sqlite_unpark,
	.read_pauses = postern__sqlite_read_pauses,
	.read_closed = postern__sqlite_read_closed,
	.read_retention = postern__sqlite_read_retention,
	.keep_rules = postern__sqlite_keep_rules,
	.read_pulls = postern__sqlite_read_pulls,
	.extend = postern__sqlite_extend,
	.edit = postern__sqlite_edit,
	.list = postern__sqlite_list,
	.get = postern__sqlite_get,
	.find = postern__sqlite_find,
	.stats = postern__sqlite_stats,
	.renew = postern__sqlite_renew,
	.lock = postern__sqlite_lock,
	.unlock = postern__sqlite_unlock,
	.clean = postern__sqlite_clean,
	.collect = postern__sqlite_collect,
	.stranded = postern__sqlite_stranded,
	.groups = postern__sqlite_groups,
	.destroy = sqlite_destroy,
};

/* A '?' is not a part of the path. */
static int sqlite_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error) {
	(void)options;
	size_t len = strcspn(rest, "?");
	const char *query = rest + len;
	if (len == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'sqlite:%s' names no file; write sqlite:FILE", rest);
	}
	if (len == strlen(":memory:") && strncmp(rest, ":memory:", len) == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'sqlite:%s' names no file; for a store in memory write "
				"memory:",
				rest);
	}
	return query[0] && strcmp(query, "?shared=yes") != 0
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "unknown parameter '%.60s' of sqlite:; it has "
							 "?shared=yes only",
							 query + 1)
				   : POSTERN_OK;
}

static const char *sqlite_note(const char *rest) {
	return is_shared(rest)
				   ? "is shared with other processes, so it has a rollback "
					 "journal and is several times slower than without "
					 "?shared=yes"
				   : NULL;
}

const struct postern_store_kind postern__sqlite_kind = {
	.name = "sqlite",
	.scheme = "sqlite",
	.form = "sqlite:FILE",
	.ops = &sqlite_ops,
	.is_file = true,
	.is_durable = true,
	.stages = true,
	.library = "sqlite",
	.library_version = sqlite3_libversion,
	.open = sqlite_open,
	.schema = sqlite_schema,
	.check = sqlite_check,
	.note = sqlite_note,
	.publish = postern__sqlite_publish,
};
