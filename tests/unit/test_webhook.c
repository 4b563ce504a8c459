/* SPDX-License-Identifier: MIT */

/*
 * What is sent for a message, where nothing is sent, and what answers mean. No
 * network is needed: a socket that must not be opened is counted.
 */

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "core/accept.h"
#include "core/run.h"
#include "tap.h"
#include "webhook/request.h"

#define KEY "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw1w"

/* A run that no box has. */
struct scene {
	struct postern__content content;
	struct postern_run run;
	struct postern__webhook_target target;
	struct postern__webhook_request *request;
	struct postern_error error;
};

static void scene_init(struct scene *scene, const char *url) {
	*scene = (struct scene){
		.content.message = {
			.size = sizeof(struct postern_message),
			.id = "1",
			.source = "/s",
			.type = "t",
			.body = "body",
			.body_len = 4,
		},
		.run.deadline_ms = POSTERN__NEVER,
		.run.delivery = { .handler = "mail", .attempt = 1, .fence = 1 },
		.target.url = (char *)url,
		.target.connect_timeout_ms = 2000,
	};
	scene->run.content = &scene->content;
	postern__webhook_url_shown(url, scene->target.shown,
			sizeof scene->target.shown);
}

static int scene_make(struct scene *scene, bool sign) {
	struct postern__webhook_secret secret;
	CHECK_OK(postern__webhook_secret_parse(KEY, &secret, &scene->error),
			&scene->error);
	return postern__webhook_request_create(&scene->target, &secret,
			sign ? 1 : 0, &scene->run, 1614265330000, &scene->request,
			&scene->error);
}

static void scene_finish(struct scene *scene) {
	postern__webhook_request_destroy(scene->request);
	scene->request = NULL;
}

/* Send the request; the outcome. */
static enum postern_outcome_kind scene_send(struct scene *scene) {
	if (!CHECK_OK(scene_make(scene, false), &scene->error)) {
		return POSTERN_DONE;
	}
	CURLcode code = curl_easy_perform(scene->request->transfer.easy);
	postern__webhook_request_judge(scene->request, code, 0);
	return scene->request->verdict.outcome.kind;
}

/* Addresses that no message may choose. */
static const unsigned char forbidden_4[][4] = {
	{ 127, 0, 0, 1 },
	{ 127, 255, 255, 254 },
	{ 0, 0, 0, 0 },
	{ 10, 0, 0, 1 },
	{ 10, 255, 255, 255 },
	{ 100, 64, 0, 1 },
	{ 100, 100, 100, 200 },
	{ 168, 63, 129, 16 },
	{ 169, 254, 169, 254 },
	{ 169, 254, 170, 2 },
	{ 172, 16, 0, 1 },
	{ 172, 31, 255, 255 },
	{ 192, 0, 0, 192 },
	{ 192, 0, 2, 1 },
	{ 192, 168, 0, 1 },
	{ 198, 18, 0, 1 },
	{ 198, 51, 100, 1 },
	{ 203, 0, 113, 1 },
	{ 224, 0, 0, 1 },
	{ 240, 0, 0, 1 },
	{ 255, 255, 255, 255 },
};

static const char *const forbidden_6[] = { "[::]", "[::1]", "[0:0:0:0:0:0:0:1]",
	"[fe80::1]", "[fe80::1%25lo]", "[febf::1]", "[fc00::1]", "[fd00:ec2::254]",
	"[fd20:ce::254]", "[fec0::1]", "[ff02::1]", "[2001:db8::1]", "[100::1]",
	"[::ffff:127.0.0.1]", "localhost", "localhost.", "LOCALHOST",
	"user@localhost", "127.0.0.1%00.example.com", "127.0.0.1%2f@example.com",
	"%6c%6f%63%61%6c%68%6f%73%74" };

/* The ways to write an IPv4 address as the host of a URL. The numbers are its
   four bytes, its last three and two as one number, all as one, and its two
   halves. */
