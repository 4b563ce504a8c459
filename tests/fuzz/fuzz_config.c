/* SPDX-License-Identifier: MIT */

/*
 * A configuration file. A refused file gets an error with its position in the
 * file; an accepted one is printed in both forms, of which jansson parses the
 * JSON form, and converted to the options of a box. Files that it names are not
 * read.
 */

#include <jansson.h>
#include <postern/box.h>
#include <postern/runner.h>

#include "base/buf.h"
#include "fuzz.h"
#include "server/config.h"

#define NAME "fuzz.yaml"
#define PRINTED_MAX ((size_t)8 * 1024 * 1024)

/* Never written to; the type is that of environ. */
static char *const environment[] = {
	(char *)"HOME=/nowhere",
	(char *)"EMPTY=",
	(char *)"TABLE=orders",
	(char *)"LONG=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	(char *)"BROKEN=\xff",
	NULL,
};

/* Requires the form "fuzz.yaml:12:3: reason". */
static void check_error_position(const struct postern_error *error) {
	char *end = (char *)error->text;
	bool good = strncmp(end, NAME ":", strlen(NAME ":")) == 0 &&
				strtoul(end + strlen(NAME ":"), &end, 10) > 0 && *end == ':' &&
				strtoul(end + 1, &end, 10) > 0 && strncmp(end, ": ", 2) == 0;
	if (!good || end[2] == '\0') {
		(void)fprintf(stderr, "the error has no position: %s\n", error->text);
		abort();
	}
	MUST(fuzz_is_clean(error->text));
}

static void check_printed(const struct postern__config *config) {
	struct postern__buf buf;
	struct postern_error error;
	postern__buf_init(&buf, PRINTED_MAX);
	postern__config_print(config, true, &buf);
	MUST(postern__buf_check(&buf, "the configuration", &error) == POSTERN_OK);
	json_t *json = json_loadb(postern__buf_text(&buf), buf.len,
			JSON_REJECT_DUPLICATES, NULL);
	MUST(json);
	json_decref(json);
	postern__buf_reset(&buf);
	postern__config_print(config, false, &buf);
	MUST(postern__buf_check(&buf, "the configuration", &error) == POSTERN_OK);
	postern__buf_finish(&buf);
}

static void check_config(const struct postern__config *config) {
	size_t store_count = postern__config_store_count(config);
	MUST(store_count >= 1 && store_count <= POSTERN__STORE_COUNT_MAX);
	for (size_t i = 0; i < store_count; i++) {
		const struct postern__config_store *store =
				postern__config_store(config, i);
		struct postern_box_options box;
		struct postern_runner_options runner;
		MUST(postern__config_store_named(config, store->name, NULL) == store);
		postern__config_box_options(store, &box);
		postern__config_runner_options(store, &runner);
		MUST(box.size == sizeof box && runner.size == sizeof runner);
	}
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		MUST(postern__config_channel_named(config, channel->name) == channel);
		MUST(channel->store);
		for (size_t j = 0; j < channel->handler_count; j++) {
			MUST(postern__config_handler_named(config,
						 channel->handlers[j].key) == &channel->handlers[j]);
		}
	}
	check_printed(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	const struct postern__config_input input = { .environment = environment };
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	/* store_file and others name a file to be read. */
	if (size > 0 && memmem(data, size, "file", strlen("file"))) {
		return 0;
	}
	char *text = fuzz_text(data, size);
	int r = postern__config_parse(NAME, text, size, &input, &config, &error);
	MUST((r == POSTERN_OK) == (config != NULL));
	if (config) {
		check_config(config);
	} else {
		MUST(r == POSTERN_E_INVALID);
		check_error_position(&error);
	}
	postern__config_destroy(config);
	free(text);
	return 0;
}
