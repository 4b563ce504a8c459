/* SPDX-License-Identifier: MIT */

/*
 * `postern serve`:
 *
 * configuration -> boxes -> runners -> sockets -> signal -> and back again
 *
 * What is started last is stopped first, with one exception: at a signal the
 * runners are drained while the sockets are still served. Messages sent
 * meanwhile are kept for the next start, and the commands can show what the
 * stop is waiting for.
 *
 * Signals are blocked in every thread and read by the main one (by another one
 * while it opens the stores), so no code runs inside a signal handler.
 */

#include "server/serve.h"

#include <errno.h>
#include <poll.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/event.h>
#include <postern/runner.h>
#include <postern/source.h>
#include <postern/version.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/redact.h"
#include "server/api.h"
#include "server/auth.h"
#include "server/demo_hints.h"
#include "server/event_log.h"
#include "server/http.h"
#include "server/listening.h"
#include "server/log.h"
#include "server/marker_watch.h"
#include "server/notify.h"
#include "server/reload.h"
#include "server/server_check.h"
#include "server/store_open.h"
#include "server/stores.h"
#include "server/tls.h"
#include "source/kinds.h"
#include "store/store.h"

#define SWEEP_INTERVAL_MS 1000
/* Open files, if the system allows as many. */
#define FILES_MAX 65536
/* Of them, not for connections of TCP: stores, programs, sockets. */
#define FILES_KEPT 4096
/* Connections of TCP, most of which are idle. */
#define TCP_COUNT_MAX 16384

enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_CONFIGURATION = 2,
	EXIT_UNREACHABLE = 4,
};

struct serve {
	const struct postern__serve_options *options;
	struct postern__log log;
	struct postern__config *config;
	struct postern__stores stores;
	/* One for each store. */
	struct postern__event_log event_logs[POSTERN__STORE_COUNT_MAX];
	size_t watch_count;
	struct postern__listening listening;
	struct postern__reloader reloader;
	struct postern__server_check *server_check; /* NULL: none */
	struct postern__api api;
	struct postern__auth auth;
	struct postern__http *http;
	int signals;
	int opened;  /* an eventfd */
	int drained; /* another */
	atomic_bool draining;
	atomic_bool cleaning[POSTERN__STORE_COUNT_MAX];
};

static int block_signals(struct serve *self, struct postern_error *error) {
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	self->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	self->opened = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	self->drained = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self->signals < 0 || self->opened < 0 || self->drained < 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot wait for signals: %s", strerror(errno));
	}
	return POSTERN_OK;
}

/* Each running program needs five descriptors, each client one. Programs that
   inherit the limit may try to close all that it allows, so it has an end. */
