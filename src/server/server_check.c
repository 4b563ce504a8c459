/* SPDX-License-Identifier: MIT */

/*
 * Checks the handlers of the configuration on the database server of a store.
 *
 * While serving, the check has a connection and a thread of its own, so that
 * neither a server that does not respond nor a locked table delays anything
 * else. At the end the connection is closed by another thread; connecting takes
 * ASK_MS at most.
 */

#include "server/server_check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "handler/kinds.h"
#include "server/config.h"
#include "server/event_log.h"
#include "server/store_open.h"

#define TEXT_MAX 512
/* How long a response may take while serving; nothing waits for it. */
#define ASK_MS 5000

/* A store that is being checked. */
struct check_visit {
	const struct postern__config *config;
	const struct postern__config_store *store;
	struct postern__server_check
			*check; /* NULL: the check cannot be ended early */
	postern_store_find *find;
	void *context;
};

struct postern__server_check {
	const struct postern__config *config;
	struct postern__event_log *event_logs;
	pthread_t thread;
	pthread_mutex_t mutex;
	/* Mutex held. */
	bool ended;
	void *connection;                      /* in use by the check; NULL: none */
	const struct postern_store_kind *kind; /* of the store it belongs to */
};

/* Report an error of a handler with the place of its configuration. */
static void report_handler(const struct check_visit *visit,
		const struct postern__config_handler *handler,
		const struct postern_error *error) {
	char text[TEXT_MAX];
	(void)snprintf(text, sizeof text, "%s:%u:%u: handler '%s': %s",
			postern__config_name(visit->config), handler->line, handler->column,
			handler->key, error->text);
	visit->find(visit->context, error->code, text);
}

static int check_channel(const struct check_visit *visit,
		const struct postern__config_channel *channel, void *connection,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		struct postern_handler_setup setup;
		postern__config_handler_setup(handler, &setup);
		setup.connection = connection;
		if (handler->kind->transactional) {
			r = postern__kind_check(&setup, error);
		}
		if (r == POSTERN_E_INVALID || r == POSTERN_E_NOTFOUND) {
			report_handler(visit, handler, error);
			r = POSTERN_OK;
		}
	}
	return r;
}

/* Share the connection with the thread that ends the check; false: the check
   has ended. */
static bool share_connection(struct postern__server_check *check,
		const struct postern_store_kind *kind, void *connection) {
	if (!check) {
		return true;
	}
	(void)pthread_mutex_lock(&check->mutex);
	bool goes_on = !check->ended;
	check->connection = connection;
	check->kind = kind;
	(void)pthread_mutex_unlock(&check->mutex);
	return goes_on;
}

/* Check the transactional handlers of the store on its server. */
static int check_handlers(void *context, void *connection,
		struct postern_error *error) {
	const struct check_visit *visit = context;
	const struct postern_store_kind *kind =
			postern__store_kind_of(visit->store->values.store, NULL);
	int r = POSTERN_OK;
	bool goes_on = share_connection(visit->check, kind, connection);
	for (size_t i = 0; goes_on && r == POSTERN_OK &&
					   i < postern__config_channel_count(visit->config);
			i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(visit->config, i);
		if (channel->store == visit->store) {
			r = check_channel(visit, channel, connection, error);
		}
	}
	(void)share_connection(visit->check, NULL, NULL);
	return r;
}

static void find_in_store(void *context, int code, const char *text) {
	const struct check_visit *visit = context;
	visit->find(visit->context, code, text);
}

static int run_check(struct check_visit *visit,
		const struct postern_box_options *box, struct postern_error *error) {
	const struct postern_store_examiner examiner = {
		.look = check_handlers,
		.find = find_in_store,
		.context = visit,
		/* While serving, the wake-up thread reports this. */
		.listens = !visit->check,
	};
	const struct postern_store_options options = {
		.size = sizeof options,
		.command_timeout_ms = box->command_timeout_ms,
		.command_retries = box->command_retries,
		.schema = box->schema,
		.connections = box->connections,
		.listen_url = box->listen_url,
		.listener = box->listener,
		.listener_context = box->listener_context,
	};
	return postern__store_examine(visit->store->values.store, &options,
			&examiner, error);
}

int postern__server_check_run(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_box_options *box, postern_store_find *find,
		void *context, struct postern_error *error) {
	struct check_visit visit = {
		.config = config,
		.store = store,
		.find = find,
		.context = context,
	};
	return run_check(&visit, box, error);
}

/* Whether the configuration has handlers that the server of a store can check.
 */
static bool has_transactional(const struct postern__config *config,
		const struct postern__config_store *store) {
	for (size_t i = 0; postern__store_is_shared(store->values.store) &&
					   i < postern__config_channel_count(config);
			i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0;
				channel->store == store && j < channel->handler_count; j++) {
			if (channel->handlers[j].kind->transactional) {
				return true;
			}
		}
	}
	return false;
}

static void warn(void *context, int code, const char *text) {
	(void)code;
	postern__event_log_line(context, POSTERN__LOG_STORE_PROBLEM, text);
}

static void *check_all(void *context) {
	struct postern__server_check *self = context;
	size_t count = postern__config_store_count(self->config);
	for (size_t i = 0; i < count; i++) {
		struct check_visit visit = {
			.config = self->config,
			.store = postern__config_store(self->config, i),
			.check = self,
			.find = warn,
			.context = &self->event_logs[i],
		};
		struct postern_box_options box;
		struct postern_error error;
		if (!has_transactional(self->config, visit.store) ||
				!share_connection(self, NULL, NULL)) {
			continue;
		}
		postern__config_box_options(visit.store, &box);
		if (box.command_timeout_ms > ASK_MS) {
			box.command_timeout_ms = ASK_MS;
		}
		box.command_retries = -1;
		/* An unavailable store is reported by the runner. */
		(void)run_check(&visit, &box, &error);
	}
	return NULL;
}

struct postern__server_check *
postern__server_check_start(const struct postern__config *config,
		struct postern__event_log *event_logs) {
	bool any = false;
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		any = any ||
			  has_transactional(config, postern__config_store(config, i));
	}
	struct postern__server_check *self = any ? calloc(1, sizeof *self) : NULL;
	if (!self) {
		return NULL;
	}
	self->config = config;
	self->event_logs = event_logs;
	(void)pthread_mutex_init(&self->mutex, NULL);
	if (pthread_create(&self->thread, NULL, check_all, self) != 0) {
		(void)pthread_mutex_destroy(&self->mutex);
		free(self);
		return NULL;
	}
	return self;
}

void postern__server_check_destroy(struct postern__server_check *check) {
	if (!check) {
		return;
	}
	(void)pthread_mutex_lock(&check->mutex);
	check->ended = true;
	if (check->connection) {
		check->kind->end_look(check->connection);
	}
	(void)pthread_mutex_unlock(&check->mutex);
	(void)pthread_join(check->thread, NULL);
	(void)pthread_mutex_destroy(&check->mutex);
	free(check);
}
