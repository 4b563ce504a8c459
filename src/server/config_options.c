/* SPDX-License-Identifier: MIT */
/*
 * The option table of the configuration.
 */

#include "server/config_options.h"

#include <assert.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <postern/runner.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "core/box.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/config_section.h"
#include "server/socket.h"
#include "store/store.h"

#define AT(member) offsetof(struct postern__config_values, member)
/* For a LATER row, whose value is not stored. */
#define NOWHERE 0

#define ROOT POSTERN__IN_ROOT
#define DEFAULTS POSTERN__IN_DEFAULTS
#define STORES POSTERN__IN_STORE
#define CHANNEL POSTERN__IN_CHANNEL
#define HANDLER POSTERN__IN_HANDLER
/* Options of a store. */
#define BOX (DEFAULTS | STORES)
/* Options of a delivery. */
#define POLICY (DEFAULTS | STORES | CHANNEL | HANDLER)

#define NONE POSTERN_OPTION_NONE
#define AUTO POSTERN_OPTION_AUTO
#define SECRET POSTERN_OPTION_SECRET
#define LATER POSTERN_OPTION_LATER

#define TEXT POSTERN_OPTION_TEXT
#define DURATION POSTERN_OPTION_DURATION
#define SIZE POSTERN_OPTION_SIZE
#define COUNT POSTERN_OPTION_COUNT
#define SWITCH POSTERN_OPTION_SWITCH
#define CHOICE POSTERN_OPTION_CHOICE
#define DURATIONS POSTERN_OPTION_DURATIONS

#define MS_MAX ((uint64_t)POSTERN_DURATION_MS_MAX)
/* A larger number of deliveries is a typing error. */
#define MANY 1000000
/* 16 GiB: more memory for waiting work is not useful on any machine. */
#define QUEUE_BYTES_MAX ((uint64_t)16 << 30)

/* Some answers of the longest kind, and many short ones. */
#define MEMORY_BYTES_MIN ((uint64_t)16 << 20)

static int check_mode(const char *text, struct postern_error *error) {
	unsigned mode;
	return postern__socket_mode_parse(text, &mode, error);
}

static int check_rate(const char *text, struct postern_error *error) {
	uint32_t count;
	int64_t period_ms;
	return postern__rate_parse(text, POSTERN_RATE_COUNT_MAX, &count, &period_ms,
			error);
}

static int check_file(const char *text, struct postern_error *error) {
	return *text ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_INVALID, "no file is named");
}

static int check_marker(const char *text, struct postern_error *error) {
	return postern__handler_key_check(text, error);
}

static int check_channel(const char *text, struct postern_error *error) {
	return postern__channel_name_check(text, error);
}

