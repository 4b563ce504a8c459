/* SPDX-License-Identifier: MIT */
/*
 * http://HOST:PORT, https://HOST:PORT, or unix:PATH.
 */

#include "cli/server_url.h"

#include <postern/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "server/config.h"

/* The certificates of a system have 200 KiB. */
#define TRUSTED_LEN_MAX ((size_t)4 * 1024 * 1024)

#define FORMS "write http://127.0.0.1:7420, https://HOST or unix:PATH"

/* Where a value was written, for errors. */
struct setting {
	const char *value; /* NULL: none */
	const char *origin;
};

static struct setting find_setting(const struct postern__cli *cli,
		const char *flag, const char *origin, const char *variable) {
	struct setting setting = { postern__args_value(&cli->args, flag), origin };
	if (!setting.value) {
		const char *value = getenv(variable + 1); /* without the dollar */
		setting.value = value && *value ? value : NULL;
		setting.origin = variable;
	}
	return setting;
}

/* "http://host:port" without its last slash. */
static int read_http(struct postern__server_url *self, const char *text,
		struct postern_error *error) {
	const char *host = strstr(text, "://") + 3;
	char *base = postern__arena_strdup(&self->arena, text);
	if (!base) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	char *slash = strchr(base + (host - text), '/');
	if (strchr(host, '@')) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a URL with a user is refused; use --token-file FILE");
	}
	if (*host == '\0' || *host == '/' || (slash && slash[1]) ||
			strpbrk(host, "?# \\")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not the URL of a server; " FORMS, text);
	}
	if (slash) {
		*slash = '\0';
	}
	self->remote.base = base;
	self->remote.name = base;
	return POSTERN_OK;
}

static int read_url(struct postern__server_url *self, const char *text,
		struct postern_error *error) {
	const char *path = postern__listen_path(text);
	if (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0) {
		return read_http(self, text, error);
	}
	if (!path) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not the URL of a server; " FORMS, text);
	}
	int r = postern__socket_init_alone(&self->socket, path, error);
	if (r == POSTERN_OK) {
		postern__remote_of_socket(&self->socket, &self->remote);
	}
	return r;
}

static int report(const struct postern__cli *cli, const struct setting *setting,
		const struct postern_error *error) {
	return postern__cli_usage(cli, "%s: %s", setting->origin, error->text);
}

/* --in without a configuration: the server knows the name, or not. */
static int choose_store(struct postern__cli *cli,
		struct postern__server_url *self) {
	self->store = postern__args_value(&cli->args, "in");
	const char *named = postern__args_value(&cli->args, "store");
	if (named || postern__args_value(&cli->args, "config")) {
		return postern__cli_usage(cli,
				"--server cannot be combined with %s: the server has the "
				"configuration",
				named ? "--store" : "-c");
	}
	return POSTERN__EXIT_OK;
}

int postern__server_url_find(struct postern__cli *cli) {
	const struct setting url =
			find_setting(cli, "server", "--server", "$POSTERN_SERVER");
	const struct setting file = find_setting(cli, "token-file", "--token-file",
			"$POSTERN_TOKEN_FILE");
	struct postern_error error;
	bool local = *url.origin == '$' &&
				 (postern__args_value(&cli->args, "config") ||
						 postern__args_value(&cli->args, "store"));
	if (!cli->command->asks_server || !url.value || local || cli->server) {
		return POSTERN__EXIT_OK;
	}
	struct postern__server_url *self = calloc(1, sizeof *self);
	if (!self) {
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	self->socket.directory = -1;
	postern__arena_init(&self->arena);
	cli->server = self;
	if (read_url(self, url.value, &error) != POSTERN_OK) {
		return report(cli, &url, &error);
	}
	char *token = NULL;
	if (file.value && postern__secret_read(file.value, &self->arena, &token,
							  &error) != POSTERN_OK) {
		return report(cli, &file, &error);
	}
	self->remote.token = token;
	const struct setting trusted =
			find_setting(cli, "ca-file", "--ca-file", "$POSTERN_CA_FILE");
	char *text = NULL;
	size_t len = 0;
	if (trusted.value &&
			postern__file_read(trusted.value, TRUSTED_LEN_MAX, &self->arena,
					&text, &len, &error) != POSTERN_OK) {
		return report(cli, &trusted, &error);
	}
	self->remote.trusted = text;
	return choose_store(cli, self);
}

void postern__server_url_destroy(struct postern__server_url *server) {
	if (server) {
		postern__socket_finish(&server->socket);
		postern__arena_finish(&server->arena);
		free(server);
	}
}
