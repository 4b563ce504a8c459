/* SPDX-License-Identifier: MIT */
/*
 * People know a message by its id, which need not be unique: the same one may
 * come from two sources or into two channels. Then they are asked which.
 */

#include "cli/find.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "server/api.h"

static bool is_number(const char *operand) {
	return operand[0] == '#' && operand[1] &&
		   operand[1 + strspn(operand + 1, "0123456789")] == '\0';
}

bool postern__find_named(const struct postern__cli *cli) {
	return postern__args_operand_count(&cli->args) > 0 ||
		   postern__args_has(&cli->args, "id") ||
		   postern__args_has(&cli->args, "seq");
}

static int find_by_seq(const struct postern__cli *cli,
		struct postern__client *client, const char *text, json_t **out) {
	uint64_t seq;
	char path[64];
	if (postern__count_parse(text, 1, INT64_MAX, &seq, NULL)) {
		return postern__cli_usage(cli, "'%.40s' is not a message's number",
				text);
	}
	(void)snprintf(path, sizeof path, "/v1/messages/%" PRIu64, seq);
	const struct postern__request request = {
		.method = "GET",
		.path = path,
		.transport = "cli",
	};
	struct postern__answer answer;
	int r = postern__ask_any(cli, client, &request, false, &answer);
	if (r) {
		return r;
	}
	if (answer.status == 200) {
		*out = answer.json;
		return POSTERN__EXIT_OK;
	}
	r = postern__answer_problem(cli, &answer);
	/* Not told apart: the same as for an id that several have. */
	r = answer.status == 409 ? POSTERN__EXIT_USAGE : r;
	json_decref(answer.json);
	return r;
}

static int say_several(const struct postern__cli *cli, const json_t *items) {
	size_t index;
	json_t *message;
	postern__say("%zu messages have this id:", json_array_size(items));
	json_array_foreach(items, index, message) {
		const char *source = postern__answer_text(message, "source");
		const char *channel = postern__answer_text(message, "channel");
		const char *store = postern__answer_text(message, "store");
		bool several = cli->store_count > 1 && store;
		postern__note("  #%" PRIu64 "  %s%s%s--channel %s --source %s",
				postern__answer_count(message, "seq"), several ? "--in " : "",
				several ? store : "", several ? " " : "",
				channel ? channel : "", source ? source : "");
	}
	return postern__cli_usage(cli, "say which one, by %s",
			cli->store_count > 1 ? "--in, --channel or --source"
								 : "--channel, --source or '#N'");
}

static int find_by_id(const struct postern__cli *cli,
		struct postern__client *client, const char *id, json_t **out) {
	static const char *const others[] = { "source", "channel" };
	struct postern__buf query;
	json_t *page = NULL;
	postern__buf_init(&query, POSTERN__API_QUERY_LEN_MAX);
	postern__query_add(&query, "id", id);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		const char *value = postern__args_value(&cli->args, others[i]);
		if (value) {
			postern__query_add(&query, others[i], value);
		}
	}
	int r = POSTERN__EXIT_OK;
	if (postern__buf_check(&query, "the id", NULL)) {
		r = postern__cli_usage(cli, "the id is too long");
		goto out;
	}
	const struct postern__request request = {
		.method = "GET",
		.path = "/v1/messages",
		.query = postern__buf_text(&query),
		.transport = "cli",
	};
	r = postern__ask(cli, client, &request, false, &page);
	if (r) {
		goto out;
	}
	const json_t *items = json_object_get(page, "items");
	if (json_array_size(items) == 0) {
		postern__say("no message with id '%.200s'", id);
		r = POSTERN__EXIT_NOTFOUND;
	} else if (json_array_size(items) > 1) {
		r = say_several(cli, items);
	} else {
		*out = json_incref(json_array_get(items, 0));
	}
out:
	json_decref(page);
	postern__buf_finish(&query);
	return r;
}

int postern__find_message(const struct postern__cli *cli,
		struct postern__client *client, json_t **out) {
	const char *operand = postern__args_operand(&cli->args, 0);
	const char *id = postern__args_value(&cli->args, "id");
	const char *seq = postern__args_value(&cli->args, "seq");
	int count = (operand != NULL) + (id != NULL) + (seq != NULL);
	if (count > 1) {
		return postern__cli_usage(cli, "either an id or --seq, not both");
	}
	if (count == 0) {
		return postern__cli_usage(cli, "which message? give its id");
	}
	if (seq) {
		return find_by_seq(cli, client, seq, out);
	}
	if (operand && is_number(operand)) {
		return find_by_seq(cli, client, operand + 1, out);
	}
	return find_by_id(cli, client, id ? id : operand, out);
}