/* clang-format off */
static const struct postern_option options[] = {
	/* The process. */
	{ "store", TEXT, AT(store), ROOT, SECRET, 0, 0, NULL, "sqlite:postern.db", "where messages are kept: sqlite:FILE, postgres://USER@HOST/DATABASE; memory: beside other stores, or for bench; redis://HOST for markers only", "URL", postern__store_url_check },
	{ "listen", TEXT, AT(listen), ROOT, NONE, 0, 0, NULL, "127.0.0.1:7420", "addresses for HTTP: IP:PORT, unix:PATH, systemd, several with commas", "ADDRESS", postern__listen_check },
	{ "ingest_listen", TEXT, AT(ingest_listen), ROOT, NONE, 0, 0, NULL, "none", "addresses that only accept messages", "ADDRESS", postern__listen_check },
	{ "listen_mode", TEXT, AT(listen_mode), ROOT, 0, 0, 0, NULL, "0600", "permissions of the sockets of listen and ingest_listen, in octal", "MODE", check_mode },
	{ "listen_group", TEXT, AT(listen_group), ROOT, NONE, 0, 0, NULL, "none", "group of these sockets", "GROUP", NULL },
	{ "hosts", TEXT, AT(hosts), ROOT, NONE, 0, 0, NULL, "none", "names by which clients call the server over TCP, several with commas", "NAME", postern__auth_hosts_check },
	{ "tls.cert_file", TEXT, AT(tls_cert_file), ROOT, NONE, 0, 0, NULL, "none", "certificate of the server, in PEM: then addresses of TCP speak TLS only", "FILE", check_file },
	{ "tls.key_file", TEXT, AT(tls_key_file), ROOT, NONE, 0, 0, NULL, "none", "its private key, in PEM", "FILE", check_file },
	{ "memory_max", SIZE, AT(memory_max), ROOT, 0, MEMORY_BYTES_MIN, QUEUE_BYTES_MAX, NULL, "256MiB", "memory for requests and answers of HTTP; over it they are refused with 503", NULL, NULL },
	{ "metrics", SWITCH, AT(metrics), ROOT, 0, 0, 0, NULL, "on", "serve /metrics, in the format of Prometheus", NULL, NULL },
	{ "health.degraded_after", DURATION, AT(health_degraded_ms), ROOT, NONE, 1, MS_MAX, NULL, "2m", "/healthz?verbose: degraded if work is due and no run ends for so long", NULL, NULL },
	{ "health.unhealthy_after", DURATION, AT(health_unhealthy_ms), ROOT, NONE, 1, MS_MAX, NULL, "5m", "the same for unhealthy", NULL, NULL },
	{ "shutdown_grace", DURATION, AT(shutdown_grace_ms), ROOT, 0, 0, MS_MAX, NULL, "30s", "how long running handlers may finish at a stop", NULL, NULL },

	/* The box and its runner. */
	{ "workers", COUNT, AT(workers), ROOT | STORES, 0, 1, POSTERN_WORKER_COUNT_MAX, NULL, "4", "threads that run handlers, for each store", NULL, NULL },
	{ "max_workers", COUNT, AT(max_workers), ROOT | STORES, 0, 1, POSTERN_WORKER_COUNT_MAX, NULL, "256", "the most of these threads, while handlers hang", NULL, NULL },
	{ "polling_interval", DURATION, AT(polling_interval_ms), BOX, 0, 1, MS_MAX, NULL, "30s", "how often to poll for due work", NULL, NULL },
	{ "restart_delay", DURATION, AT(restart_delay_ms), BOX, 0, 1, MS_MAX, NULL, "5s", "pause after an internal error", NULL, NULL },
	{ "batch_size", COUNT, AT(batch_size), BOX, 0, 1, POSTERN_ACCEPT_BATCH_MAX, NULL, "100", "deliveries per claim", NULL, NULL },
	{ "command_timeout", DURATION, AT(command_timeout_ms), BOX, 0, 1, MS_MAX, NULL, "30s", "how long a write may wait for the store", NULL, NULL },
	{ "run_queue_max", COUNT, AT(run_queue_max), BOX, 0, 1, MANY, NULL, "10000", "leased deliveries in memory", NULL, NULL },
	{ "run_queue_bytes_max", SIZE, AT(run_queue_bytes_max), BOX, 0, 1, QUEUE_BYTES_MAX, NULL, "64MiB", "leased deliveries in memory, in bytes", NULL, NULL },
	{ "orphans", CHOICE, AT(orphans), BOX, 0, 0, 0, "poison|hold|fail", "poison", "open deliveries whose handler no running node has", NULL, NULL },
	{ "require_inbox", CHOICE, AT(require_inbox), DEFAULTS, 0, 0, 0, "none|warn|fail", "none", "channels in mode guard or direct: allowed, reported, or refused", NULL, NULL },
	{ "command_retries", COUNT, AT(command_retries), BOX, 0, 0, 100, NULL, "3", "how often an operation of the store is retried if its connection is lost", NULL, NULL },
	{ "schema", TEXT, AT(schema), BOX, 0, 0, 0, NULL, "postern", "PostgreSQL: schema of the store", NULL, NULL },
	{ "connections", COUNT, AT(connections), BOX, 0, 2, 64, NULL, "8", "PostgreSQL, Redis: maximum number of connections", NULL, NULL },
	{ "node_lease", DURATION, AT(node_lease_ms), BOX, 0, 1, MS_MAX, NULL, "15s", "how long a node counts as live after its last renewal", NULL, NULL },
	{ "listen_url", TEXT, AT(listen_url), BOX, NONE | SECRET, 0, 0, NULL, "none", "PostgreSQL: URL for LISTEN, past a pooler (none: the URL of the store)", NULL, NULL },
	{ "processing", CHOICE, AT(processing), BOX, 0, 0, 0, "parallel|exclusive", "parallel", "which nodes of a store run handlers: all, or the one that holds the lock", NULL, NULL },
	{ "lock_name", TEXT, AT(lock_name), BOX, 0, 0, 0, NULL, "InboxProcessor_{store}", "name of the lock of exclusive processing", NULL, NULL },
	{ "cleanup_lock_name", TEXT, AT(cleanup_lock_name), BOX, 0, 0, 0, NULL, "InboxCleanup_{store}", "name of the lock of the cleanup", NULL, NULL },
	{ "lock_acquire_timeout", DURATION, AT(lock_acquire_timeout_ms), BOX, 0, 1, MS_MAX, NULL, "60s", "how long to wait for the lock before that is logged", NULL, NULL },
	{ "cleanup_interval", DURATION, AT(cleanup_interval_ms), BOX, 0, 1, MS_MAX, NULL, "1h", "how often to remove what has expired", NULL, NULL },
	{ "cleanup_batch", COUNT, AT(cleanup_batch), BOX, 0, 1, MANY, NULL, "10000", "maximum number of messages or ids removed in one commit", NULL, NULL },
	{ "retention.payload", DURATION, AT(retention_payload_ms), BOX | CHANNEL, NONE, 1, MS_MAX, NULL, "none", "how long completed messages are kept", NULL, NULL },
	{ "retention.dedupe", DURATION, AT(retention_dedupe_ms), BOX | CHANNEL | HANDLER, NONE, 1, MS_MAX, NULL, "none", "how long ids are remembered; of a handler: its own keys or markers", NULL, NULL },

	/* A delivery. */
	{ "max_attempts", COUNT, AT(max_attempts), POLICY, 0, 0, POSTERN_ATTEMPTS_MAX, NULL, "5", "attempts in total before a delivery is poisoned", NULL, NULL },
	{ "max_retry_delay", DURATION, AT(max_retry_delay_ms), POLICY, 0, 0, MS_MAX, NULL, "5m", "longest pause between attempts", NULL, NULL },
	{ "backoff", DURATIONS, AT(backoff_ms), POLICY, 0, 0, MS_MAX, "exponential", "exponential", "pauses between attempts: exponential, or a list", NULL, NULL },
	{ "lease", DURATION, AT(lease_ms), POLICY, 0, 1, MS_MAX, NULL, "5m", "when a handler that still runs is reported as stuck", NULL, NULL },
	{ "timeout", DURATION, AT(timeout_ms), POLICY, NONE | AUTO, 1, MS_MAX, NULL, "default", "how long one attempt may take (default: none, sql 5s)", NULL, NULL },
	{ "concurrency", COUNT, AT(concurrency), POLICY, NONE, 1, MANY, NULL, "none", "attempts of one handler at the same time", NULL, NULL },
	{ "commit_batch", COUNT, AT(commit_batch), POLICY, 0, 1, POSTERN_COMMIT_BATCH_MAX, NULL, "1", "deliveries of a sql handler per commit", NULL, NULL },
	{ "max_crashes", COUNT, AT(max_crashes), POLICY, 0, 1, POSTERN_ATTEMPTS_MAX, NULL, "3", "crashes of the process before a delivery is poisoned", NULL, NULL },
	{ "on_poisoned_duplicate", CHOICE, AT(on_poisoned_duplicate), POLICY, 0, 0, 0, "ignore|retry", "ignore", "what a duplicate does to a poisoned delivery", NULL, NULL },
	{ "on_broken", CHOICE, AT(on_broken), POLICY, 0, 0, 0, "hold|count", "hold", "a handler that is at fault itself: hold it and probe, or count a failure", NULL, NULL },
	{ "break_after", COUNT, AT(break_after), POLICY, NONE, 1, POSTERN_BREAK_AFTER_MAX, NULL, "20", "failures in a row of different messages before a handler is held", NULL, NULL },
	{ "rate", TEXT, AT(rate), POLICY, NONE, 0, 0, NULL, "none", "attempts of one handler that start in a second, minute or hour, on all nodes together: 100/s, 10/m, 5/h", "N/s", check_rate },
	{ "burst", COUNT, AT(burst), POLICY, NONE, 1, POSTERN_RATE_COUNT_MAX, NULL, "none", "the most of these attempts at once (none: as many as rate allows)", NULL, NULL },

	/* A channel. */
	{ "max_message_size", SIZE, AT(max_message_size), BOX | CHANNEL, 0, 1, POSTERN_BODY_LEN_MAX, NULL, "1MiB", "longest body that is accepted", NULL, NULL },
	{ "unrouted", CHOICE, AT(unrouted), CHANNEL, 0, 0, 0, "park|drop|reject", "park", "messages of a type no handler wants", NULL, NULL },
	{ "on_conflict", CHOICE, AT(on_conflict), CHANNEL, 0, 0, 0, "reject|ignore", "reject", "known key with another body (under a key rule other than id: ignore)", NULL, NULL },
	{ "allow_without_inbox", SWITCH, AT(allow_without_inbox), CHANNEL, 0, 0, 0, NULL, "off", "exempt from require_inbox", NULL, NULL },
	{ "mode", CHOICE, AT(mode), CHANNEL, 0, 0, 0, "inbox|guard|direct", "inbox", "how messages reach handlers: stored first; or inline, under a guard; or inline", NULL, NULL },
	{ "guard_wait", DURATION, AT(guard_wait_ms), BOX | CHANNEL, 0, 0, MS_MAX, NULL, "10s", "mode guard: how long a copy waits for the one that is running", NULL, NULL },
	{ "marker", TEXT, AT(marker), CHANNEL, NONE, 0, 0, NULL, "none", "mode guard: name of one marker that handlers share, in this and other channels", "NAME", check_marker },
	{ "fault_channel", TEXT, AT(fault_channel), CHANNEL, NONE, 0, 0, NULL, "none", "channel of the same store that gets what a source gives up", "CHANNEL", check_channel },
	{ "dedupe", CHOICE, AT(dedupe), CHANNEL | HANDLER, 0, 0, 0, "store|memory", "store", "mode guard: where a handler's keys are remembered; memory: until a restart", NULL, NULL },
	{ "dedupe_max", COUNT, AT(dedupe_max), CHANNEL | HANDLER, 0, 1, POSTERN_DEDUPE_COUNT_MAX, NULL, "1000000", "the most keys that a handler with dedupe: memory remembers", NULL, NULL },
	{ "missing_key", CHOICE, AT(missing_key), CHANNEL, 0, 0, 0, "reject|process", "reject", "messages in which the key rule finds no key", NULL, NULL },
	{ "order_by", TEXT, NOWHERE, CHANNEL, LATER, 0, 0, NULL, "none", "exact order per value", NULL, NULL },
	{ "on_poison", CHOICE, NOWHERE, CHANNEL, LATER, 0, 0, "block|skip", "block", "what happens to messages behind a poisoned one", NULL, NULL },
};
/* clang-format on */

