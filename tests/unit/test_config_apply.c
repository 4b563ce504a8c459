/* SPDX-License-Identifier: MIT */
/*
 * From a configuration to a box and a runner. The values are read from the
 * internals of the box, so that nothing between is missed.
 */

#include <postern/postern.h>

#include "core/box.h"
#include "core/generation.h"
#include "server/config.h"
#include "tap.h"

static struct postern__config *parse_yaml(const char *text) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	(void)CHECK_OK(postern__config_parse("f.yaml", text, strlen(text), NULL,
						   &config, &error),
			&error);
	return config;
}

static struct postern_box *open_box(const struct postern__config *config) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	struct postern_error error = { 0 };
	postern__config_box_options(postern__config_store(config, 0), &options);
	(void)CHECK_OK(postern_box_open(postern__config_store(config, 0)
											->values.store,
						   &options, &box, &error),
			&error);
	return box;
}

static void box_and_runner(void) {
	struct postern__config *config = parse_yaml(
			"store: memory\nworkers: 1\n"
			"defaults:\n"
			"  polling_interval: 2ms\n  restart_delay: 3ms\n"
			"  batch_size: 4\n  command_timeout: 5ms\n  run_queue_max: 6\n"
			"  run_queue_bytes_max: 7B\n  max_message_size: 8B\n"
			"  require_inbox: fail\n  orphans: hold\n"
			"  processing: exclusive\n  lock_name: 'P_{store}'\n"
			"  cleanup_lock_name: '{store}{store}'\n"
			"  lock_acquire_timeout: 9ms\n  node_lease: 10ms\n"
			"  cleanup_batch: 11\n  cleanup_interval: 12ms\n");
	struct postern_box_options box;
	struct postern_runner_options runner;
	if (!config) {
		return;
	}
	memset(&box, 0xff, sizeof box);
	memset(&runner, 0xff, sizeof runner);
	postern__config_box_options(postern__config_store(config, 0), &box);
	postern__config_runner_options(postern__config_store(config, 0), &runner);
	CHECK_INT(box.size, sizeof box);
	CHECK_INT(box.batch_size, 4);
	CHECK_INT(box.command_timeout_ms, 5);
	CHECK_INT(box.run_queue_max, 6);
	CHECK_INT(box.run_queue_bytes_max, 7);
	CHECK_INT(box.max_message_size, 8);
	CHECK_INT(box.require_inbox, POSTERN_REQUIRE_INBOX_FAIL);
	CHECK_INT(box.orphans, POSTERN_ORPHANS_HOLD);
	CHECK_INT(box.processing, POSTERN_PROCESSING_EXCLUSIVE);
	CHECK_STR(box.lock_name, "P_default");
	CHECK_STR(box.cleanup_lock_name, "defaultdefault");
	CHECK_INT(box.lock_acquire_timeout_ms, 9);
	CHECK_INT(box.node_lease_ms, 10);
	CHECK_INT(box.cleanup_batch, 11);
	CHECK_INT(box.command_retries, 3);
	CHECK(!box.schema && !box.connections && !box.listen_url);
	CHECK_INT(runner.cleanup_interval_ms, 12);
	CHECK(!box.read_only && !box.must_exist && !box.no_migrate);
	CHECK(!box.listener && !box.clock && !box.random);
	CHECK_INT(runner.size, sizeof runner);
	CHECK_INT(runner.workers, 1);
	CHECK_INT(runner.polling_interval_ms, 2);
	CHECK_INT(runner.restart_delay_ms, 3);
	postern__config_destroy(config);
}

#ifdef POSTERN_POSTGRES
/* Settings in `defaults` apply to the stores that support them. */
static void settings(void) {
	struct postern__config *config = parse_yaml(
			"defaults: {schema: all, connections: 9, command_retries: 0}\n"
			"stores:\n"
			"  file: {url: 'sqlite:a'}\n"
			"  far: {url: 'postgres://h/d', command_retries: 7,\n"
			"    listen_url: 'postgres:host=x'}\n"
			"  near: {url: 'postgresql://h/d?schema=own&connections=2',\n"
			"    schema: own, connections: 2}\n");
	struct postern_box_options box[3];
	if (!config) {
		return;
	}
	for (size_t i = 0; i < 3; i++) {
		postern__config_box_options(postern__config_store(config, i), &box[i]);
	}
	CHECK_INT(box[0].command_retries, -1);
	CHECK(!box[0].schema && !box[0].connections && !box[0].listen_url);
	CHECK_INT(box[1].command_retries, 7);
	CHECK_STR(box[1].schema, "all");
	CHECK_INT(box[1].connections, 9);
	CHECK_STR(box[1].listen_url, "postgres:host=x");
	CHECK_STR(box[2].schema, "own");
	CHECK_INT(box[2].connections, 2);
	CHECK(!box[2].listen_url);
	postern__config_destroy(config);
}

/* So that the output of `check --print` can be used as a file. */
static void settings_of_defaults(void) {
	struct postern__config *config =
			parse_yaml("store: postgres://h/d?schema=own&connections=2\n"
					   "defaults: {schema: postern, connections: 8}\n");
	struct postern_box_options box;
	if (!config) {
		return;
	}
	postern__config_box_options(postern__config_store(config, 0), &box);
	CHECK(!box.schema && !box.connections);
	postern__config_destroy(config);
}
#endif

