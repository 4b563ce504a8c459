/* SPDX-License-Identifier: MIT */
/*
 * `postern retry` and `postern discard`: the same command with another verb.
 *
 * One message is edited delivery by delivery, and each result is printed. Many
 * deliveries are counted first, and edited only after confirmation or with
 * --yes. The store is released while the user is asked.
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/percent.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/filters.h"
#include "cli/find_message.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/words.h"
#include "server/api.h"

/* Without --limit; bounds the damage of a mistake. */
#define LIMIT_DEFAULT 1000

struct verb {
	const char *name; /* "retry": in the path and in prompts */
	const char *past;
	enum postern__edit edit;
	/* States that are edited if no handler is named, ended by NULL. A discarded
	   delivery was ended by an operator: it is retried only if its handler is
	   named. */
	const char *const *states;
};

static const char *const retry_states[] = { "pending", "poisoned", NULL };
static const char *const discard_states[] = { "pending", "poisoned", "parked",
	NULL };

static const struct verb retry = { "retry", "retried", POSTERN__EDIT_RETRY,
	retry_states };
static const struct verb discard = { "discard", "discarded",
	POSTERN__EDIT_DISCARD, discard_states };

static const struct postern_header json_header = { "Content-Type",
	"application/json" };

static const char *const cancel_states[] = { "leased", NULL };
static const struct verb cancel = { "cancel", "cancelled", POSTERN__EDIT_NONE,
	cancel_states };

static bool is_selected(const struct verb *verb, const json_t *row) {
	const char *state = postern__reply_text(row, "state");
	for (const char *const *s = verb->states; state && *s; s++) {
		if (strcmp(state, *s) == 0) {
			return true;
		}
	}
	return false;
}

/* The message has no delivery to this handler: print which it has. */
static int print_no_delivery(const struct postern__cli *cli,
		const json_t *message, const char *handler) {
	struct postern__buf keys;
	size_t index;
	json_t *row;
	postern__buf_init(&keys, (size_t)64 * 1024);
	json_array_foreach(json_object_get(message, "deliveries"), index, row) {
		const char *key = postern__reply_text(row, "handler");
		if (key && *key) {
			postern__buf_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", key);
		}
	}
	postern__err_print("%s: #%" PRIu64 " has no delivery to '%s'%s%s",
			cli->command->name, postern__reply_count(message, "seq"), handler,
			keys.len > 0 ? "; it has: " : "", postern__buf_text(&keys));
	postern__buf_finish(&keys);
	return POSTERN__EXIT_NOTFOUND;
}

/* Edit one delivery; *out is the response, to be printed or collected. */
static int edit_one(const struct postern__cli *cli,
		struct postern__client *client, const struct verb *verb,
		const json_t *message, const char *handler, json_t **out) {
	struct postern__buf path;
	char query[POSTERN__STORE_NAME_LEN_MAX + 16];
	json_t *words = postern__words(cli);
	if (words && postern__args_has(&cli->args, "uncounted")) {
		(void)json_object_set_new(words, "uncounted", json_true());
	}
	char *body = words ? json_dumps(words, JSON_COMPACT) : NULL;
	json_decref(words);
	if (!body) {
		return POSTERN__EXIT_USAGE;
	}
	postern__reply_store_query(message, query);
	postern__buf_init(&path, POSTERN__API_PATH_LEN_MAX);
	postern__buf_printf(&path, "/v1/deliveries/%" PRIu64 "/",
			postern__reply_count(message, "seq"));
	postern__percent_segment(&path, handler);
	postern__buf_printf(&path, "/%s", verb->name);
	int r;
	if (postern__buf_check(&path, "the handler's key", NULL)) {
		r = postern__cli_usage(cli, "the handler's key is too long");
	} else {
		const struct postern__request request = {
			.method = "POST",
			.path = postern__buf_text(&path),
			.query = query,
			.transport = "cli",
			.headers = &json_header,
			.header_count = 1,
			.body = body,
			.body_len = strlen(body),
		};
		/* A retried delivery may already be poisoned again, and a cancelled
		   one may run again. */
		struct postern__reply answer;
		r = postern__client_call_any(cli, client, &request, verb != &discard,
				&answer);
		if (r == POSTERN__EXIT_OK && answer.status == 200) {
			*out = answer.json;
		} else if (r == POSTERN__EXIT_OK) {
			r = answer.status == 404 ? print_no_delivery(cli, message, handler)
									 : postern__reply_problem(cli, &answer);
			json_decref(answer.json);
		}
	}
	free(body);
	postern__buf_finish(&path);
	return r;
}

