/* SPDX-License-Identifier: MIT */
/*
 * The file that `postern init` writes. Its options come from the option table.
 * A line that begins with "#" and no blank is a setting at its default, ready
 * to be uncommented; a test does so with all of them. The store given by flags
 * replaces the default, but a password is never written.
 */

#include "cli/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/redact.h"
#include "server/config_options.h"

/* The file; a line with an '@' stands for the options of a section. */
/* clang-format off */
static const char sample[] =
"# Configuration of Postern. Check it with `postern check`.\n"
"#\n"
"# Any option of the first two sections is also a flag (--lease 5m) and a\n"
"# variable (POSTERN_LEASE=5m); flag > variable > file > default.\n"
"# Durations: 250ms 30s 5m 2h 7d. Sizes: 512B 64KiB 1MiB.\n"
"# Values may contain ${NAME} or ${NAME:-default} from the environment.\n"
"\n"
"# A path of a store is relative to the directory of this file. More stores,\n"
"# each with a name that channels choose by `store: NAME`, can be listed in\n"
"# `stores`.\n"
"#stores: {}    # or {audit: {url: sqlite:audit.db}}\n"
"@root\n"
"\n"
"# Who may do what over TCP, by tokens with the role send, read or operate:\n"
"# auth: {tokens: [{name: shop, role: send, token_file: shop.token}]}\n"
"\n"
"defaults:\n"
"  # For every handler; a store, a channel or a handler can set its own value.\n"
"\n"
"@policy\n"
"\n"
"  # For every store; a store can set its own value.\n"
"\n"
"@store\n"
"\n"
"channels:\n"
"  orders:\n"
"@channel\n"
"    # Messages that nobody sends here: lines of a file, webhooks of others,\n"
"    # queues of RabbitMQ.\n"
"#    sources:\n"
"#      - lines: {file: orders.jsonl}\n"
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
"      # done, 65 and 100 poison, 69 holds (the handler is at fault), anything\n"
"      # else is retried.\n"
"#      mail:\n"
"#        exec: [\"/bin/cat\"]\n"
"#        timeout: 30s\n"
"#        max_attempts: 10\n"
"\n"
"      # Workers claim deliveries over HTTP and settle them.\n"
"#      charge:\n"
"#        pull: {}\n"
"\n"
"      # The message is posted to a URL, signed if there is a secret_file.\n"
"      # shop: {webhook: {url: \"https://shop.example/hooks\"}}\n";
/* clang-format on */

/* Which options a line stands for, and how far they are indented. */
static const struct section {
	const char *line;
	unsigned places; /* the options have all of them */
	unsigned others; /* places that the options do not have */
	int indent;
} sections[] = {
	{ "@root\n", POSTERN__IN_ROOT, 0, 0 },
	{ "@policy\n", POSTERN__IN_HANDLER | POSTERN__IN_DEFAULTS, 0, 2 },
	{ "@store\n", POSTERN__IN_DEFAULTS, POSTERN__IN_HANDLER, 2 },
	{ "@channel\n", POSTERN__IN_CHANNEL, POSTERN__IN_GLOBAL, 4 },
};

#define COMMENT_LEN_MAX 72

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

/* The help of an option as a comment; for one of a group, with its name, since
   all of them come before the line that they explain. */
static void write_help(struct postern__buf *out, int indent,
		const struct postern_option *option) {
	const char *text = option->help;
	const char *dot = strchr(option->name, '.');
	size_t column = 0;
	postern__buf_printf(out, "%*s#", indent, "");
	if (dot) {
		postern__buf_printf(out, " %s:", dot + 1);
		column = strlen(dot + 1) + 2;
	}
	while (*text) {
		size_t len = strcspn(text, " ");
		if (column + len > COMMENT_LEN_MAX) {
			postern__buf_printf(out, "\n%*s#", indent, "");
			column = 0;
		}
		postern__buf_printf(out, " %.*s", (int)len, text);
		column += len + 1;
		text += len + strspn(text + len, " ");
	}
	postern__buf_append_char(out, '\n');
}