static const char *const forms[] = {
	"$1u.$2u.$3u.$4u",
	"$1u.$2u.$3u.$4u.",
	"$1u.$2u.$6u",
	"$1u.$5u",
	"$7u",
	"0x$7x",
	"0X$7X",
	"0$7o",
	"0000000$7o",
	"0x$1x.0x$2x.0x$3x.0x$4x",
	"0$1o.0$2o.0$3o.0$4o",
	"000$1o.$2u.0x$3x.$4u",
	"0x$1x.$5u",
	"user@$1u.$2u.$3u.$4u",
	"user:word@$7u",
	"example.com@$1u.$2u.$3u.$4u",
	"example.com%40@$1u.$2u.$3u.$4u",
	"$1u%2e$2u%2e$3u%2e$4u",
	"[::ffff:$1u.$2u.$3u.$4u]",
	"[::ffff:$8x:$9x]",
	"[0:0:0:0:0:FFFF:$8x:$9x]",
	"[::$1u.$2u.$3u.$4u]",
	"[::ffff:0:$8x:$9x]",
	"[64:ff9b::$8x:$9x]",
	"[64:ff9b:1::$8x:$9x]",
	"[2002:$8x:$9x::]",
	"[2001:0:$8x:$9x::1]",
};
#define FORM_COUNT (sizeof forms / sizeof forms[0])

/* The host that a form makes of an address. "$1x" is the first of the numbers,
   in hexadecimal. */
static void write_host(const char *form, const unsigned char *b, char *out,
		size_t size) {
	unsigned low2 = (unsigned)b[2] << 8 | b[3];
	unsigned low3 = (unsigned)b[1] << 16 | low2;
	unsigned all = (unsigned)b[0] << 24 | low3;
	const unsigned numbers[] = { b[0], b[1], b[2], b[3], low3, low2, all,
		all >> 16, all & 0xffff };
	struct postern__buf host;
	postern__buf_init(&host, size - 1);
	for (; *form; form++) {
		if (*form != '$') {
			postern__buf_append_char(&host, *form);
			continue;
		}
		unsigned number = numbers[form[1] - '1'];
		form += 2;
		switch (*form) {
		case 'x': postern__buf_printf(&host, "%x", number); break;
		case 'X': postern__buf_printf(&host, "%X", number); break;
		case 'o': postern__buf_printf(&host, "%o", number); break;
		default: postern__buf_printf(&host, "%u", number); break;
		}
	}
	(void)snprintf(out, size, "%s", postern__buf_text(&host));
	postern__buf_finish(&host);
}

static unsigned strings_tried;

/* False: a socket was opened. */
static bool try_host(const char *host) {
	char url[300];
	struct scene scene;
	unsigned long before = postern__webhook_socket_counts().opened;
	(void)snprintf(url, sizeof url, "http://%s:1/hook", host);
	scene_init(&scene, url);
	scene.target.templated_host = true;
	scene.target.guard.templated = true;
	CHECK(scene_send(&scene) != POSTERN_DONE);
	bool good = CHECK_INT(postern__webhook_socket_counts().opened, before);
	if (!good) {
		(void)fprintf(stderr, "a socket was opened for '%s'\n", host);
	}
	strings_tried++;
	scene_finish(&scene);
	return good;
}

static void forbidden_hosts(void) {
	char host[200];
	unsigned long before = postern__webhook_socket_counts().refused;
	size_t count = sizeof forbidden_4 / sizeof forbidden_4[0];
	/* After the first one that fails each could wait for an answer. */
	bool good = true;
	for (size_t i = 0; good && i < count * FORM_COUNT; i++) {
		write_host(forms[i % FORM_COUNT], forbidden_4[i / FORM_COUNT], host,
				sizeof host);
		good = try_host(host);
	}
	count = sizeof forbidden_6 / sizeof forbidden_6[0];
	for (size_t i = 0; good && i < count; i++) {
		good = try_host(forbidden_6[i]);
	}
	/* The rest are no URLs for libcurl. */
	CHECK(postern__webhook_socket_counts().refused - before > 400);
	CHECK(strings_tried >= 500);
}

