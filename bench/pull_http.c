/* SPDX-License-Identifier: MIT */
/*
 * Workers that claim deliveries of a pull handler and settle them as done, each
 * in a thread with a connection of its own.
 *
 *   pull_http PORT HANDLER DELIVERIES WORKERS BATCH
 *
 * It ends when so many were settled.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "wire.h"

#define WORKERS_MAX 64
#define BATCH_MAX 1000
/* Of one item in a request, and with its message in an answer. */
#define RESULT_SIZE 128
#define ITEM_SIZE 2048

static struct {
	unsigned port;
	const char *handler;
	size_t total;
	size_t batch;
	atomic_size_t settled;
} job;

struct worker {
	pthread_t thread;
	int fd;
	char *request;
	size_t request_size;
	char *answer;
	size_t answer_size;
};

/* Returns the body of the answer. */
static char *ask(struct worker *self, const char *path, const char *body) {
	int head = snprintf(self->request, self->request_size,
			"POST /v1/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
			"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			path, strlen(body), body);
	wire_check(head > 0 && (size_t)head < self->request_size, "request");
	wire_send(self->fd, self->request, (size_t)head);
	size_t len = 0;
	do {
		ssize_t n = recv(self->fd, self->answer + len,
				self->answer_size - 1 - len, 0);
		wire_check(n > 0, "the server closed a connection");
		len += (size_t)n;
		self->answer[len] = '\0';
	} while (wire_message_len(self->answer, len) == 0);
	if (strncmp(self->answer, "HTTP/1.1 200 ", 13) != 0) {
		(void)fprintf(stderr, "%s\n", self->answer);
		exit(1);
	}
	return strstr(self->answer, "\r\n\r\n") + 4;
}

/* Writes the results of what was claimed; returns how many there are. */
static size_t write_results(const char *claimed, char *out, size_t size) {
	size_t count = 0;
	size_t len = (size_t)snprintf(out, size, "{\"items\":[");
	const char *at = claimed;
	while ((at = strstr(at, "{\"seq\":"))) {
		const char *fence = strstr(at, "\"fence\":");
		wire_check(fence != NULL, "fence");
		len += (size_t)snprintf(out + len, size - len,
				"%s{\"seq\":%llu,\"handler\":\"%s\",\"fence\":%llu,"
				"\"outcome\":\"done\"}",
				count > 0 ? "," : "", strtoull(at + 7, NULL, 10), job.handler,
				strtoull(fence + 8, NULL, 10));
		wire_check(len < size, "results");
		count++;
		at = fence;
	}
	(void)snprintf(out + len, size - len, "]}");
	return count;
}

static size_t count_settled(const char *answer) {
	size_t count = 0;
	while ((answer = strstr(answer, "\"settled\""))) {
		answer++;
		count++;
	}
	return count;
}

static void *work(void *context) {
	struct worker *self = context;
	char path[256];
	char claim[64];
	size_t size = job.batch * RESULT_SIZE + RESULT_SIZE;
	char *results = malloc(size);
	wire_check(results != NULL, "results");
	(void)snprintf(path, sizeof path, "handlers/%s/claim", job.handler);
	(void)snprintf(claim, sizeof claim,
			"{\"max\":%zu,\"wait\":\"100ms\",\"lease\":\"60s\"}", job.batch);
	while (atomic_load(&job.settled) < job.total) {
		size_t count = write_results(ask(self, path, claim), results, size);
		if (count > 0) {
			size_t good =
					count_settled(ask(self, "deliveries/settle", results));
			wire_check(good == count, "a result was late");
			(void)atomic_fetch_add(&job.settled, good);
		}
	}
	free(results);
	return NULL;
}

static void start(struct worker *self) {
	self->fd = wire_dial(job.port);
	self->request_size = job.batch * RESULT_SIZE + ITEM_SIZE;
	self->answer_size = (job.batch + 1) * ITEM_SIZE;
	self->request = malloc(self->request_size);
	self->answer = malloc(self->answer_size);
	wire_check(self->request && self->answer, "worker");
	wire_check(pthread_create(&self->thread, NULL, work, self) == 0, "thread");
}

int main(int argc, char **argv) {
	static struct worker workers[WORKERS_MAX];
	size_t count = argc == 6 ? strtoul(argv[4], NULL, 10) : 0;
	job.batch = argc == 6 ? strtoul(argv[5], NULL, 10) : 0;
	if (count == 0 || count > WORKERS_MAX || job.batch == 0 ||
			job.batch > BATCH_MAX) {
		(void)fprintf(stderr,
				"usage: pull_http PORT HANDLER DELIVERIES WORKERS BATCH\n");
		return 2;
	}
	job.port = (unsigned)strtoul(argv[1], NULL, 10);
	job.handler = argv[2];
	job.total = strtoul(argv[3], NULL, 10);
	int64_t started = wire_now_ns();
	for (size_t i = 0; i < count; i++) {
		start(&workers[i]);
	}
	for (size_t i = 0; i < count; i++) {
		(void)pthread_join(workers[i].thread, NULL);
		(void)close(workers[i].fd);
		free(workers[i].request);
		free(workers[i].answer);
	}
	double seconds = (double)(wire_now_ns() - started) / 1e9;
	size_t settled = atomic_load(&job.settled);
	(void)printf("{\"settled\": %zu, \"seconds\": %.6f,"
				 " \"messages_per_second\": %.0f}\n",
			settled, seconds, (double)settled / seconds);
	return 0;
}