static bool same_group(const struct postern_option *a,
		const struct postern_option *b) {
	size_t len = strcspn(a->name, ".");
	return a == b ||
		   (a->name[len] == '.' && strncmp(a->name, b->name, len + 1) == 0);
}

static bool group_goes_on(size_t index) {
	const struct postern_option *next = postern__option_at(index + 1);
	return next && same_group(postern__option_at(index), next);
}

/* An option at its default, in a comment. The options of a group, which are
   neighbours in the table, are one line after the help of all. */
static void write_default(struct postern__buf *out, int indent, size_t index) {
	const struct postern_option *option = postern__option_at(index);
	size_t len = strcspn(option->name, ".");
	if (option->name[len] == '\0') {
		bool choice = option->type == POSTERN_OPTION_CHOICE;
		postern__buf_printf(out, "#%*s%s: %s%s%s\n", indent, "", option->name,
				option->fallback, choice ? "    # " : "",
				choice ? option->choices : "");
		return;
	}
	postern__buf_printf(out, "#%*s%.*s: {", indent, "", (int)len, option->name);
	for (size_t i = 0; i <= index; i++) {
		const struct postern_option *member = postern__option_at(i);
		if (strncmp(member->name, option->name, len + 1) == 0) {
			postern__buf_printf(out, "%s: %s%s", member->name + len + 1,
					member->fallback, i < index ? ", " : "}\n");
		}
	}
}

static const char *wish_for(const struct postern__sample_wishes *wishes,
		const char *name) {
	if (strcmp(name, "schema") == 0) {
		return wishes->schema;
	}
	return strcmp(name, "connections") == 0 ? wishes->connections : NULL;
}

static int write_store(struct postern__buf *out,
		const struct postern_option *option,
		const struct postern__sample_wishes *wishes,
		struct postern_error *error) {
	if (wishes->store_file && !wishes->store) {
		postern__buf_append_text(out, "store_file: ");
		write_quoted(out, wishes->store_file, NULL);
		return POSTERN_OK;
	}
	if (wishes->store) {
		return write_url(out, wishes->store, error);
	}
	postern__buf_printf(out, "store: %s\n", option->fallback);
	return POSTERN_OK;
}

static int write_options(struct postern__buf *out,
		const struct section *section,
		const struct postern__sample_wishes *wishes,
		struct postern_error *error) {
	const struct postern_option *option;
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && (option = postern__option_at(i));
			i++) {
		if ((option->places & section->places) != section->places ||
				(option->places & section->others) ||
				(option->flags & POSTERN_OPTION_LATER) || group_goes_on(i)) {
			continue;
		}
		const char *wish = wish_for(wishes, option->name);
		for (size_t j = 0; j <= i; j++) {
			const struct postern_option *member = postern__option_at(j);
			if (same_group(option, member)) {
				write_help(out, section->indent, member);
			}
		}
		if (strcmp(option->name, "store") == 0) {
			r = write_store(out, option, wishes, error);
		} else if (wish) {
			postern__buf_printf(out, "%*s%s: ", section->indent, "",
					option->name);
			write_quoted(out, wish, NULL);
		} else {
			write_default(out, section->indent, i);
		}
	}
	return r;
}

int postern__sample_write(const struct postern__sample_wishes *wishes,
		struct postern__buf *out, struct postern_error *error) {
	const size_t count = sizeof sections / sizeof sections[0];
	int r = POSTERN_OK;
	for (const char *line = sample; r == POSTERN_OK && *line;) {
		size_t len = strcspn(line, "\n") + 1;
		size_t i = 0;
		while (i < count && strncmp(sections[i].line, line, len) != 0) {
			i++;
		}
		if (i < count) {
			r = write_options(out, &sections[i], wishes, error);
		} else {
			postern__buf_append(out, line, len);
		}
		line += len;
	}
	return r == POSTERN_OK ? postern__buf_check(out, "the configuration", error)
						   : r;
}