static void check_policy(const struct postern_policy *policy) {
	CHECK_INT(policy->max_attempts, 1);
	CHECK_INT(policy->max_crashes, 2);
	CHECK_INT(policy->max_retry_delay_ms, 3);
	CHECK_INT(policy->timeout_ms, 4);
	CHECK_INT(policy->lease_ms, 5);
	CHECK_INT(policy->concurrency, 6);
	CHECK_INT(policy->commit_batch, 7);
	CHECK_INT(policy->on_poisoned_duplicate, POSTERN_POISONED_DUPLICATE_RETRY);
	if (CHECK_INT(policy->backoff_count, 2)) {
		CHECK_INT(policy->backoff_ms[0], 8);
		CHECK_INT(policy->backoff_ms[1], 9);
	}
}

static void channels_and_handlers(void) {
	struct postern__config *config = parse_yaml(
			"store: memory\n"
			"channels:\n"
			"  a:\n"
			"    max_message_size: 10B\n    unrouted: drop\n"
			"    on_conflict: ignore\n    allow_without_inbox: yes\n"
			"    max_attempts: 1\n    max_crashes: 2\n"
			"    max_retry_delay: 3ms\n    timeout: 4ms\n    lease: 5ms\n"
			"    concurrency: 6\n    commit_batch: 7\n"
			"    backoff: [8ms, 9ms]\n    on_poisoned_duplicate: retry\n"
			"    handlers:\n"
			"      h:\n"
			"        exec: [/bin/true, x]\n        types: [t, u]\n"
			"        legacy_keys: [old, older]\n"
			"      own: {exec: [/bin/true], max_attempts: 11}\n"
			"  b: {}\n");
	struct postern_box *box = config ? open_box(config) : NULL;
	struct postern_error error = { 0 };
	if (box &&
			CHECK_OK(postern__config_apply(config,
							 postern__config_store(config, 0), box, &error),
					&error) &&
			CHECK_INT(box->generation->channel_count, 2) &&
			CHECK_INT(box->generation->handler_count, 2)) {
		const struct postern__channel *a = box->generation->channels[0];
		CHECK_STR(a->name, "a");
		CHECK_INT(a->max_message_size, 10);
		CHECK_INT(a->unrouted, POSTERN_UNROUTED_DROP);
		CHECK_INT(a->on_conflict, POSTERN_CONFLICT_IGNORE);
		CHECK(a->allow_without_inbox);
		CHECK_INT(a->mode, POSTERN_MODE_INBOX);
		check_policy(&a->policy);
		const struct postern__handler *h = box->generation->handlers[0];
		CHECK_STR(h->key, "h");
		CHECK(h->channel == a);
		CHECK_INT(h->type_count, 2);
		CHECK_STR(h->types[1], "u");
		CHECK_INT(h->legacy_key_count, 2);
		CHECK_STR(h->legacy_keys[1], "older");
		CHECK_STR(h->impl->kind->name, "exec");
		check_policy(&h->policy);
		CHECK_INT(box->generation->handlers[1]->policy.max_attempts, 11);
		CHECK_INT(box->generation->channels[1]->max_message_size, 1024 * 1024);
		CHECK_OK(postern_box_start(box, &error), &error);
	}
	postern_box_destroy(box);
	postern__config_destroy(config);
}

static void refusals_of_the_box(void) {
	struct postern__config *config = parse_yaml("store: memory\n"
												"channels:\n"
												"  c:\n"
												"    handlers:\n"
												"      g: {exec: [/bin/true]}\n"
												"      h: {sql: select 1}\n");
	struct postern_box *box = config ? open_box(config) : NULL;
	struct postern_error error = { 0 };
	if (box) {
		CHECK_INT(postern__config_apply(config,
						  postern__config_store(config, 0), box, &error),
				POSTERN_E_UNSUPPORTED);
		CHECK_CONTAINS(error.text, "f.yaml:6:7: handler 'h'");
		/* The same error without a box. */
		struct postern_error before = { 0 };
		CHECK_INT(postern__config_check(config, NULL, NULL, &before),
				POSTERN_E_INVALID);
		CHECK_STR(before.text, error.text);
		CHECK_INT(postern__config_check(config, NULL, NULL, NULL),
				POSTERN_E_INVALID);
	}
	postern_box_destroy(box);
	postern__config_destroy(config);
}

static void twice(void) {
	struct postern__config *config =
			parse_yaml("store: memory\nchannels:\n  c: {}\n");
	struct postern_box *box = config ? open_box(config) : NULL;
	struct postern_error error = { 0 };
	if (box) {
		CHECK_OK(postern__config_apply(config, postern__config_store(config, 0),
						 box, &error),
				&error);
		CHECK_INT(postern__config_apply(config,
						  postern__config_store(config, 0), box, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, "f.yaml:3:3: ");
		CHECK_INT(postern__config_apply(config,
						  postern__config_store(config, 0), box, NULL),
				POSTERN_E_INVALID);
	}
	postern_box_destroy(box);
	postern__config_destroy(config);
}

static const struct tap_case cases[] = {
	{ "every option reaches the box and the runner", box_and_runner },
#ifdef POSTERN_POSTGRES
	{ "settings reach the stores that support them", settings },
	{ "a default value in 'defaults' does not conflict with a URL",
			settings_of_defaults },
#endif
	{ "every option reaches its channel and handler", channels_and_handlers },
	{ "an error of the box has a position in the file", refusals_of_the_box },
	{ "a duplicate channel is reported with its position", twice },
};

TAP_MAIN(cases)
