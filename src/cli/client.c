/* SPDX-License-Identifier: MIT */
/*
 * The client looks for a server's socket first: that is cheap, and taking the
 * store would be refused anyway. Only when nobody answers there does it open
 * the store, and only exclusively if it has to write.
 */

#include "cli/client.h"

#include <assert.h>
#include <postern/box.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/remote.h"
#include "server/api.h"
#include "server/config.h"
#include "server/patience.h"
#include "server/socket.h"
#include "server/take.h"

struct postern__client {
	struct postern__cli *cli;
	enum postern__need need;
	struct postern_box *box; /* NULL: not open */
};

int postern__client_begin(struct postern__cli *cli, enum postern__need need,
		struct postern__client **out) {
	int r = postern__cli_configure(cli);
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_kept(cli);
	}
	if (r) {
		return r;
	}
	struct postern__client *client = calloc(1, sizeof *client);
	if (!client) {
		postern__say("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	client->cli = cli;
	client->need = need;
	*out = client;
	return POSTERN__EXIT_OK;
}

void postern__client_destroy(struct postern__client *client) {
	if (client) {
		postern_box_destroy(client->box);
		free(client);
	}
}

static int start_accepting(const struct postern__client *client,
		struct postern_box *box, struct postern_error *error) {
	int r = postern__config_apply(client->cli->config, box, error);
	return r ? r : postern_box_start(box, error);
}

static int open_box(struct postern__client *client,
		struct postern_error *error) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	int r = POSTERN_OK;
	if (client->need == POSTERN__NEED_ACCEPT) {
		/* Before a store is created for what cannot be. */
		r = postern__config_check(client->cli->config, error);
	}
	if (r) {
		return r;
	}
	postern__config_box_options(client->cli->config, &options);
	options.read_only = client->need == POSTERN__NEED_READ;
	options.must_exist = client->need != POSTERN__NEED_ACCEPT;
	options.no_migrate = true;
	/* A command is no runner: it leaves what it does not know alone. */
	options.orphans = POSTERN_ORPHANS_HOLD;
	r = postern_box_open(postern__cli_store(client->cli), &options, &box,
			error);
	if (r == POSTERN_OK && client->need == POSTERN__NEED_ACCEPT) {
		r = start_accepting(client, box, error);
	}
	if (r) {
		postern_box_destroy(box);
		return r;
	}
	client->box = box;
	return POSTERN_OK;
}

static void answer_here(const struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response) {
	const struct postern__config_values *global =
			postern__config_global(client->cli->config);
	const struct postern__api api = {
		.box = client->box,
		.config = client->cli->config,
		.body_len_max = (size_t)global->max_message_size,
	};
	postern__api_handle(&api, request, response);
}

/* POSTERN_E_UNAVAILABLE if there is no server. */
static int ask_server(const struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	struct postern__socket socket;
	const char *file = postern__store_file(postern__cli_store(client->cli));
	if (!file) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "no store file");
	}
	int r = postern__socket_init(&socket, file, error);
	if (r == POSTERN_OK && access(socket.address, F_OK) == 0) {
		r = postern__remote_request(&socket, request, response, error);
	} else if (r == POSTERN_OK || r == POSTERN_E_NOTFOUND) {
		/* No socket, or no store, hence nobody who holds it. */
		r = postern__fail(error, POSTERN_E_UNAVAILABLE, "no server");
	}
	postern__socket_finish(&socket);
	return r;
}

/* One round: POSTERN_E_BUSY and POSTERN_E_STALE are worth another. */
static int try_request(struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	if (!client->box) {
		int r = ask_server(client, request, response, error);
		if (r == POSTERN_E_TIMEOUT && client->need == POSTERN__NEED_READ) {
			postern__say("%s; looking into the file without it", error->text);
		} else if (r != POSTERN_E_UNAVAILABLE) {
			return r;
		}
		r = open_box(client, error);
		if (r) {
			return r;
		}
	}
	answer_here(client, request, response);
	return POSTERN_OK;
}

/* A server that stops, or has too much to do, did nothing and says so. */
static bool is_put_off(const struct postern__client *client, int r,
		const struct postern__response *response) {
	return r == POSTERN_OK && !client->box && response->status == 503;
}

int postern__client_request(struct postern__client *client,
		const struct postern__request *request, bool once,
		struct postern__response *response, struct postern_error *error) {
	struct postern__patience patience;
	const char *url = postern__cli_store(client->cli);
	postern__patience_init(&patience,
			postern__config_global(client->cli->config)->command_timeout_ms);
	for (;;) {
		int r = try_request(client, request, response, error);
		bool again = r == POSTERN_E_BUSY || (r == POSTERN_E_STALE && !once) ||
					 is_put_off(client, r, response);
		if (!again ||
				!postern__patience_wait(&patience,
						r == POSTERN_E_BUSY && postern__store_passing(url))) {
			return r;
		}
		postern__response_finish(response);
		postern__response_init(response);
	}
}
