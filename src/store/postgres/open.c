/* SPDX-License-Identifier: MIT */

/*
 * Opening and closing a PostgreSQL store.
 */

#include <assert.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fail.h"
#include "store/postgres/postgres.h"
#include "store/postgres/pull.h"
#include "store/postgres/reports.h"
#include "store/publish.h"
#include "store/store.h"

/* The longest wait of a batch for a row that another transaction has locked:
   after it, the blocked items are tried apart from the rest. */
#define LOCK_TIMEOUT_MS 2000

static const struct postern_store_ops pg_ops;

struct pg_store *postern__pg_from_base(struct postern_store *store) {
	assert(store->ops == &pg_ops);
	return container_of(store, struct pg_store, base);
}

int postern__pg_no_memory(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

void postern__pg_now(struct pg_query *query) {
	const struct postern_clock *clock = query->connection->store->test_clock;
	if (clock) {
		int64_t now = clock->wall_ms(clock->context);
		postern__pg_saw(query->connection->store, now);
		postern__pg_int8(query, now);
	} else {
		postern__pg_null(query, PG_INT8);
	}
}

void postern__pg_node(struct pg_query *query, uint64_t node) {
	postern__pg_int8(query, (int64_t)node);
}

void postern__pg_lock_of(struct pg_query *query,
		const struct postern_lock *lock) {
	postern__pg_text(query, lock ? lock->name : NULL);
	if (lock) {
		postern__pg_int8(query, (int64_t)lock->fence);
	} else {
		postern__pg_null(query, PG_INT8);
	}
}

int postern__pg_lost_lock(const struct postern_lock *lock,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_STALE, "the lock '%s' is lost",
			lock->name);
}

static int repair_clock(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)context;
	(void)again;
	return postern__pg_clock_repair(connection, error);
}

static void pg_destroy(struct postern_store *store) {
	struct pg_store *self = postern__pg_from_base(store);
	postern__pg_disconnect(&self->listener);
	if (self->stop_fd >= 0) {
		(void)close(self->stop_fd);
	}
	postern__pg_pool_finish(self);
	postern__pg_directory_finish(self);
	for (size_t i = 0; i < PG_UNCERTAIN_NODE_MAX; i++) {
		free(self->uncertain[i].items);
	}
	free(self->sightings.items);
	postern__pg_parse_finish(self);
	free(self);
}

/* Creates a store without connecting. */
static int create_unconnected(const char *rest,
		const struct postern_store_options *options, struct pg_store **out,
		struct postern_error *error) {
	struct pg_store *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__pg_no_memory(error);
	}
	self->base.ops = &pg_ops;
	postern__pg_markers_init(self);
	self->clock = postern_clock_system();
	self->random = options->random;
	if (options->clock != postern_clock_system()) {
		self->test_clock = options->clock;
	}
	self->command_timeout_ms = options->command_timeout_ms;
	self->lock_timeout_ms = LOCK_TIMEOUT_MS;
	self->silence_ms = PG_SILENCE_MS;
	self->command_retries = options->command_retries > 0
									? (uint32_t)options->command_retries
									: 0;
	self->read_only = options->read_only;
	self->base.listener = options->listener;
	self->base.listener_context = options->listener_context;
	postern__pg_pool_init(self);
	self->listener.store = self;
	self->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	int r = self->stop_fd < 0 ? postern__pg_no_memory(error)
							  : postern__pg_parse(self, rest, options, error);
	if (r != POSTERN_OK) {
		pg_destroy(&self->base);
		return r;
	}
	*out = self;
	return POSTERN_OK;
}

