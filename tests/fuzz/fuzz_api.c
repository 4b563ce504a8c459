/* SPDX-License-Identifier: MIT */

/*
 * Requests to the admin API, without sockets. Input: requests as text,
 * separated by lines of three dashes.
 *
 *   POST /v1/channels/orders/messages?x=y
 *   ce-id: 1
 *   content-type: text/plain
 *
 *   the body
 *   ---
 *   GET /v1/deliveries
 *
 * A response is JSON, or the body of a message; an error is a problem document
 * with a reason and the response's status; and no response has status 500.
 */

#include "fuzz.h"
#include "server/api_fixture.h"

#define REQUEST_COUNT_MAX 8
/* One more than the API accepts, to see it refuse. */
#define HEADER_COUNT_MAX (POSTERN__API_HEADER_COUNT_MAX + 1)

static void check_problem(const struct fixture *fixture) {
	const char *detail = fixture_text(fixture, "detail");
	MUST_EQUAL(fixture->response.content_type, "application/problem+json");
	MUST(fixture_number(fixture, "status") == fixture->status);
	MUST_EQUAL(fixture_text(fixture, "type"), "about:blank");
	MUST_EQUAL(fixture_text(fixture, "title"),
			postern__status_text(fixture->status));
	MUST(strcmp(fixture_text(fixture, "title"), "Unknown") != 0);
	MUST(detail && detail[0] && fuzz_is_clean(detail));
}

static void check_response(const struct fixture *fixture) {
	for (size_t i = 0; i < fixture->response.header_count; i++) {
		MUST(fuzz_is_clean(fixture->response.headers[i].value));
	}
	if (fixture->status >= 300) {
		check_problem(fixture);
		MUST(fixture->status != 500);
	} else if (strcmp(fixture->response.content_type, "application/json") ==
			   0) {
		MUST(fixture->json);
	} else {
		MUST_EQUAL(fixture->response.content_type, "application/octet-stream");
	}
}

/* Parses "name: value"; without a colon the line is a name. */
static struct postern_header read_header(char *line) {
	char *colon = strchr(line, ':');
	struct postern_header header = { line, "" };
	if (colon) {
		*colon = '\0';
		header.value = colon + 1 + strspn(colon + 1, " ");
	}
	return header;
}

static void send_request_text(struct fixture *fixture, const char *text,
		size_t len) {
	struct fuzz_input input = { (const uint8_t *)text, len };
	struct postern_header headers[HEADER_COUNT_MAX];
	char *lines[HEADER_COUNT_MAX];
	size_t count = 0;
	char *method = fuzz_until(&input, '\n');
	char *path = strchr(method, ' ');
	char *query = NULL;
	if (path) {
		*path++ = '\0';
		query = strchr(path, '?');
	}
	if (query) {
		*query++ = '\0';
	}
	while (input.len > 0 && count < HEADER_COUNT_MAX) {
		lines[count] = fuzz_until(&input, '\n');
		if (lines[count][0] == '\0') {
			free(lines[count]);
			break;
		}
		headers[count] = read_header(lines[count]);
		count++;
	}
	struct postern__request request = {
		.method = method,
		.path = path ? path : "",
		.query = query,
		.transport = "http",
		.headers = headers,
		.header_count = count,
		.body = input.at,
		.body_len = input.len,
	};
	(void)fixture_request(fixture, &request);
	check_response(fixture);
	(void)postern__api_is_quick(method, request.path, request.query);
	MUST(postern__api_body_len_max(&fixture->api, &request) > 0);
	while (count > 0) {
		free(lines[--count]);
	}
	free(method);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const char separator[] = "\n---\n";
	struct fixture fixture;
	const char *text = (const char *)data;
	fixture_init(&fixture);
	/* Messages to read: one done, one poisoned, one parked. */
	MUST(fixture_message(&fixture, "orders", "m-1", "{\"a\":1}") < 300);
	MUST(fixture_message(&fixture, "parks", "m-2", "") < 300);
	fixture_process(&fixture);
	for (int i = 0; i < REQUEST_COUNT_MAX && size > 0; i++) {
		const char *end = memmem(text, size, separator, strlen(separator));
		size_t len = end ? (size_t)(end - text) : size;
		send_request_text(&fixture, text, len);
		size_t used = end ? len + strlen(separator) : len;
		text += used;
		size -= used;
		if (i % 2 == 1) {
			fixture_process(&fixture);
		}
	}
	fixture_finish(&fixture);
	return 0;
}