/* Whatever libcurl takes for an address is one for `check`, too. */
static void literal_hosts(void) {
	static const unsigned char metadata[4] = { 169, 254, 169, 254 };
	char host[200];
	char url[300];
	struct scene scene;
	bool good = true;
	for (size_t form = 0; good && form < FORM_COUNT; form++) {
		unsigned long opened = postern__webhook_socket_counts().opened;
		write_host(forms[form], metadata, host, sizeof host);
		(void)snprintf(url, sizeof url, "http://%s:1/hook", host);
		if (!CHECK_INT(postern__webhook_url_check(url, false, NULL),
					POSTERN_E_INVALID)) {
			(void)fprintf(stderr, "'%s' is permitted\n", url);
		}
		scene_init(&scene, url);
		(void)scene_send(&scene);
		good = CHECK_INT(postern__webhook_socket_counts().opened, opened);
		scene_finish(&scene);
	}
	/* The client of Teredo, whose address is inverted. */
	CHECK_INT(postern__webhook_url_check("http://[2001:0:808:808::5601:5601]/",
					  false, NULL),
			POSTERN_E_INVALID);
	CHECK_OK(postern__webhook_url_check("http://127.0.0.1:8080/", false,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern__webhook_url_check("http://[fd00::1]/", false,
					 &scene.error),
			&scene.error);
}

/* A server that accepts nothing: its port. */
static int listen_on_loopback(in_port_t *port_out) {
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	*port_out = ntohs(address.sin_port);
	return fd;
}

/* Nobody listens: what counts is whether it was tried. */
static void allowed_hosts(void) {
	struct postern__webhook_block block;
	struct scene scene;
	char url[100];
	in_port_t port;
	int fd = listen_on_loopback(&port);
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%u/", port);
	scene_init(&scene, url);
	unsigned long opened = postern__webhook_socket_counts().opened;
	CHECK_INT(scene_send(&scene), POSTERN_HOLD);
	CHECK_INT(postern__webhook_socket_counts().opened, opened + 1);
	scene_finish(&scene);

	CHECK_OK(postern__webhook_block_parse("127.0.0.0/8", &block, &scene.error),
			&scene.error);
	scene_init(&scene, url);
	scene.target.templated_host = true;
	scene.target.guard = (struct postern__webhook_guard){ true, &block, 1 };
	CHECK_INT(scene_send(&scene), POSTERN_RETRY);
	CHECK_INT(postern__webhook_socket_counts().opened, opened + 2);
	scene_finish(&scene);
	(void)close(fd);
}

/* A receiver on loopback that sends its first request back to itself. */
struct redirector {
	int fd;
	in_port_t port;
	unsigned answered;
};

static void *redirect(void *context) {
	struct redirector *self = context;
	char request[4096];
	char answer[200];
	int fd;
	while ((fd = accept(self->fd, NULL, NULL)) >= 0) {
		CHECK(read(fd, request, sizeof request) > 0);
		int len = snprintf(answer, sizeof answer,
				"HTTP/1.1 %s\r\nLocation: http://127.0.0.1:%u/again\r\n"
				"Content-Length: 0\r\nConnection: close\r\n\r\n",
				self->answered++ == 0 ? "302 Found" : "200 OK", self->port);
		CHECK_INT(write(fd, answer, (size_t)len), len);
		(void)close(fd);
	}
	return NULL;
}

static void redirects(void) {
	struct redirector receiver = { 0 };
	struct scene scene;
	pthread_t thread;
	char url[100];
	receiver.fd = listen_on_loopback(&receiver.port);
	CHECK(listen(receiver.fd, 8) == 0);
	CHECK(pthread_create(&thread, NULL, redirect, &receiver) == 0);
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%u/", receiver.port);
	scene_init(&scene, url);
	CHECK_INT(scene_send(&scene), POSTERN_RETRY);
	CHECK_CONTAINS(scene.request->verdict.outcome.reason, "answered 302");
	scene_finish(&scene);
	(void)shutdown(receiver.fd, SHUT_RDWR);
	(void)pthread_join(thread, NULL);
	CHECK_INT(receiver.answered, 1);
	(void)close(receiver.fd);
}

/* A block never permits what nobody may reach. */
static void blocks(void) {
	static const char *const invalid[] = { "", "10.0.0.0", "10.0.0.0/33",
		"10.0.0/8", "fd00::/129", "x/8", "10.0.0.0/-1", "10.0.0.0/8x",
		"10.0.0.0/", "10.0.0.0/0008" };
	struct postern__webhook_block block;
	struct postern_error error;
	for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
		CHECK_INT(postern__webhook_block_parse(invalid[i], &block, &error),
				POSTERN_E_INVALID);
	}
	CHECK_OK(postern__webhook_block_parse("0.0.0.0/0", &block, &error), &error);
	const struct postern__webhook_guard guard = { true, &block, 1 };
	CHECK_STR(postern__webhook_host_refuse(&guard, "10.0.0.1"), NULL);
	CHECK(postern__webhook_host_refuse(&guard, "169.254.169.254"));
	CHECK(postern__webhook_host_refuse(&guard, "[::1]"));
	CHECK_STR(postern__webhook_host_refuse(&guard, "a.name"), NULL);
	CHECK_OK(postern__webhook_block_parse("10.128.0.0/9", &block, &error),
			&error);
	CHECK(postern__webhook_host_refuse(&guard, "10.127.255.255"));
	CHECK_STR(postern__webhook_host_refuse(&guard, "10.128.0.0"), NULL);
	CHECK_STR(postern__webhook_host_refuse(&guard, "8.8.8.8"), NULL);
	CHECK_STR(postern__webhook_host_refuse(&guard, "[2600::1]"), NULL);
}