static int pg_open(const char *rest,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	struct pg_store *self = NULL;
	int r = create_unconnected(rest, options, &self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_migrate(self, options->must_exist || self->read_only,
			options->no_migrate || self->read_only, error);
	if (r == POSTERN_OK && !self->read_only) {
		r = postern__pg_do(self, repair_clock, NULL, error);
	}
	if (r != POSTERN_OK) {
		pg_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}

/* Without a listen_url a failure is not an error: the pooler may be intended.
 */
static void examine_listening(struct pg_store *self,
		const struct postern_store_examiner *examiner) {
	struct postern_error error;
	char text[POSTERN_ERROR_TEXT_MAX + 16];
	bool configured = self->listen_conninfo;
	int r = postern__pg_try_listen(self, &error);
	if (r != POSTERN_OK) {
		(void)snprintf(text, sizeof text, "%s%s",
				configured ? "listen_url: " : "", error.text);
		examiner->find(examiner->context, configured ? r : POSTERN_OK, text);
	}
}

static int pg_examine(const char *rest,
		const struct postern_store_options *options,
		const struct postern_store_examiner *examiner,
		struct postern_error *error) {
	struct pg_store *self = NULL;
	int r = create_unconnected(rest, options, &self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_store_examiner by = *examiner;
	r = postern__pg_do_once(self, postern__pg_lend_connection, &by, error);
	if (r == POSTERN_OK) {
		r = postern__pg_do(self, postern__pg_check_rights, &by, error);
	}
	if (r == POSTERN_OK) {
		r = postern__pg_do(self, postern__pg_may_create, &by, error);
	}
	if (r == POSTERN_OK && by.listens) {
		examine_listening(self, &by);
	}
	pg_destroy(&self->base);
	return r;
}

static const char *pg_schema(void) {
	return postern__pg_schema_text;
}

static const struct postern_store_ops pg_ops = {
	.version = POSTERN_STORE_OPS_VERSION,
	.name = "postgres",
	.transactional = true,
	.dialect = POSTERN_SQL_POSTGRES,
	.exclusive = false,
	.writers = 2,
	.enrol = postern__pg_enrol,
	.apply = postern__pg_apply,
	.claim = postern__pg_claim,
	.transact = postern__pg_transact,
	.interrupt = postern__pg_interrupt,
	.recover = postern__pg_recover,
	.orphans = postern__pg_orphans,
	.unpark = postern__pg_unpark,
	.edit = postern__pg_edit,
	.list = postern__pg_list,
	.get = postern__pg_get_detail,
	.find = postern__pg_find,
	.stats = postern__pg_stats,
	.renew = postern__pg_renew,
	.lock = postern__pg_lock,
	.unlock = postern__pg_unlock,
	.clean = postern__pg_clean,
	.groups = postern__pg_groups,
	.wait = postern__pg_wait,
	.end_wait = postern__pg_end_wait,
	.collect = postern__pg_collect,
	.engage = postern__pg_engage,
	.destroy = pg_destroy,
	.read_pauses = postern__pg_read_pauses,
	.read_closed = postern__pg_read_closed,
	.read_retention = postern__pg_read_retention,
	.keep_rules = postern__pg_keep_rules,
	.read_pulls = postern__pg_read_pulls,
	.extend = postern__pg_extend,
	.stranded = postern__pg_stranded,
	.reserve = postern__pg_reserve,
	.report_runs = postern__pg_report_runs,
	.read_runs = postern__pg_read_runs,
	.request_cancel = postern__pg_request_cancel,
	.read_cancels = postern__pg_read_cancels,
	.share = postern__pg_share,
};

static void pg_end_look(void *connection) {
	(void)shutdown(PQsocket(connection),
			SHUT_RDWR); /* or the connection is lost */
}

static const char *libpq_version(void) {
	static char text[32];
	(void)snprintf(text, sizeof text, "%d.%d", PQlibVersion() / 10000,
			PQlibVersion() % 10000);
	return text;
}

#define KIND(url_scheme)                                                       \
	{                                                                          \
		.name = "postgres", .scheme = (url_scheme),                            \
		.form = "postgres://USER@HOST/DATABASE", .ops = &pg_ops,               \
		.is_durable = true, .is_shared = true, .has_schema = true,             \
		.has_connections = true, .listens = true, .stages = true,              \
		.library = "libpq", .library_version = libpq_version, .open = pg_open, \
		.schema = pg_schema, .check = postern__pg_check,                       \
		.schema_sql = postern__pg_schema_sql,                                  \
		.schema_name = postern__pg_schema_name, .examine = pg_examine,         \
		.end_look = pg_end_look, .publish = postern__pg_publish,               \
	}

const struct postern_store_kind postern__pg_kind = KIND("postgres");
const struct postern_store_kind postern__pg_kind_too = KIND("postgresql");
