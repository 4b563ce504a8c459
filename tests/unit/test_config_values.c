/* SPDX-License-Identifier: MIT */
/* The meaning of a valid configuration. */

#include <stdlib.h>

#include "base/buf.h"
#include "cli/sample.h"
#include "handler/kinds.h"
#include "server/config.h"
#include "store_urls.h"
#include "tap.h"

static struct postern__config *parse_with(const char *text,
		const struct postern__config_input *input) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	(void)CHECK_OK(postern__config_parse("f", text, strlen(text), input,
						   &config, &error),
			&error);
	return config;
}

static struct postern__config *parse_text(const char *text) {
	return parse_with(text, NULL);
}

static const struct postern__config_handler *
handler_at(const struct postern__config *config, size_t channel,
		size_t handler) {
	return &postern__config_channel(config, channel)->handlers[handler];
}

/* The documented defaults. */
static void check_defaults(const struct postern__config_values *values) {
	CHECK_STR(values->store, "sqlite:postern.db");
	CHECK_STR(values->listen, "127.0.0.1:7420");
	CHECK_INT(values->shutdown_grace_ms, 30000);
	CHECK_INT(values->workers, 4);
	CHECK_INT(values->polling_interval_ms, 30000);
	CHECK_INT(values->restart_delay_ms, 5000);
	CHECK_INT(values->batch_size, 100);
	CHECK_INT(values->command_timeout_ms, 30000);
	CHECK_INT(values->command_retries, 3);
	CHECK_STR(values->schema, "postern");
	CHECK_INT(values->connections, 8);
	CHECK(!values->listen_url);
	CHECK_INT(values->run_queue_max, 10000);
	CHECK_INT(values->run_queue_bytes_max, 64 * 1024 * 1024);
	CHECK_INT(values->require_inbox, POSTERN_REQUIRE_INBOX_NONE);
	CHECK_INT(values->orphans, POSTERN_ORPHANS_POISON);
	CHECK_INT(values->processing, POSTERN_PROCESSING_PARALLEL);
	CHECK_STR(values->lock_name, "InboxProcessor_{store}");
	CHECK_INT(values->lock_acquire_timeout_ms, 60000);
	CHECK_INT(values->node_lease_ms, 15000);
	CHECK_STR(values->cleanup_lock_name, "InboxCleanup_{store}");
	CHECK_INT(values->cleanup_interval_ms, 3600000);
	CHECK_INT(values->cleanup_batch, 10000);
	CHECK_INT(values->retention_payload_ms, 0);
	CHECK_INT(values->retention_dedupe_ms, 0);
	CHECK_INT(values->max_attempts, 5);
	CHECK_INT(values->max_crashes, 3);
	CHECK_INT(values->max_retry_delay_ms, 300000);
	CHECK(!values->backoff_ms);
	CHECK_INT(values->backoff_count, 0);
	CHECK_INT(values->timeout_ms, POSTERN_TIMEOUT_DEFAULT);
	CHECK_INT(values->lease_ms, 300000);
	CHECK_INT(values->concurrency, 0);
	CHECK_INT(values->commit_batch, 1);
	CHECK_INT(values->on_poisoned_duplicate, POSTERN_POISONED_DUPLICATE_IGNORE);
	CHECK_INT(values->on_broken, POSTERN_ON_BROKEN_HOLD);
	CHECK_INT(values->break_after, 20);
	CHECK(!values->rate);
	CHECK_INT(values->max_message_size, 1024 * 1024);
	CHECK_INT(values->unrouted, POSTERN_UNROUTED_PARK);
	CHECK_INT(values->on_conflict, POSTERN_CONFLICT_REJECT);
	CHECK(!values->allow_without_inbox);
}

/* Those of all kinds, but for the timeout. */
static void check_sql_defaults(const struct postern__config_handler *handler) {
	struct postern__config_values values = handler->values;
	CHECK_STR(handler->kind->name, "sql");
	CHECK_INT(values.timeout_ms, 5000);
	values.timeout_ms = POSTERN_TIMEOUT_DEFAULT;
	check_defaults(&values);
}

