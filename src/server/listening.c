/* SPDX-License-Identifier: MIT */
/*
 * Sockets beside stores come first, because the commands depend on them.
 */

#include "server/listening.h"

#include <postern/error.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/fail.h"
#include "server/auth.h"
#include "server/stores.h"

static void add(struct postern__listening *self, struct postern__socket *socket,
		struct postern__tcp *tcp, bool ingest_only) {
	self->addresses[self->count++] = (struct postern__http_address){
		.socket = socket,
		.tcp = tcp,
		.ingest_only = ingest_only,
		.local = socket && (socket->mode & 077U) == 0,
	};
}

static int open_beside(struct postern__listening *self, const char *file,
		struct postern_error *error) {
	struct postern__socket *socket = &self->sockets[self->socket_count];
	int r = postern__socket_init(socket, file, error);
	if (r == POSTERN_OK) {
		self->socket_count++;
		self->beside_count++;
		add(self, socket, NULL, false);
	}
	return r;
}

static int open_socket(struct postern__listening *self,
		const struct postern__config_values *values, const char *path,
		bool ingest_only, struct postern_error *error) {
	struct postern__socket *socket = &self->sockets[self->socket_count];
	int r = postern__socket_init_alone(socket, path, error);
	if (r == POSTERN_OK) {
		self->socket_count++;
		socket->group = values->listen_group;
		r = postern__socket_mode_parse(values->listen_mode, &socket->mode,
				error);
		add(self, socket, NULL, ingest_only);
	}
	return r;
}

static int open_tcp(struct postern__listening *self, const char *text,
		bool ingest_only, struct postern_error *error) {
	struct postern__tcp *tcp = &self->tcps[self->tcp_count];
	int r = postern__tcp_parse(text, tcp, error);
	if (r == POSTERN_OK) {
		r = postern__tcp_bind(tcp, error);
	}
	if (r == POSTERN_OK) {
		self->tcp_count++;
		add(self, NULL, tcp, ingest_only);
	}
	return r;
}

/* The address that a passed socket is for: "systemd:NAME", else "systemd". */
static const struct postern__config_listen *
find_listen(const struct postern__config *config, const char *name) {
	const struct postern__config_listen *listen;
	const struct postern__config_listen *any = NULL;
	for (size_t i = 0; (listen = postern__config_listen(config, i)); i++) {
		const char *wanted = postern__listen_passed(listen->text);
		if (wanted && *wanted && strcmp(wanted, name) == 0) {
			return listen;
		}
		any = wanted && !*wanted ? listen : any;
	}
	return any;
}

/* That other machines cannot reach an address without tokens is known here
   only. */
static int check_public(const struct postern__config *config,
		const struct postern__tcp *tcp, struct postern_error *error) {
	struct postern__auth auth;
	postern__config_auth(config, &auth);
	return auth.token_count > 0 || postern__tcp_is_loopback(tcp)
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "other machines can reach '%s', which the service "
							 "manager has passed, and which needs tokens: add "
							 "'auth'",
							 tcp->text);
}

int postern__listening_check(const struct postern__listening *self,
		const struct postern__config *config, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < self->tcp_count; i++) {
		r = check_public(config, &self->tcps[i], error);
	}
	return r;
}

static int open_passed(struct postern__listening *self,
		const struct postern__config *config, int fd, int family,
		bool ingest_only, struct postern_error *error) {
	int r;
	if (family == AF_UNIX) {
		struct postern__socket *socket = &self->sockets[self->socket_count];
		r = postern__socket_init_passed(socket, fd, error);
		if (r == POSTERN_OK) {
			self->socket_count++;
			add(self, socket, NULL, ingest_only);
		}
		return r;
	}
	struct postern__tcp *tcp = &self->tcps[self->tcp_count];
	r = postern__tcp_init_passed(tcp, fd, error);
	if (r == POSTERN_OK) {
		self->tcp_count++;
		add(self, NULL, tcp, ingest_only);
		r = check_public(config, tcp, error);
	}
	return r;
}

/* Each socket that was passed has an address that it is for, and each address
   at least one socket. */
static int open_all_passed(struct postern__listening *self,
		const struct postern__config *config, struct postern_error *error) {
	const struct postern__config_listen *listen;
	struct postern__passed passed;
	const void *served[POSTERN__PASSED_COUNT_MAX];
	int r = postern__passed_find(&passed, error);
	for (size_t i = 0; r == POSTERN_OK && i < passed.count; i++) {
		listen = find_listen(config, passed.sockets[i].name);
		served[i] = listen;
		r = listen ? open_passed(self, config, passed.sockets[i].fd,
							 passed.sockets[i].family, listen->ingest_only,
							 error)
				   : postern__fail(error, POSTERN_E_INVALID,
							 "the service manager has passed a socket '%.80s': "
							 "add 'systemd' to 'listen', or remove the socket "
							 "unit",
							 passed.sockets[i].name);
	}
	for (size_t i = 0;
			r == POSTERN_OK && (listen = postern__config_listen(config, i));
			i++) {
		bool found = !postern__listen_passed(listen->text);
		for (size_t n = 0; !found && n < passed.count; n++) {
			found = served[n] == listen;
		}
		if (!found) {
			r = postern__fail(error, POSTERN_E_INVALID,
					"listen: '%.80s' stands for a socket that a service "
					"manager passes, and there is none: start the server by "
					"its socket unit, or write an address",
					listen->text);
		}
	}
	return r;
}

int postern__listening_open(struct postern__listening *self,
		const struct postern__config *config,
		const struct postern__stores *stores, struct postern_error *error) {
	const struct postern__config_values *values =
			postern__config_global(config);
	const struct postern__config_listen *listen;
	int r = POSTERN_OK;
	self->secure = values->tls_cert_file != NULL;
	for (size_t i = 0; r == POSTERN_OK && i < stores->count; i++) {
		if (stores->items[i].file) {
			r = open_beside(self, stores->items[i].file, error);
		}
	}
	for (size_t i = 0;
			r == POSTERN_OK && (listen = postern__config_listen(config, i));
			i++) {
		const char *path = postern__listen_path(listen->text);
		if (postern__listen_passed(listen->text)) {
			continue;
		}
		r = path ? open_socket(self, values, path, listen->ingest_only, error)
				 : open_tcp(self, listen->text, listen->ingest_only, error);
	}
	return r == POSTERN_OK ? open_all_passed(self, config, error) : r;
}

void postern__listening_finish(struct postern__listening *self) {
	for (size_t i = 0; i < self->socket_count; i++) {
		postern__socket_finish(&self->sockets[i]);
	}
	for (size_t i = 0; i < self->tcp_count; i++) {
		postern__tcp_finish(&self->tcps[i]);
	}
	*self = (struct postern__listening){ 0 };
}

void postern__listening_write(const struct postern__listening *self,
		struct postern__buf *out) {
	for (size_t i = self->beside_count; i < self->count; i++) {
		const struct postern__http_address *address = &self->addresses[i];
		postern__buf_printf(out, "%s%s%s", i > self->beside_count ? "," : "",
				address->socket ? POSTERN__LISTEN_PREFIX : "",
				address->socket ? address->socket->path : address->tcp->text);
	}
}

const char *postern__listening_tcp(const struct postern__listening *self) {
	for (size_t i = 0; i < self->count; i++) {
		if (self->addresses[i].tcp && !self->addresses[i].ingest_only) {
			return self->addresses[i].tcp->text;
		}
	}
	return NULL;
}