static void raise_file_limit(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_MAX) {
		limit.rlim_cur =
				limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
		/* If this fails, there are fewer. */
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void open_log(struct serve *self) {
	bool json = !isatty(STDERR_FILENO);
	if (self->options->log != POSTERN__SERVE_LOG_AUTO) {
		json = self->options->log == POSTERN__SERVE_LOG_JSON;
	}
	postern__log_init(&self->log, STDERR_FILENO, json,
			self->options->verbose ? POSTERN_LEVEL_DEBUG : POSTERN_LEVEL_INFO,
			NULL);
}

static int open_box(struct serve *self,
		const struct postern__config_store *store,
		struct postern__event_log *event_log, struct postern_error *error) {
	struct postern_box_options options;
	struct postern_box *box;
	postern__config_box_options(store, &options);
	options.listener = postern__event_log_event;
	options.listener_context = event_log;
	options.listener_level = self->log.level;
	int r = postern__store_open_wait(store->values.store, &options, &box,
			error);
	return r ? r
			 : postern__stores_take(&self->stores, store->name,
					   store->values.store, box, error);
}

/* A store that keeps markers only, and has no channels. */
static int open_markers(struct serve *self,
		const struct postern__config_store *store,
		struct postern_error *error) {
	struct postern_guard_options options;
	postern__config_guard_options(store, &options);
	return postern__stores_open_markers(&self->stores, store->name,
			store->values.store, &options, error);
}

static int open_store(struct serve *self,
		const struct postern__config_store *store,
		struct postern__event_log *event_log, struct postern_error *error) {
	int r = postern__config_store_has_box(self->config, store)
					? open_box(self, store, event_log, error)
					: open_markers(self, store, error);
	if (r != POSTERN_OK || postern__store_keeps_messages(store->values.store)) {
		return r;
	}
	/* Nothing else notices what becomes of such a store. */
	struct postern__open_store *opened =
			&self->stores.items[self->stores.count - 1];
	return postern__marker_watch_start(opened->guard, postern__event_log_event,
			event_log, &opened->watch, error);
}

/* Open one store after the other; the first failure is logged. */
static int open_stores(struct serve *self, struct postern_error *error) {
	size_t count = postern__config_store_count(self->config);
	for (size_t i = 0; i < count; i++) {
		const struct postern__config_store *store =
				postern__config_store(self->config, i);
		struct postern__event_log *event_log =
				&self->event_logs[self->watch_count++];
		postern__event_log_init(event_log, &self->log,
				count > 1 ? store->name : NULL);
		int r = open_store(self, store, event_log, error);
		if (r != POSTERN_OK) {
			return postern__config_store_fail(self->config, store, r, error);
		}
	}
	return POSTERN_OK;
}

static int start_store(struct serve *self, size_t index,
		struct postern_error *error) {
	const struct postern__config_store *store =
			postern__config_store(self->config, index);
	struct postern_box *box = self->stores.items[index].box;
	if (!box) {
		return POSTERN_OK;
	}
	int r = postern__config_apply(self->config, store, box, error);
	if (r == POSTERN_OK) {
		r = postern_box_start(box, error);
	}
	return r == POSTERN_OK
				   ? r
				   : postern__config_store_fail(self->config, store, r, error);
}

/* Add the sources of the channels of one store to its runner. */
static int add_sources(struct serve *self, size_t index,
		struct postern_error *error) {
	const struct postern__config_store *store =
			postern__config_store(self->config, index);
	const struct postern__config_channel *channel;
	int r = POSTERN_OK;
	for (size_t i = 0; (channel = postern__config_channel(self->config, i));
			i++) {
		for (size_t n = 0; r == POSTERN_OK && channel->store == store &&
						   n < channel->source_count;
				n++) {
			const struct postern__config_channel_source *source =
					&channel->sources[n];
			const struct postern_source_options options = {
				.size = sizeof options,
				.name = source->name,
				.channel = channel->name,
			};
			r = postern_runner_add_source(self->stores.items[index].runner,
					&options, source->kind->name, source->settings,
					source->setting_count, error);
		}
	}
	return r;
}

static int start_runner(struct serve *self, size_t index,
		struct postern_error *error) {
	struct postern__open_store *store = &self->stores.items[index];
	struct postern_runner_options options;
	if (!store->box) {
		return POSTERN_OK;
	}
	postern__config_runner_options(postern__config_store(self->config, index),
			&options);
	int r = postern_runner_create(store->box, &options, &store->runner, error);
	if (r == POSTERN_OK) {
		r = add_sources(self, index, error);
	}
	if (r == POSTERN_OK) {
		r = postern_runner_start(store->runner, error);
	}
	return r;
}

static bool is_draining(void *context) {
	struct serve *self = context;
	return atomic_load(&self->draining);
}

/* Connections of each address of TCP: what the limit of open files leaves. */
static unsigned tcp_count_max(const struct postern__listening *listening) {
	struct rlimit limit;
	rlim_t count = TCP_COUNT_MAX;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && listening->tcp_count > 0) {
		rlim_t left = limit.rlim_cur > 2 * FILES_KEPT
							  ? limit.rlim_cur - FILES_KEPT
							  : limit.rlim_cur / 2;
		left /= listening->tcp_count;
		count = left < count ? left : count;
	}
	return (unsigned)count;
}

