/* SPDX-License-Identifier: MIT */
/*
 * From the configuration to the options of the library: a box, a runner, the
 * channels and handlers.
 *
 * Errors of the handlers can be found without a box, so that an invalid
 * configuration creates no store.
 */

#include <postern/box.h>
#include <postern/runner.h>
#include <postern/sys/handler.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "handler/kinds.h"
#include "server/config.h"
#include "server/config_section.h"
#include "server/store_open.h"
#include "server/tls.h"
#include "source/kinds.h"
#include "store/store.h"

static bool is_asked_for(const struct postern__config_values *values,
		const char *name) {
	return postern__config_origin_of(values, name)->source !=
		   POSTERN__CONFIG_DEFAULT;
}

void postern__config_box_options(const struct postern__config_store *store,
		struct postern_box_options *out) {
	const struct postern__config_values *values = &store->values;
	*out = (struct postern_box_options){
		.size = sizeof *out,
		.max_message_size = (size_t)values->max_message_size,
		.batch_size = values->batch_size,
		.command_timeout_ms = values->command_timeout_ms,
		.run_queue_max = values->run_queue_max,
		.run_queue_bytes_max = (size_t)values->run_queue_bytes_max,
		.require_inbox = (enum postern_require_inbox)values->require_inbox,
		.orphans = (enum postern_orphans)values->orphans,
		.processing = (enum postern_processing)values->processing,
		.lock_name = store->lock_name,
		.lock_acquire_timeout_ms = values->lock_acquire_timeout_ms,
		.cleanup_lock_name = store->cleanup_lock_name,
		.cleanup_batch = values->cleanup_batch,
	};
	/* Unless it is set, the box decides whether its store needs one. */
	if (is_asked_for(values, "node_lease")) {
		out->node_lease_ms = values->node_lease_ms;
	}
	out->command_retries =
			values->command_retries > 0 ? (int32_t)values->command_retries : -1;
	/* A setting for all stores applies to those that have it. */
	const struct postern_store_kind *kind =
			postern__store_kind_of(values->store, NULL);
	if (kind && kind->has_schema &&
			postern__config_setting_given(values, "schema")) {
		out->schema = values->schema;
	}
	if (postern__store_has_connections(values->store) &&
			postern__config_setting_given(values, "connections")) {
		out->connections = values->connections;
	}
	if (kind && kind->listens) {
		out->listen_url = values->listen_url;
	}
}

void postern__config_guard_options(const struct postern__config_store *store,
		struct postern_guard_options *out) {
	struct postern_box_options box;
	postern__config_box_options(store, &box);
	*out = (struct postern_guard_options){
		.size = sizeof *out,
		.command_timeout_ms = box.command_timeout_ms,
		.command_retries = box.command_retries,
		.connections = box.connections,
	};
}

void postern__config_store_options(const struct postern__config_store *store,
		struct postern_store_options *out) {
	struct postern_box_options box;
	postern__config_box_options(store, &box);
	*out = (struct postern_store_options){
		.size = sizeof *out,
		.command_timeout_ms = box.command_timeout_ms,
		.command_retries = box.command_retries,
		.schema = box.schema,
		.connections = box.connections,
		.listen_url = box.listen_url,
	};
}

void postern__config_schema_name(const struct postern__config_store *store,
		char *out, size_t size) {
	char name[POSTERN_SCHEMA_NAME_MAX] = "";
	struct postern_store_options options;
	postern__config_store_options(store, &options);
	/* Cannot fail: the configuration was validated. */
	(void)postern__store_schema_name(store->values.store, &options, name, NULL);
	(void)snprintf(out, size, "%s", name);
}

void postern__config_runner_options(const struct postern__config_store *store,
		struct postern_runner_options *out) {
	const struct postern__config_values *values = &store->values;
	*out = (struct postern_runner_options){
		.size = sizeof *out,
		.workers = values->workers,
		.workers_max = values->max_workers,
		.restart_delay_ms = values->restart_delay_ms,
		.cleanup_interval_ms = values->cleanup_interval_ms,
	};
	/* Likewise: the default is shorter if several processes share a store. */
	if (is_asked_for(values, "polling_interval")) {
		out->polling_interval_ms = values->polling_interval_ms;
	}
}

static void fill_policy(const struct postern__config_values *values,
		struct postern_policy *out) {
	postern_policy_init(out);
	out->max_attempts = values->max_attempts;
	out->max_crashes = values->max_crashes;
	out->max_retry_delay_ms = values->max_retry_delay_ms;
	out->backoff_ms = values->backoff_ms;
	out->backoff_count = values->backoff_count;
	out->timeout_ms = values->timeout_ms;
	out->lease_ms = values->lease_ms;
	out->concurrency = values->concurrency;
	out->commit_batch = values->commit_batch;
	out->on_poisoned_duplicate =
			(enum postern_poisoned_duplicate)values->on_poisoned_duplicate;
	out->on_broken = (enum postern_on_broken)values->on_broken;
	out->break_after = values->break_after;
	if (values->rate) {
		/* It was validated when it was read. */
		(void)postern__rate_parse(values->rate, POSTERN_RATE_COUNT_MAX,
				&out->rate_count, &out->rate_period_ms, NULL);
	}
	out->rate_burst = values->burst;
}

