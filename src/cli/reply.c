/* SPDX-License-Identifier: MIT */
/*
 * Responses are parsed with jansson, including those of this process, so that
 * there is one way to read them.
 */

#include "cli/reply.h"

#include <postern/error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/percent.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "server/api.h"

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

int postern__client_call_any(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, struct postern__reply *out) {
	struct postern__response response;
	struct postern_error error;
	json_error_t where;
	json_t *json = NULL;
	postern__response_init(&response);
	int r = POSTERN__EXIT_OK;
	if (postern__client_request(client, request, once, &response, &error)) {
		r = postern__print_error(cli, &error);
		goto out;
	}
	json = json_loadb(postern__buf_text(&response.body), response.body.len,
			JSON_ALLOW_NUL, &where);
	if (!json_is_object(json)) {
		postern__err_print("%s: the response (status %d) is not a JSON object",
				cli->command->name, response.status);
		r = POSTERN__EXIT_FAILED;
		goto out;
	}
	*out = (struct postern__reply){ .status = response.status, .json = json };
	json = NULL;
out:
	json_decref(json);
	postern__response_finish(&response);
	return r;
}

int postern__client_call(const struct postern__cli *cli,
		struct postern__client *client, const struct postern__request *request,
		bool once, json_t **out) {
	struct postern__reply answer;
	int r = postern__client_call_any(cli, client, request, once, &answer);
	if (r) {
		return r;
	}
	if (answer.status < 200 || answer.status > 299) {
		r = postern__reply_problem(cli, &answer);
		json_decref(answer.json);
		return r;
	}
	*out = answer.json;
	return POSTERN__EXIT_OK;
}

/* Whether this is the flag for a parameter or an attribute of this name. An
   attribute has no '-' in its name; its flag may have one. */
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
 * The detail of a problem often begins with a parameter's name: "since: …",
 * "ce-time: …". Returns the flag that was given for it, NULL if none was.
 * *len_out is the length of the name.
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

static int print_failures(const struct postern__cli *cli, const json_t *rows) {
	int r = POSTERN__EXIT_OK;
	size_t index;
	json_t *row;
	json_array_foreach(rows, index, row) {
		const char *text = postern__reply_text(row, "error");
		const char *store = postern__reply_text(row, "store");
		if (text) {
			postern__err_print("%s: store '%s': %s", cli->command->name,
					store ? store : "", text);
			r = POSTERN__EXIT_UNREACHABLE;
		}
	}
	return r;
}

int postern__reply_failures(const struct postern__cli *cli,
		const json_t *answer) {
	int r = print_failures(cli, json_object_get(answer, "stores"));
	int more = print_failures(cli, json_object_get(answer, "failed"));
	return r ? r : more;
}

int postern__reply_problem(const struct postern__cli *cli,
		const struct postern__reply *answer) {
	const char *text = postern__reply_text(answer->json, "detail");
	size_t len;
	if (cli->config && postern__config_store_count(cli->config) > 1 &&
			postern__reply_failures(cli, answer->json)) {
		return answer->status >= 500 ? POSTERN__EXIT_UNREACHABLE
									 : exit_of_status(answer->status);
	}
	if (!text) {
		text = postern__reply_text(answer->json, "title");
	}
	if (!text) {
		text = postern__status_text(answer->status);
	}
	const char *flag = find_flag(cli, text, &len);
	if (flag) {
		postern__err_print("%s: --%s%s", cli->command->name, flag, text + len);
	} else {
		postern__err_print("%s: %s", cli->command->name, text);
	}
	return exit_of_status(answer->status);
}

const char *postern__reply_text(const json_t *object, const char *name) {
	return json_string_value(json_object_get(object, name));
}

uint64_t postern__reply_count(const json_t *object, const char *name) {
	json_int_t value = json_integer_value(json_object_get(object, name));
	return value > 0 ? (uint64_t)value : 0;
}

int64_t postern__reply_time(const json_t *object, const char *name) {
	const char *text = postern__reply_text(object, name);
	int64_t ms;
	if (!text || postern__time_parse(text, strlen(text), &ms, NULL)) {
		return 0;
	}
	return ms;
}

void postern__reply_store_query(const json_t *object,
		char out[POSTERN__STORE_NAME_LEN_MAX + 16]) {
	const char *store = postern__reply_text(object, "store");
	/* No character of a store name needs to be encoded. */
	(void)snprintf(out, POSTERN__STORE_NAME_LEN_MAX + 16, "%s%.*s",
			store ? "store=" : "", POSTERN__STORE_NAME_LEN_MAX,
			store ? store : "");
}

static int print_piece(const char *bytes, size_t len, void *context) {
	(void)context;
	return fwrite(bytes, 1, len, stdout) == len ? 0 : -1;
}

void postern__reply_print(const json_t *json) {
	size_t flags = JSON_ENCODE_ANY;
	if (isatty(STDOUT_FILENO)) {
		flags |= JSON_ENSURE_ASCII | JSON_INDENT(2);
	}
	/* A write error is found when stdout is closed. */
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