static int start_http(struct serve *self, struct postern_error *error) {
	const struct postern__config_values *values =
			postern__config_global(self->config);
	self->api = (struct postern__api){
		.stores = &self->stores,
		.config = self->config,
		.body_len_max = (size_t)values->max_message_size,
		.cleaning = self->cleaning,
		.is_draining = is_draining,
		.is_draining_context = self,
	};
	postern__config_auth(self->config, &self->auth);
	struct postern__http_options options = {
		.api = &self->api,
		.auth = &self->auth,
		.addresses = self->listening.addresses,
		.address_count = self->listening.count,
		.tcp_count_max = tcp_count_max(&self->listening),
		/* Room for one body of the longest configured length. */
		.bodies_len_max = POSTERN_BODY_LEN_MAX,
		.answers_len_max = (size_t)values->memory_max,
		.memory_max = (size_t)values->memory_max,
		.log = &self->log,
	};
	int r = postern__config_tls(self->config, &options.tls, error);
	if (r == POSTERN_OK) {
		r = postern__http_start(&options, &self->http, error);
	}
	postern__tls_release(options.tls);
	return r;
}

static int exit_code(int code) {
	switch (code) {
	case POSTERN_OK: return EXIT_OK;
	case POSTERN_E_INVALID: return EXIT_CONFIGURATION;
	case POSTERN_E_BUSY:
	case POSTERN_E_CORRUPT:
	case POSTERN_E_NOTFOUND:
	case POSTERN_E_TIMEOUT:
	case POSTERN_E_UNAVAILABLE:
	case POSTERN_E_UNSUPPORTED: return EXIT_UNREACHABLE;
	default: return EXIT_FAILED;
	}
}

static int fail(struct serve *self, int exit, const char *what,
		const struct postern_error *error) {
	char text[POSTERN_ERROR_TEXT_MAX + 64];
	(void)snprintf(text, sizeof text, "%s%s%s", what, *what ? ": " : "",
			error->text);
	postern__log(&self->log, POSTERN__LOG_FAILED, text);
	return exit;
}

/* Read one signal; 0: there is none. */
static int next_signal(struct serve *self) {
	struct signalfd_siginfo info;
	ssize_t n = read(self->signals, &info, sizeof info);
	if (n != (ssize_t)sizeof info) {
		return 0;
	}
	return (int)info.ssi_signo;
}

static void log_stopping(struct serve *self, int number) {
	postern__log(&self->log, POSTERN__LOG_STOPPING, NULL,
			postern__log_text("signal", sigabbrev_np(number)));
}

/*
 * Waits for a signal while the main thread may wait for a store: a stop then
 * ends the process. Nothing has started that would have to be finished, and an
 * interrupted open leaves what a crash may leave.
 */
static void *stop_early(void *context) {
	struct serve *self = context;
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = self->signals, .events = POLLIN },
			{ .fd = self->opened, .events = POLLIN },
		};
		(void)poll(fds, 2, -1); /* EINTR: look again */
		if (fds[1].revents & POLLIN) {
			return NULL;
		}
		int number = next_signal(self);
		if (number != 0 && number != SIGHUP) {
			log_stopping(self, number);
			postern__log(&self->log, POSTERN__LOG_STOPPED, NULL);
			_exit(EXIT_OK);
		}
	}
}

static void log_mistake(void *context, const char *text) {
	struct serve *self = context;
	postern__log(&self->log, POSTERN__LOG_CONFIG_MISTAKE, text);
}

static void log_caution(void *context, const char *text) {
	struct serve *self = context;
	postern__log(&self->log, POSTERN__LOG_CONFIG_WARNING, text);
}