static int fail_at(const struct postern__config *config, int code,
		unsigned line, unsigned column, struct postern_error *error) {
	const struct postern__yaml_place place = { config->name, line, column };
	return postern__fail_at(error, code, &place);
}

/* `reject` as a default depends on the key rule; written down, it holds under
   every rule. */
static enum postern_on_conflict conflict_of(
		const struct postern__config_values *values) {
	bool written = postern__config_origin_of(values, "on_conflict")->source !=
				   POSTERN__CONFIG_DEFAULT;
	return values->on_conflict == POSTERN_CONFLICT_REJECT && written
				   ? POSTERN_CONFLICT_REJECT_ALWAYS
				   : (enum postern_on_conflict)values->on_conflict;
}

/* In the configuration 0 means not to wait. */
static int64_t guard_wait_of(const struct postern__config_values *values) {
	return values->guard_wait_ms > 0 ? values->guard_wait_ms : -1;
}

/* What channels and handlers are added to. */
struct target {
	struct postern_box *box;               /* that has not been started */
	struct postern_generation *generation; /* in place of it; NULL: none */
};

static int apply_channel(const struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct target *target, struct postern_error *error) {
	const struct postern__config_values *values = &channel->values;
	bool guards = values->mode == POSTERN_MODE_GUARD;
	struct postern_policy policy;
	fill_policy(values, &policy);
	const struct postern_channel_options options = {
		.size = sizeof options,
		.unrouted = (enum postern_unrouted)values->unrouted,
		.on_conflict = conflict_of(values),
		.allow_without_inbox = values->allow_without_inbox,
		.max_message_size = (size_t)values->max_message_size,
		.retention_payload_ms = values->retention_payload_ms,
		.retention_dedupe_ms = values->retention_dedupe_ms,
		.policy = &policy,
		.former_names = channel->former_names,
		.former_name_count = channel->former_name_count,
		.key_rules = channel->key_rules,
		.key_rule_count = channel->key_rule_count,
		.missing_key = (enum postern_missing_key)values->missing_key,
		.mode = (enum postern_channel_mode)values->mode,
		.guarded_types = channel->guarded_types,
		.guarded_type_count = channel->guarded_type_count,
		.guarded_handlers = channel->guarded_handlers,
		.guarded_handler_count = channel->guarded_handler_count,
		.marker = guards ? values->marker : NULL,
		.guard_wait_ms = guards ? guard_wait_of(values) : 0,
		.fault_channel = values->fault_channel,
	};
	int r = target->generation
					? postern_generation_add_channel(target->generation,
							  channel->name, &options, error)
					: postern_box_add_channel(target->box, channel->name,
							  &options, error);
	return r == POSTERN_OK
				   ? r
				   : fail_at(config, r, channel->line, channel->column, error);
}

static int apply_handler(const struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__config_handler *handler,
		const struct target *target, struct postern_error *error) {
	struct postern_policy policy;
	fill_policy(&handler->values, &policy);
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = handler->key,
		.legacy_keys = handler->legacy_keys,
		.legacy_key_count = handler->legacy_key_count,
		.types = handler->types,
		.type_count = handler->type_count,
		.kind = handler->kind->name,
		.settings = handler->settings,
		.policy = &policy,
		.key_rules = handler->key_rules,
		.key_rule_count = handler->key_rule_count,
		.retention_dedupe_ms = postern__config_dedupe_ms(handler),
		.dedupe = (enum postern_dedupe)handler->values.dedupe,
		.dedupe_count_max = handler->values.dedupe_max,
	};
	int r = target->generation
					? postern_generation_add_handler(target->generation,
							  channel->name, &options, error)
					: postern_box_add_handler(target->box, channel->name,
							  &options, error);
	return r == POSTERN_OK
				   ? r
				   : fail_at(config, r, handler->line, handler->column, error);
}

static int apply(const struct postern__config *config,
		const struct postern__config_store *store, const struct target *target,
		struct postern_error *error) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		if (channel->store != store) {
			continue;
		}
		int r = apply_channel(config, channel, target, error);
		for (size_t j = 0; r == POSTERN_OK && j < channel->handler_count; j++) {
			r = apply_handler(config, channel, &channel->handlers[j], target,
					error);
		}
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

int postern__config_apply(const struct postern__config *config,
		const struct postern__config_store *store, struct postern_box *box,
		struct postern_error *error) {
	return apply(config, store, &(struct target){ .box = box }, error);
}