static void nothing_set(void) {
	static const char *const texts[] = { "", "\n", "# only a comment\n", "---",
		"{}", "~", "\xef\xbb\xbf", "channels:", "channels: {}",
		"defaults:", "stores:", "stores: {}", "auth: {}", "auth:" };
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct postern__config *config = parse_text(texts[i]);
		if (!config) {
			continue;
		}
		check_defaults(postern__config_global(config));
		CHECK_INT(postern__config_channel_count(config), 0);
		CHECK(!postern__config_channel(config, 0));
		CHECK_STR(postern__config_name(config), "f");
		postern__config_destroy(config);
	}
	postern__config_destroy(NULL);
}

static void defaults_spelled_out(void) {
	struct postern__config *config = parse_text(
			"listen: 127.0.0.1:7420\ningest_listen: none\nmetrics: yes\n"
			"defaults:\n"
			"  processing: parallel\n"
			"  lock_name: InboxProcessor_{store}\n"
			"  cleanup_lock_name: InboxCleanup_{store}\n"
			"  lock_acquire_timeout: 1m\n"
			"  node_lease: 15000ms\n"
			"  cleanup_interval: 60m\n"
			"  cleanup_batch: 10000\n"
			"  command_retries: 3\n"
			"  schema: postern\n"
			"  connections: 8\n"
			"  listen_url: none\n"
			"  retention: {payload: none, dedupe: none}\n"
			"  rate: none\n"
			"  concurrency: none\n"
			"channels:\n"
			"  c:\n"
			"    mode: inbox\n"
			"    store: default\n"
			"    key: id\n"
			"    missing_key: reject\n"
			"    order_by: none\n"
			"    on_poison: block\n"
			"    on_conflict: reject\n"
			"    unrouted: park\n"
			"    retention:\n"
			"    sources: []\n"
			"    handlers:\n"
			"      h: {sql: reindex, rate: none, key: id, timeout: default}\n");
	if (!config) {
		return;
	}
	check_defaults(postern__config_global(config));
	check_defaults(&postern__config_channel(config, 0)->values);
	check_sql_defaults(handler_at(config, 0, 0));
	postern__config_destroy(config);
}