#define OPTION_COUNT (sizeof options / sizeof options[0])
_Static_assert(OPTION_COUNT <= POSTERN__CONFIG_OPTION_COUNT_MAX,
		"an origin for every option");
/* A list is a pointer followed by its count. */
_Static_assert(AT(backoff_count) == AT(backoff_ms) + sizeof(int64_t *),
		"pointer before length");
_Static_assert(POSTERN_BACKOFF_COUNT_MAX == POSTERN_OPTION_DURATION_COUNT_MAX,
		"as many delays as a policy has");

const struct postern_option *postern__option_at(size_t index) {
	return index < OPTION_COUNT ? &options[index] : NULL;
}

const struct postern_option *postern__option_named(const char *name) {
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (strcmp(options[i].name, name) == 0) {
			return &options[i];
		}
	}
	return NULL;
}

size_t postern__option_index(const struct postern_option *option) {
	return (size_t)(option - options);
}

bool postern__option_is_reloadable(const struct postern_option *option) {
	static const char *const names[] = { "hosts", "metrics",
		"health.degraded_after", "health.unhealthy_after", "shutdown_grace",
		"require_inbox", "tls.cert_file", "tls.key_file" };
	bool is = option->places & (POSTERN__IN_CHANNEL | POSTERN__IN_HANDLER);
	for (size_t i = 0; !is && i < sizeof names / sizeof names[0]; i++) {
		is = strcmp(option->name, names[i]) == 0;
	}
	return is;
}