/* Edit one delivery of the message; the result is printed or collected. */
static int edit_row(const struct postern__cli *cli,
		struct postern__client *client, const struct verb *verb,
		const json_t *message, const char *handler, json_t *results) {
	json_t *answer = NULL;
	int r = edit_one(cli, client, verb, message, handler, &answer);
	if (r) {
		return r;
	}
	if (cli->json) {
		(void)json_object_set(answer, "message_id",
				json_object_get(message, "id"));
		(void)json_array_append(results, answer);
	} else {
		(void)printf("%s ", verb->past);
		postern__out_text(*handler ? handler : "parked message");
		if (postern__args_operand_count(&cli->args) > 1) {
			(void)printf(" of ");
			postern__out_text(postern__reply_text(message, "id"));
		}
		(void)putchar('\n');
	}
	json_decref(answer);
	return POSTERN__EXIT_OK;
}

/* What can be done instead with deliveries that do not run. handler NULL: all
   of the message. */
static void print_cancel_hint(const json_t *rows, const char *handler) {
	size_t index;
	json_t *row;
	json_array_foreach(rows, index, row) {
		const char *key = postern__reply_text(row, "handler");
		const char *state = postern__reply_text(row, "state");
		if (key && state && strcmp(state, "pending") == 0 &&
				(!handler || strcmp(handler, key) == 0)) {
			postern__note_print("'cancel' ends runs; 'postern discard' ends a "
								"delivery that does not run");
			return;
		}
	}
}

/* No delivery was edited: print the states of those there are. */
static int print_none(const struct postern__cli *cli, const struct verb *verb,
		const json_t *rows) {
	size_t index;
	json_t *row;
	if (json_array_size(rows) == 0) {
		postern__err_print("%s: the message has no deliveries", verb->name);
	}
	json_array_foreach(rows, index, row) {
		const char *handler = postern__reply_text(row, "handler");
		const char *state = postern__reply_text(row, "state");
		if (!handler || !*handler) {
			postern__err_print("%s: no handler wants the message: it is %s",
					cli->command->name, state ? state : "");
			continue;
		}
		postern__err_print("%s: '%s' is %s%s", cli->command->name, handler,
				state ? state : "",
				state && strcmp(state, "discarded") == 0 && verb == &retry
						? " (choose it with --handler to retry it)"
				: state && strcmp(state, "done") == 0 && verb == &retry
						? " and cannot be run again"
						: "");
	}
	if (verb == &cancel) {
		print_cancel_hint(rows, NULL);
	}
	return POSTERN__EXIT_FAILED;
}

/* "10,000 of 23,456 deliveries; the limit is 10,000", or without the rest if
   all are counted. */
static void print_counts(FILE *file, uint64_t count, uint64_t total,
		uint64_t limit) {
	char counted[POSTERN__COUNT_TEXT_MAX];
	char all[POSTERN__COUNT_TEXT_MAX];
	char most[POSTERN__COUNT_TEXT_MAX];
	postern__out_count(count, counted);
	postern__out_count(total, all);
	postern__out_count(limit, most);
	if (count < total) {
		(void)fprintf(file, "%s of %s deliveries; the limit is %s", counted,
				all, most);
	} else {
		(void)fprintf(file, "%s deliver%s", counted, count == 1 ? "y" : "ies");
	}
}

static void print_dry_run(const struct verb *verb, uint64_t count,
		uint64_t total, uint64_t limit) {
	(void)printf("would %s ", verb->name);
	print_counts(stdout, count, total, limit);
	(void)putchar('\n');
}

static int edit_rows(const struct postern__cli *cli,
		struct postern__client *client, const struct verb *verb,
		const json_t *message, json_t *results, uint64_t *count_out) {
	const json_t *rows = json_object_get(message, "deliveries");
	const char *only = postern__args_value(&cli->args, "handler");
	bool dry_run = postern__args_has(&cli->args, "dry-run");
	uint64_t count = 0;
	int worst = POSTERN__EXIT_OK;
	size_t index;
	json_t *row;
	if (only && !dry_run) {
		/* The store resolves legacy keys; the rows show current ones. */
		int r = edit_row(cli, client, verb, message, only, results);
		if (r == POSTERN__EXIT_FAILED && verb == &cancel) {
			print_cancel_hint(rows, only);
		}
		return r;
	}
	json_array_foreach(rows, index, row) {
		const char *handler = postern__reply_text(row, "handler");
		if (!handler || !is_selected(verb, row) ||
				(only && strcmp(only, handler) != 0)) {
			continue;
		}
		count++;
		int r = dry_run ? POSTERN__EXIT_OK
						: edit_row(cli, client, verb, message, handler,
								  results);
		worst = r ? r : worst;
	}
	*count_out += count;
	return count > 0 || dry_run ? worst : print_none(cli, verb, rows);
}