static void every_option(void) {
	struct postern__config *config = parse_text(
			"store: memory\nlisten: unix:run/p.sock\nshutdown_grace: 0\n"
			"workers: 8\n"
			"defaults:\n"
			"  polling_interval: 1s\n  restart_delay: 2s\n  batch_size: 7\n"
			"  command_timeout: 3s\n  run_queue_max: 8\n"
			"  run_queue_bytes_max: 9KiB\n  orphans: fail\n"
			"  require_inbox: warn\n  max_attempts: 0\n  max_crashes: 11\n"
			"  max_retry_delay: 12s\n  backoff: [1s, 10s, 0]\n"
			"  lease: 13s\n  timeout: none\n  concurrency: 14\n"
			"  commit_batch: 15\n  on_poisoned_duplicate: retry\n"
			"  on_broken: count\n  break_after: 23\n  rate: 24/m\n"
			"  burst: 25\n"
			"  max_message_size: 16B\n  processing: exclusive\n"
			"  lock_name: L\n  cleanup_lock_name: C_{store}\n"
			"  lock_acquire_timeout: 17s\n  node_lease: 18s\n"
			"  cleanup_interval: 19s\n  cleanup_batch: 20\n"
			"  retention: {payload: 21s, dedupe: 22s}\n"
			"channels:\n"
			"  c: {unrouted: reject, on_conflict: ignore, "
			"allow_without_inbox: true}\n");
	if (!config) {
		return;
	}
	const struct postern__config_values *values =
			&postern__config_channel(config, 0)->values;
	CHECK_STR(values->store, "memory:");
	CHECK_STR(values->listen, "unix:run/p.sock");
	CHECK_INT(values->shutdown_grace_ms, 0);
	CHECK_INT(values->workers, 8);
	CHECK_INT(values->polling_interval_ms, 1000);
	CHECK_INT(values->restart_delay_ms, 2000);
	CHECK_INT(values->batch_size, 7);
	CHECK_INT(values->command_timeout_ms, 3000);
	CHECK_INT(values->run_queue_max, 8);
	CHECK_INT(values->run_queue_bytes_max, 9 * 1024);
	CHECK_INT(values->require_inbox, POSTERN_REQUIRE_INBOX_WARN);
	CHECK_INT(values->orphans, POSTERN_ORPHANS_FAIL);
	CHECK_INT(values->max_attempts, 0);
	CHECK_INT(values->max_crashes, 11);
	CHECK_INT(values->max_retry_delay_ms, 12000);
	if (CHECK_INT(values->backoff_count, 3)) {
		CHECK_INT(values->backoff_ms[0], 1000);
		CHECK_INT(values->backoff_ms[1], 10000);
		CHECK_INT(values->backoff_ms[2], 0);
	}
	CHECK_INT(values->timeout_ms, 0);
	CHECK_INT(values->lease_ms, 13000);
	CHECK_INT(values->concurrency, 14);
	CHECK_INT(values->commit_batch, 15);
	CHECK_INT(values->on_poisoned_duplicate, POSTERN_POISONED_DUPLICATE_RETRY);
	CHECK_INT(values->on_broken, POSTERN_ON_BROKEN_COUNT);
	CHECK_INT(values->break_after, 23);
	CHECK_STR(values->rate, "24/m");
	CHECK_INT(values->burst, 25);
	CHECK_INT(values->max_message_size, 16);
	CHECK_INT(values->unrouted, POSTERN_UNROUTED_REJECT);
	CHECK_INT(values->on_conflict, POSTERN_CONFLICT_IGNORE);
	CHECK(values->allow_without_inbox);
	CHECK_INT(values->processing, POSTERN_PROCESSING_EXCLUSIVE);
	CHECK_INT(values->lock_acquire_timeout_ms, 17000);
	CHECK_INT(values->node_lease_ms, 18000);
	CHECK_INT(values->cleanup_interval_ms, 19000);
	CHECK_INT(values->cleanup_batch, 20);
	CHECK_INT(values->retention_payload_ms, 21000);
	CHECK_INT(values->retention_dedupe_ms, 22000);
	CHECK_STR(postern__config_store(config, 0)->lock_name, "L");
	CHECK_STR(postern__config_store(config, 0)->cleanup_lock_name, "C_default");
	postern__config_destroy(config);
}

static void channels_and_handlers(void) {
	struct postern__config *config = parse_text(
			"channels:\n"
			"  orders:\n"
			"    handlers:\n"
			"      ledger:\n"
			"        types: [\"order.placed\", \"order.*\"]\n"
			"        legacy_keys: [book, ns:old/key_1.2]\n"
			"        sql: |\n"
			"          insert into a\n"
			"          values (:id);\n"
			"      mail: {exec: [/bin/mail, \"a b\", ''], legacy_keys: []}\n"
			"  empty:\n");
	if (!config) {
		return;
	}
	CHECK_INT(postern__config_channel_count(config), 2);
	const struct postern__config_channel *channel =
			postern__config_channel(config, 0);
	CHECK_STR(channel->name, "orders");
	CHECK_INT(channel->line, 2);
	CHECK_INT(channel->column, 3);
	CHECK_INT(channel->handler_count, 2);
	const struct postern__config_handler *ledger = &channel->handlers[0];
	CHECK_STR(ledger->key, "ledger");
	CHECK_INT(ledger->line, 4);
	CHECK_INT(ledger->column, 7);
	CHECK_INT(ledger->type_count, 2);
	CHECK_STR(ledger->types[1], "order.*");
	CHECK_INT(ledger->legacy_key_count, 2);
	CHECK_STR(ledger->legacy_keys[1], "ns:old/key_1.2");
	CHECK_STR(ledger->kind->name, "sql");
	const struct postern__sql_settings *sql = ledger->settings;
	CHECK_STR(sql->sql, "insert into a\nvalues (:id);\n");
	const struct postern__config_handler *mail = &channel->handlers[1];
	CHECK_STR(mail->kind->name, "exec");
	const struct postern__exec_settings *exec = mail->settings;
	CHECK_INT(mail->type_count, 0);
	CHECK_INT(mail->legacy_key_count, 0);
	if (CHECK_INT(exec->argc, 3)) {
		CHECK_STR(exec->argv[0], "/bin/mail");
		CHECK_STR(exec->argv[1], "a b");
		CHECK_STR(exec->argv[2], "");
	}
	CHECK_INT(postern__config_channel(config, 1)->handler_count, 0);
	postern__config_destroy(config);
}

