/* SPDX-License-Identifier: MIT */
/*
 * The client tries a server's socket first, beside each of the stores: that is
 * cheap, and a store that a server owns cannot be opened. Only if no server
 * listens does the client open the stores, exclusively only if it has to write.
 */

#include "cli/client.h"

#include <jansson.h>
#include <postern/box.h>
#include <postern/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fail.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/remote.h"
#include "cli/server_url.h"
#include "server/api.h"
#include "server/config.h"
#include "server/open_wait.h"
#include "server/socket.h"
#include "server/store_open.h"
#include "server/stores.h"
#include "store/store.h"

struct postern__client {
	struct postern__cli *cli;
	enum postern__need need;
	struct postern__stores stores; /* empty: not open */
	const char *busy_url;          /* of the store that another process owned */
};

static bool is_open(const struct postern__client *client) {
	return client->stores.count > 0;
}

static bool is_reading(enum postern__need need) {
	return need == POSTERN__NEED_READ || need == POSTERN__NEED_READ_ANY;
}

/* Whether a store that keeps markers only can be used. */
static bool takes_markers(enum postern__need need) {
	return need == POSTERN__NEED_READ_ANY || need == POSTERN__NEED_MARK;
}

int postern__client_begin(struct postern__cli *cli, enum postern__need need,
		struct postern__client **out) {
	int r = postern__cli_configure(cli);
	if (r == POSTERN__EXIT_OK && !cli->markers_url) {
		r = postern__cli_need_files(cli, takes_markers(need),
				need == POSTERN__NEED_ACCEPT);
	}
	if (r) {
		return r;
	}
	struct postern__client *client = calloc(1, sizeof *client);
	if (!client) {
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	client->cli = cli;
	client->need = need;
	*out = client;
	return POSTERN__EXIT_OK;
}

void postern__client_destroy(struct postern__client *client) {
	if (client) {
		postern__stores_finish(&client->stores);
		free(client);
	}
}

bool postern__client_is_beside_servers(const struct postern__client *client) {
	bool shared = false;
	for (size_t i = 0; is_open(client) && i < client->cli->store_count; i++) {
		const char *url = client->cli->stores[i]->values.store;
		shared = shared || (postern__store_is_shared(url) &&
								   postern__store_keeps_messages(url));
	}
	return shared;
}

void postern__client_note_held(void) {
	postern__note_print("whether a handler is broken, or at its rate, is known "
						"to the servers that run it: --server URL");
}

/* Whether channels and handlers are added to the box. */
static bool is_started(const struct postern__client *client) {
	return client->need == POSTERN__NEED_ACCEPT ||
		   client->need == POSTERN__NEED_CLEANUP;
}

/* Print only that a store was created; the other events concern a server. */
static void print_created(void *context, const struct postern_event *event) {
	(void)context;
	if (event->kind == POSTERN_EVENT_STORE_CREATED) {
		postern__note_print("%s", event->text);
	}
}

static int open_markers(struct postern__client *client,
		const struct postern__config_store *store,
		struct postern_error *error) {
	struct postern_guard_options options;
	postern__config_guard_options(store, &options);
	return postern__stores_open_markers(&client->stores, store->name,
			store->values.store, &options, error);
}

static int open_store(struct postern__client *client,
		const struct postern__config_store *store,
		struct postern_error *error) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	postern__config_box_options(store, &options);
	options.read_only = is_reading(client->need);
	options.must_exist = client->need != POSTERN__NEED_ACCEPT &&
						 client->need != POSTERN__NEED_MARK;
	options.no_migrate = true;
	options.listener = print_created;
	/* A command is not a runner: orphaned deliveries are not its concern. */
	options.orphans = POSTERN_ORPHANS_HOLD;
	options.accepts_only = client->need == POSTERN__NEED_ACCEPT;
	int r = postern_box_open(store->values.store, &options, &box, error);
	if (r == POSTERN_OK && is_started(client)) {
		r = postern__config_apply(client->cli->config, store, box, error);
		if (r == POSTERN_OK) {
			r = postern_box_start(box, error);
		}
	}
	if (r) {
		postern_box_destroy(box);
		return r;
	}
	return postern__stores_take(&client->stores, store->name,
			store->values.store, box, error);
}