/* The steps before anything runs; returns the exit code. */
static int open_all(struct serve *self) {
	struct postern__config_input input = self->options->config;
	struct postern_error error;
	input.report = log_mistake;
	input.report_context = self;
	int r = postern__config_load(&input, &self->config, &error);
	if (r != POSTERN_OK) {
		return r == POSTERN_E_NOMEM ? EXIT_FAILED : EXIT_CONFIGURATION;
	}
	const char *warning;
	for (size_t i = 0; (warning = postern__config_warning(self->config, i));
			i++) {
		postern__log(&self->log, POSTERN__LOG_CONFIG_WARNING, warning);
	}
	r = postern__config_check(self->config, log_mistake, self, &error);
	if (r != POSTERN_OK) {
		return exit_code(r);
	}
	postern__config_source_remarks(self->config, log_caution, self);
	postern__config_tls_remarks(self->config, log_caution, self);
	r = open_stores(self, &error);
	if (r != POSTERN_OK) {
		return fail(self, exit_code(r), "cannot open the store", &error);
	}
	postern__config_set_opened(self->config, &self->stores);
	for (size_t i = 0; r == POSTERN_OK && i < self->stores.count; i++) {
		r = start_store(self, i, &error);
	}
	return r == POSTERN_OK ? EXIT_OK
						   : fail(self, exit_code(r), "cannot start", &error);
}

/* The steps before serving; returns the exit code. */
static int serve_start(struct serve *self) {
	struct postern_error error;
	pthread_t thread;
	int r = block_signals(self, &error);
	if (r != POSTERN_OK) {
		return fail(self, EXIT_FAILED, "", &error);
	}
	bool stoppable = pthread_create(&thread, NULL, stop_early, self) == 0;
	int exit = open_all(self);
	if (stoppable) {
		(void)eventfd_write(self->opened, 1); /* as in drain_all() */
		(void)pthread_join(thread, NULL);
	}
	if (exit != EXIT_OK) {
		return exit;
	}
	r = postern__listening_open(&self->listening, self->config, &self->stores,
			&error);
	if (r != POSTERN_OK) {
		return fail(self, exit_code(r), "cannot serve", &error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < self->stores.count; i++) {
		r = start_runner(self, i, &error);
	}
	if (r != POSTERN_OK) {
		return fail(self, EXIT_FAILED, "cannot start", &error);
	}
	r = start_http(self, &error);
	if (r != POSTERN_OK) {
		return fail(self, exit_code(r), "cannot serve", &error);
	}
	return EXIT_OK;
}

/* With several stores, log the address and the socket of each. */
static void log_stores(struct serve *self) {
	size_t socket = 0;
	for (size_t i = 0; self->stores.count > 1 && i < self->stores.count; i++) {
		const struct postern__config_store *store =
				postern__config_store(self->config, i);
		char url[POSTERN__REDACT_TEXT_MAX];
		char schema[POSTERN_SCHEMA_NAME_MAX];
		postern__redact(store->values.store, url, sizeof url);
		postern__config_schema_name(store, schema, sizeof schema);
		struct postern__log_field fields[] = {
			postern__log_text("store", store->name),
			postern__log_text("url", url),
			{ 0 },
			{ 0 },
		};
		if (self->stores.items[i].file) {
			fields[2] = postern__log_text("socket",
					self->listening.sockets[socket++].path);
		} else if (*schema) {
			fields[2] = postern__log_text("schema", schema);
		}
		postern__log_write(&self->log,
				postern__log_head(POSTERN__LOG_STORE_OPENED, NULL), fields);
	}
}

/* Whether any store keeps messages. */
static bool has_messages(const struct serve *self) {
	bool has = false;
	for (size_t i = 0; i < self->stores.count; i++) {
		has = has || self->stores.items[i].box;
	}
	return has;
}

static size_t count_handlers(const struct postern__config *config) {
	size_t count = 0;
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		count += postern__config_channel(config, i)->handler_count;
	}
	return count;
}