static void nearest_wins(void) {
	/* The channel's values follow its handlers on purpose. */
	struct postern__config *config = parse_text(
			"channels:\n"
			"  a:\n"
			"    handlers:\n"
			"      plain: {sql: reindex}\n"
			"      own: {sql: reindex, max_attempts: 4, backoff: exponential, "
			"timeout: 1s}\n"
			"    max_attempts: 3\n"
			"    backoff: [3s]\n"
			"    max_message_size: 3KiB\n"
			"  b: {}\n"
			"defaults: {max_attempts: 1, lease: 1m, timeout: 10s, "
			"backoff: [1s], max_crashes: 9}\n"
			"stores: {main: {url: 'memory:', max_attempts: 2, lease: 2m, "
			"batch_size: 22}}\n");
	if (!config) {
		return;
	}
	CHECK_INT(postern__config_global(config)->max_attempts, 1);
	CHECK_INT(postern__config_store_count(config), 1);
	const struct postern__config_store *store =
			postern__config_store(config, 0);
	CHECK_STR(store->name, "main");
	CHECK_STR(store->values.store, "memory:");
	CHECK_INT(store->values.max_attempts, 2);
	CHECK_INT(store->values.lease_ms, 120000);
	CHECK_INT(store->values.batch_size, 22);
	CHECK_INT(store->values.backoff_ms[0], 1000);
	CHECK(postern__config_channel(config, 1)->store == store);
	CHECK(!postern__config_store(config, 1));
	const struct postern__config_values *plain =
			&handler_at(config, 0, 0)->values;
	CHECK_INT(plain->max_attempts, 3);
	CHECK_INT(plain->lease_ms, 120000);
	CHECK_INT(plain->backoff_ms[0], 3000);
	CHECK_INT(plain->timeout_ms, 10000);
	CHECK_INT(plain->max_message_size, 3 * 1024);
	const struct postern__config_values *own =
			&handler_at(config, 0, 1)->values;
	CHECK_INT(own->max_attempts, 4);
	CHECK_INT(own->max_crashes, 9);
	CHECK_INT(own->timeout_ms, 1000);
	CHECK_INT(own->backoff_count, 0);
	CHECK(!own->backoff_ms);
	CHECK_INT(postern__config_channel(config, 1)->values.max_attempts, 2);
	CHECK_INT(postern__config_channel(config, 1)->values.max_message_size,
			1024 * 1024);
	postern__config_destroy(config);
}

static void flag_environment_file(void) {
	char *const environment[] = { (char[]){ "POSTERN_LEASE=2m" },
		(char[]){ "POSTERN_BATCH_SIZE=2" }, (char[]){ "POSTERN_WORKERS=" },
		(char[]){ "POSTERN_BACKOFF=1s, 2s" }, (char[]){ "POSTERN_LISTEN=none" },
		(char[]){ "POSTERN_UNKNOWN=1" }, (char[]){ "POSTERN_LEASES=1" }, NULL };
	static const struct postern__config_flag flags[] = {
		{ "lease", "3m" },
		{ "max-attempts", "8" },
		{ "max_attempts", "9" },
	};
	const struct postern__config_input input = { .environment = environment,
		.flags = flags,
		.flag_count = 3 };
	struct postern__config *config =
			parse_with("workers: 3\n"
					   "defaults: {lease: 1m, max_crashes: 4}\n"
					   "stores: {a: {url: memory, batch_size: 1}}\n"
					   "channels: {c: {max_attempts: 7}}",
					&input);
	if (!config) {
		return;
	}
	const struct postern__config_values *values =
			postern__config_global(config);
	CHECK_INT(values->lease_ms, 180000);
	CHECK_INT(values->batch_size, 2);
	/* A value of the store itself is more specific. */
	CHECK_INT(postern__config_store(config, 0)->values.batch_size, 1);
	CHECK_INT(postern__config_store(config, 0)->values.lease_ms, 180000);
	CHECK_INT(values->workers, 3);
	CHECK_INT(values->max_crashes, 4);
	CHECK_INT(values->max_attempts, 9);
	CHECK_INT(values->backoff_count, 2);
	CHECK_INT(values->backoff_ms[1], 2000);
	CHECK_INT(postern__config_channel(config, 0)->values.max_attempts, 7);
	CHECK_INT(postern__config_channel(config, 0)->values.lease_ms, 180000);
	postern__config_destroy(config);
}

