/* SPDX-License-Identifier: MIT */
/* Printing a configuration, and the options themselves. */

#include <jansson.h>
#include <postern/source.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <postern/sys/source.h>

#include "base/arena.h"
#include "base/buf.h"
#include "server/config.h"
#include "server/config_options.h"
#include "tap.h"

static const char yaml[] = "store: 'sqlite:a.db'\n"
						   "defaults: {lease: 10m, backoff: [1s, 10s]}\n"
						   "channels:\n"
						   "  orders:\n"
						   "    unrouted: drop\n"
						   "    handlers:\n"
						   "      mail:\n"
						   "        exec: [/bin/mail, --token=canary]\n"
						   "        types: [a, \"<b>\"]\n"
						   "        legacy_keys: [old]\n"
						   "        timeout: 90s\n"
						   "      ledger: {sql: select 'canary'}\n";

static struct postern__config *load_sample(void) {
	char *const environment[] = { (char[]){ "POSTERN_WORKERS=6" }, NULL };
	const struct postern__config_flag flag = { "max-attempts", "7" };
	const struct postern__config_input input = { .environment = environment,
		.flags = &flag,
		.flag_count = 1 };
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	(void)CHECK_OK(postern__config_parse("f.yaml", yaml, sizeof yaml - 1,
						   &input, &config, &error),
			&error);
	return config;
}

static void as_text(void) {
	struct postern__config *config = load_sample();
	struct postern__buf buf;
	struct postern_error error = { 0 };
	postern__buf_init(&buf, 65536);
	if (!config) {
		return;
	}
	postern__config_print(config, false, &buf);
	if (CHECK_OK(postern__buf_check(&buf, "text", &error), &error)) {
		const char *text = postern__buf_text(&buf);
		CHECK_CONTAINS(text, "# f.yaml\nstore: sqlite:a.db  # f.yaml:1\n");
		CHECK_CONTAINS(text, "\nshutdown_grace: 30s  # default\n");
		CHECK_CONTAINS(text, "\nmetrics: on  # default\n");
		CHECK_CONTAINS(text, "\nworkers: 6  # $POSTERN_WORKERS\n");
		CHECK_CONTAINS(text, "\ndefaults:\n");
		CHECK_CONTAINS(text, "\n  max_attempts: 7  # --max-attempts\n");
		CHECK_CONTAINS(text, "\n  lease: 10m  # f.yaml:2\n");
		CHECK_CONTAINS(text, "\n  backoff: \"1s,10s\"  # f.yaml:2\n");
		CHECK_CONTAINS(text, "\n  timeout: default  # default\n");
		CHECK_CONTAINS(text, "\n  concurrency: none  # default\n");
		CHECK_CONTAINS(text, "\n  orphans: poison  # default\n");
		CHECK_CONTAINS(text, "\n  max_message_size: 1MiB  # default\n");
		CHECK_CONTAINS(text, "\n  retention:\n"
							 "    payload: none  # default\n"
							 "    dedupe: none  # default\n");
		CHECK_CONTAINS(text,
				"\nchannels:\n"
				"  orders:\n"
				"    unrouted: drop  # f.yaml:5\n"
				"    handlers:\n"
				"      mail:\n"
				"        # exec: /bin/mail, and more that is not shown\n"
				"        types: [a, \"<b>\"]\n"
				"        legacy_keys: [old]\n"
				"        timeout: 90s  # f.yaml:11\n"
				"        concurrency: 16  # default of its kind\n"
				"      ledger:\n"
				"        # sql: is not shown\n"
				"        timeout: 5s  # default of its kind\n");
		/* Neither arguments nor options without effect in this version. */
		CHECK(!strstr(text, "canary"));
		CHECK(!strstr(text, "on_poison:"));
	}
	postern__buf_finish(&buf);
	postern__config_destroy(config);
}

static json_t *option_of(json_t *object, const char *name) {
	json_t *options = json_object_get(object, "options");
	for (size_t i = 0; i < json_array_size(options); i++) {
		json_t *option = json_array_get(options, i);
		if (strcmp(json_string_value(json_object_get(option, "name")), name) ==
				0) {
			return option;
		}
	}
	return NULL;
}

