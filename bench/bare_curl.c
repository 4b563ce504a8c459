/* SPDX-License-Identifier: MIT */
/*
 * The limit of webhooks: the same requests, sent with curl-multi in one thread
 * and nothing else.
 *
 *   bare_curl PORT MESSAGES REQUESTS
 *
 * REQUESTS is how many are in flight at a time.
 */

#include <curl/curl.h>

#include "wire.h"

#define HEADER_SIZE 128

struct transfer {
	CURL *curl;
	struct curl_slist *headers;
};

static struct {
	char url[64];
	char body[WIRE_BODY_LEN];
	uint64_t total;
	uint64_t sent;
	uint64_t done;
} job;

static size_t ignore(const char *bytes, size_t size, size_t count,
		void *context) {
	(void)bytes;
	(void)context;
	return size * count;
}

static void add_header(struct transfer *self, const char *name,
		const char *value) {
	char line[HEADER_SIZE];
	(void)snprintf(line, sizeof line, "%s: %s", name, value);
	struct curl_slist *headers = curl_slist_append(self->headers, line);
	wire_check(headers != NULL, "header");
	self->headers = headers;
}

/* Begins the next request, with the headers that Postern sends. */
static void begin(CURLM *multi, struct transfer *self) {
	char id[WIRE_ID_SIZE];
	wire_id(id, job.sent++);
	curl_slist_free_all(self->headers);
	self->headers = NULL;
	add_header(self, "ce-specversion", "1.0");
	add_header(self, "ce-id", id);
	add_header(self, "ce-source", "bench");
	add_header(self, "ce-type", "bench");
	add_header(self, "ce-time", "2026-01-01T00:00:00.000Z");
	add_header(self, "Content-Type", "application/json");
	add_header(self, "Postern-Handler", "hook");
	add_header(self, "Postern-Attempt", "1");
	add_header(self, "Postern-Fence", "1");
	add_header(self, "Expect", "");
	(void)curl_easy_setopt(self->curl, CURLOPT_HTTPHEADER, self->headers);
	wire_check(curl_multi_add_handle(multi, self->curl) == CURLM_OK, "multi");
}

static void prepare(struct transfer *self) {
	self->curl = curl_easy_init();
	wire_check(self->curl != NULL, "curl");
	(void)curl_easy_setopt(self->curl, CURLOPT_URL, job.url);
	(void)curl_easy_setopt(self->curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(self->curl, CURLOPT_POSTFIELDS, job.body);
	(void)curl_easy_setopt(self->curl, CURLOPT_POSTFIELDSIZE,
			(long)sizeof job.body);
	(void)curl_easy_setopt(self->curl, CURLOPT_WRITEFUNCTION, ignore);
	(void)curl_easy_setopt(self->curl, CURLOPT_PRIVATE, self);
}

static void finish(CURLM *multi, const CURLMsg *message) {
	struct transfer *self;
	long status = 0;
	(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &self);
	(void)curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE,
			&status);
	wire_check(message->data.result == CURLE_OK && status == 200, "request");
	(void)curl_multi_remove_handle(multi, self->curl);
	job.done++;
	if (job.sent < job.total) {
		begin(multi, self);
	}
}

static void run(CURLM *multi) {
	while (job.done < job.total) {
		int running;
		int left;
		wire_check(curl_multi_perform(multi, &running) == CURLM_OK, "perform");
		const CURLMsg *message;
		while ((message = curl_multi_info_read(multi, &left))) {
			finish(multi, message);
		}
		if (job.done < job.total) {
			(void)curl_multi_poll(multi, NULL, 0, 1000, NULL);
		}
	}
}

int main(int argc, char **argv) {
	size_t count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	job.total = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	if (count == 0 || job.total < count) {
		(void)fprintf(stderr, "usage: bare_curl PORT MESSAGES REQUESTS\n");
		return 2;
	}
	(void)snprintf(job.url, sizeof job.url, "http://127.0.0.1:%.5s/in",
			argv[1]);
	memset(job.body, 'x', sizeof job.body);
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
	CURLM *multi = curl_multi_init();
	struct transfer *all = calloc(count, sizeof *all);
	wire_check(multi && all, "curl");
	(void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)count);
	for (size_t i = 0; i < count; i++) {
		prepare(&all[i]);
		begin(multi, &all[i]);
	}
	run(multi);
	for (size_t i = 0; i < count; i++) {
		curl_easy_cleanup(all[i].curl);
		curl_slist_free_all(all[i].headers);
	}
	free(all);
	(void)curl_multi_cleanup(multi);
	curl_global_cleanup();
	return 0;
}
