/* SPDX-License-Identifier: MIT */
/*
 * Several mistakes in one configuration: all are reported, each once, in the
 * order of the file, and no mistake causes another one.
 */

#include <stdio.h>

#include <postern/source.h>

#include "base/buf.h"
#include "server/config.h"
#include "server/config_mistakes.h"
#include "tap.h"

static void collect(void *context, const char *text) {
	postern__buf_append_text(context, text);
	postern__buf_append_char(context, '\n');
}

/* Check the mistakes of a text, one per line. */
static void check_all(const char *text, struct postern__config_input *input,
		const char *expected) {
	static char *const nothing[] = { NULL };
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	struct postern__buf found;
	postern__buf_init(&found, (size_t)64 * 1024);
	input->report = collect;
	input->report_context = &found;
	input->environment = input->environment ? input->environment : nothing;
	int r = postern__config_parse("f", text, strlen(text), input, &config,
			&error);
	CHECK_INT(r, POSTERN_E_INVALID);
	CHECK_STR(postern__buf_text(&found), expected);
	/* The error is the first of them. */
	size_t len = strcspn(expected, "\n");
	CHECK(strlen(error.text) == len && strncmp(error.text, expected, len) == 0);
	postern__buf_finish(&found);
	postern__config_destroy(config);
}

static void every_level(void) {
	struct postern__config_input input = { 0 };
	check_all("workers: 0\n"
			  "stoer: x\n"
			  "defaults:\n"
			  "  orphans: poisen\n"
			  "  orphans: hold\n"
			  "stores:\n"
			  "  1st: {url: memory}\n"
			  "  b: {url: 'memory:x'}\n"
			  "channels:\n"
			  "  a b: {store: b}\n"
			  "  c:\n"
			  "    store: b\n"
			  "    unrouted: keep\n"
			  "    handlers:\n"
			  "      i: {exec: [true], types: ['', '*********']}\n"
			  "      j: {}\n",
			&input,
			"f:1:10: workers: '0' is out of range; write 1 to 1024\n"
			"f:2:1: unknown key 'stoer' at the top level; did you mean "
			"'store'?\n"
			"f:4:12: orphans: 'poisen' is not one of poison|hold|fail; did you "
			"mean 'poison'?\n"
			"f:5:3: duplicate key 'orphans', first on line 4\n"
			"f:7:3: invalid store name '1st'; use 1 to 64 letters, digits, "
			"'-', '_', '.', a letter first\n"
			"f:8:12: url: unexpected text after 'memory:'\n"
			"f:10:3: the channel's name 'a b' may only have letters, digits "
			"and -_.\n"
			"f:13:15: unrouted: 'keep' is not one of park|drop|reject\n"
			"f:15:17: exec: the program 'true' must have an absolute path\n"
			"f:15:33: a pattern is empty\n"
			"f:15:37: pattern '*********' has 9 stars; at most 8 are allowed\n"
			"f:16:7: handler 'j' has no kind; add 'sql', 'exec' or 'pull'\n");
}

static void every_source(void) {
	static char *const environment[] = { (char *)"POSTERN_LEASE=x", NULL };
	static const struct postern__config_flag flags[] = {
		{ "batch-size", "0" },
		{ "workres", "4" },
	};
	struct postern__config_input input = {
		.flags = flags,
		.flag_count = 2,
		.environment = environment,
	};
	check_all("workers: 0", &input,
			"f:1:10: workers: '0' is out of range; write 1 to 1024\n"
			"$POSTERN_LEASE: 'x' is not a duration; write a number with one of "
			"the units ms, s, m, h, d, such as 30s\n"
			"--batch-size: '0' is out of range; write 1 to 10000\n"
			"unknown flag --workres; did you mean --workers?\n");
}

/* A value that is wrong is compared with no other. */
static void every_option_of_a_source(void) {
	struct postern__config_input input = { 0 };
	check_all("channels:\n"
			  "  c:\n"
			  "    sources:\n"
			  "      - lines:\n"
			  "          follow: perhaps\n"
			  "          max_line_size: 3B\n"
			  "          fil: x\n",
			&input,
			"f:5:11: a source of kind 'lines' needs the option 'file'\n"
			"f:5:19: lines.follow: 'perhaps' is not a switch; write on or off\n"
			"f:6:26: lines.max_line_size: '3B' is out of range; write 1KiB to "
			"256MiB\n"
			"f:7:16: a source of kind 'lines' has no option 'fil'; did you "
			"mean 'file'?\n");
}

static void sources_without_end(void) {
	struct postern__config_input input = { 0 };
	struct postern__buf text;
	postern__buf_init(&text, (size_t)64 * 1024);
	for (int i = 0; i < POSTERN_SOURCE_COUNT_MAX; i++) {
		/* A list has at most 1,000 entries, so there are two. */
		postern__buf_append_text(&text, i == 0   ? "channels: {c: {sources: ["
										: i == 2 ? "]},\nd: {sources: [\n"
												 : ",\n");
		postern__buf_append_text(&text, "{lines: x}");
	}
	postern__buf_append_text(&text, "]}}");
	check_all(postern__buf_text(&text), &input,
			"f:1001:1: more than 999 sources\n");
	postern__buf_reset(&text);
	postern__buf_printf(&text,
			"channels: {c: {sources: [{lines: x, name: %0201d}]}}", 1);
	check_all(postern__buf_text(&text), &input,
			"f:1:43: the name of a source has at most 200 bytes; set a shorter "
			"'name'\n");
	postern__buf_finish(&text);
}