static void print_edited(const struct postern__cli *cli,
		const struct verb *verb, const json_t *results, uint64_t count) {
	bool dry_run = postern__args_has(&cli->args, "dry-run");
	if (dry_run && !cli->json) {
		print_dry_run(verb, count, count, 0);
	} else if (dry_run) {
		json_t *answer = json_pack("{s:I, s:b}", "count", (json_int_t)count,
				"dry_run", 1);
		postern__reply_print(answer);
		json_decref(answer);
	} else if (cli->json && json_array_size(results) > 0) {
		postern__reply_print(results);
	}
}

/* Edit one of the messages that are named; operand NULL: by --id or --seq. */
static int edit_named(struct postern__cli *cli, struct postern__client *client,
		const struct verb *verb, const char *operand, json_t *results,
		uint64_t *count) {
	json_t *message = NULL;
	int r = operand ? postern__find_operand(cli, client, operand, &message)
					: postern__find_message(cli, client, &message);
	if (r == POSTERN__EXIT_OK) {
		r = edit_rows(cli, client, verb, message, results, count);
	}
	if (!r && verb == &retry && !postern__args_has(&cli->args, "dry-run")) {
		postern__waiting_print(cli, client,
				json_object_get(message, "deliveries"),
				postern__args_value(&cli->args, "handler"));
	}
	json_decref(message);
	return r;
}

static int edit_message(struct postern__cli *cli, const struct verb *verb) {
	static const char *const others[] = { "state", "type", "since", "until",
		"older-than", "error", "group", "oldest", "limit" };
	struct postern__client *client = NULL;
	size_t operands = postern__args_operand_count(&cli->args);
	uint64_t count = 0;
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		if (postern__args_has(&cli->args, others[i])) {
			return postern__cli_usage(cli, "--%s cannot be combined with an ID",
					others[i]);
		}
	}
	if (operands > 1 && (postern__args_has(&cli->args, "id") ||
								postern__args_has(&cli->args, "seq"))) {
		return postern__cli_usage(cli,
				"--id and --seq cannot be combined with several IDs");
	}
	int worst = postern__client_begin(cli, POSTERN__NEED_WRITE, &client);
	if (worst) {
		return worst;
	}
	json_t *results = json_array();
	if (operands <= 1) {
		worst = edit_named(cli, client, verb, NULL, results, &count);
	}
	for (size_t i = 0; operands > 1 && i < operands; i++) {
		int r = edit_named(cli, client, verb,
				postern__args_operand(&cli->args, i), results, &count);
		worst = worst ? worst : r;
	}
	if (count > 0 || !worst || json_array_size(results) > 0) {
		print_edited(cli, verb, results, count);
	}
	json_decref(results);
	postern__client_destroy(client);
	return worst;
}

/* Make one request for many deliveries, with a client of its own; *count_out is
   set. */
static int edit_many(struct postern__cli *cli, const struct verb *verb,
		const json_t *filter, unsigned long limit, bool dry_run, json_t **out) {
	struct postern__client *client = NULL;
	char path[64];
	char *body = NULL;
	(void)snprintf(path, sizeof path, "/v1/deliveries/%s", verb->name);
	/* "O" leaves the filter with the caller. */
	json_t *json = json_pack("{s:O, s:I, s:b}", "filter", filter, "limit",
			(json_int_t)limit, "dry_run", (int)dry_run);
	int r = POSTERN__EXIT_FAILED;
	if (json && !postern__words_add(cli, json)) {
		r = POSTERN__EXIT_USAGE;
		goto out;
	}
	if (json) {
		body = json_dumps(json, JSON_COMPACT);
	}
	if (!body) {
		postern__err_print("out of memory");
		goto out;
	}
	r = postern__client_begin(cli, POSTERN__NEED_WRITE, &client);
	if (r) {
		goto out;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = path,
		.transport = "cli",
		.headers = &json_header,
		.header_count = 1,
		.body = body,
		.body_len = strlen(body),
	};
	/* A repeated request could change twice as many: the limit is per
	   request. */
	r = postern__client_call(cli, client, &request, !dry_run, out);
out:
	free(body);
	json_decref(json);
	postern__client_destroy(client);
	return r;
}

/* Read the answer from the terminal. */
static bool confirm_yes(const struct verb *verb, uint64_t count) {
	char line[16];
	(void)fprintf(stderr, "%s ", verb->name);
	print_counts(stderr, count, count, 0);
	(void)fprintf(stderr, "? [y/N] ");
	(void)fflush(stderr);
	return fgets(line, sizeof line, stdin) &&
		   (strcasecmp(line, "y\n") == 0 || strcasecmp(line, "yes\n") == 0);
}

