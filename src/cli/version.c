/* SPDX-License-Identifier: MIT */
/*
 * `postern version`: the version, and what is built in.
 */

#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <postern/sys/store_kind.h>
#include <postern/version.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "cli/brokers.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/reply.h"
#include "handler/kinds.h"
#include "source/kinds.h"
#include "store/marker_kind.h"
#include "store/store.h"

/* Add the stores, and the libraries that they need. */
static void add_stores(json_t *stores, json_t *libraries) {
	const struct postern_store_kind *kind;
	const char *before = "";
	for (size_t i = 0; (kind = postern__store_kind_at(i)); i++) {
		/* Kinds that differ only in their scheme are neighbours. */
		if (strcmp(kind->name, before) != 0) {
			(void)json_array_append_new(stores, json_string(kind->name));
		}
		if (kind->library) {
			(void)json_object_set_new(libraries, kind->library,
					json_string(kind->library_version()));
		}
		before = kind->name;
	}
}

/* The same for stores that keep markers only. */
static void add_marker_stores(json_t *stores, json_t *libraries) {
	const struct postern_marker_kind *kind;
	const char *before = "";
	for (size_t i = 0; (kind = postern__marker_kind_at(i)); i++) {
		const char *version = NULL;
		const char *name;
		if (strcmp(kind->name, before) != 0) {
			(void)json_array_append_new(stores, json_string(kind->name));
		}
		for (size_t n = 0; kind->library && (name = kind->library(n, &version));
				n++) {
			(void)json_object_set_new(libraries, name, json_string(version));
		}
		before = kind->name;
	}
}

static json_t *handler_names(void) {
	const struct postern_handler_kind *kind;
	json_t *handlers = json_array();
	for (size_t i = 0; (kind = postern__kind_at(i)); i++) {
		(void)json_array_append_new(handlers, json_string(kind->name));
	}
	return handlers;
}

static json_t *source_names(void) {
	const struct postern_source_kind *kind;
	json_t *sources = json_array();
	for (size_t i = 0; (kind = postern__source_kind_at(i)); i++) {
		(void)json_array_append_new(sources, json_string(kind->name));
	}
	return sources;
}

static void add_libraries(json_t *libraries) {
	const struct {
		const char *name;
		const char *version;
	} used[] = {
		{ "libcurl", curl_version_info(CURLVERSION_NOW)->version },
		{ "libmicrohttpd", MHD_get_version() },
		{ "jansson", jansson_version_str() },
		{ "libyaml", yaml_get_version_string() },
	};
	const char *version = postern__cli_brokers_version();
	if (version) {
		(void)json_object_set_new(libraries, "rabbitmq-c",
				json_string(version));
	}
	for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
		(void)json_object_set_new(libraries, used[i].name,
				json_string(used[i].version));
	}
}

static void print_names(const char *title, const json_t *names) {
	size_t index;
	json_t *name;
	(void)printf("%s:", title);
	json_array_foreach(names, index, name) {
		(void)printf(" %s", json_string_value(name));
	}
	(void)putchar('\n');
}

int postern__command_version(struct postern__cli *cli) {
	json_t *stores = json_array();
	json_t *handlers = handler_names();
	json_t *sources = source_names();
	json_t *libraries = json_object();
	add_stores(stores, libraries);
	add_marker_stores(stores, libraries);
	add_libraries(libraries);
	json_t *json = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version",
			postern_version(), "stores", stores, "handlers", handlers,
			"sources", sources, "libraries", libraries);
	if (cli->json) {
		postern__reply_print(json);
	} else {
		const char *name;
		json_t *version;
		(void)printf("postern %s\n", postern_version());
		print_names("stores", stores);
		print_names("handlers", handlers);
		print_names("sources", sources);
		json_object_foreach(libraries, name, version) {
			(void)printf("%s %s\n", name, json_string_value(version));
		}
	}
	json_decref(json);
	return POSTERN__EXIT_OK;
}