static void no_consequences(void) {
	static const struct {
		const char *text;
		const char *mistakes;
	} table[] = {
		/* Each place that inherits the values has the same mistake. */
		{ "defaults: {timeout: 10m}\n"
		  "channels: {c: {handlers: {h: {exec: [/bin/true]}}}}",
				"f:1:21: timeout (10m) must be less than lease (5m, the "
				"default); raise 'lease', too\n" },
		{ "defaults: {lease: 1, timeout: 10m}",
				"f:1:19: lease: duration '1' has no unit; write a number with "
				"one of the units ms, s, m, h, d, such as 30s\n" },
		{ "channels: {c: {retention: {payload: x, dedupe: 1d}}}",
				"f:1:37: payload: 'x' is not a duration; write a number with "
				"one of the units ms, s, m, h, d, such as 30s\n" },
		/* Without its store the dialect of SQL is not known. */
		{ "store: sqlit:a.db\n"
		  "defaults: {schema: a}\n"
		  "channels: {c: {handlers: {h: {sql: 'select 1::int'}}}}",
				"f:1:8: store: 'sqlit:a.db' is not a store; did you mean "
				"'sqlite:'?\n" },
		{ "channels: {c: {store: x, handlers: {h: {sql: 'select ::'}}}}",
				"f:1:23: no store 'x', only 'default'\n" },
		{ "stores: {a: {ulr: x}, b: {}}",
				"f:1:14: unknown key 'ulr' in a store; did you mean 'url'?\n"
				"f:1:23: store 'b' has no 'url'\n" },
		/* The misspelt key may be the kind. */
		{ "channels: {c: {handlers: {h: {slq: x}}}}",
				"f:1:31: unknown key 'slq' in a handler; did you mean "
				"'sql'?\n" },
		{ "stores: [a]\nchannels: {c: {}}",
				"f:1:9: 'stores' must be a mapping of names, not a list\n" },
		{ "channels: {c: {handlers: {h: {sql: insrt, exec: [x]}}}}",
				"f:1:36: sql: line 1: near \"insrt\": syntax error\n"
				"f:1:43: handler 'h' has two kinds, 'sql' and 'exec'; remove "
				"one\n"
				"f:1:49: exec: the program 'x' must have an absolute path\n" },
		/* The rest of a file that is not YAML has no meaning. */
		{ "stoer: x\nworkers: [", "f:3:1: did not find expected node content "
								  "while parsing a flow node (line 3)\n" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct postern__config_input input = { 0 };
		check_all(table[i].text, &input, table[i].mistakes);
	}
}

static void too_many(void) {
	struct postern__config_input input = { 0 };
	struct postern__buf text;
	struct postern__buf expected;
	postern__buf_init(&text, (size_t)64 * 1024);
	postern__buf_init(&expected, (size_t)64 * 1024);
	for (int i = 1; i <= POSTERN__MISTAKE_COUNT_MAX + 7; i++) {
		postern__buf_printf(&text, "%d: x\n", i);
		if (i <= POSTERN__MISTAKE_COUNT_MAX) {
			postern__buf_printf(&expected,
					"f:%d:1: unknown key '%d' at the top level\n", i, i);
		}
	}
	postern__buf_append_text(&expected, "7 more mistakes are not shown\n");
	check_all(postern__buf_text(&text), &input, postern__buf_text(&expected));
	postern__buf_finish(&text);
	postern__buf_finish(&expected);
}

/* What depends on the machine is checked later, and completely, too. */
static void handlers_and_stores(void) {
	static const char text[] = "store: memory\n"
							   "channels:\n"
							   "  c:\n"
							   "    handlers:\n"
							   "      g: {sql: select 1}\n"
							   "      h: {sql: select 2}\n";
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	struct postern__buf found;
	postern__buf_init(&found, (size_t)64 * 1024);
	if (CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &config,
						 &error),
				&error)) {
		CHECK_INT(postern__config_check(config, collect, &found, &error),
				POSTERN_E_INVALID);
		CHECK_STR(postern__buf_text(&found),
				"f:5:7: handler 'g' is transactional, which a memory store "
				"does not support\n"
				"f:6:7: handler 'h' is transactional, which a memory store "
				"does not support\n"
				"f:1:8: 'memory:' cannot be the only store: a server needs a "
				"file for its socket; use sqlite:FILE\n");
		CHECK(strncmp(error.text, "f:5:7: ", 7) == 0);
	}
	postern__config_destroy(config);
	postern__buf_finish(&found);
}

static const struct tap_case cases[] = {
	{ "the mistakes of a file are all reported, in its order", every_level },
	{ "mistakes of variables and flags follow those of the file",
			every_source },
	{ "the mistakes of a source are all reported", every_option_of_a_source },
	{ "too many sources and long names are refused", sources_without_end },
	{ "a mistake is reported once and causes no other", no_consequences },
	{ "mistakes over 100 are counted", too_many },
	{ "handlers and stores that cannot be served are all reported",
			handlers_and_stores },
};

TAP_MAIN(cases)
