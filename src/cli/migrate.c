/* SPDX-License-Identifier: MIT */
/*
 * `postern migrate`: upgrades or prints the schema. A missing store is created.
 */

#include <jansson.h>
#include <postern/sys/store_kind.h>
#include <postern/version.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/redact.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own_store.h"
#include "cli/reply.h"
#include "server/config.h"
#include "store/store.h"

/* More than any schema is long. */
#define SCHEMA_LEN_MAX ((size_t)1024 * 1024)

static void print_text(const struct postern__cli *cli, const char *schema) {
	if (cli->json) {
		json_t *json = json_pack("{s:s}", "schema", schema);
		postern__reply_print(json);
		json_decref(json);
	} else if (*schema) {
		(void)fputs(schema, stdout);
	} else {
		postern__note_print("this store has no schema");
	}
}

static int print_schema(const struct postern__cli *cli) {
	/* One store is enough: the schemas differ only in the name, for which there
	   is --in. */
	const struct postern__config_store *store = cli->stores[0];
	struct postern_store_options options;
	struct postern_error error;
	struct postern__buf schema;
	postern__config_store_options(store, &options);
	postern__buf_init(&schema, SCHEMA_LEN_MAX);
	/* The store is not read, so the output does not depend on its version. */
	postern__buf_printf(&schema,
			"-- The whole schema of a new store, as created by postern %s.\n"
			"-- The existing tables were not checked; 'postern migrate' "
			"upgrades them.\n"
			"\n",
			postern_version());
	size_t head_len = schema.len;
	int r = postern__store_schema_write(store->values.store, &options, &schema,
			&error);
	if (r == POSTERN_OK) {
		r = postern__buf_check(&schema, "the schema", &error);
	}
	if (r == POSTERN_OK) {
		print_text(cli,
				schema.len > head_len ? postern__buf_text(&schema) : "");
	}
	postern__buf_finish(&schema);
	return r == POSTERN_OK ? POSTERN__EXIT_OK
						   : postern__print_error(cli, &error);
}

/* Migrate one store; the result is printed or collected. */
static int migrate(const struct postern__cli *cli,
		const struct postern__config_store *store, json_t *results) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	char url[POSTERN__REDACT_TEXT_MAX];
	char schema[POSTERN_SCHEMA_NAME_MAX];
	postern__own_store_options(store, &options);
	int r = postern__own_store_open(cli, store, &options, &box);
	if (r) {
		return r;
	}
	postern_box_destroy(box);
	postern__redact(store->values.store, url, sizeof url);
	postern__config_schema_name(store, schema, sizeof schema);
	if (cli->json) {
		(void)json_array_append_new(results,
				json_pack("{s:s, s:s, s:s*}", "name", store->name, "url", url,
						"schema", *schema ? schema : NULL));
	} else {
		(void)printf("the schema %s%sof ", schema, *schema ? " " : "");
		postern__out_text(url);
		(void)fputs(" is up to date\n", stdout);
	}
	return POSTERN__EXIT_OK;
}

static int keep_rules(const struct postern__cli *cli,
		const struct postern__config_channel *channel,
		struct postern_box *box) {
	struct postern_error error;
	int r = postern__config_apply(cli->config, channel->store, box, &error);
	if (r == POSTERN_OK) {
		r = postern_box_accept_key_change(box, channel->name, &error);
	}
	if (r == POSTERN_OK) {
		r = postern_box_start(box, &error);
	}
	return r == POSTERN_OK ? POSTERN__EXIT_OK
						   : postern__print_error(cli, &error);
}

/* Starting a box keeps the rules of its channels. */
static int accept_key_change(const struct postern__cli *cli, const char *name) {
	const struct postern__config_channel *channel =
			postern__config_channel_named(cli->config, name);
	struct postern_box_options options;
	struct postern_box *box = NULL;
	if (!channel) {
		postern__err_print("migrate: no channel '%s'", name);
		return POSTERN__EXIT_NOTFOUND;
	}
	postern__own_store_options(channel->store, &options);
	int r = postern__own_store_open(cli, channel->store, &options, &box);
	if (r == POSTERN__EXIT_OK) {
		r = keep_rules(cli, channel, box);
	}
	postern_box_destroy(box);
	if (r == POSTERN__EXIT_OK && cli->json) {
		json_t *json = json_pack("{s:s, s:s}", "status", "accepted", "channel",
				channel->name);
		postern__reply_print(json);
		json_decref(json);
	} else if (r == POSTERN__EXIT_OK) {
		(void)printf("the keys of channel '%s' are made by the rules of this "
					 "configuration\n",
				channel->name);
	}
	return r;
}

int postern__command_migrate(struct postern__cli *cli) {
	int r = postern__cli_configure(cli);
	if (r) {
		return r;
	}
	const char *changed = postern__args_value(&cli->args, "accept-key-change");
	if (changed && postern__args_has(&cli->args, "print")) {
		return postern__cli_usage(cli,
				"--print and --accept-key-change cannot be combined");
	}
	if (changed) {
		return accept_key_change(cli, changed);
	}
	if (postern__args_has(&cli->args, "print")) {
		return print_schema(cli);
	}
	r = postern__cli_need_kept(cli);
	if (r) {
		return r;
	}
	json_t *results = json_array();
	for (size_t i = 0; r == POSTERN__EXIT_OK && i < cli->store_count; i++) {
		r = migrate(cli, cli->stores[i], results);
	}
	if (r == POSTERN__EXIT_OK && cli->json) {
		const char *url =
				postern__reply_text(json_array_get(results, 0), "url");
		json_t *json = json_pack("{s:s, s:s?, s:O}", "status", "current",
				"store", url, "stores", results);
		postern__reply_print(json);
		json_decref(json);
	}
	json_decref(results);
	return r;
}
