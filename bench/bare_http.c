/* SPDX-License-Identifier: MIT */
/*
 * The limit of messages over HTTP: the same library, inserts and group commits,
 * and nothing else. One thread serves all connections; a request is suspended
 * until the writer, another thread, has committed it together with all that
 * came during the commit before.
 *
 *   bare_http_sqlite FILE
 *   bare_http_postgres URL
 *
 * Its first line is the port. It ends when its standard input is closed.
 */

#include "bare_http.h"

#include <microhttpd.h>
#include <pthread.h>

#define CONNECTIONS_MAX 20000
#define GROUP_MAX 1000

/* A request, from its head to its answer. */
struct request {
	struct arrival arrival;
	struct MHD_Connection *connection;
	bool read;
	struct request *next;
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct request *first;
	struct request **last;
	int64_t seq;
} queue = { .mutex = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.last = &queue.first };

static uint64_t mix(uint64_t x) {
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* As random as a hash, and cheaper. */
static void fill_key(struct arrival *self) {
	uint64_t state = 0;
	for (size_t i = 0; i < self->id_len; i++) {
		state = mix(state ^ (unsigned char)self->id[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		self->key[i] = state = mix(state);
	}
	for (size_t i = 0; i < 2; i++) {
		self->digest[i] = state = mix(state);
	}
}

/* Takes what is queued, at least one and at most GROUP_MAX. */
static size_t take(struct request **out) {
	size_t count = 0;
	(void)pthread_mutex_lock(&queue.mutex);
	while (!queue.first) {
		(void)pthread_cond_wait(&queue.changed, &queue.mutex);
	}
	while (queue.first && count < GROUP_MAX) {
		out[count++] = queue.first;
		queue.first = queue.first->next;
	}
	if (!queue.first) {
		queue.last = &queue.first;
	}
	(void)pthread_mutex_unlock(&queue.mutex);
	return count;
}

static void *write_all(void *context) {
	static struct request *taken[GROUP_MAX];
	static struct arrival *arrivals[GROUP_MAX];
	bare_open(context);
	for (;;) {
		size_t count = take(taken);
		for (size_t i = 0; i < count; i++) {
			arrivals[i] = &taken[i]->arrival;
			arrivals[i]->seq = ++queue.seq;
		}
		bare_write(arrivals, count);
		for (size_t i = 0; i < count; i++) {
			MHD_resume_connection(taken[i]->connection);
		}
	}
	return NULL;
}

static enum MHD_Result respond(const struct request *self) {
	char text[128];
	int len = snprintf(text, sizeof text,
			"{\"status\":\"accepted\",\"id\":\"%s\",\"seq\":%lld}",
			self->arrival.id, (long long)self->arrival.seq);
	struct MHD_Response *response = MHD_create_response_from_buffer((size_t)len,
			text, MHD_RESPMEM_MUST_COPY);
	(void)MHD_add_response_header(response, "Content-Type", "application/json");
	enum MHD_Result r = MHD_queue_response(self->connection, 202, response);
	MHD_destroy_response(response);
	return r;
}

static void enqueue(struct request *self) {
	const char *id = MHD_lookup_connection_value(self->connection,
			MHD_HEADER_KIND, "Idempotency-Key");
	wire_check(id && strlen(id) < sizeof self->arrival.id, "id");
	self->arrival.id_len = strlen(id);
	memcpy(self->arrival.id, id, self->arrival.id_len + 1);
	fill_key(&self->arrival);
	self->read = true;
	MHD_suspend_connection(self->connection);
	(void)pthread_mutex_lock(&queue.mutex);
	*queue.last = self;
	queue.last = &self->next;
	(void)pthread_cond_signal(&queue.changed);
	(void)pthread_mutex_unlock(&queue.mutex);
}

static enum MHD_Result step(void *context, struct MHD_Connection *connection,
		const char *url, const char *method, const char *version,
		const char *upload, size_t *upload_len, void **own) {
	(void)context;
	(void)url;
	(void)method;
	(void)version;
	struct request *self = *own;
	if (!self) {
		self = calloc(1, sizeof *self);
		wire_check(self != NULL, "request");
		self->connection = connection;
		*own = self;
		return MHD_YES;
	}
	if (*upload_len > 0) {
		struct arrival *arrival = &self->arrival;
		wire_check(arrival->body_len + *upload_len <= sizeof arrival->body,
				"body");
		memcpy(arrival->body + arrival->body_len, upload, *upload_len);
		arrival->body_len += *upload_len;
		*upload_len = 0;
		return MHD_YES;
	}
	if (self->read) {
		return respond(self);
	}
	enqueue(self);
	return MHD_YES;
}

static void end(void *context, struct MHD_Connection *connection, void **own,
		enum MHD_RequestTerminationCode why) {
	(void)context;
	(void)connection;
	(void)why;
	free(*own);
	*own = NULL;
}

int main(int argc, char **argv) {
	if (argc != 2) {
		(void)fprintf(stderr, "usage: bare_http_... FILE|URL\n");
		return 2;
	}
	unsigned port;
	int listener = wire_listen(&port);
	pthread_t writer;
	wire_check(pthread_create(&writer, NULL, write_all, argv[1]) == 0,
			"thread");
	struct MHD_Daemon *daemon =
			MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD |
									 MHD_ALLOW_SUSPEND_RESUME,
					0, NULL, NULL, step, NULL, MHD_OPTION_LISTEN_SOCKET,
					listener, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
					MHD_OPTION_NOTIFY_COMPLETED, end, NULL, MHD_OPTION_END);
	wire_check(daemon != NULL, "daemon");
	(void)printf("%u\n", port);
	(void)fflush(stdout);
	while (getchar() != EOF) {
	}
	/* The writer waits for requests; everything ends with the process. */
	_exit(0);
}