static void check_option(json_t *object, const char *name, const char *value,
		const char *from) {
	json_t *option = option_of(object, name);
	CHECK_STR(json_string_value(json_object_get(option, "value")), value);
	CHECK_STR(json_string_value(json_object_get(option, "from")), from);
}

static void as_json(void) {
	struct postern__config *config = load_sample();
	struct postern__buf buf;
	json_error_t problem;
	postern__buf_init(&buf, 65536);
	if (!config) {
		return;
	}
	postern__config_print(config, true, &buf);
	json_t *root = json_loads(postern__buf_text(&buf), JSON_REJECT_DUPLICATES,
			&problem);
	if (CHECK(root != NULL)) {
		CHECK_STR(json_string_value(json_object_get(root, "file")), "f.yaml");
		check_option(root, "store", "sqlite:a.db", "f.yaml:1");
		check_option(root, "workers", "6", "$POSTERN_WORKERS");
		check_option(root, "max_attempts", "7", "--max-attempts");
		check_option(root, "command_timeout", "30s", "default");
		CHECK(!option_of(root, "unrouted"));
		check_option(root, "listen", "127.0.0.1:7420", "default");
		CHECK(!option_of(root, "on_poison"));
		json_t *channel = json_array_get(json_object_get(root, "channels"), 0);
		CHECK_STR(json_string_value(json_object_get(channel, "name")),
				"orders");
		check_option(channel, "unrouted", "drop", "f.yaml:5");
		CHECK(!option_of(channel, "lease"));
		json_t *mail = json_array_get(json_object_get(channel, "handlers"), 0);
		CHECK_STR(json_string_value(json_object_get(mail, "key")), "mail");
		CHECK_STR(json_string_value(json_object_get(mail, "kind")), "exec");
		json_t *exec =
				json_object_get(json_object_get(mail, "settings"), "exec");
		CHECK_INT(json_array_size(exec), 1);
		CHECK_STR(json_string_value(json_array_get(exec, 0)), "/bin/mail");
		CHECK_INT(json_array_size(json_object_get(mail, "types")), 2);
		check_option(mail, "timeout", "90s", "f.yaml:11");
		json_t *ledger =
				json_array_get(json_object_get(channel, "handlers"), 1);
		CHECK_STR(json_string_value(json_object_get(ledger, "kind")), "sql");
		CHECK_INT(json_object_size(json_object_get(ledger, "settings")), 0);
		check_option(ledger, "timeout", "5s", "default of its kind");
		json_decref(root);
	}
	CHECK(!strstr(postern__buf_text(&buf), "canary"));
	postern__buf_finish(&buf);
	postern__config_destroy(config);
}

static void with_stores(void) {
	static const char text[] = "stores:\n"
							   "  main: {url: sqlite:a.db, batch_size: 5}\n"
							   "  other: {url: 'sqlite:b.db'}\n"
							   "channels:\n"
							   "  c: {store: other}\n";
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	struct postern__buf buf;
	postern__buf_init(&buf, 65536);
	if (!CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &config,
						  &error),
				&error)) {
		return;
	}
	postern__config_print(config, false, &buf);
	CHECK_CONTAINS(postern__buf_text(&buf), "\nstores:\n"
											"  main:\n"
											"    url: sqlite:a.db  # f:2\n"
											"    batch_size: 5  # f:2\n"
											"  other:\n"
											"    url: sqlite:b.db  # f:3\n");
	CHECK_CONTAINS(postern__buf_text(&buf), "  c:\n    store: other\n");
	CHECK(!strstr(postern__buf_text(&buf), "postern.db"));
	postern__buf_reset(&buf);
	postern__config_print(config, true, &buf);
	json_t *root =
			json_loads(postern__buf_text(&buf), JSON_REJECT_DUPLICATES, NULL);
	json_t *main = json_array_get(json_object_get(root, "stores"), 0);
	CHECK_STR(json_string_value(json_object_get(main, "name")), "main");
	check_option(main, "url", "sqlite:a.db", "f:2");
	check_option(main, "batch_size", "5", "f:2");
	json_t *channel = json_array_get(json_object_get(root, "channels"), 0);
	CHECK_STR(json_string_value(json_object_get(channel, "store")), "other");
	CHECK(!option_of(root, "store"));
	json_decref(root);
	postern__buf_finish(&buf);
	postern__config_destroy(config);
}