static void log_serving(struct serve *self) {
	char url[POSTERN__REDACT_TEXT_MAX];
	char schema[POSTERN_SCHEMA_NAME_MAX];
	const char *name = postern__config_name(self->config);
	size_t channel_count = postern__config_channel_count(self->config);
	const struct postern__config_store *store =
			postern__config_store(self->config, 0);
	postern__redact(store->values.store, url, sizeof url);
	postern__config_schema_name(store, schema, sizeof schema);
	log_stores(self);
	struct postern__log_field fields[] = {
		postern__log_text("version", postern_version()),
		postern__log_text("config", name ? name : "(defaults)"),
		postern__log_int("pid", getpid()),
		postern__log_int("stores", (int64_t)self->stores.count),
		postern__log_int("channels", (int64_t)channel_count),
		postern__log_int("handlers", (int64_t)count_handlers(self->config)),
		{ 0 }, /* with several, each was logged */
		{ 0 },
		{ 0 },
		{ 0 },
	};
	size_t count = 6;
	if (self->stores.count == 1) {
		fields[count++] = postern__log_text("url", url);
		if (self->stores.items[0].file) {
			fields[count++] = postern__log_text("socket",
					self->listening.sockets[0].path);
		} else if (*schema) {
			fields[count++] = postern__log_text("schema", schema);
		}
	}
	struct postern__buf listen;
	postern__buf_init(&listen, POSTERN__LOG_VALUE_LEN_MAX);
	postern__listening_write(&self->listening, &listen);
	if (listen.len > 0) {
		fields[count++] =
				postern__log_text("listen", postern__buf_text(&listen));
	}
	postern__log_write(&self->log,
			postern__log_head(POSTERN__LOG_SERVING, NULL), fields);
	postern__buf_finish(&listen);
	if (channel_count == 0 && has_messages(self)) {
		postern__log(&self->log, POSTERN__LOG_NO_CHANNELS, NULL);
	}
}

/* Print commands to try. */
static void print_hints(struct serve *self) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)64 * 1024);
	postern__demo_hints(&self->listening, &self->stores.items[0],
			self->options->program,
			postern__config_channel_named(self->config, "received") != NULL,
			&buf);
	if (self->log.json) {
		/* The log is for programs, the hints are for people. */
		(void)fputs(postern__buf_text(&buf), stdout);
		(void)fflush(stdout);
	} else {
		postern__log_print(&self->log, postern__buf_text(&buf), buf.len);
	}
	postern__buf_finish(&buf);
}

/* One runner that is being drained. */
struct drain {
	struct serve *serve;
	size_t index;
	pthread_t thread;
	bool started;
	int result;
	struct postern_error error;
};

static void *drain_one(void *context) {
	struct drain *drain = context;
	struct serve *self = drain->serve;
	struct postern_runner *runner = self->stores.items[drain->index].runner;
	const struct postern__config *config =
			postern__reloader_config(&self->reloader);
	if (runner) {
		drain->result = postern_runner_drain(runner,
				postern__config_global(config)->shutdown_grace_ms,
				&drain->error);
	}
	return NULL;
}

/* Drain all runners at the same time, because they share the grace period; the
   first on this thread. */
static void *drain_all(void *context) {
	struct serve *self = context;
	struct drain drains[POSTERN__STORE_COUNT_MAX] = { 0 };
	const size_t count = self->stores.count;
	for (size_t i = 0; i < count; i++) {
		drains[i] = (struct drain){ .serve = self, .index = i };
		drains[i].started = i > 0 && pthread_create(&drains[i].thread, NULL,
											 drain_one, &drains[i]) == 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (drains[i].started) {
			(void)pthread_join(drains[i].thread, NULL);
		} else {
			(void)drain_one(&drains[i]);
		}
		if (drains[i].result != POSTERN_OK) {
			postern__event_log_line(&self->event_logs[i],
					POSTERN__LOG_UNDRAINED, drains[i].error.text);
		}
	}
	/* Adds one to a counter that is zero: cannot fail. */
	(void)eventfd_write(self->drained, 1);
	return NULL;
}

static void start_server_check(struct serve *self) {
	postern__server_check_destroy(self->server_check);
	self->server_check = postern__server_check_start(postern__reloader_config(
															 &self->reloader),
			self->event_logs);
}

