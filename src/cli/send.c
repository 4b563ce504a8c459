/* SPDX-License-Identifier: MIT */
/*
 * `postern send`: a message as a CloudEvent in binary form, its attributes in
 * ce-* headers, the body untouched.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/percent.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/send.h"
#include "server/api.h"
#include "server/config.h"
#include "server/store_open.h"

/* A CloudEvent must have a type; this is the default. */
#define TYPE_DEFAULT "message"

#define READ_SIZE 65536
#define UUID_TEXT_MAX 37

/* The message that is being sent. */
struct letter {
	const char *channel;
	const char *id;
	char uuid[UUID_TEXT_MAX]; /* storage of a generated id */
	struct postern__arena arena;
	struct postern_header headers[POSTERN__API_HEADER_COUNT_MAX];
	size_t header_count;
	struct postern__buf path;
	struct postern__buf body;
};

/* Version 4 of RFC 9562. */
static void make_uuid(char out[UUID_TEXT_MAX]) {
	const struct postern_random *random = postern_random_system();
	uint64_t a = random->next(random->context);
	uint64_t b = random->next(random->context);
	a = (a & ~UINT64_C(0xf000)) | UINT64_C(0x4000);
	b = (b & ~(UINT64_C(3) << 62)) | UINT64_C(2) << 62;
	(void)snprintf(out, UUID_TEXT_MAX,
			"%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64
			"-%012" PRIx64,
			a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48,
			b & UINT64_C(0xffffffffffff));
}

/* The id is validated here, before anything is opened. */
static int check_id(const struct postern__cli *cli, const char *id) {
	size_t len = strlen(id);
	if (len == 0) {
		return postern__cli_usage(cli, "--id is empty");
	}
	if (!postern__utf8_valid(id, len)) {
		return postern__cli_usage(cli, "--id is not valid UTF-8");
	}
	if (postern__utf8_has_control(id, len)) {
		return postern__cli_usage(cli, "--id has control characters");
	}
	if (postern__utf8_count(id, len) > POSTERN_ID_CHARACTERS_MAX) {
		return postern__cli_usage(cli,
				"--id has %zu characters; the maximum is %d",
				postern__utf8_count(id, len), POSTERN_ID_CHARACTERS_MAX);
	}
	return POSTERN__EXIT_OK;
}

static int add_header(const struct postern__cli *cli, struct letter *letter,
		const char *name, const char *value) {
	if (letter->header_count == POSTERN__API_HEADER_COUNT_MAX) {
		return postern__cli_usage(cli, "too many headers");
	}
	letter->headers[letter->header_count++] =
			(struct postern_header){ .name = name, .value = value };
	return POSTERN__EXIT_OK;
}

/* An attribute of the event; NULL is left out. */
static int add_attribute(const struct postern__cli *cli, struct letter *letter,
		const char *name, const char *value) {
	struct postern__buf buf;
	if (!value) {
		return POSTERN__EXIT_OK;
	}
	postern__buf_init(&buf, POSTERN__API_HEADERS_LEN_MAX);
	postern__percent_header(&buf, value);
	char *copy = postern__arena_strdup(&letter->arena, postern__buf_text(&buf));
	int r = postern__buf_check(&buf, name, NULL);
	postern__buf_finish(&buf);
	if (r || !copy) {
		return postern__cli_usage(cli, "%s is too long", name);
	}
	return add_header(cli, letter, name, copy);
}

