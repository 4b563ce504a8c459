/* SPDX-License-Identifier: MIT */
/*
 * Users know a message by its id, which need not be unique: the same id may
 * come from two sources or into two channels. Then the user must choose.
 */

#include "cli/find_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
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

/* Request the message with a number; any status is accepted. */
static int request_seq(const struct postern__cli *cli,
		struct postern__client *client, uint64_t seq,
		struct postern__reply *out) {
	char path[64];
	(void)snprintf(path, sizeof path, "/v1/messages/%" PRIu64, seq);
	const struct postern__request request = {
		.method = "GET",
		.path = path,
		.transport = "cli",
	};
	return postern__client_call_any(cli, client, &request, false, out);
}

/*
 * Request the messages with an id; `narrow`: only those of --source and
 * --channel. out is the page.
 */
static int request_id(const struct postern__cli *cli,
		struct postern__client *client, const char *id, bool narrow,
		json_t **out) {
	static const char *const others[] = { "source", "channel" };
	struct postern__buf query;
	postern__buf_init(&query, POSTERN__API_QUERY_LEN_MAX);
	postern__query_add(&query, "id", id);
	for (size_t i = 0; narrow && i < sizeof others / sizeof others[0]; i++) {
		const char *value = postern__args_value(&cli->args, others[i]);
		if (value) {
			postern__query_add(&query, others[i], value);
		}
	}
	int r;
	if (postern__buf_check(&query, "the id", NULL)) {
		r = postern__cli_usage(cli, "the id is too long");
	} else {
		const struct postern__request request = {
			.method = "GET",
			.path = "/v1/messages",
			.query = postern__buf_text(&query),
			.transport = "cli",
		};
		r = postern__client_call(cli, client, &request, false, out);
	}
	postern__buf_finish(&query);
	return r;
}

/* Whether a message with an id exists. */
static bool has_id(const struct postern__cli *cli,
		struct postern__client *client, const char *id) {
	json_t *page = NULL;
	bool has = request_id(cli, client, id, false, &page) == POSTERN__EXIT_OK &&
			   json_array_size(json_object_get(page, "items")) > 0;
	json_decref(page);
	return has;
}

/* No message has the number: the error names the message with that id, if there
   is one. `operand` is what was typed: "7" or "#7". */
static int print_no_seq(const struct postern__cli *cli,
		struct postern__client *client, uint64_t seq, const char *operand) {
	char digits[24];
	(void)snprintf(digits, sizeof digits, "%" PRIu64, seq);
	const char *const ids[] = { operand, digits };
	for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		if (has_id(cli, client, ids[i])) {
			postern__err_print("%s: no message has the number %" PRIu64
							   ", but one has the id '%s': use --id '%s'",
					cli->command->name, seq, ids[i], ids[i]);
			return POSTERN__EXIT_NOTFOUND;
		}
	}
	postern__err_print("%s: no message has the number %" PRIu64,
			cli->command->name, seq);
	return POSTERN__EXIT_NOTFOUND;
}

/* "#7" is a number, but may be an id as well; then neither is chosen. */
static int check_clear(const struct postern__cli *cli,
		struct postern__client *client, const char *operand,
		const json_t *message) {
	const char *id = postern__reply_text(message, "id");
	if (operand[0] != '#' || (id && strcmp(id, operand) == 0) ||
			!has_id(cli, client, operand)) {
		return POSTERN__EXIT_OK;
	}
	return postern__cli_usage(cli,
			"'%s' is the number of one message and the id of another: use "
			"--seq %s or --id '%s'",
			operand, operand + 1, operand);
}