/* Whether a message is sent to a channel whose store keeps markers only. */
static bool sends_to(const struct postern__client *client,
		const struct postern__config_store *store) {
	return client->need == POSTERN__NEED_ACCEPT &&
		   postern__config_store_has_box(client->cli->config, store);
}

/* Whether the command uses the store without a server. */
static bool is_used(const struct postern__client *client,
		const struct postern__config_store *store) {
	const char *url = store->values.store;
	return postern__store_is_durable(url) &&
		   (postern__store_keeps_messages(url) || takes_markers(client->need) ||
				   sends_to(client, store));
}

/* Open all durable stores of the command. */
static int open_stores(struct postern__client *client,
		struct postern_error *error) {
	const struct postern__cli *cli = client->cli;
	int r = POSTERN_OK;
	if (cli->markers_url) {
		return postern__stores_open_markers(&client->stores,
				POSTERN__STORE_DEFAULT, cli->markers_url, NULL, error);
	}
	if (is_started(client)) {
		/* Checked before a store is created that could not be used. */
		r = postern__config_check(cli->config, NULL, NULL, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < cli->store_count; i++) {
		const struct postern__config_store *store = cli->stores[i];
		if (!is_used(client, store)) {
			continue;
		}
		r = postern__store_keeps_messages(store->values.store) ||
							sends_to(client, store)
					? open_store(client, store, error)
					: open_markers(client, store, error);
		if (r) {
			client->busy_url = store->values.store;
			(void)postern__config_store_fail(cli->config, store, r, error);
		}
	}
	if (r == POSTERN_OK && !is_open(client)) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"store '%s' is in the memory of a server, and no server is "
				"running",
				cli->stores[0]->name);
	}
	if (r) {
		postern__stores_finish(&client->stores);
	}
	return r;
}

static void handle_locally(const struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response) {
	const struct postern__config_values *global =
			postern__config_global(client->cli->config);
	const struct postern__api api = {
		.stores = &client->stores,
		.config = client->cli->config,
		.body_len_max = (size_t)global->max_message_size,
	};
	postern__api_handle(&api, request, response);
}

/* The id of a store, which a server with another configuration understands. A
   missing file has no server, even if a server has a store of the same name.
   NULL: out of memory. */
static const char *store_reference(const struct postern__config_store *store,
		struct postern__arena *arena) {
	char id[POSTERN__STORE_ID_MAX];
	bool known = postern__store_id(store->values.store, store->name, id);
	return postern__arena_strdup(arena, known ? id : "?");
}

/* The request with a header for each store of the command. */
static int name_stores(const struct postern__client *client,
		struct postern__arena *arena, struct postern__request *request,
		struct postern_error *error) {
	const struct postern__cli *cli = client->cli;
	size_t count = request->header_count;
	struct postern_header *headers = postern__arena_array(arena,
			count + cli->store_count, sizeof *headers);
	for (size_t i = 0; headers && i < count; i++) {
		headers[i] = request->headers[i];
	}
	for (size_t i = 0; headers && i < cli->store_count; i++) {
		headers[count].name = POSTERN__API_STORE_HEADER;
		headers[count].value = store_reference(cli->stores[i], arena);
		if (!headers[count++].value) {
			headers = NULL;
		}
	}
	if (!headers) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	request->headers = headers;
	request->header_count = count;
	return POSTERN_OK;
}

/* Returns POSTERN_E_UNAVAILABLE if no server listens beside this store. */
static int request_beside(const struct postern__config_store *store,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	struct postern__socket socket;
	char file[POSTERN__STORE_FILE_MAX];
	if (!postern__store_file(store->values.store, file)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "no store file");
	}
	int r = postern__socket_init(&socket, file, error);
	if (r == POSTERN_OK && access(socket.address, F_OK) == 0) {
		r = postern__remote_request(&socket, request, response, error);
	} else if (r == POSTERN_OK || r == POSTERN_E_NOTFOUND) {
		/* no socket, or no store file, hence no owner */
		r = postern__fail(error, POSTERN_E_UNAVAILABLE, "no server");
	}
	postern__socket_finish(&socket);
	return r;
}