static void without_a_file(void) {
	static const char *const search[] = { "/nonexistent", NULL };
	char *const environment[] = { NULL };
	const struct postern__config_input input = { .environment = environment,
		.search = search };
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	struct postern__buf buf;
	postern__buf_init(&buf, 65536);
	if (!CHECK_OK(postern__config_load(&input, &config, &error), &error)) {
		return;
	}
	postern__config_print(config, true, &buf);
	CHECK_CONTAINS(postern__buf_text(&buf), "{\"file\":null,");
	CHECK_CONTAINS(postern__buf_text(&buf), "\"channels\":[]}");
	postern__buf_reset(&buf);
	postern__config_print(config, false, &buf);
	CHECK_CONTAINS(postern__buf_text(&buf), "# no file: all defaults\n");
	postern__buf_finish(&buf);
	postern__config_destroy(config);
}

/* Prints a configuration without the origins of its values. */
static void print_plain(const struct postern__config *config,
		struct postern__buf *out) {
	struct postern__buf buf;
	postern__buf_init(&buf, 65536);
	postern__config_print(config, false, &buf);
	for (const char *line = postern__buf_text(&buf); *line;) {
		size_t len = strcspn(line, "\n");
		const char *comment = memmem(line, len, "  # ", 4);
		postern__buf_append(out, line,
				comment ? (size_t)(comment - line) : len);
		postern__buf_append_char(out, '\n');
		line += len + (line[len] == '\n');
	}
	postern__buf_finish(&buf);
}

static void pasted(void) {
	static const char text[] =
			"store: 'sqlite:a \"$${b}.db'\n"
			"stores: {q: {url: memory, retention: {payload: 1h}}}\n"
			"shutdown_grace: 7s\n"
			"defaults: {retention: {payload: 2h, dedupe: 3h}, backoff: [1s, "
			"2s], lock_name: '{store} *, x'}\n"
			"channels:\n"
			"  -a: {store: default}\n"
			"  b:\n"
			"    store: q\n"
			"    max_message_size: 5KiB\n"
			"    sources:\n"
			"      - lines: '/a/key=1 $${b}'\n"
			"      - {name: 'null', lines: {file: '-', follow: off, "
			"max_line_size: 1MiB}}\n"
			"    handlers:\n"
			"      'h:': {exec: [/bin/a b], types: ['*', 'a, b', '#', "
			"'null']}\n";
	struct postern__config *first = NULL;
	struct postern__config *second = NULL;
	struct postern_error error = { 0 };
	struct postern__buf before;
	struct postern__buf after;
	postern__buf_init(&before, 65536);
	postern__buf_init(&after, 65536);
	if (CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &first,
						 &error),
				&error)) {
		print_plain(first, &before);
		if (CHECK_OK(postern__config_parse("f", postern__buf_text(&before),
							 before.len, NULL, &second, &error),
					&error)) {
			print_plain(second, &after);
			CHECK_STR(postern__buf_text(&after), postern__buf_text(&before));
			CHECK_STR(postern__config_store(second, 0)->values.store,
					"sqlite:a \"${b}.db");
			CHECK_INT(postern__config_channel(second, 1)
							  ->values.retention_payload_ms,
					3600000);
			const struct postern__config_channel *channel =
					postern__config_channel(second, 1);
			CHECK_STR(channel->sources[0].settings[0].value, "/a/key=1 ${b}");
			CHECK_STR(channel->sources[1].name, "null");
			CHECK_STR(channel->sources[1].settings[2].value, "1MiB");
		}
	}
	postern__config_destroy(first);
	postern__config_destroy(second);
	postern__buf_finish(&before);
	postern__buf_finish(&after);
}

