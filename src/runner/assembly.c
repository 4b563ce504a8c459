/* SPDX-License-Identifier: MIT */
/*
 * Assembling a box: the core does not know which stores and handler kinds
 * exist, so the functions that select them by URL or option are here.
 */

#include "base/fail.h"
#include "base/sized.h"
#include "core/box.h"
#include "core/inline.h"
#include "handler/kinds.h"
#include "runner/guard.h"
#include "store/marker_kind.h"
#include "store/store.h"

#include <postern/sys/store.h>
#include <string.h>

static int guard_create(struct postern_box *box, void **out,
		struct postern_error *error) {
	const struct postern_guard_options options = {
		.size = sizeof(options),
		.clock = &box->clock,
		.random = &box->random,
	};
	struct postern_guard *guard;
	int r = postern_guard_create(box, &options, &guard, error);
	*out = r ? NULL : guard;
	return r;
}

static int guard_run(void *guard, struct postern__guarded_run *run,
		struct postern_error *error) {
	return postern__guard_do(guard, run, error);
}

static void guard_destroy(void *guard) {
	postern_guard_destroy(guard);
}

/* The guard of channels in mode `guard`, which the core does not know. */
static const struct postern__guarding guarding = {
	.create = guard_create,
	.run = guard_run,
	.destroy = guard_destroy,
};

static int create_box(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	int r = postern__box_create(store, options, out, error);
	if (!r) {
		(*out)->guarding = &guarding;
	}
	return r;
}

static int open_store(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	if (url && strcmp(url, "none:") == 0) {
		return postern__none_open(NULL, options, out, error);
	}
	return postern__marker_kind_of(url)
				   ? postern__none_open(url, options, out, error)
				   : postern_store_open(url, options, out, error);
}

int postern_box_open(const char *url, const struct postern_box_options *given,
		struct postern_box **out, struct postern_error *error) {
	/* Until there is a box. */
	struct postern__subscriber first = { 0 };
	struct postern_store_options store_options = {
		.size = sizeof(store_options),
	};
	struct postern_box_options full = { 0 };
	const struct postern_box_options *options = given ? &full : NULL;
	if (options) {
		int r = postern__sized_copy(&full, sizeof(full), given,
				"struct postern_box_options", error);
		if (r) {
			return r;
		}
		store_options.read_only = options->read_only;
		store_options.must_exist = options->must_exist;
		store_options.no_migrate = options->no_migrate;
		store_options.command_timeout_ms = options->command_timeout_ms;
		first = (struct postern__subscriber){ options->listener,
			options->listener_context, options->listener_level };
		store_options.listener =
				options->listener ? postern__subscriber_call : NULL;
		store_options.listener_context = &first;
		store_options.clock = options->clock;
		store_options.random = options->random;
		store_options.command_retries = options->command_retries;
		store_options.schema = options->schema;
		store_options.connections = options->connections;
		store_options.listen_url = options->listen_url;
	}
	struct postern_store *store;
	int r = open_store(url, &store_options, &store, error);
	if (r) {
		return r;
	}
	return create_box(store, options, out, error);
}

int postern_box_open_taking(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error) {
	return create_box(store, options, out, error);
}

/* The settings of the kinds that have members of their own in the options. */
union settings {
	struct postern__callback_settings callback;
	struct postern__sql_settings sql;
	struct postern__exec_settings exec;
};

/* Find the kind of a handler and its settings. */
static int choose_kind(const struct postern_handler_options *options,
		union settings *settings, struct postern_handler_setup *setup,
		struct postern_error *error) {
	int count = (options->callback != NULL) + (options->sql != NULL) +
				(options->exec != NULL) + (options->kind != NULL);
	if (count != 1) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s' needs exactly one of callback, sql, exec and "
				"kind",
				setup->key);
	}
	setup->settings = settings;
	if (options->callback) {
		setup->kind = &postern__callback_kind;
		settings->callback = (struct postern__callback_settings){
			.function = options->callback,
			.context = options->context,
			.transactional = options->transactional,
		};
	} else if (options->sql) {
		setup->kind = &postern__sql_kind;
		settings->sql.sql = options->sql;
	} else if (options->exec) {
		setup->kind = &postern__exec_kind;
		settings->exec = (struct postern__exec_settings){
			.argv = options->exec,
			.argc = options->exec_count,
		};
	} else {
		setup->kind = postern__kind_find(options->kind);
		setup->settings = options->settings;
	}
	return setup->kind ? POSTERN_OK
					   : postern__fail(error, POSTERN_E_NOTFOUND,
								 "handler '%s': no handler kind '%s' is "
								 "registered",
								 setup->key, options->kind);
}

/* A transactional handler writes into the database of the store, and a store in
   memory has none. */
static int check_store(const struct postern_box *box, bool transactional,
		const char *key, struct postern_error *error) {
	if (transactional && !box->store->ops->transactional) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"handler '%s' is transactional, which a %s store does not "
				"support",
				key, box->store->ops->name);
	}
	return POSTERN_OK;
}

static int create_from_setup(const struct postern_box *box,
		const struct postern_handler_setup *setup, struct postern_handler **out,
		struct postern_error *error) {
	struct postern_handler *impl = NULL;
	int r = check_store(box, setup->kind->transactional, setup->key, error);
	if (!r) {
		r = postern__kind_create(setup, &impl, error);
	}
	if (r) {
		return r;
	}
	r = check_store(box, impl->transactional, setup->key, error);
	if (r) {
		impl->ops->destroy(impl);
		return r;
	}
	*out = impl;
	return POSTERN_OK;
}

/* Copy the options of a program of any version, and create the handler. */
static int create_impl(const struct postern_box *box,
		const struct postern_handler_options *given,
		struct postern_handler_options *options, struct postern_handler **out,
		struct postern_error *error) {
	*options = (struct postern_handler_options){ 0 };
	int taken = given ? postern__sized_copy(options, sizeof(*options), given,
								"struct postern_handler_options", error)
					  : postern__fail(error, POSTERN_E_INVALID,
								"the handler options are missing");
	if (taken) {
		return taken;
	}
	struct postern_handler_setup setup = {
		.size = sizeof setup,
		.key = options->key ? options->key : "",
		.dialect = box->store->ops->dialect,
		.schema = box->store->schema,
	};
	union settings settings;
	int r = choose_kind(options, &settings, &setup, error);
	return r ? r : create_from_setup(box, &setup, out, error);
}

int postern_box_add_handler(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_error *error) {
	struct postern_handler_options full;
	struct postern_handler *impl;
	int r = create_impl(box, options, &full, &impl, error);
	return r ? r
			 : postern__box_register_taking(box, channel, &full, impl, error);
}

int postern_generation_add_handler(struct postern_generation *generation,
		const char *channel, const struct postern_handler_options *options,
		struct postern_error *error) {
	struct postern_handler_options full;
	struct postern_handler *impl;
	int r = create_impl(generation->box, options, &full, &impl, error);
	return r ? r
			 : postern__generation_register_taking(generation, channel, &full,
					   impl, error);
}