/*
 * Returns POSTERN_E_UNAVAILABLE if there is no server. A server beside another
 * store of the configuration is asked as well: it has the stores in memory, and
 * it reports a store that it lacks before another process opens that store.
 */
static int request_server(const struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	const struct postern__cli *cli = client->cli;
	size_t count = postern__config_store_count(cli->config);
	struct postern__request named = *request;
	struct postern__arena arena;
	postern__arena_init(&arena);
	int r = name_stores(client, &arena, &named, error);
	if (r == POSTERN_OK) {
		r = POSTERN_E_UNAVAILABLE;
	}
	for (size_t i = 0; r == POSTERN_E_UNAVAILABLE && i < cli->store_count;
			i++) {
		r = request_beside(cli->stores[i], &named, response, error);
	}
	for (size_t i = 0; r == POSTERN_E_UNAVAILABLE && i < count; i++) {
		r = request_beside(postern__config_store(cli->config, i), &named,
				response, error);
	}
	postern__arena_finish(&arena);
	return r;
}

/* Ask the server that the command names, about the store of --in. */
static int request_named(const struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	const struct postern__server_url *server = client->cli->server;
	struct postern__request named = *request;
	struct postern__arena arena;
	int r = POSTERN_OK;
	postern__arena_init(&arena);
	if (server->store) {
		struct postern_header *headers = postern__arena_array(&arena,
				request->header_count + 1, sizeof *headers);
		for (size_t i = 0; headers && i < request->header_count; i++) {
			headers[i] = request->headers[i];
		}
		if (headers) {
			headers[named.header_count].name = POSTERN__API_STORE_HEADER;
			headers[named.header_count++].value = server->store;
			named.headers = headers;
		} else {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	if (r == POSTERN_OK) {
		r = postern__remote_request_at(&server->remote, &named, response,
				error);
	}
	postern__arena_finish(&arena);
	return r;
}

/* One attempt; POSTERN_E_BUSY and POSTERN_E_STALE may be retried. */
static int try_request(struct postern__client *client,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	if (client->cli->server) {
		return request_named(client, request, response, error);
	}
	if (!is_open(client)) {
		/* A server is not asked about a store that it does not have. */
		int r = client->cli->markers_url
						? POSTERN_E_UNAVAILABLE
						: request_server(client, request, response, error);
		if (r == POSTERN_E_TIMEOUT && is_reading(client->need)) {
			postern__note_print("%s; reading the file without the server",
					error->text);
		} else if (r != POSTERN_E_UNAVAILABLE) {
			return r;
		}
		r = open_stores(client, error);
		if (r) {
			return r;
		}
	}
	handle_locally(client, request, response);
	return POSTERN_OK;
}

/* Whether a problem is an error of the library: then it has a code. */
static bool has_code(const struct postern__response *response) {
	json_t *json = json_loadb(postern__buf_text(&response->body),
			response->body.len, 0, NULL);
	bool has = json_object_get(json, "code") != NULL;
	json_decref(json);
	return has;
}

/* A server that is stopping or overloaded changed nothing. A request that must
   be made once is not retried after an error of the store. */
static bool is_retryable(const struct postern__client *client, int r,
		const struct postern__response *response, bool once) {
	return r == POSTERN_OK && !is_open(client) && response->status == 503 &&
		   !(once && has_code(response));
}

int postern__client_request(struct postern__client *client,
		const struct postern__request *request, bool once,
		struct postern__response *response, struct postern_error *error) {
	struct postern__open_wait open_wait;
	postern__open_wait_init(&open_wait,
			client->cli->stores[0]->values.command_timeout_ms);
	for (;;) {
		int r = try_request(client, request, response, error);
		bool again = r == POSTERN_E_BUSY || (r == POSTERN_E_STALE && !once);
		bool passing = r == POSTERN_E_BUSY && client->busy_url &&
					   postern__store_owner_is_command(client->busy_url);
		if (is_retryable(client, r, response, once)) {
			again = postern__open_wait_back_off(&open_wait);
		} else if (again) {
			again = postern__open_wait_next(&open_wait, passing);
		}
		if (!again) {
			return r;
		}
		postern__response_finish(response);
		postern__response_init(response);
	}
}
