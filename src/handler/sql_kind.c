/* SPDX-License-Identifier: MIT */
/*
 * The sql kind: one option, the text, whose dialect is that of the handler's
 * store. registry.c lists the dialects.
 */

#include <postern/sys/option.h>
#include <string.h>

#include "base/fail.h"
#include "handler/kinds.h"
#include "handler/sql_params.h"

static const char *text_of(const struct postern_handler_setup *setup) {
	const struct postern__sql_settings *settings = setup->settings;
	return settings ? settings->sql : NULL;
}

static int validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const char *sql = text_of(setup);
	size_t count;
	if (!sql) {
		return postern__fail(error, POSTERN_E_INVALID, "the SQL is missing");
	}
	int r = postern__sql_check(sql, setup->dialect, &count, error);
	if (r == POSTERN_OK && setup->dialect == POSTERN_SQL_SQLITE) {
		r = postern__sql_syntax_check(sql, error);
	}
	return r;
}

static int create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct postern__sql_engine *engine =
			postern__sql_engine_find(setup->dialect);
	if (!engine) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the store of handler '%s' has no SQL",
				setup->key ? setup->key : "");
	}
	return engine->create(text_of(setup), out, error);
}

/* Bytes of an error that leave room for what is put around it. */
#define REASON_LEN_MAX 180

static int check(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct postern__sql_engine *engine =
			postern__sql_engine_find(setup->dialect);
	struct postern_error why;
	int r = engine ? engine->check(text_of(setup), setup, &why) : POSTERN_OK;
	if (r != POSTERN_OK) {
		(void)postern__fail(error, r, "sql: %.*s; the handler is held until %s",
				REASON_LEN_MAX, why.text,
				r == POSTERN_E_NOTFOUND ? "the table exists" : "it is fixed");
	}
	return r;
}

static const struct postern_option options[] = {
	{
			.name = "sql",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__sql_settings, sql),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_HIDDEN,
			.help = "statements that run in one transaction with the delivery",
	},
};

const struct postern_handler_kind postern__sql_kind = {
	.size = sizeof postern__sql_kind,
	.name = "sql",
	.help = "SQL in the database of the store",
	.options = options,
	.option_count = 1,
	.settings_size = sizeof(struct postern__sql_settings),
	.transactional = true,
	.timeout_ms = POSTERN_TRANSACTION_TIMEOUT_MS,
	.validate = validate,
	.create = create,
	.check = check,
};