static bool is_token(const char *name) {
	return *name && name[strspn(name, "!#$%&'*+-.^_`|~0123456789"
									  "abcdefghijklmnopqrstuvwxyz"
									  "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
}

/* A header must be one line without blanks at its ends, which would be
   trimmed. */
static bool is_value(const char *value) {
	size_t len = strlen(value);
	return postern__utf8_valid(value, len) &&
		   !postern__utf8_has_control(value, len) &&
		   (len == 0 || (value[0] != ' ' && value[len - 1] != ' '));
}

static int add_plain_header(const struct postern__cli *cli,
		struct letter *letter, const char *pair) {
	char *name = postern__arena_strdup(&letter->arena, pair);
	char *value = name ? strchr(name, '=') : NULL;
	if (!value) {
		return postern__cli_usage(cli, "--header '%.80s' is not NAME=VALUE",
				pair);
	}
	*value++ = '\0';
	if (!is_token(name)) {
		return postern__cli_usage(cli, "--header: invalid header name '%.80s'",
				name);
	}
	if (!is_value(value)) {
		return postern__cli_usage(cli,
				"--header %.80s: the value must be one line of UTF-8 without "
				"leading or trailing blanks",
				name);
	}
	if (!postern__api_keeps_header(name)) {
		return postern__cli_usage(cli,
				"--header: '%.80s' is reserved and would not be stored", name);
	}
	return add_header(cli, letter, name, value);
}

static int add_headers(const struct postern__cli *cli, struct letter *letter) {
	static const struct {
		const char *header;
		const char *flag;
	} attributes[] = {
		{ "ce-subject", "subject" },
		{ "ce-time", "time" },
		{ "ce-correlationid", "correlation-id" },
		{ "ce-traceparent", "traceparent" },
	};
	const struct postern__args *args = &cli->args;
	const char *source = postern__args_value(args, "source");
	const char *type = postern__args_value(args, "type");
	const char *content_type = postern__args_value(args, "content-type");
	int r = add_attribute(cli, letter, "ce-specversion", "1.0");
	if (r == POSTERN__EXIT_OK) {
		r = add_attribute(cli, letter, "ce-id", letter->id);
	}
	if (r == POSTERN__EXIT_OK) {
		r = add_attribute(cli, letter, "ce-source",
				source ? source : letter->channel);
	}
	if (r == POSTERN__EXIT_OK) {
		r = add_attribute(cli, letter, "ce-type", type ? type : TYPE_DEFAULT);
	}
	for (size_t i = 0; r == POSTERN__EXIT_OK &&
					   i < sizeof attributes / sizeof attributes[0];
			i++) {
		r = add_attribute(cli, letter, attributes[i].header,
				postern__args_value(args, attributes[i].flag));
	}
	if (r == POSTERN__EXIT_OK && content_type) {
		r = is_value(content_type)
					? add_header(cli, letter, "Content-Type", content_type)
					: postern__cli_usage(cli,
							  "--content-type must be one line");
	}
	size_t index = 0;
	const char *pair;
	while (r == POSTERN__EXIT_OK &&
			(pair = postern__args_next(args, "header", &index))) {
		r = add_plain_header(cli, letter, pair);
	}
	return r;
}

int postern__send_path(const struct postern__cli *cli, const char *channel,
		struct postern__buf *path) {
	postern__buf_append_text(path, "/v1/channels/");
	postern__percent_segment(path, channel);
	postern__buf_append_text(path, "/messages");
	if (!*channel || strlen(channel) > POSTERN_CHANNEL_NAME_LEN_MAX ||
			postern__buf_check(path, "the path", NULL)) {
		return postern__cli_usage(cli, "a channel name must have 1 to %d bytes",
				POSTERN_CHANNEL_NAME_LEN_MAX);
	}
	return POSTERN__EXIT_OK;
}

/* The longest body that the channel accepts by this configuration; a channel
   that is unknown here may be known to a server. */
static size_t body_len_max(const struct postern__cli *cli,
		const struct letter *letter) {
	const struct postern__api api = {
		.config = cli->config,
		.body_len_max = POSTERN_BODY_LEN_MAX,
	};
	return postern__api_message_len_max(&api, postern__buf_text(&letter->path));
}

static int fail_too_long(size_t len_max) {
	char text[POSTERN__SIZE_TEXT_MAX];
	postern__size_format(len_max, text);
	postern__err_print("the body exceeds %s (max_message_size)", text);
	return POSTERN__EXIT_FAILED;
}

/* Read to the end, but never more than one byte past the limit. */
static int read_body(int fd, const char *name, size_t len_max,
		struct postern__buf *body) {
	for (;;) {
		size_t room = len_max + 1 - body->len;
		if (room == 0) {
			return fail_too_long(len_max);
		}
		room = room < READ_SIZE ? room : READ_SIZE;
		char *place = postern__buf_reserve(body, room);
		if (!place) {
			postern__err_print("out of memory");
			return POSTERN__EXIT_FAILED;
		}
		ssize_t len = read(fd, place, room);
		if (len == 0) {
			return POSTERN__EXIT_OK;
		}
		if (len > 0) {
			postern__buf_commit(body, (size_t)len);
		} else if (errno != EINTR) {
			postern__err_print("cannot read %s: %s", name, strerror(errno));
			return POSTERN__EXIT_FAILED;
		}
	}
}

int postern__send_read_file(const char *path, size_t len_max,
		struct postern__buf *body) {
	if (strcmp(path, "-") == 0) {
		return read_body(STDIN_FILENO, "standard input", len_max, body);
	}
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		postern__err_print("cannot read %s: %s", path, strerror(errno));
		return POSTERN__EXIT_FAILED;
	}
	int r = read_body(fd, path, len_max, body);
	(void)close(fd); /* close of a file that was only read */
	return r;
}

static int get_body(const struct postern__cli *cli, struct letter *letter) {
	const char *path = postern__args_operand(&cli->args, 1);
	const char *text = postern__args_value(&cli->args, "body");
	size_t len_max = body_len_max(cli, letter);
	postern__buf_init(&letter->body, len_max + 1);
	if (path && text) {
		return postern__cli_usage(cli, "FILE and --body cannot be combined");
	}
	if (text) {
		postern__buf_append_text(&letter->body, text);
		return letter->body.failed || letter->body.len > len_max
					   ? fail_too_long(len_max)
					   : POSTERN__EXIT_OK;
	}
	if (path) {
		return postern__send_read_file(path, len_max, &letter->body);
	}
	if (!path && isatty(STDIN_FILENO)) {
		return postern__cli_usage(cli,
				"no body: specify FILE, '-' to type it here, or --body TEXT");
	}
	return read_body(STDIN_FILENO, "standard input", len_max, &letter->body);
}

/* Suggest a channel for an unknown name, from this configuration. */
static void suggest_channel(const struct postern__cli *cli, const char *name) {
	const char *names[POSTERN_CHANNEL_COUNT_MAX];
	size_t count = postern__config_channel_count(cli->config);
	for (size_t i = 0; i < count && i < POSTERN_CHANNEL_COUNT_MAX; i++) {
		names[i] = postern__config_channel(cli->config, i)->name;
	}
	const char *near = postern__closest(name, names, count);
	if (near) {
		postern__err_print("did you mean '%s'?", near);
	} else if (count == 0 && !cli->server) {
		postern__err_print("the configuration has no channels; 'postern init' "
						   "writes one to start from");
	}
}

int postern__send_check_channel(struct postern__cli *cli, const char *name) {
	const struct postern__config_channel *channel =
			postern__config_channel_named(cli->config, name);
	if (cli->server) {
		return POSTERN__EXIT_OK; /* it knows its channels */
	}
	if (channel) {
		cli->stores[0] = channel->store;
		cli->store_count = 1;
		return POSTERN__EXIT_OK;
	}
	for (size_t i = 0; i < cli->store_count; i++) {
		if (postern__store_has_server(cli->stores[i]->values.store)) {
			return POSTERN__EXIT_OK;
		}
	}
	postern__err_print("send: no channel '%s'", name);
	suggest_channel(cli, name);
	return POSTERN__EXIT_NOTFOUND;
}

/* A conflict is a problem of HTTP, whose status is a number; the command's
   status is a word, as for "accepted" and "duplicate". */
static void print_json(const json_t *answer, bool conflict) {
	static const char *const problem[] = { "type", "title" };
	json_t *json = json_copy((json_t *)answer);
	for (size_t i = 0; conflict && i < sizeof problem / sizeof problem[0];
			i++) {
		(void)json_object_del(json, problem[i]);
	}
	if (conflict) {
		(void)json_object_set_new(json, "status", json_string("conflict"));
	}
	postern__reply_print(json);
	json_decref(json);
}

int postern__send_problem(const struct postern__cli *cli, const char *channel,
		const struct postern__reply *answer) {
	if (answer->status == 404 &&
			postern__config_channel_named(cli->config, channel)) {
		postern__err_print("send: no channel '%s': the server was started with "
						   "another configuration; restart it",
				channel);
		return POSTERN__EXIT_UNREACHABLE;
	}
	int r = postern__reply_problem(cli, answer);
	const char *detail = postern__reply_text(answer->json, "detail");
	if (answer->status == 404 && !(detail && strstr(detail, "did you mean"))) {
		suggest_channel(cli, channel);
	}
	return r;
}

/* A parked message is accepted, but nothing happens with it yet. */
static void print_status(const json_t *answer, const char *status) {
	const char *reason = postern__reply_text(answer, "reason");
	(void)fputs(status ? status : "?", stdout);
	if (json_is_true(json_object_get(answer, "parked"))) {
		(void)fputs(" (parked", stdout);
		if (reason) {
			(void)fputs(": ", stdout);
			postern__out_text(reason);
		}
		(void)fputc(')', stdout);
	}
	(void)fputc('\n', stdout);
}

/* A message that is a copy by another key is not stored, so its generated id
   finds nothing. */
static void print_made_id(const struct letter *letter, const json_t *answer,
		const char *status) {
	json_int_t seq = json_integer_value(json_object_get(answer, "seq"));
	if (status && strcmp(status, "duplicate") == 0 && seq > 0) {
		postern__note_print("a copy of #%lld", (long long)seq);
	} else {
		postern__note_print("id %s", letter->id);
	}
}

static int print_answer(const struct postern__cli *cli,
		const struct letter *letter, const struct postern__reply *answer) {
	const char *status = postern__reply_text(answer->json, "status");
	bool conflict = answer->status == 409;
	if (answer->status > 299 && !conflict) {
		return postern__send_problem(cli, letter->channel, answer);
	}
	if (cli->json) {
		print_json(answer->json, conflict);
	} else {
		print_status(answer->json, conflict ? "conflict" : status);
	}
	if (conflict) {
		return postern__reply_problem(cli, answer);
	}
	if (!cli->json && json_is_true(json_object_get(answer->json, "dropped"))) {
		postern__err_print("note: no handler wants the message: dropped");
	}
	if (letter->id == letter->uuid && !cli->json) {
		print_made_id(letter, answer->json, status);
	}
	return POSTERN__EXIT_OK;
}

static int post_message(struct postern__cli *cli, struct letter *letter) {
	struct postern__client *client = NULL;
	struct postern__reply answer = { 0 };
	int r = postern__client_begin(cli, POSTERN__NEED_ACCEPT, &client);
	if (r) {
		return r;
	}
	const struct postern__request request = {
		.method = "POST",
		.path = postern__buf_text(&letter->path),
		.transport = "cli",
		.headers = letter->headers,
		.header_count = letter->header_count,
		.body = postern__buf_text(&letter->body),
		.body_len = letter->body.len,
	};
	/* The request may be repeated if the connection was lost: the message has
	   an identity. */
	r = postern__client_call_any(cli, client, &request, false, &answer);
	if (r == POSTERN__EXIT_OK) {
		r = print_answer(cli, letter, &answer);
	}
	json_decref(answer.json);
	postern__client_destroy(client);
	return r;
}

static int send_one(struct postern__cli *cli) {
	struct letter letter = {
		.channel = postern__args_operand(&cli->args, 0),
		.id = postern__args_value(&cli->args, "id"),
	};
	postern__arena_init(&letter.arena);
	postern__buf_init(&letter.path, POSTERN__API_PATH_LEN_MAX);
	postern__buf_init(&letter.body, 0);
	if (!letter.id) {
		make_uuid(letter.uuid);
		letter.id = letter.uuid;
	}
	int r = check_id(cli, letter.id);
	if (r == POSTERN__EXIT_OK) {
		r = postern__send_path(cli, letter.channel, &letter.path);
	}
	if (r == POSTERN__EXIT_OK) {
		r = add_headers(cli, &letter);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_configure(cli);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_files(cli, false, true);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__send_check_channel(cli, letter.channel);
	}
	if (r == POSTERN__EXIT_OK) {
		r = get_body(cli, &letter);
	}
	if (r == POSTERN__EXIT_OK) {
		r = post_message(cli, &letter);
	}
	postern__buf_finish(&letter.body);
	postern__buf_finish(&letter.path);
	postern__arena_finish(&letter.arena);
	return r;
}

int postern__command_send(struct postern__cli *cli) {
	if (postern__args_has(&cli->args, "in")) {
		return postern__cli_usage(cli,
				"--in cannot be used with send: the channel decides the store");
	}
	return postern__args_has(&cli->args, "lines") ? postern__send_lines(cli)
												  : send_one(cli);
}
