/* SPDX-License-Identifier: MIT */
/*
 * `postern version`: what this is made of.
 */

#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <postern/version.h>
#include <sqlite3.h>
#include <stdio.h>
#include <yaml.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/command.h"

int postern__command_version(struct postern__cli *cli) {
	static const char *const stores[] = { "memory", "sqlite" };
	static const char *const handlers[] = { "callback", "exec", "sql" };
	const struct {
		const char *name;
		const char *version;
	} libraries[] = {
		{ "sqlite", sqlite3_libversion() },
		{ "libcurl", curl_version_info(CURLVERSION_NOW)->version },
		{ "libmicrohttpd", MHD_get_version() },
		{ "jansson", jansson_version_str() },
		{ "libyaml", yaml_get_version_string() },
	};
	const size_t library_count = sizeof libraries / sizeof libraries[0];
	if (cli->json) {
		json_t *json = json_pack("{s:s, s:[s, s], s:[s, s, s], s:{}}",
				"version", postern_version(), "stores", stores[0], stores[1],
				"handlers", handlers[0], handlers[1], handlers[2], "libraries");
		json_t *object = json_object_get(json, "libraries");
		for (size_t i = 0; i < library_count; i++) {
			(void)json_object_set_new(object, libraries[i].name,
					json_string(libraries[i].version));
		}
		postern__answer_print(json);
		json_decref(json);
		return POSTERN__EXIT_OK;
	}
	(void)printf("postern %s\nstores: %s %s\nhandlers: %s %s %s\n",
			postern_version(), stores[0], stores[1], handlers[0], handlers[1],
			handlers[2]);
	for (size_t i = 0; i < library_count; i++) {
		(void)printf("%s %s\n", libraries[i].name, libraries[i].version);
	}
	return POSTERN__EXIT_OK;
}
