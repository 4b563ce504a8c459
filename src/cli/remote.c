/* SPDX-License-Identifier: MIT */
/*
 * libcurl, with everything disabled that it would do on its own: extra headers,
 * normalised paths, proxies, redirects. The server receives the request and
 * nothing else, so that it means the same there as in this process.
 */

#include "cli/remote.h"

#include <curl/curl.h>
#include <postern/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "server/api.h"
#include "server/socket.h"

/* The longest path with a query, and the longest header line. */
#define URL_LEN_MAX \
	(POSTERN__API_PATH_LEN_MAX + POSTERN__API_QUERY_LEN_MAX + 64)
#define HEADER_LEN_MAX 65536

/* Reading is fast, and does without the server if that does not respond. A
   write may wait for its turn, longer than command_timeout usually is, so that
   the server reports the timeout itself. */
#define READ_TIMEOUT_S 5L
#define WRITE_TIMEOUT_S 120L
/* Of an address; a socket is there at once. */
#define CONNECT_TIMEOUT_S 10L
/* Cleanup leaves the store to others most of the time, so millions of messages
   take long. */
#define CLEANUP_TIMEOUT_S (24 * 60 * 60L)

static size_t append_body(char *bytes, size_t size, size_t count,
		void *context) {
	struct postern__buf *body = context;
	postern__buf_append(body, bytes, size * count);
	/* Any return value but the length makes curl stop. */
	return body->failed ? 0 : size * count;
}

static int add_header(struct curl_slist **list, const char *name,
		const char *value, struct postern_error *error) {
	struct postern__buf line;
	postern__buf_init(&line, HEADER_LEN_MAX);
	/* curl's notation: "Name;" is a header with an empty value, and "Name:"
	   removes a header that curl would add. */
	postern__buf_append_text(&line, name);
	if (value && *value) {
		postern__buf_printf(&line, ": %s", value);
	} else {
		postern__buf_append_char(&line, value ? ';' : ':');
	}
	int r = postern__buf_check(&line, "a header", error);
	if (r == POSTERN_OK) {
		struct curl_slist *longer =
				curl_slist_append(*list, postern__buf_text(&line));
		if (longer) {
			*list = longer;
		} else {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	postern__buf_finish(&line);
	return r;
}

static int add_headers(struct curl_slist **list,
		const struct postern__request *request, struct postern_error *error) {
	static const char *const unwanted[] = { "Accept", "Expect",
		"Content-Type" };
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < request->header_count; i++) {
		r = add_header(list, request->headers[i].name,
				request->headers[i].value, error);
	}
	for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
		bool given = false;
		for (size_t j = 0; j < request->header_count; j++) {
			given = given ||
					strcasecmp(request->headers[j].name, unwanted[i]) == 0;
		}
		if (r == POSTERN_OK && !given) {
			r = add_header(list, unwanted[i], NULL, error);
		}
	}
	return r;
}

static bool is_read(const struct postern__request *request) {
	return strcmp(request->method, "GET") == 0;
}

static long timeout_s(const struct postern__remote *remote,
		const struct postern__request *request) {
	if (strcmp(request->path, "/v1/cleanup") == 0) {
		return CLEANUP_TIMEOUT_S;
	}
	return is_read(request) && remote->socket ? READ_TIMEOUT_S
											  : WRITE_TIMEOUT_S;
}

static bool prepare_request(CURL *curl, const struct postern__remote *remote,
		const struct postern__request *request, const char *url,
		struct curl_slist *headers, struct postern__buf *body) {
	unsigned bad = CURLE_OK;
	if (remote->socket) {
		bad |= curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, remote->socket);
	}
	if (remote->trusted) {
		struct curl_blob blob = { .data = (void *)(uintptr_t)remote->trusted,
			.len = strlen(remote->trusted),
			.flags = CURL_BLOB_NOCOPY };
		bad |= curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
		bad |= curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
	}
	bad |= curl_easy_setopt(curl, CURLOPT_SSLVERSION,
			(long)CURL_SSLVERSION_TLSv1_2);
	bad |= curl_easy_setopt(curl, CURLOPT_PROXY, "");
	bad |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
	bad |= curl_easy_setopt(curl, CURLOPT_URL, url);
	bad |= curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	bad |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	bad |= curl_easy_setopt(curl, CURLOPT_TIMEOUT, timeout_s(remote, request));
	bad |= curl_easy_setopt(curl, CURLOPT_USERAGENT,
			POSTERN__API_COMMAND_AGENT POSTERN_VERSION);
	bad |= curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	bad |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append_body);
	bad |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, (void *)body);
	if (!is_read(request)) {
		bad |= curl_easy_setopt(curl, CURLOPT_POST, 1L);
		bad |= curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
		bad |= curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
				(curl_off_t)request->body_len);
		bad |= curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
				request->body ? (const char *)request->body : "");
	}
	return bad == CURLE_OK;
}

