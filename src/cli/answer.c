/* SPDX-License-Identifier: MIT */
/*
 * An answer is read with jansson, also one of this process: there is one way
 * to read what the API says.
 */

#include "cli/answer.h"

#include <postern/error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "server/api.h"
#include "server/percent.h"

static int exit_of_status(int status) {
	switch (status) {
	case 404: return POSTERN__EXIT_NOTFOUND;
	case 400:
	case 414:
	case 431: return POSTERN__EXIT_USAGE;
	case 421:
	case 429:
	case 503:
	case 504: return POSTERN__EXIT_UNREACHABLE;
	default: return POSTERN__EXIT_FAILED;
	}
}

int postern__ask_any(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, struct postern__answer *out) {
	struct postern__response response;
	struct postern_error error;
	json_error_t where;
	json_t *json = NULL;
	postern__response_init(&response);
	int r = POSTERN__EXIT_OK;
	if (postern__client_request(client, request, once, &response, &error)) {
		r = postern__say_error(cli, &error);
		goto out;
	}
	json = json_loadb(postern__buf_text(&response.body), response.body.len,
			JSON_ALLOW_NUL, &where);
	if (!json_is_object(json)) {
		postern__say("%s: the answer (status %d) is no JSON object",
				cli->command->name, response.status);
		r = POSTERN__EXIT_FAILED;
		goto out;
	}
	*out = (struct postern__answer){ .status = response.status, .json = json };
	json = NULL;
out:
	json_decref(json);
	postern__response_finish(&response);
	return r;
}

int postern__ask(const struct postern__cli *cli, struct postern__client *client,
		const struct postern__request *request, bool once, json_t **out) {
	struct postern__answer answer;
	int r = postern__ask_any(cli, client, request, once, &answer);
	if (r) {
		return r;
	}
	if (answer.status < 200 || answer.status > 299) {
		r = postern__answer_problem(cli, &answer);
		json_decref(answer.json);
		return r;
	}
	*out = answer.json;
	return POSTERN__EXIT_OK;
}

/* Whether this is the flag for a parameter or an attribute of this name; an
   attribute has no '-' in its name, its flag may have. */
static bool is_flag_for(const char *flag, const char *name, size_t len) {
	for (; *flag; flag++) {
		if (*flag == '-') {
			continue;
		}
		if (len == 0 || *name != *flag) {
			return false;
		}
		name++;
		len--;
	}
	return len == 0;
}

/*
 * A problem often begins with what it is about: "since: …", "ce-time: …". The
 * flag that was typed for that; NULL: none was. *len_out is how much of the
 * text the name is.
 */
static const char *find_flag(const struct postern__cli *cli, const char *text,
		size_t *len_out) {
	size_t skip = strncmp(text, "ce-", 3) == 0 ? 3 : 0;
	size_t len = strcspn(text + skip, ": ");
	*len_out = skip + len;
	for (size_t i = 0; i < cli->args.count; i++) {
		const struct postern__flag *flag = cli->args.items[i].flag;
		if (flag && flag->value && is_flag_for(flag->name, text + skip, len)) {
			return flag->name;
		}
	}
	return NULL;
}

static int say_failures(const struct postern__cli *cli, const json_t *rows) {
	int r = POSTERN__EXIT_OK;
	size_t index;
	json_t *row;
	json_array_foreach(rows, index, row) {
		const char *text = postern__answer_text(row, "error");
		const char *store = postern__answer_text(row, "store");
		if (text) {
			postern__say("%s: store '%s': %s", cli->command->name,
					store ? store : "", text);
			r = POSTERN__EXIT_UNREACHABLE;
		}
	}
	return r;
}

int postern__answer_failures(const struct postern__cli *cli,
		const json_t *answer) {
	int r = say_failures(cli, json_object_get(answer, "stores"));
	int more = say_failures(cli, json_object_get(answer, "failed"));
	return r ? r : more;
}

int postern__answer_problem(const struct postern__cli *cli,
		const struct postern__answer *answer) {
	const char *text = postern__answer_text(answer->json, "detail");
	size_t len;
	if (postern__config_store_count(cli->config) > 1 &&
			postern__answer_failures(cli, answer->json)) {
		return answer->status >= 500 ? POSTERN__EXIT_UNREACHABLE
									 : exit_of_status(answer->status);
	}
	if (!text) {
		text = postern__answer_text(answer->json, "title");
	}
	if (!text) {
		text = postern__status_text(answer->status);
	}
	const char *flag = find_flag(cli, text, &len);
	if (flag) {
		postern__say("%s: --%s%s", cli->command->name, flag, text + len);
	} else {
		postern__say("%s: %s", cli->command->name, text);
	}
	return exit_of_status(answer->status);
}

const char *postern__answer_text(const json_t *object, const char *name) {
	return json_string_value(json_object_get(object, name));
}

uint64_t postern__answer_count(const json_t *object, const char *name) {
	json_int_t value = json_integer_value(json_object_get(object, name));
	return value > 0 ? (uint64_t)value : 0;
}

int64_t postern__answer_time(const json_t *object, const char *name) {
	const char *text = postern__answer_text(object, name);
	int64_t ms;
	if (!text || postern__time_parse(text, strlen(text), &ms, NULL)) {
		return 0;
	}
	return ms;
}

void postern__answer_store_query(const json_t *object,
		char out[POSTERN__STORE_NAME_LEN_MAX + 16]) {
	const char *store = postern__answer_text(object, "store");
	/* Nothing in a name needs to be encoded. */
	(void)snprintf(out, POSTERN__STORE_NAME_LEN_MAX + 16, "%s%.*s",
			store ? "store=" : "", POSTERN__STORE_NAME_LEN_MAX,
			store ? store : "");
}

static int print_piece(const char *bytes, size_t len, void *context) {
	(void)context;
	return fwrite(bytes, 1, len, stdout) == len ? 0 : -1;
}

void postern__answer_print(const json_t *json) {
	size_t flags = JSON_ENCODE_ANY;
	if (isatty(STDOUT_FILENO)) {
		flags |= JSON_ENSURE_ASCII | JSON_INDENT(2);
	}
	/* What cannot be written is found when stdout is closed. */
	(void)json_dump_callback(json, print_piece, NULL, flags);
	(void)putchar('\n');
}

void postern__query_add(struct postern__buf *query, const char *name,
		const char *value) {
	if (query->len > 0) {
		postern__buf_append_char(query, '&');
	}
	postern__buf_append_text(query, name);
	postern__buf_append_char(query, '=');
	postern__percent_segment(query, value);
}