static void several_stores(void) {
	struct postern__config *config = parse_text(
			"store: sqlite:a.db\n"
			"defaults: {max_attempts: 2, lease: 1m}\n"
			"stores:\n"
			"  audit: {url: sqlite:b.db, max_attempts: 3, workers: 1}\n"
			"  scratch: {url: memory}\n"
			"channels:\n"
			"  one: {handlers: {a: {sql: reindex}}}\n"
			"  two: {store: audit, lease: 2m, handlers: {b: {sql: reindex, "
			"max_attempts: 4}, c: {sql: reindex}}}\n"
			"  three: {store: scratch}\n");
	if (!config) {
		return;
	}
	CHECK_INT(postern__config_store_count(config), 3);
	const struct postern__config_store *audit =
			postern__config_store_named(config, "audit", NULL);
	CHECK(audit == postern__config_store(config, 1));
	CHECK_STR(postern__config_store(config, 0)->name, "default");
	CHECK_STR(postern__config_store(config, 0)->values.store, "sqlite:a.db");
	CHECK_STR(audit->values.store, "sqlite:b.db");
	CHECK_STR(postern__config_store(config, 2)->values.store, "memory:");
	CHECK_INT(postern__config_store(config, 0)->values.workers, 4);
	CHECK_INT(audit->values.workers, 1);
	CHECK(postern__config_channel(config, 0)->store ==
			postern__config_store(config, 0));
	CHECK(postern__config_channel(config, 1)->store == audit);
	CHECK_INT(handler_at(config, 0, 0)->values.max_attempts, 2);
	CHECK_INT(handler_at(config, 1, 0)->values.max_attempts, 4);
	CHECK_INT(handler_at(config, 1, 1)->values.max_attempts, 3);
	CHECK_INT(handler_at(config, 1, 1)->values.lease_ms, 120000);
	CHECK(postern__config_handler_named(config, "c") ==
			handler_at(config, 1, 1));
	postern__config_destroy(config);
}

/* Checks the URLs of the stores, as "NAME=URL " each. */
static void check_urls(const char *text, const char *flag,
		const char *expected) {
	const struct postern__config_flag flags[] = { { "store", flag } };
	char *const environment[] = { NULL };
	const struct postern__config_input input = { .environment = environment,
		.flags = flags,
		.flag_count = 1 };
	struct postern__config *config = parse_with(text, &input);
	char urls[200] = "";
	for (size_t i = 0; config && i < postern__config_store_count(config); i++) {
		const struct postern__config_store *store =
				postern__config_store(config, i);
		size_t len = strlen(urls);
		(void)snprintf(urls + len, sizeof urls - len, "%s=%s ", store->name,
				store->values.store);
	}
	CHECK_STR(urls, expected);
	postern__config_destroy(config);
}

static void urls_by_flag(void) {
	check_urls("", "sqlite:x", "default=sqlite:x ");
	check_urls("store: sqlite:a", "sqlite:x", "default=sqlite:x ");
	check_urls("stores: {a: {url: sqlite:a}}", "sqlite:x", "a=sqlite:x ");
	check_urls("store: sqlite:a\nstores: {b: {url: sqlite:b}}", "sqlite:x",
			"default=sqlite:x b=sqlite:b ");
	check_urls("stores: {b: {url: sqlite:b}, default: {url: sqlite:a}}",
			"sqlite:x", "b=sqlite:b default=sqlite:x ");
}