static int fail_curl(CURLcode c, const struct postern__remote *remote,
		const struct postern__request *request, const struct postern__buf *body,
		struct postern_error *error) {
	switch (c) {
	case CURLE_OUT_OF_MEMORY:
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	case CURLE_COULDNT_CONNECT:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"no server is listening on %s", remote->name);
	case CURLE_COULDNT_RESOLVE_HOST:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the host of %s is not known", remote->name);
	case CURLE_URL_MALFORMAT:
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not the URL of a server", remote->name);
	case CURLE_PEER_FAILED_VERIFICATION:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the certificate of the server at %s is not trusted, or is for "
				"another host%s",
				remote->name,
				remote->trusted ? "" : "; --ca-file FILE names whom to trust");
	case CURLE_SSL_CACERT_BADFILE:
		return postern__fail(error, POSTERN_E_INVALID,
				"--ca-file: the file has no certificates in PEM");
	case CURLE_SSL_CONNECT_ERROR:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"no TLS could be agreed on with %s; does it speak https?",
				remote->name);
	case CURLE_OPERATION_TIMEDOUT:
		return postern__fail(error, POSTERN_E_TIMEOUT,
				"the server at %s did not respond within %ld s", remote->name,
				timeout_s(remote, request));
	case CURLE_WRITE_ERROR:
		return postern__buf_check(body, "the server's response", error);
	default:
		return postern__fail(error, POSTERN_E_STALE,
				"connection to the server at %s lost: %s", remote->name,
				curl_easy_strerror(c));
	}
}

void postern__remote_of_socket(const struct postern__socket *socket,
		struct postern__remote *out) {
	*out = (struct postern__remote){
		.name = socket->path,
		.socket = socket->address,
		.base = "http://localhost",
	};
}

int postern__remote_request(const struct postern__socket *socket,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	struct postern__remote remote;
	postern__remote_of_socket(socket, &remote);
	return postern__remote_request_at(&remote, request, response, error);
}

static int add_token(struct curl_slist **list, const char *token,
		struct postern_error *error) {
	char value[600]; /* longer than any token */
	if (!token) {
		return POSTERN_OK;
	}
	if ((size_t)snprintf(value, sizeof value, "Bearer %s", token) >=
			sizeof value) {
		return postern__fail(error, POSTERN_E_INVALID, "the token is too long");
	}
	int r = add_header(list, "Authorization", value, error);
	explicit_bzero(value, sizeof value);
	return r;
}

int postern__remote_request_at(const struct postern__remote *remote,
		const struct postern__request *request,
		struct postern__response *response, struct postern_error *error) {
	struct postern__buf url;
	struct curl_slist *headers = NULL;
	postern__buf_init(&url, URL_LEN_MAX);
	postern__buf_printf(&url, "%s%s%s%s", remote->base, request->path,
			request->query ? "?" : "", request->query ? request->query : "");
	int r = postern__buf_check(&url, "the request's path", error);
	CURL *curl = curl_easy_init();
	if (r == POSTERN_OK && !curl) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (r == POSTERN_OK) {
		r = add_headers(&headers, request, error);
	}
	if (r == POSTERN_OK) {
		r = add_token(&headers, remote->token, error);
	}
	if (r) {
		goto out;
	}
	/* Preparing a request fails only without memory. */
	CURLcode c = CURLE_OUT_OF_MEMORY;
	if (prepare_request(curl, remote, request, postern__buf_text(&url), headers,
				&response->body)) {
		c = curl_easy_perform(curl);
	}
	long status = 0;
	if (c == CURLE_OK) {
		c = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	}
	if (c != CURLE_OK) {
		r = fail_curl(c, remote, request, &response->body, error);
		goto out;
	}
	response->status = (int)status;
out:
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	postern__buf_finish(&url);
	return r;
}