/* Whether to continue after the count, which is printed. */
static int confirm(const struct postern__cli *cli, const struct verb *verb,
		uint64_t count, uint64_t total, unsigned long limit) {
	char all[POSTERN__COUNT_TEXT_MAX];
	char most[POSTERN__COUNT_TEXT_MAX];
	postern__out_count(total, all);
	postern__out_count(limit, most);
	postern__note_print("%s deliver%s%s%s", all,
			total == 1 ? "y matches" : "ies match",
			count < total ? "; the limit is " : "", count < total ? most : "");
	if (count == 0 || postern__args_has(&cli->args, "yes")) {
		return POSTERN__EXIT_OK;
	}
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		return postern__cli_usage(cli,
				"no terminal to confirm on: use --yes or --dry-run");
	}
	if (!confirm_yes(verb, count)) {
		postern__err_print("no delivery was changed");
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

static void print_many(const struct postern__cli *cli, const struct verb *verb,
		const json_t *answer, bool dry_run) {
	if (cli->json) {
		postern__reply_print(answer);
	} else if (dry_run) {
		print_dry_run(verb, postern__reply_count(answer, "count"),
				postern__reply_count(answer, "total"),
				postern__reply_count(answer, "limit"));
	} else {
		(void)printf("%s %" PRIu64 "\n", verb->past,
				postern__reply_count(answer, "count"));
	}
}

/* Which handlers are held, after a retry by filters. */
static void print_waiting_many(struct postern__cli *cli,
		const struct verb *verb, const json_t *answer) {
	struct postern__client *client = NULL;
	if (verb != &retry || postern__reply_count(answer, "count") == 0 ||
			postern__client_begin(cli, POSTERN__NEED_READ, &client)) {
		return;
	}
	postern__waiting_print(cli, client, NULL,
			postern__args_value(&cli->args, "handler"));
	postern__client_destroy(client);
}

static int edit_filtered(struct postern__cli *cli, const struct verb *verb) {
	bool dry_run = postern__args_has(&cli->args, "dry-run");
	unsigned long limit = LIMIT_DEFAULT;
	json_t *filter = json_object();
	json_t *found = NULL;
	json_t *edited = NULL;
	const char *name;
	const char *value;
	size_t index = 0;
	int r = postern__cli_count(cli, "limit", 1, POSTERN_LIST_LIMIT_MAX, &limit);
	if (r == POSTERN__EXIT_OK) {
		r = postern__filters_check(cli, verb->edit);
	}
	while (r == POSTERN__EXIT_OK &&
			(value = postern__filter_next(cli, &index, &name))) {
		if (json_object_set_new(filter, name, json_string(value))) {
			r = postern__cli_usage(cli, "--%s is not valid UTF-8", name);
		}
	}
	size_t orders = postern__args_has(&cli->args, "oldest");
	if (r == POSTERN__EXIT_OK && json_object_size(filter) <= orders) {
		r = postern__cli_usage(cli,
				"specify an ID, or filters such as --state");
	}
	if (r == POSTERN__EXIT_OK) {
		r = edit_many(cli, verb, filter, limit, true, &found);
	}
	if (r) {
		goto out;
	}
	uint64_t count = postern__reply_count(found, "count");
	r = postern__reply_failures(cli, found);
	if (dry_run) {
		print_many(cli, verb, found, true);
		goto out;
	}
	r = confirm(cli, verb, count, postern__reply_count(found, "total"), limit);
	if (r == POSTERN__EXIT_OK) {
		r = edit_many(cli, verb, filter, limit, false, &edited);
	}
	if (r == POSTERN__EXIT_OK) {
		print_many(cli, verb, edited, false);
		r = postern__reply_failures(cli, edited);
		print_waiting_many(cli, verb, edited);
	}
out:
	json_decref(edited);
	json_decref(found);
	json_decref(filter);
	return r;
}

static int edit(struct postern__cli *cli, const struct verb *verb) {
	return postern__find_named(cli) ? edit_message(cli, verb)
									: edit_filtered(cli, verb);
}

int postern__command_retry(struct postern__cli *cli) {
	return edit(cli, &retry);
}

int postern__command_discard(struct postern__cli *cli) {
	return edit(cli, &discard);
}

int postern__command_cancel(struct postern__cli *cli) {
	return postern__find_named(cli) ? edit_message(cli, &cancel)
									: postern__cli_usage(cli, "specify an ID");
}
