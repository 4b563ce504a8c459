/* SPDX-License-Identifier: MIT */
/*
 * Assembling a box: the core does not know which stores and handler kinds
 * exist, so the functions that select them by URL or option are here.
 */

#include <string.h>

#include "base/fail.h"
#include "core/box.h"
#include "handler/kinds.h"

#include <postern/sys/store.h>

int postern_box_open(const char *url, const struct postern_box_options *options,
		struct postern_box **out, struct postern_error *error) {
	struct postern_store_options store_options = {
		.size = sizeof(store_options),
	};
	if (options) {
		if (options->size != sizeof(*options)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the box options' size member is not set");
		}
		store_options.read_only = options->read_only;
		store_options.must_exist = options->must_exist;
		store_options.no_migrate = options->no_migrate;
		store_options.command_timeout_ms = options->command_timeout_ms;
		store_options.remark = options->remark;
		store_options.remark_context = options->remark_context;
		store_options.clock = options->clock;
		store_options.random = options->random;
		store_options.command_retries = options->command_retries;
		store_options.schema = options->schema;
		store_options.connections = options->connections;
		store_options.listen_url = options->listen_url;
	}
	struct postern_store *store;
	int r = postern_store_open(url, &store_options, &store, error);
	if (r) {
		return r;
	}
	return postern__box_create(store, options, out, error);
}

int postern_box_open_taking(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	return postern__box_create(store, options, out, error);
}

static int check_kind(const struct postern_handler_options *options,
		struct postern_error *error) {
	int kinds = (options->callback != NULL) + (options->sql != NULL) +
				(options->exec != NULL);
	if (kinds != 1) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s' needs exactly one of callback, sql and exec",
				options->key ? options->key : "");
	}
	return POSTERN_OK;
}

/* A transactional handler writes into the database of the store, and a store in
   memory has none. */
static int check_store(const struct postern_box *box,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	bool transactional = options->sql || options->transactional;
	if (transactional && !box->store->ops->transactional) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"handler '%s' is transactional, which a %s store does not "
				"support",
				options->key ? options->key : "", box->store->ops->name);
	}
	return POSTERN_OK;
}

/* Create a sql handler for the SQL dialect of the store. */
static int create_sql(const struct postern_box *box, const char *sql,
		struct postern_handler **out, struct postern_error *error) {
#ifdef POSTERN_POSTGRES
	if (strcmp(box->store->ops->name, "postgres") == 0) {
		return postern__sql_postgres_create(sql, out, error);
	}
#endif
	(void)box;
	return postern__sql_create(sql, out, error);
}

static int create_impl(const struct postern_box *box,
		const struct postern_handler_options *options,
		struct postern_handler **out, struct postern_error *error) {
	if (!options || options->size != sizeof(*options)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler options' size member is not set");
	}
	int r = check_kind(options, error);
	if (!r) {
		r = check_store(box, options, error);
	}
	if (r) {
		return r;
	}
	if (options->callback) {
		return postern__callback_create(options->callback, options->context,
				options->transactional, out, error);
	}
	return options->sql ? create_sql(box, options->sql, out, error)
						: postern__exec_create(options->exec,
								  options->exec_count, out, error);
}

int postern_box_add_handler(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	struct postern_handler *impl;
	int r = create_impl(box, options, &impl, error);
	return r ? r
			 : postern__box_register_taking(box, channel, options, impl, error);
}

int postern_generation_add_handler(struct postern_generation *generation,
		const char *channel, const struct postern_handler_options *options,
		struct postern_error *error) {
	struct postern_handler *impl;
	int r = create_impl(generation->box, options, &impl, error);
	return r ? r
			 : postern__generation_register_taking(generation, channel, options,
					   impl, error);
}