static void url_templates(void) {
	static const struct {
		const char *url;
		bool templated;
		const char *error; /* NULL: valid */
	} rows[] = {
		{ "https://example.com/a/{type}?b={id}&c={subject}", false, NULL },
		{ "HTTP://example.com", false, NULL },
		{ "https://user:word@example.com/", false, NULL },
		{ "https://{subject}.example.com/", true, NULL },
		{ "https://{subject}:8443/x", true, NULL },
		{ "https://{subject}.example.com/", false, "templated_host" },
		{ "https://example.com/", true, "templated_host is on" },
		{ "https://a.example:{id}/", true, "port" },
		{ "https://{id}@a.example/", true, "credentials" },
		{ "https://{id}:{id}@a.example/", true, "credentials" },
		{ "/hook", false, "http://" },
		{ "example.com/hook", false, "http://" },
		{ "file:///etc/passwd", false, "http://" },
		{ "gopher://example.com/", false, "http://" },
		{ "unix:/run/x", false, "http://" },
		{ "https://", false, "not a URL" },
		{ "https://a b/", false, "blank" },
		{ "https://a/\r\nX: y", false, "blank" },
		{ "https://a#@b/", false, "blank" },
		{ "https://a\\@b/", false, "blank" },
		{ "https://\xef\xbc\x91/", false, "ASCII" },
		{ "https://a:99999/", false, "not a URL" },
		{ "https://a/{body}", false, "'{body}'" },
		{ "https://a/{type", false, "'{type'" },
		{ "https://a/type}", false, "none of" },
		{ "https://a/{{type}}", false, "none of" },
		{ "https://a/../{type}", false, "'..'" },
		{ "https://169.254.169.254/", false, "a link-local address" },
	};
	struct postern_error error;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int r = postern__webhook_url_check(rows[i].url, rows[i].templated,
				&error);
		if (!rows[i].error) {
			CHECK_OK(r, &error);
		} else if (CHECK_INT(r, POSTERN_E_INVALID)) {
			CHECK_CONTAINS(error.text, rows[i].error);
		} else {
			(void)fprintf(stderr, "of '%s'\n", rows[i].url);
		}
	}
}

