/* SPDX-License-Identifier: MIT */
/*
 * The file that `postern init` writes. A line that begins with "#" and no blank
 * is a setting at its default, ready to be uncommented; a test does so with all
 * of them. The store given by flags replaces the default, but a password is
 * never written.
 */

#include "server/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/redact.h"

/* clang-format off */
const char postern__config_sample[] =
"# Configuration of Postern. Check it with `postern check`.\n"
"#\n"
"# Any option of the first two sections is also a flag (--lease 5m) and a\n"
"# variable (POSTERN_LEASE=5m); flag > variable > file > default.\n"
"# Durations: 250ms 30s 5m 2h 7d. Sizes: 512B 64KiB 1MiB.\n"
"# Values may contain ${NAME} or ${NAME:-default} from the environment.\n"
"\n"
"# Where messages are kept: sqlite:FILE, relative to the directory of this\n"
"# file, or postgres://USER@HOST/DATABASE, which any number of processes can\n"
"# share. More stores, each with a name that channels choose by `store: NAME`,\n"
"# can be listed in `stores`.\n"
"store: sqlite:postern.db\n"
"#stores: {}    # or {audit: {url: sqlite:audit.db}}\n"
"\n"
"# A socket on which the server answers HTTP: unix:PATH, in addition to the one\n"
"# beside each SQLite file.\n"
"#listen: none    # or unix:/run/postern.sock\n"
"# How long running handlers may finish when the server is stopped.\n"
"#shutdown_grace: 30s\n"
"# Threads that run handlers.\n"
"#workers: 4\n"
"\n"
"defaults:\n"
"  # For every handler; a channel or a handler can set its own value.\n"
"\n"
"  # Attempts in total before a delivery is poisoned.\n"
"#  max_attempts: 5\n"
"  # Pauses grow as 2s, 4s, 8s, ... up to this; or set a list of pauses.\n"
"#  max_retry_delay: 5m\n"
"#  backoff: exponential    # or [1s, 10s, 1m]\n"
"  # How long one attempt may take. default: 5s for sql, else no limit.\n"
"#  timeout: default\n"
"  # When a handler that still runs is reported as stuck; more than timeout.\n"
"#  lease: 5m\n"
"  # Attempts of one handler at the same time.\n"
"#  concurrency: none\n"
"  # Deliveries of a sql handler that share a commit.\n"
"#  commit_batch: 1\n"
"  # Crashes of the process before a delivery is poisoned.\n"
"#  max_crashes: 3\n"
"  # A duplicate of a poisoned delivery: ignore it, or retry.\n"
"#  on_poisoned_duplicate: ignore\n"
"\n"
"  # For the process.\n"
"\n"
"  # Longest body that is accepted.\n"
"#  max_message_size: 1MiB\n"
"  # Deliveries whose handler is no longer configured: poison, hold, fail.\n"
"#  orphans: poison\n"
"  # Which processes run handlers if several share a store: parallel, all of\n"
"  # them; exclusive, the one that holds the lock.\n"
"#  processing: parallel\n"
"  # Channels without an inbox: none, warn, fail. In this version a\n"
"  # configuration cannot have one.\n"
"#  require_inbox: none\n"
"#  polling_interval: 30s\n"
"#  batch_size: 100\n"
"#  restart_delay: 5s\n"
"#  command_timeout: 30s\n"
"#  command_retries: 3\n"
"#  run_queue_max: 10000\n"
"#  run_queue_bytes_max: 64MiB\n"
"\n"
"  # For stores in PostgreSQL: the schema, the maximum number of connections,\n"
"  # and the URL for LISTEN if a pooler is in between.\n"
"#  schema: postern\n"
"#  connections: 8\n"
"#  listen_url: none    # or postgres://USER@HOST/DATABASE\n"
"\n"
"  # How long a complete message is kept, and how long its id is remembered,\n"
"  # so that a late copy is still a duplicate. none: nothing expires.\n"
"#  retention: {payload: none, dedupe: none}    # or {payload: 7d, dedupe: 30d}\n"
"#  cleanup_interval: 1h\n"
"#  cleanup_batch: 10000\n"
"\n"
"channels:\n"
"  orders:\n"
"    # Messages of a type that no handler wants: park, drop, reject.\n"
"#    unrouted: park\n"
"    # A known id with another body: reject, ignore.\n"
"#    on_conflict: reject\n"
"    handlers:\n"
"      # The key of a handler is stored with each of its deliveries: choose\n"
"      # it once. To rename it, list the former one in legacy_keys.\n"
"      ledger:\n"
"#        types: [\"order.placed\", \"order.*\"]\n"
"#        legacy_keys: [ledger-v1]\n"
"        # Runs in one transaction with the delivery's completion. On\n"
"        # PostgreSQL let the owner create the table, grant INSERT on it and\n"
"        # remove `create table`, which needs the right to create.\n"
"        sql: |\n"
"          create table if not exists journal(order_id text, entry text);\n"
"          insert into journal(order_id, entry) values (:subject, :body);\n"
"\n"
"      # A program: the body on its standard input, no shell. Exit code 0 is\n"
"      # done, 65 and 100 poison, anything else is retried.\n"
"#      mail:\n"
"#        exec: [\"/bin/cat\"]\n"
"#        timeout: 30s\n"
"#        max_attempts: 10\n";
/* clang-format on */