/* Read the configuration again. */
static void reload(struct serve *self) {
	struct postern_error error;
	const struct postern__config *config;
	if (atomic_load(&self->draining)) {
		return; /* it would have no effect any more */
	}
	int r = postern__reload(&self->reloader, &self->options->config, &error);
	if (r != POSTERN_OK) {
		postern__log(&self->log, POSTERN__LOG_NOT_RELOADED, NULL,
				postern__log_text("why", error.text));
		return;
	}
	config = postern__reloader_config(&self->reloader);
	postern__config_tls_remarks(config, log_caution, self);
	start_server_check(self);
	postern__log(&self->log, POSTERN__LOG_RELOADED, NULL,
			postern__log_int("channels",
					(int64_t)postern__config_channel_count(config)),
			postern__log_int("handlers", (int64_t)count_handlers(config)));
}

/* Wait for a signal that stops the server, or for the end of the drain (then
   0). */
static int wait_for_end(struct serve *self) {
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = self->signals, .events = POLLIN },
			{ .fd = self->drained, .events = POLLIN },
		};
		(void)poll(fds, 2, SWEEP_INTERVAL_MS); /* EINTR: look again */
		postern__http_sweep(self->http);
		postern__notify(POSTERN__NOTIFY_ALIVE);
		for (size_t i = 0; i < self->watch_count; i++) {
			postern__event_log_flush(&self->event_logs[i]);
		}
		postern__reloader_sweep(&self->reloader);
		int number = next_signal(self);
		if (number == SIGHUP) {
			reload(self);
		} else if (number != 0) {
			return number;
		}
		if (fds[1].revents & POLLIN) {
			return 0;
		}
	}
}

static void serve_run(struct serve *self) {
	postern__notify(POSTERN__NOTIFY_READY);
	int number = wait_for_end(self);
	postern__notify(POSTERN__NOTIFY_STOPPING);
	log_stopping(self, number);

	pthread_t thread;
	/* Before the thread reads the configuration: no reload replaces it now. */
	atomic_store(&self->draining, true);
	if (pthread_create(&thread, NULL, drain_all, self) != 0) {
		/* Then the second signal is not handled. */
		(void)drain_all(self);
		return;
	}
	if (wait_for_end(self) != 0) {
		postern__log(&self->log, POSTERN__LOG_HURRY, NULL);
		for (size_t i = 0; i < self->stores.count; i++) {
			if (self->stores.items[i].runner) {
				(void)postern_runner_drain(self->stores.items[i].runner, 0,
						NULL);
			}
		}
	}
	(void)pthread_join(thread, NULL);
}

/* A further signal now ends the process by default: nothing important remains
   to be done. */
static void release_signals(void) {
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void start_reloader(struct serve *self) {
	self->reloader.first = self->config;
	self->reloader.stores = &self->stores;
	self->reloader.api = &self->api;
	self->reloader.http = self->http;
	self->reloader.listening = &self->listening;
	self->reloader.report = log_mistake;
	self->reloader.report_context = self;
}

int postern__serve(const struct postern__serve_options *options) {
	struct serve self = {
		.options = options,
		.signals = -1,
		.opened = -1,
		.drained = -1,
	};
	raise_file_limit();
	open_log(&self);

	int exit = serve_start(&self);
	if (exit == EXIT_OK) {
		log_serving(&self);
		if (options->config.demo && self.stores.items[0].file) {
			print_hints(&self);
		}
		start_reloader(&self);
		start_server_check(&self);
		serve_run(&self);
		postern__server_check_destroy(self.server_check);
		release_signals();
	}
	postern__http_stop(self.http);
	postern__stores_finish(&self.stores);
	postern__listening_finish(&self.listening);
	if (exit == EXIT_OK) {
		postern__log(&self.log, POSTERN__LOG_STOPPED, NULL);
	}
	postern__reloader_finish(&self.reloader);
	postern__config_destroy(self.config);
	for (size_t i = 0; i < self.watch_count; i++) {
		postern__event_log_finish(&self.event_logs[i]);
	}
	postern__log_finish(&self.log);
	if (self.signals >= 0) {
		(void)close(self.signals);
	}
	if (self.opened >= 0) {
		(void)close(self.opened);
	}
	if (self.drained >= 0) {
		(void)close(self.drained);
	}
	return exit;
}