static void urls_of_messages(void) {
	static const struct {
		const char *url;
		const char *subject;
		const char *filled; /* NULL: there is none */
	} rows[] = {
		{ "https://a/{type}/{subject}", "x/../y?z#w", "x%2F..%2Fy%3Fz%23w" },
		{ "https://a/{type}/{subject}", "a\r\nb", "a%0D%0Ab" },
		{ "https://a/{type}/{subject}", "..", NULL },
		{ "https://a/{type}/.{subject}", ".", NULL },
		{ "https://a/{type}/{subject}", NULL, NULL },
		{ "https://a/{type}/{subject}", "", NULL },
		{ "https://a/{type}/?{subject}", "..", "?.." },
		{ "https://{subject}/{type}/x", "127.0.0.1", "x" },
		{ "https://{subject}/{type}/x", "b.example@c", NULL },
		{ "https://{subject}/{type}/x", "b:81", NULL },
		{ "https://{subject}/{type}/x", "b/c", NULL },
		{ "https://{subject}/{type}/x", "b%2e", NULL },
		{ "https://{subject}/{type}/x", "[::1]", NULL },
		{ "https://{subject}/{type}/x", "b\r\n", NULL },
		{ "https://{subject}/{type}/x", "\xef\xbc\x91", NULL },
	};
	struct postern__buf filled;
	struct postern_error error;
	postern__buf_init(&filled, WEBHOOK_URL_FILLED_LEN_MAX);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct postern_message message = {
			.size = sizeof message,
			.id = "1",
			.type = "t",
			.subject = rows[i].subject,
		};
		postern__buf_reset(&filled);
		int r = postern__webhook_url_fill(rows[i].url, &message, &filled,
				&error);
		CHECK_INT(r, rows[i].filled ? POSTERN_OK : POSTERN_E_INVALID);
		if (r == POSTERN_OK && rows[i].filled) {
			CHECK_CONTAINS(postern__buf_text(&filled), rows[i].filled);
			CHECK(!strpbrk(postern__buf_text(&filled), "\r\n {}"));
		}
	}
	postern__buf_finish(&filled);
}

static bool has_line(const struct scene *scene, const char *line) {
	for (const struct curl_slist *at = scene->request->headers; at;
			at = at->next) {
		if (strcasecmp(at->data, line) == 0) {
			return true;
		}
	}
	return false;
}