static void check_refused(const struct postern__config_input *input,
		const char *text, const char *expected) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	int r = postern__config_parse("f", text, strlen(text), input, &config,
			&error);
	if (!CHECK_INT(r, POSTERN_E_INVALID)) {
		postern__config_destroy(config);
		return;
	}
	CHECK_STR(error.text, expected);
}

static void bad_flags(void) {
	static const struct {
		struct postern__config_flag flag;
		const char *error;
	} table[] = {
		{ { "leese", "5m" }, "unknown flag --leese; did you mean --lease?" },
		{ { "zzzzzzzz", "5m" }, "unknown flag --zzzzzzzz" },
		/* An option that only a channel has is no flag. */
		{ { "unrouted", "drop" }, "unknown flag --unrouted" },
		{ { "lease", "5" }, "--lease: duration '5' has no unit; write a number "
							"with one of the units ms, s, m, h, d, such as "
							"30s" },
		{ { "listen", ":80" },
				"--listen: ':80' is not an address; write ADDRESS:PORT, "
				"[IPv6]:PORT, unix:PATH, systemd, or none" },
		{ { "retention-payload", "7" },
				"--retention-payload: duration '7' has no unit; write a number "
				"with one of the units ms, s, m, h, d, such as 30s" },
		{ { "timeout", "5m" },
				"--timeout: timeout (5m) must be less than lease (5m, the "
				"default); raise 'lease', too" },
		{ { "store_file", "/nonexistent" },
				"--store-file: no file '/nonexistent'" },
	};
	static char *const environment[] = { NULL };
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const struct postern__config_input input = { .environment = environment,
			.flags = &table[i].flag,
			.flag_count = 1 };
		check_refused(&input, "", table[i].error);
	}
}

static void misspelt_variables(void) {
	char *const environment[] = { (char[]){ "POSTERN_LEESE=2m" },
		(char[]){ "POSTERN_MAX_ATTEMPT=3" }, (char[]){ "POSTERN_CONFG=x" },
		(char[]){ "POSTERN_LEASE=2m" }, (char[]){ "POSTERN_CRASH_AT=x" },
		(char[]){ "POSTERN_PAUSE_AT=x" }, (char[]){ "POSTERN_FAIL_AT=x" },
		(char[]){ "POSTERN_BUG=x" }, (char[]){ "POSTERN_SEED=1" },
		(char[]){ "POSTERN_STEPS=1" }, (char[]){ "POSTERN_HANDLER=mail" },
		(char[]){ "POSTERN_ATTEMPT=1" }, (char[]){ "POSTERN_FENCE=1" },
		(char[]){ "POSTERN_SOMETHING_ELSE=1" }, (char[]){ "POSTERN_=1" },
		(char[]){ "LEESE=1" }, NULL };
	const struct postern__config_input input = { .environment = environment };
	struct postern__config *config = parse_with("", &input);
	if (!config) {
		return;
	}
	CHECK_STR(postern__config_warning(config, 0),
			"unknown variable POSTERN_LEESE; did you mean "
			"POSTERN_LEASE?");
	CHECK_STR(postern__config_warning(config, 1),
			"unknown variable POSTERN_MAX_ATTEMPT; did you mean "
			"POSTERN_MAX_ATTEMPTS?");
	CHECK_STR(postern__config_warning(config, 2),
			"unknown variable POSTERN_CONFG; did you mean "
			"POSTERN_CONFIG?");
	CHECK(!postern__config_warning(config, 3));
	postern__config_destroy(config);
}