static int find_by_seq(const struct postern__cli *cli,
		struct postern__client *client, const char *operand, json_t **out) {
	const char *text = operand[0] == '#' ? operand + 1 : operand;
	uint64_t seq;
	struct postern__reply answer;
	if (postern__count_parse(text, 1, INT64_MAX, &seq, NULL)) {
		return postern__cli_usage(cli, "'%.40s' is not the number of a message",
				text);
	}
	int r = request_seq(cli, client, seq, &answer);
	if (r) {
		return r;
	}
	if (answer.status == 200) {
		r = check_clear(cli, client, operand, answer.json);
		if (r == POSTERN__EXIT_OK) {
			*out = json_incref(answer.json);
		}
	} else if (answer.status == 404) {
		r = print_no_seq(cli, client, seq, operand);
	} else {
		r = postern__reply_problem(cli, &answer);
		/* Several messages match: list them, as for an id. */
		r = answer.status == 409 ? POSTERN__EXIT_USAGE : r;
	}
	json_decref(answer.json);
	return r;
}

static int print_several(const struct postern__cli *cli, const json_t *items) {
	size_t index;
	json_t *message;
	postern__err_print("%zu messages have this id:", json_array_size(items));
	json_array_foreach(items, index, message) {
		const char *source = postern__reply_text(message, "source");
		const char *channel = postern__reply_text(message, "channel");
		const char *store = postern__reply_text(message, "store");
		bool several = cli->store_count > 1 && store;
		postern__note_print("  --seq %" PRIu64
							"  %s%s%s--channel %s --source %s",
				postern__reply_count(message, "seq"), several ? "--in " : "",
				several ? store : "", several ? " " : "",
				channel ? channel : "", source ? source : "");
	}
	return postern__cli_usage(cli, "choose one with %s",
			cli->store_count > 1 ? "--in, --channel or --source"
								 : "--channel, --source or --seq");
}

/* No message has the id: the error names the message with that number, if there
   is one. */
static int print_no_id(const struct postern__cli *cli,
		struct postern__client *client, const char *id) {
	struct postern__reply answer = { 0 };
	uint64_t seq;
	if (postern__count_parse(id, 1, INT64_MAX, &seq, NULL) == POSTERN_OK &&
			request_seq(cli, client, seq, &answer) == POSTERN__EXIT_OK &&
			(answer.status == 200 || answer.status == 409)) {
		/* 409: several stores have one. */
		const char *its = postern__reply_text(answer.json, "id");
		postern__err_print("%s: no message has the id '%s', but one has the "
						   "number "
						   "%s%s%s%s: use --seq %s",
				cli->command->name, id, id, its ? " (id '" : "", its ? its : "",
				its ? "')" : "", id);
	} else {
		postern__err_print("%s: no message has the id '%.200s'",
				cli->command->name, id);
	}
	json_decref(answer.json);
	return POSTERN__EXIT_NOTFOUND;
}

static int find_by_id(const struct postern__cli *cli,
		struct postern__client *client, const char *id, json_t **out) {
	json_t *page = NULL;
	int r = request_id(cli, client, id, true, &page);
	const json_t *items = json_object_get(page, "items");
	if (r == POSTERN__EXIT_OK && json_array_size(items) == 0) {
		r = print_no_id(cli, client, id);
	} else if (r == POSTERN__EXIT_OK && json_array_size(items) > 1) {
		r = print_several(cli, items);
	} else if (r == POSTERN__EXIT_OK) {
		*out = json_incref(json_array_get(items, 0));
	}
	json_decref(page);
	return r;
}

int postern__find_operand(const struct postern__cli *cli,
		struct postern__client *client, const char *operand, json_t **out) {
	return is_number(operand) ? find_by_seq(cli, client, operand, out)
							  : find_by_id(cli, client, operand, out);
}

int postern__find_message(const struct postern__cli *cli,
		struct postern__client *client, json_t **out) {
	const char *operand = postern__args_operand(&cli->args, 0);
	const char *id = postern__args_value(&cli->args, "id");
	const char *seq = postern__args_value(&cli->args, "seq");
	int count = (operand != NULL) + (id != NULL) + (seq != NULL);
	if (count > 1) {
		return postern__cli_usage(cli, "an id and --seq cannot be combined");
	}
	if (count == 0) {
		return postern__cli_usage(cli, "specify a message id");
	}
	if (seq) {
		return find_by_seq(cli, client, seq, out);
	}
	return operand ? postern__find_operand(cli, client, operand, out)
				   : find_by_id(cli, client, id, out);
}