bool postern__option_is_listen(const struct postern_option *option) {
	return option->check == postern__listen_check;
}

bool postern__option_is_joined(const struct postern_option *option) {
	return postern__option_is_listen(option) ||
		   option->check == postern__auth_hosts_check;
}

size_t postern__option_path(const struct postern_option *option,
		const char **text) {
	const struct postern_store_kind *kind;
	const char *rest;
	if (option->check == check_file) {
		return strcmp(*text, "none") == 0 ? SIZE_MAX : 0;
	}
	if (option->check != postern__store_url_check) {
		return SIZE_MAX;
	}
	for (size_t i = 0; (kind = postern__store_kind_at(i)); i++) {
		if (strcmp(kind->scheme, *text) == 0 &&
				strlen(kind->form) == strlen(kind->scheme) + 1) {
			*text = kind->form;
		}
	}
	kind = postern__store_kind_of(*text, &rest);
	return kind && kind->is_file ? (size_t)(rest - *text) : SIZE_MAX;
}

int postern__option_defaults(struct postern__config_values *values,
		struct postern__arena *arena, struct postern_error *error) {
	*values = (struct postern__config_values){ 0 };
	return postern__option_set_fallbacks(options, OPTION_COUNT, values, arena,
			error);
}

void postern__option_places(unsigned scopes, char *out, size_t size) {
	static const char *const names[] = { "the top level", "'defaults'",
		"a store", "a channel", "a handler" };
	const size_t count = sizeof names / sizeof names[0];
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (!(scopes & 1U << i)) {
			continue;
		}
		bool last = (scopes >> i) == 1;
		int n = snprintf(out + len, size - len, "%s%s",
				len == 0 ? ""
				: last   ? " or "
						 : ", ",
				names[i]);
		len += (size_t)n;
		assert(len < size);
	}
}