/* The text that redact() writes instead of a secret, and its replacement: the
   variable, or nothing, so that libpq reads ~/.pgpass. */
#define HIDDEN "***"
#define PASSWORD "${POSTERN_PASSWORD:-}"

/* Where a password may be, its replacement there, and the comment about its
   encoding. */
struct spot {
	const char *hidden;
	const char *written;
	const char *remark;
};

static const struct spot spots[] = {
	{ ":" HIDDEN "@", ":" PASSWORD "@",
			"# The password, with % as %25, @ as %40, / as %2F and ? as %3F, "
			"is taken\n"
			"# from the environment; without it libpq looks into "
			"~/.pgpass.\n" },
	{ "password=" HIDDEN, "password='" PASSWORD "'",
			"# The password, with a \\ in front of each ' and \\, is taken "
			"from the\n"
			"# environment; without it libpq looks into ~/.pgpass.\n" },
};

/* A text between double quotes, in which only the replacement is a variable. */
static void write_quoted(struct postern__buf *out, const char *text,
		const struct spot *spot) {
	postern__buf_append_char(out, '"');
	while (*text) {
		if (spot && strncmp(text, spot->hidden, strlen(spot->hidden)) == 0) {
			postern__buf_append_text(out, spot->written);
			text += strlen(spot->hidden);
			continue;
		}
		if (*text == '"' || *text == '\\') {
			postern__buf_append_char(out, '\\');
		} else if (strncmp(text, "${", 2) == 0) {
			postern__buf_append_char(out, '$');
		}
		postern__buf_append_char(out, *text++);
	}
	postern__buf_append_text(out, "\"\n");
}

/* How often a text contains another. */
static size_t count_of(const char *text, const char *part) {
	size_t count = 0;
	for (; (text = strstr(text, part)); text += strlen(part)) {
		count++;
	}
	return count;
}

/* Find the password of a URL, if it is the only secret. */
static const struct spot *find_spot(const char *shown) {
	if (count_of(shown, HIDDEN) != 1) {
		return NULL;
	}
	if (strstr(shown, spots[0].hidden)) {
		return &spots[0];
	}
	/* Of the keyword form, and not the end of another name. */
	const char *at = strstr(shown, spots[1].hidden);
	return at && at > shown && !strstr(shown, "://") && strchr(": ", at[-1])
				   ? &spots[1]
				   : NULL;
}

static int write_url(struct postern__buf *out, const char *url,
		struct postern_error *error) {
	/* Redacting a secret may make the text longer. */
	size_t size = 2 * strlen(url) + POSTERN__REDACT_TEXT_MAX;
	char *shown = malloc(size);
	if (!shown) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = POSTERN_OK;
	postern__redact(url, shown, size);
	const struct spot *spot = find_spot(shown);
	if (strcmp(shown, url) == 0 || count_of(shown, HIDDEN) == 0) {
		postern__buf_append_text(out, "store: ");
		write_quoted(out, url, NULL);
	} else if (spot) {
		postern__buf_append_text(out, spot->remark);
		postern__buf_append_text(out, "store: ");
		write_quoted(out, shown, spot);
	} else {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the URL contains secrets that init cannot leave out: write "
				"the URL to a file, and name that file with --store-file");
	}
	free(shown);
	return r;
}

static int write_line(struct postern__buf *out, const char *line, size_t len,
		const struct postern__config_wishes *wishes,
		struct postern_error *error) {
	static const char store[] = "store: ";
	static const char schema[] = "#  schema: ";
	static const char connections[] = "#  connections: ";
	if (strncmp(line, store, strlen(store)) == 0 && wishes->store) {
		return write_url(out, wishes->store, error);
	}
	if (strncmp(line, store, strlen(store)) == 0 && wishes->store_file) {
		postern__buf_append_text(out, "store_file: ");
		write_quoted(out, wishes->store_file, NULL);
	} else if (strncmp(line, schema, strlen(schema)) == 0 && wishes->schema) {
		postern__buf_append_text(out, "  schema: ");
		write_quoted(out, wishes->schema, NULL);
	} else if (strncmp(line, connections, strlen(connections)) == 0 &&
			   wishes->connections) {
		postern__buf_append_text(out, "  connections: ");
		write_quoted(out, wishes->connections, NULL);
	} else {
		postern__buf_append(out, line, len);
	}
	return POSTERN_OK;
}

int postern__config_sample_write(const struct postern__config_wishes *wishes,
		struct postern__buf *out, struct postern_error *error) {
	const char *line = postern__config_sample;
	int r = POSTERN_OK;
	while (r == POSTERN_OK && *line) {
		size_t len = strcspn(line, "\n") + 1;
		r = write_line(out, line, len, wishes, error);
		line += len;
	}
	return r == POSTERN_OK ? postern__buf_check(out, "the configuration", error)
						   : r;
}