static void bad_environment(void) {
	static const struct {
		char variable[64];
		const char *error;
	} table[] = {
		{ "POSTERN_LEASE=5", "$POSTERN_LEASE: duration '5' has no unit; write "
							 "a number with one of the units ms, s, m, h, d, "
							 "such as 30s" },
		{ "POSTERN_LISTEN=:80",
				"$POSTERN_LISTEN: ':80' is not an address; write ADDRESS:PORT, "
				"[IPv6]:PORT, unix:PATH, systemd, or none" },
		{ "POSTERN_RETENTION_DEDUPE=1d",
				"$POSTERN_RETENTION_DEDUPE: retention.dedupe (1d) must not be "
				"less than retention.payload (none: unlimited): an id is "
				"remembered at least as long as its message is kept" },
		{ "POSTERN_TIMEOUT=1h",
				"$POSTERN_TIMEOUT: timeout (1h) must be less than lease "
				"(5m, the default); raise 'lease', too" },
		{ "POSTERN_LEASE=5s",
				"$POSTERN_LEASE: timeout (5s, the default for sql) must be "
				"less than lease (5s)" },
		{ "POSTERN_STORE=redis://u:canary@h/0",
				"$POSTERN_STORE: the store 'redis:' needs libpostern-redis, "
				"which is not registered; write " STORE_URLS },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char variable[64];
		char *environment[] = { variable, NULL };
		memcpy(variable, table[i].variable, sizeof variable);
		const struct postern__config_input input = { .environment =
															 environment };
		check_refused(&input, "channels: {c: {handlers: {h: {sql: reindex}}}}",
				table[i].error);
	}
}

static void variables(void) {
	char *const environment[] = { (char[]){ "A=alpha" }, (char[]){ "EMPTY=" },
		(char[]){ "N=7" }, (char[]){ "NL=x: y\nz" }, (char[]){ "BAD=\xff" },
		NULL };
	const struct postern__config_input input = { .environment = environment };
	static const struct {
		const char *argument;
		const char *result;
	} table[] = {
		{ "${A}", "alpha" },
		{ "x${A}y${N}z", "xalphay7z" },
		{ "${A:-other}", "alpha" },
		{ "${NO:-other}", "other" },
		{ "${EMPTY:-other}", "other" },
		{ "a${EMPTY}b", "ab" },
		{ "${NO:-}x", "x" },
		{ "${NO:-$A:-{}x", "$A:-{x" },
		{ "$${A}", "${A}" },
		{ "$$${A}", "$${A}" },
		{ "$A $ $$ $1", "$A $ $$ $1" },
		{ "cost: $5 ${A}", "cost: $5 alpha" },
		{ "${NL}", "x: y\nz" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char text[200];
		(void)snprintf(text, sizeof text,
				"channels: {c: {handlers: {h: {exec: [/a, '%s']}}}}",
				table[i].argument);
		struct postern__config *config = parse_with(text, &input);
		if (config) {
			const struct postern__exec_settings *exec =
					handler_at(config, 0, 0)->settings;
			CHECK_STR(exec->argv[1], table[i].result);
			postern__config_destroy(config);
		}
	}
	check_refused(&input, "store: ${BAD}",
			"f:1:8: the variable 'BAD' is not valid UTF-8");
	/* Keys are not expanded. */
	check_refused(&input, "${A}: x",
			"f:1:1: unknown key '${A}' at the top "
			"level");
	struct postern__config *config =
			parse_with("workers: ${N}\ndefaults: {backoff: ['${N}s', 1s]}",
					&input);
	if (config) {
		CHECK_INT(postern__config_global(config)->workers, 7);
		CHECK_INT(postern__config_global(config)->backoff_ms[0], 7000);
		postern__config_destroy(config);
	}
}

static void variables_that_multiply(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)4 * 1024 * 1024);
	char *big = malloc(65500);
	if (!big) {
		abort();
	}
	memset(big, 'b', 65500);
	memcpy(big, "B=", 2);
	big[65499] = '\0';
	char *const environment[] = { big, NULL };
	const struct postern__config_input input = { .environment = environment };
	postern__buf_append_text(&buf, "channels:\n c:\n  handlers:\n");
	for (int i = 0; i < 1000; i++) {
		postern__buf_printf(&buf, "   h%d: {exec: [/a, '${B}']}\n", i);
	}
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	CHECK_INT(postern__config_parse("f", postern__buf_text(&buf), buf.len,
					  &input, &config, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text,
			"the configuration is too large after the variables are expanded");
	check_refused(&input,
			"store: "
			"'${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}${B}$"
			"{B}${B}'",
			"f:1:8: the text with its variables is over 1048576 bytes");
	free(big);
	postern__buf_finish(&buf);
}

