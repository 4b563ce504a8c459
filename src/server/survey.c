/* SPDX-License-Identifier: MIT */

/*
 * Asking the server under a store about the handlers of the configuration.
 *
 * While serving, the asking has a connection and a thread of its own, so that
 * neither a server that does not answer nor a locked table holds up anybody. At
 * the end the connection is cut under it; what it is doing while it connects
 * takes ASK_MS at most.
 */

#include "server/survey.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "handler/kinds.h"
#include "server/config.h"
#include "server/take.h"
#include "server/watch.h"

#define TEXT_MAX 512
/* How long an answer may take while serving: nobody waits for it. */
#define ASK_MS 5000

/* A store being asked about. */
struct visit {
	const struct postern__config *config;
	const struct postern__config_store *store;
	struct postern__survey *survey; /* NULL: it is not ended early */
	postern__store_find *find;
	void *context;
};

struct postern__survey {
	const struct postern__config *config;
	struct postern__watch *watches;
	pthread_t thread;
	pthread_mutex_t mutex;
	/* With the mutex. */
	bool ended;
	void *connection; /* that is being used; NULL: none */
};

static int ask_about(const char *sql, void *connection,
		struct postern_error *error) {
#ifdef POSTERN_POSTGRES
	return postern__sql_look(sql, connection, error);
#else
	(void)sql;
	(void)connection;
	(void)error;
	return POSTERN_OK; /* no other store has a server */
#endif
}

/* Where a handler was configured, and what is wrong with it. */
static void find_in_handler(const struct visit *visit,
		const struct postern__config_handler *handler,
		const struct postern_error *error) {
	char text[TEXT_MAX];
	(void)snprintf(text, sizeof text,
			"%s:%u:%u: handler '%s': sql: %s; messages are poisoned until that "
			"is mended",
			postern__config_name(visit->config), handler->line, handler->column,
			handler->key, error->text);
	visit->find(visit->context, error->code, text);
}

static int look_at_channel(const struct visit *visit,
		const struct postern__config_channel *channel, void *connection,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		if (handler->sql) {
			r = ask_about(handler->sql, connection, error);
		}
		if (r == POSTERN_E_INVALID) {
			find_in_handler(visit, handler, error);
			r = POSTERN_OK;
		}
	}
	return r;
}

/* Lend the connection to whoever ends the survey; false: it has ended. */
static bool lend(struct postern__survey *survey, void *connection) {
	if (!survey) {
		return true;
	}
	(void)pthread_mutex_lock(&survey->mutex);
	bool goes_on = !survey->ended;
	survey->connection = connection;
	(void)pthread_mutex_unlock(&survey->mutex);
	return goes_on;
}

/* What the server says to the SQL of the store's handlers. */
static int look_at_sql(void *context, void *connection,
		struct postern_error *error) {
	const struct visit *visit = context;
	int r = POSTERN_OK;
	bool goes_on = lend(visit->survey, connection);
	for (size_t i = 0; goes_on && r == POSTERN_OK &&
					   i < postern__config_channel_count(visit->config);
			i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(visit->config, i);
		if (channel->store == visit->store) {
			r = look_at_channel(visit, channel, connection, error);
		}
	}
	(void)lend(visit->survey, NULL);
	return r;
}

static void find_in_store(void *context, int code, const char *text) {
	const struct visit *visit = context;
	visit->find(visit->context, code, text);
}

static int take(struct visit *visit, const struct postern_box_options *box,
		struct postern_error *error) {
	const struct postern__store_examiner examiner = {
		.look = look_at_sql,
		.find = find_in_store,
		.context = visit,
		/* While serving, whoever listens tells it. */
		.listens = !visit->survey,
	};
	const struct postern_store_options options = {
		.size = sizeof options,
		.command_timeout_ms = box->command_timeout_ms,
		.command_retries = box->command_retries,
		.schema = box->schema,
		.connections = box->connections,
		.listen_url = box->listen_url,
		.remark = box->remark,
		.remark_context = box->remark_context,
	};
	return postern__store_examine(visit->store->values.store, &options,
			&examiner, error);
}

int postern__survey_take(const struct postern__config *config,
		const struct postern__config_store *store,
		const struct postern_box_options *box, postern__store_find *find,
		void *context, struct postern_error *error) {
	struct visit visit = {
		.config = config,
		.store = store,
		.find = find,
		.context = context,
	};
	return take(&visit, box, error);
}

/* Whether there is SQL for PostgreSQL to look at. */
static bool has_sql(const struct postern__config *config,
		const struct postern__config_store *store) {
	for (size_t i = 0; postern__store_postgres(store->values.store) &&
					   i < postern__config_channel_count(config);
			i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		for (size_t j = 0;
				channel->store == store && j < channel->handler_count; j++) {
			if (channel->handlers[j].sql) {
				return true;
			}
		}
	}
	return false;
}

static void warn(void *context, int code, const char *text) {
	(void)code;
	postern__watch_remark(context, text);
}

static void *ask_all(void *context) {
	struct postern__survey *self = context;
	size_t count = postern__config_store_count(self->config);
	for (size_t i = 0; i < count; i++) {
		struct visit visit = {
			.config = self->config,
			.store = postern__config_store(self->config, i),
			.survey = self,
			.find = warn,
			.context = &self->watches[i],
		};
		struct postern_box_options box;
		struct postern_error error;
		if (!has_sql(self->config, visit.store) || !lend(self, NULL)) {
			continue;
		}
		postern__config_box_options(visit.store, &box);
		if (box.command_timeout_ms > ASK_MS) {
			box.command_timeout_ms = ASK_MS;
		}
		box.command_retries = -1;
		/* A store in trouble is told by all that work with it. */
		(void)take(&visit, &box, &error);
	}
	return NULL;
}

struct postern__survey *
postern__survey_start(const struct postern__config *config,
		struct postern__watch *watches) {
	bool any = false;
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		any = any || has_sql(config, postern__config_store(config, i));
	}
	struct postern__survey *self = any ? calloc(1, sizeof *self) : NULL;
	if (!self) {
		return NULL;
	}
	self->config = config;
	self->watches = watches;
	(void)pthread_mutex_init(&self->mutex, NULL);
	if (pthread_create(&self->thread, NULL, ask_all, self) != 0) {
		(void)pthread_mutex_destroy(&self->mutex);
		free(self);
		return NULL;
	}
	return self;
}

void postern__survey_destroy(struct postern__survey *survey) {
	if (!survey) {
		return;
	}
	(void)pthread_mutex_lock(&survey->mutex);
	survey->ended = true;
#ifdef POSTERN_POSTGRES
	if (survey->connection) {
		postern__sql_look_end(survey->connection);
	}
#endif
	(void)pthread_mutex_unlock(&survey->mutex);
	(void)pthread_join(survey->thread, NULL);
	(void)pthread_mutex_destroy(&survey->mutex);
	free(survey);
}