static void staged_is_printed(void) {
	static const char text[] = "store: sqlite:a.db?shared=yes\n"
							   "channels: {c: {sources: [staged]}}";
	struct postern__config *config = NULL;
	struct postern__config *again = NULL;
	struct postern_error error = { 0 };
	struct postern__buf printed;
	postern__buf_init(&printed, 65536);
	if (CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &config,
						 &error),
				&error)) {
		CHECK(postern__config_channel(config, 0)->staged);
		CHECK_INT(postern__config_channel(config, 0)->source_count, 0);
		print_plain(config, &printed);
		CHECK_CONTAINS(postern__buf_text(&printed), "- staged\n");
		CHECK_OK(postern__config_parse("f", postern__buf_text(&printed),
						 printed.len, NULL, &again, &error),
				&error);
		CHECK(again && postern__config_channel(again, 0)->staged);
	}
	postern__config_destroy(config);
	postern__config_destroy(again);
	postern__buf_finish(&printed);
}

/* A relative path starts at the file's directory; '-' is no path. */
static void paths_of_sources(void) {
	static const char text[] =
			"channels: {c: {sources: [{lines: x}, {lines: '-'}]}}";
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	if (CHECK_OK(postern__config_parse("/dev/f", text, strlen(text), NULL,
						 &config, &error),
				&error)) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, 0);
		CHECK_STR(channel->sources[0].settings[0].value, "/dev/x");
		CHECK_STR(channel->sources[1].settings[0].value, "-");
	}
	postern__config_destroy(config);
}

static int no_handler(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	(void)setup;
	(void)out;
	(void)error;
	return POSTERN_E_UNSUPPORTED;
}

static void defaults_of_a_kind(void) {
	static const int64_t delays[] = { 2000, 3000 };
	static const struct postern_option option = { .name = "text" };
	const struct postern_handler_kind kind = {
		.size = sizeof kind,
		.name = "patient",
		.options = &option,
		.option_count = 1,
		.settings_size = sizeof(const char *),
		.timeout_ms = 7000,
		.max_attempts = 9,
		.backoff_ms = delays,
		.backoff_count = 2,
		.concurrency = 3,
		.create = no_handler,
	};
	static const char text[] = "channels: {c: {handlers: {a: {patient: x}, "
							   "b: {patient: x, max_attempts: 4, backoff: 1s, "
							   "concurrency: 5, timeout: 1s}}}}";
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	CHECK_OK(postern_handler_kind_register(&kind, &error), &error);
	if (CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &config,
						 &error),
				&error)) {
		const struct postern__config_values *own =
				&postern__config_handler_named(config, "a")->values;
		const struct postern__config_values *set =
				&postern__config_handler_named(config, "b")->values;
		CHECK_INT(own->timeout_ms, 7000);
		CHECK_INT(own->max_attempts, 9);
		CHECK_INT(own->concurrency, 3);
		CHECK_INT(own->backoff_count, 2);
		CHECK_INT(set->timeout_ms, 1000);
		CHECK_INT(set->max_attempts, 4);
		CHECK_INT(set->concurrency, 5);
		CHECK_INT(set->backoff_count, 1);
	}
	postern__config_destroy(config);
}

/* A source of a kind that has secrets. It is validated by creating it. */
struct queue_settings {
	const char *url;
	const char *token;
};

static void queue_destroy(struct postern_source *source) {
	(void)source;
}

static int queue_create(const void *settings, struct postern_source **out,
		struct postern_error *error) {
	static const struct postern_source_ops ops = { .destroy = queue_destroy };
	static struct postern_source source = { .ops = &ops };
	(void)settings;
	(void)error;
	*out = &source;
	return POSTERN_OK;
}