static void shipped_texts(void) {
	const struct postern__sample_wishes none = { 0 };
	struct postern__buf sample;
	struct postern_error error;
	postern__buf_init(&sample, POSTERN__CONFIG_BYTES_MAX);
	CHECK_OK(postern__sample_write(&none, &sample, &error), &error);
	struct postern__config *config = parse_text(postern__buf_text(&sample));
	if (config) {
		CHECK_INT(postern__config_channel_count(config), 1);
		check_defaults(postern__config_global(config));
		postern__config_destroy(config);
	}
	/* Of a mapping of two members each comment names its own; what needs a file
	   or another library is shown as well. */
	CHECK_CONTAINS(postern__buf_text(&sample), "  # payload: how long");
	CHECK_CONTAINS(postern__buf_text(&sample), "  # dedupe: how long");
	CHECK_CONTAINS(postern__buf_text(&sample), "# auth: {tokens: [{name: ");
	CHECK_CONTAINS(postern__buf_text(&sample), "      # shop: {webhook: {url");
	/* Remove the '#' of every setting in a comment. */
	size_t len = sample.len;
	char *text = malloc(len + 1);
	size_t used = 0;
	unsigned settings = 0;
	if (!text) {
		abort();
	}
	for (size_t i = 0; i <= len; i++) {
		const char *at = postern__buf_text(&sample) + i;
		bool starts = i == 0 || at[-1] == '\n';
		bool setting = starts && at[0] == '#' && at[1] != '\n' &&
					   (at[1] != ' ' || at[2] == ' ');
		settings += setting;
		if (!setting) {
			text[used++] = *at;
		}
	}
	size_t options = 0;
	struct postern__config_option option;
	for (size_t i = 0; postern__config_option_get(i, &option); i++) {
		options += !option.later && !strstr(option.name, "_file");
	}
	/* Without `store`, which is set; `retention` and `health` are one line
	   each, and so is `tls`, whose options are files. With those of a channel,
	   `stores`, `sources` with one, and three handlers. */
	CHECK_INT(settings, options - 3 + 1 + 9 + 1 + 2 + 8);
	config = parse_text(text);
	if (config) {
		check_defaults(postern__config_global(config));
		check_sql_defaults(handler_at(config, 0, 0));
		CHECK_STR(handler_at(config, 0, 0)->legacy_keys[0], "ledger-v1");
		CHECK_INT(handler_at(config, 0, 1)->values.timeout_ms, 30000);
		CHECK_STR(handler_at(config, 0, 2)->kind->name, "pull");
		CHECK_INT(postern__config_channel(config, 0)->source_count, 1);
		postern__config_destroy(config);
	}
	postern__buf_finish(&sample);
	free(text);
}

static const struct tap_case cases[] = {
	{ "an option that is not set has its default", nothing_set },
	{ "a default can be written explicitly", defaults_spelled_out },
	{ "every supported option can be set", every_option },
	{ "channels and handlers are read as written", channels_and_handlers },
	{ "the most specific of default, store, channel and handler wins",
			nearest_wins },
	{ "a flag overrides the environment, which overrides the file",
			flag_environment_file },
	{ "a channel inherits the options of its store", several_stores },
	{ "a flag with a URL sets the default store, or the only one",
			urls_by_flag },
	{ "the error of a bad flag names the flag", bad_flags },
	{ "the error of a bad variable names the variable", bad_environment },
	{ "a misspelt variable gives a warning with a suggestion",
			misspelt_variables },
	{ "variables are expanded in values, once, and never in keys", variables },
	{ "the expansion of variables has a limit", variables_that_multiply },
	{ "the sample is valid, and so is each setting in its comments",
			shipped_texts },
};

TAP_MAIN(cases)
