/* SPDX-License-Identifier: MIT */
/*
 * `postern version`: the version, and what is built in.
 */

#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <postern/sys/store.h>
#include <postern/version.h>
#include <sqlite3.h>
#ifdef POSTERN_POSTGRES
#include <libpq-fe.h>
#endif
#include <stdio.h>
#include <yaml.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/reply.h"

static const struct store {
	const char *name;
	const char *url; /* of any store of this kind */
} stores[] = {
	{ "memory", "memory:" },
	{ "sqlite", "sqlite:" },
	{ "postgres", "postgres:" },
};
#define STORE_COUNT (sizeof stores / sizeof stores[0])

static bool is_built_in(const struct store *store) {
	const char *schema;
	return postern_store_schema(store->url, &schema, NULL) == POSTERN_OK;
}

#ifdef POSTERN_POSTGRES
static const char *libpq_version(void) {
	static char text[32];
	(void)snprintf(text, sizeof text, "%d.%d", PQlibVersion() / 10000,
			PQlibVersion() % 10000);
	return text;
}
#endif

int postern__command_version(struct postern__cli *cli) {
	static const char *const handlers[] = { "callback", "exec", "sql" };
	const struct {
		const char *name;
		const char *version;
	} libraries[] = {
		{ "sqlite", sqlite3_libversion() },
#ifdef POSTERN_POSTGRES
		{ "libpq", libpq_version() },
#endif
		{ "libcurl", curl_version_info(CURLVERSION_NOW)->version },
		{ "libmicrohttpd", MHD_get_version() },
		{ "jansson", jansson_version_str() },
		{ "libyaml", yaml_get_version_string() },
	};
	const size_t library_count = sizeof libraries / sizeof libraries[0];
	if (cli->json) {
		json_t *json = json_pack("{s:s, s:[], s:[s, s, s], s:{}}", "version",
				postern_version(), "stores", "handlers", handlers[0],
				handlers[1], handlers[2], "libraries");
		for (size_t i = 0; i < STORE_COUNT; i++) {
			if (is_built_in(&stores[i])) {
				(void)json_array_append_new(json_object_get(json, "stores"),
						json_string(stores[i].name));
			}
		}
		json_t *object = json_object_get(json, "libraries");
		for (size_t i = 0; i < library_count; i++) {
			(void)json_object_set_new(object, libraries[i].name,
					json_string(libraries[i].version));
		}
		postern__reply_print(json);
		json_decref(json);
		return POSTERN__EXIT_OK;
	}
	(void)printf("postern %s\nstores:", postern_version());
	for (size_t i = 0; i < STORE_COUNT; i++) {
		if (is_built_in(&stores[i])) {
			(void)printf(" %s", stores[i].name);
		}
	}
	(void)printf("\nhandlers: %s %s %s\n", handlers[0], handlers[1],
			handlers[2]);
	for (size_t i = 0; i < library_count; i++) {
		(void)printf("%s %s\n", libraries[i].name, libraries[i].version);
	}
	return POSTERN__EXIT_OK;
}