static void secrets_of_sources(void) {
	static const struct postern_option options[] = {
		{ .name = "url",
				.type = POSTERN_OPTION_TEXT,
				.offset = offsetof(struct queue_settings, url),
				.flags = POSTERN_OPTION_SECRET },
		{ .name = "token",
				.type = POSTERN_OPTION_TEXT,
				.offset = offsetof(struct queue_settings, token),
				.flags = POSTERN_OPTION_HIDDEN },
	};
	const struct postern_source_kind kind = {
		.size = sizeof kind,
		.name = "queue",
		.options = options,
		.option_count = 2,
		.settings_size = sizeof(struct queue_settings),
		.create = queue_create,
	};
	static const char text[] = "channels: {c: {sources: [{queue: {url: "
							   "'amqp://u:canary@h/v', token: canary}}]}}";
	struct postern__config *config = NULL;
	struct postern__buf buf;
	struct postern_error error = { 0 };
	postern__buf_init(&buf, 65536);
	CHECK_OK(postern_source_kind_register(&kind, &error), &error);
	if (CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &config,
						 &error),
				&error)) {
		postern__config_print(config, false, &buf);
		CHECK_CONTAINS(postern__buf_text(&buf), "# token: is not shown\n");
		postern__config_print(config, true, &buf);
		CHECK(!strstr(postern__buf_text(&buf), "canary"));
		CHECK_CONTAINS(postern__buf_text(&buf),
				"{\"url\":\"amqp://u:***@h/v\"}");
	}
	postern__config_destroy(config);
	postern__buf_finish(&buf);
}

static void names_of_options(void) {
	struct postern__config_option option;
	size_t count = 0;
	size_t index;
	const char *near;

	while (postern__config_option_get(count, &option)) {
		CHECK(*option.help != '\0' && *option.value_name != '\0');
		CHECK(strncmp(option.environment, "POSTERN_", 8) == 0);
		CHECK(!strpbrk(option.flag, "_."));
		CHECK(postern__config_option_find(option.flag, &index, NULL));
		CHECK_INT(index, count);
		count++;
	}
	CHECK(count > 30);
	if (CHECK(postern__config_option_find("store_file", &index, &near)) &&
			CHECK(postern__config_option_get(index, &option))) {
		CHECK_STR(option.name, "store_file");
		CHECK_STR(option.flag, "store-file");
		CHECK_STR(option.environment, "POSTERN_STORE_FILE");
		CHECK_STR(option.value_name, "FILE");
		CHECK_STR(option.fallback, "");
		CHECK(!option.later);
	}
	if (CHECK(postern__config_option_find("retention-payload", &index,
				&near)) &&
			CHECK(postern__config_option_get(index, &option))) {
		CHECK_STR(option.environment, "POSTERN_RETENTION_PAYLOAD");
		CHECK(!option.later);
	}
	if (CHECK(postern__config_option_find("ingest-listen", &index, &near)) &&
			CHECK(postern__config_option_get(index, &option))) {
		CHECK(!option.later);
	}
	CHECK(!postern__config_option_find("max-atempts", &index, &near));
	CHECK_STR(near, "max-attempts");
	CHECK(!postern__config_option_find("", &index, &near));
	CHECK(!near);
}

/* A printed default can be parsed, and is then the same. */
static void fallbacks(void) {
	struct postern__config_values values;
	struct postern__arena arena = { 0 };
	struct postern__buf buf;
	struct postern_error error = { 0 };
	const struct postern_option *option;

	postern__buf_init(&buf, 4096);
	(void)CHECK_OK(postern__option_defaults(&values, &arena, &error), &error);
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		postern__buf_reset(&buf);
		postern__option_format(option, &values, &buf);
		/* Only 60s has a shorter spelling. */
		if (strcmp(option->fallback, "60s") != 0) {
			CHECK_STR(postern__buf_text(&buf), option->fallback);
		}
		CHECK_INT(postern__option_index(option), i);
	}
	postern__buf_finish(&buf);
	postern__arena_finish(&arena);
}

static const struct tap_case cases[] = {
	{ "the effective configuration as text names each value's origin",
			as_text },
	{ "the effective configuration as JSON is the same", as_json },
	{ "each store is printed with its URL and its own options", with_stores },
	{ "the printed configuration can be parsed again", pasted },
	{ "relative paths of sources start at the file", paths_of_sources },
	{ "a channel that is fed by staging is printed as such",
			staged_is_printed },
	{ "a handler has the defaults of its kind", defaults_of_a_kind },
	{ "secrets of sources are not printed", secrets_of_sources },
	{ "without a file the defaults are printed", without_a_file },
	{ "each global option has a flag and a variable", names_of_options },
	{ "a default is printed as it is written in the table", fallbacks },
};

TAP_MAIN(cases)