static void no_header_ends(void) {
	static const char evil[] = "a\r\nX-Evil: 1\r\n\r\n\x7f\xc3\xa9";
	static const struct postern_header headers[] = {
		{ "ce-evil", evil },
		{ "x-evil", evil },
		{ "x-\r\nevil: 1", "b" },
		{ "ce-\r\nx: 1", "b" },
		{ "x evil", "b" },
		{ "host", "other" },
		{ "Content-Length", "0" },
		{ "transfer-encoding", "chunked" },
		{ "authorization", "steal" },
		{ "webhook-signature", "v1,x" },
		{ "Postern-Fence", "9" },
		{ "traceparent", "x" },
		{ "ce-id", "2" },
		{ "CE-Type", "other" },
		{ "ce-specversion", "0.3" },
		{ "ce-datacontenttype", "text/html" },
		{ "ce-traceparent", "x" },
		{ "Forwarded", "for=127.0.0.1" },
		{ "X-Forwarded-For", "127.0.0.1" },
		{ "x-real-ip", "127.0.0.1" },
		{ "X-API-Key", "steal" },
		{ "x-gitlab-token", "steal" },
	};
	struct scene scene;
	scene_init(&scene, "http://127.0.0.1/");
	struct postern_message *message = &scene.content.message;
	message->id = evil;
	message->source = evil;
	message->type = evil;
	message->subject = evil;
	message->time = evil;
	message->content_type = evil;
	message->correlation_id = evil;
	message->traceparent =
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-\r\n";
	message->headers = headers;
	message->header_count = sizeof headers / sizeof headers[0];
	if (CHECK_OK(scene_make(&scene, true), &scene.error)) {
		size_t count = 0;
		for (const struct curl_slist *at = scene.request->headers; at;
				at = at->next) {
			CHECK(!strpbrk(at->data, "\r\n\x7f\xc3"));
			CHECK(strncasecmp(at->data, "x-evil: 1", 9) != 0);
			count++;
		}
		/* 7 attributes, 2 headers, 3 of the delivery, 3 of the signature, and
		   3 that libcurl shall not add. */
		CHECK_INT(count, 18);
		CHECK(has_line(&scene, "ce-id: "
							   "a%0D%0AX-Evil:%201%0D%0A%0D%0A%7F%C3%A9"));
		CHECK(has_line(&scene, "Content-Type:"));
		CHECK(has_line(&scene, "Postern-Fence: 1"));
	}
	scene_finish(&scene);
}

/* The values are those of OpenSSL's own command. */
static void signatures(void) {
	struct scene scene;
	struct postern__webhook_secret secret;
	scene_init(&scene, "http://127.0.0.1/");
	if (CHECK_OK(scene_make(&scene, true), &scene.error)) {
		CHECK(has_line(&scene, "webhook-id: 1"));
		CHECK(has_line(&scene, "webhook-timestamp: 1614265330"));
		CHECK(has_line(&scene, "webhook-signature: v1,"
							   "9my1lRYrus/dOeZt8AXecNpkSkDBdnu6aCSh9A7nfMM="));
	}
	scene_finish(&scene);
	CHECK_INT(postern__webhook_secret_parse("whsec_***", &secret, NULL),
			POSTERN_E_INVALID);
	CHECK_INT(postern__webhook_secret_parse("whsec_c2hvcnQ=", &secret, NULL),
			POSTERN_E_INVALID);
	CHECK_INT(postern__webhook_secret_parse("too short", &secret, NULL),
			POSTERN_E_INVALID);
	CHECK_OK(postern__webhook_secret_parse("twenty-four bytes, as is", &secret,
					 &scene.error),
			&scene.error);
	CHECK_INT(secret.len, 24);
}