int postern__config_generation(const struct postern__config *config,
		const struct postern__config_store *store, struct postern_box *box,
		struct postern_generation **out, struct postern_error *error) {
	struct target target = { .box = box };
	int r = postern_generation_create(box, &target.generation, error);
	if (r == POSTERN_OK) {
		r = apply(config, store, &target, error);
	}
	if (r == POSTERN_OK) {
		*out = target.generation;
	} else {
		postern_generation_destroy(target.generation);
	}
	return r;
}

/* Only what the file alone does not decide: the rest was validated when the
   file was read, where the line is known. */
static int check_handler(const struct postern__config_handler *handler,
		struct postern_error *error) {
	const char *url = handler->values.store;
	struct postern_handler_setup setup;
	struct postern_handler *impl;
	postern__config_handler_setup(handler, &setup);
	if (handler->kind->transactional && !postern__store_is_transactional(url)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"handler '%s' is transactional, which a %s store does not "
				"support",
				handler->key, postern__store_kind_name(url));
	}
	struct postern_error reason;
	int r = postern__kind_create(&setup, &impl, &reason);
	if (r == POSTERN_OK) {
		impl->ops->destroy(impl);
		return POSTERN_OK;
	}
	return postern__fail(error, r, "handler '%s': %s", handler->key,
			reason.text);
}

/* The commands find a server by its stores' files, or share a database with
   it. */
static void check_stores(const struct postern__config *config,
		struct postern__mistakes *mistakes) {
	const struct postern__config_values *values = &config->stores[0].values;
	struct postern_error error;
	for (size_t i = 0; i < config->store_count; i++) {
		if (postern__store_is_durable(config->stores[i].values.store)) {
			return;
		}
	}
	(void)postern__fail(&error, POSTERN_E_INVALID,
			"'memory:' cannot be the only store: a server needs a file for its "
			"socket; use sqlite:FILE");
	(void)postern__config_fail_at(config, values, "store", &error);
	postern__mistakes_add_error(mistakes, NULL, NULL, &error);
}

static void check_tls(const struct postern__config *config,
		struct postern__mistakes *mistakes) {
	struct postern__tls *tls;
	struct postern_error error;
	if (postern__config_tls(config, &tls, &error) != POSTERN_OK) {
		postern__mistakes_add_error(mistakes, NULL, NULL, &error);
	} else {
		postern__tls_release(tls);
	}
}

int postern__config_check(const struct postern__config *config,
		postern__config_remark *report, void *context,
		struct postern_error *error) {
	struct postern__arena arena;
	struct postern__mistakes mistakes = { .arena = &arena };
	postern__arena_init(&arena);
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		for (size_t j = 0; j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			const struct postern__yaml_place place = { config->name,
				handler->line, handler->column };
			struct postern_error reason;
			if (check_handler(handler, &reason) != POSTERN_OK) {
				postern__mistakes_add_error(&mistakes, &place, NULL, &reason);
			}
		}
	}
	check_stores(config, &mistakes);
	check_tls(config, &mistakes);
	int r = postern__mistakes_result(&mistakes, report, context, error);
	postern__arena_finish(&arena);
	return r;
}

/* Report the warning where the retention was set. */
static void remark_horizon(const struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__config_handler *handler,
		postern__config_remark *remark, void *context) {
	struct postern_policy policy;
	struct postern_error error;
	char text[POSTERN_ERROR_TEXT_MAX];
	fill_policy(&handler->values, &policy);
	if (postern__horizon_check(channel->name,
				channel->values.retention_dedupe_ms, handler->key, &policy,
				text, sizeof text)) {
		return;
	}
	(void)postern__fail(&error, POSTERN_E_INVALID, "%s", text);
	(void)postern__config_fail_at(config, &channel->values, "retention.dedupe",
			&error);
	remark(context, error.text);
}

/* Report what a source may lose, where it is configured. */
static void remark_sources(const struct postern__config *config,
		const struct postern__config_channel *channel,
		postern__config_remark *remark, void *context) {
	for (size_t i = 0; i < channel->source_count; i++) {
		const struct postern__config_channel_source *source =
				&channel->sources[i];
		char text[POSTERN_ERROR_TEXT_MAX];
		char line[POSTERN_ERROR_TEXT_MAX + 200];
		postern__source_caution(source->kind, source->settings,
				source->setting_count, text, sizeof text);
		(void)snprintf(line, sizeof line, "%s:%u: source '%s': %s",
				config->name, source->line, source->name, text);
		if (text[0]) {
			remark(context, line);
		}
	}
}

void postern__config_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		bool stored = channel->values.mode == POSTERN_MODE_INBOX;
		for (size_t j = 0; stored && j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			remark_horizon(config, channel, handler, remark, context);
		}
	}
}

void postern__config_source_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context) {
	for (size_t i = 0; i < config->channel_count; i++) {
		remark_sources(config, &config->channels[i], remark, context);
	}
}