static void retry_after(void) {
	static const int64_t now_ms = 784111777000; /* 1994-11-06 08:49:37 */
	static const struct {
		const char *value;
		int64_t ms;
	} rows[] = {
		{ "30", 30000 },
		{ " 30 ", 30000 },
		{ "0", 0 },
		{ "0030", 30000 },
		{ "86400", WEBHOOK_RETRY_AFTER_MS_MAX },
		{ "99999999999999999999999999", WEBHOOK_RETRY_AFTER_MS_MAX },
		{ "-1", 0 },
		{ "1.5", 0 },
		{ "30s", 0 },
		{ "", 0 },
		{ "soon", 0 },
		{ "Sun, 06 Nov 1994 08:50:07 GMT", 30000 },
		{ "Sunday, 06-Nov-94 08:50:07 GMT", 30000 },
		{ "Sun Nov  6 08:50:07 1994", 30000 },
		{ "Sun, 06 Nov 1994 08:49:07 GMT", 0 },
		{ "Sun, 06 Nov 2094 08:49:07 GMT", WEBHOOK_RETRY_AFTER_MS_MAX },
		{ "Sun, 99 Nov 1994 08:50:07 GMT", 0 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(postern__webhook_retry_after_ms(rows[i].value, now_ms),
				rows[i].ms);
	}
}

/* What the headers of an answer ask for. */
static const char *retry_after_of(const char *const *lines) {
	static struct postern__webhook_answer answer;
	answer = (struct postern__webhook_answer){ 0 };
	for (; *lines; lines++) {
		CHECK(postern__webhook_answer_header(&answer, *lines, strlen(*lines)));
	}
	return answer.retry_after;
}

static void last_answer(void) {
	static const char *const early[] = { "HTTP/1.1 103 Early Hints\r\n",
		"Retry-After: 10\r\n", "\r\n", "HTTP/1.1 503 Busy\r\n", "\r\n", NULL };
	static const char *const last[] = { "HTTP/1.1 103 Early Hints\r\n",
		"Retry-After: 10\r\n", "\r\n", "HTTP/1.1 503 Busy\r\n",
		"retry-after:20\r\n", "Retry-After: 30\r\n", "\r\n", NULL };
	CHECK_STR(retry_after_of(early), "");
	CHECK_INT(postern__webhook_retry_after_ms(retry_after_of(last), 0), 20000);
}

/* The end of a transfer. */
static CURLcode ended_with;
static sem_t ended;

static void note_end(struct postern__webhook_transfer *transfer,
		CURLcode code) {
	(void)transfer;
	ended_with = code;
	CHECK(sem_post(&ended) == 0);
}

static CURLcode start_and_wait(struct scene *scene) {
	postern__webhook_engine_start(&scene->request->transfer);
	while (sem_wait(&ended) != 0) {
	}
	return ended_with;
}

static void aborted_early(void) {
	struct scene scenes[2];
	char url[100];
	in_port_t port;
	int fd = listen_on_loopback(&port);
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%u/", port);
	CHECK(sem_init(&ended, 0, 0) == 0);
	CHECK_OK(postern__webhook_engine_acquire(&scenes[0].error),
			&scenes[0].error);
	for (size_t i = 0; i < 2; i++) {
		scene_init(&scenes[i], url);
		CHECK_OK(scene_make(&scenes[i], false), &scenes[i].error);
		scenes[i].request->transfer.ended = note_end;
	}
	postern__webhook_engine_abort(&scenes[0].request->transfer);
	/* The engine has looked for what is aborted when this has ended. */
	CHECK_INT(start_and_wait(&scenes[1]), CURLE_COULDNT_CONNECT);
	CHECK_INT(start_and_wait(&scenes[0]), CURLE_ABORTED_BY_CALLBACK);
	scene_finish(&scenes[0]);
	scene_finish(&scenes[1]);
	postern__webhook_engine_release();
	CHECK(sem_destroy(&ended) == 0);
	(void)close(fd);
}

static void shown(void) {
	char text[40];
	postern__webhook_url_shown("https://u:p@ss@a.example:81/k?t=1", text,
			sizeof text);
	CHECK_STR(text, "https://a.example:81");
	postern__webhook_url_shown("https://a.example?token=x@y", text,
			sizeof text);
	CHECK_STR(text, "https://a.example");
}

static const struct tap_case cases[] = {
	{ "no message opens a socket to a forbidden address, however it is written",
			forbidden_hosts },
	{ "no configuration opens a socket to a link-local address",
			literal_hosts },
	{ "a private address is reached if the configuration names it",
			allowed_hosts },
	{ "a redirect is not followed", redirects },
	{ "a block permits private addresses and no others", blocks },
	{ "a URL that cannot be used is refused, with the reason", url_templates },
	{ "a value of a message stays in its place in the URL", urls_of_messages },
	{ "nothing in a message ends a header or begins one", no_header_ends },
	{ "what is signed is id, time and body", signatures },
	{ "Retry-After is seconds or a date, and at most a day", retry_after },
	{ "Retry-After is that of the last answer, given first", last_answer },
	{ "a request that is aborted before it begins is not sent", aborted_early },
	{ "what is shown of a URL has no secret", shown },
};

TAP_MAIN(cases)
