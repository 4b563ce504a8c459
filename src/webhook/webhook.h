/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_WEBHOOK_WEBHOOK_H
#define POSTERN_WEBHOOK_WEBHOOK_H

/*
 * Shared by the files of this room: kind.c has the rows and their options,
 * handler.c makes and ends runs, url.c makes the URL of a message, request.c
 * its headers, sign.c the signature, with hmac.c, which verified webhooks use,
 * too; address.c says which addresses a request may reach, answer.c what an
 * answer means, engine.c has the threads.
 */

#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/handler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern__buf;
struct sockaddr;

/* In a configuration `webhook` and `publish: {http: …}`. */
#define WEBHOOK_KIND "webhook"
#define WEBHOOK_PUBLISH_KIND "publish_http"

#define WEBHOOK_URL_LEN_MAX 2048
/* With the values of the message in it. */
#define WEBHOOK_URL_FILLED_LEN_MAX 8192
#define WEBHOOK_SECRET_COUNT_MAX 8
#define WEBHOOK_HEADER_COUNT_MAX 32
#define WEBHOOK_BLOCK_COUNT_MAX 32
/* Of an answer. Its body is read so far, so that the connection can be used
   again, and the beginning is kept. */
#define WEBHOOK_ANSWER_HEADERS_LEN_MAX ((size_t)64 * 1024)
#define WEBHOOK_ANSWER_BODY_LEN_MAX ((size_t)64 * 1024)
#define WEBHOOK_EXCERPT_LEN_MAX 4096
/* A receiver that asks for more is asked again after a day. */
#define WEBHOOK_RETRY_AFTER_MS_MAX ((int64_t)24 * 3600 * 1000)

/* What the rows of the options fill. */
struct postern__webhook_sending {
	const char *url;
	bool templated_host;
	const char *const *allow_private;
	size_t allow_private_count;
	const char *secret;
	const char *secret_file;
	const char *const *secret_files;
	size_t secret_file_count;
	const char *const *headers;
	size_t header_count;
	int64_t connect_timeout_ms;
	const char *ca_file;
	const char *client_cert_file;
	const char *client_key_file;
};

/* kind.c */
extern const struct postern_handler_kind postern__webhook_kind;
extern const struct postern_handler_kind postern__webhook_publish_kind;
/* Register both, once. */
int postern__webhook_register(struct postern_error *error);

/* handler.c */
int postern__webhook_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error);

/* address.c */
/* A block of addresses: "10.0.0.0/8", "fd00::/8". */
struct postern__webhook_block {
	int family; /* AF_INET, AF_INET6 */
	unsigned char address[16];
	unsigned bits;
};

int postern__webhook_block_parse(const char *text,
		struct postern__webhook_block *out, struct postern_error *error);

struct postern__webhook_guard {
	/* The host comes from the message: only public addresses, and those of the
	   blocks. Else any but link-local ones and those of a cloud's metadata. */
	bool templated;
	const struct postern__webhook_block *blocks;
	size_t block_count;
};

/* Why no request may be sent to this address: "a private address"; NULL: it
   may. */
const char *
postern__webhook_address_refuse(const struct postern__webhook_guard *guard,
		const struct sockaddr *address);
/* The same for the text of an address, in any form that a resolver takes for
   one; NULL also if it is a name. */
const char *
postern__webhook_host_refuse(const struct postern__webhook_guard *guard,
		const char *host);

/* url.c */
/* Whether a URL can be used, with {type}, {subject} and {id} in it. */
int postern__webhook_url_check(const char *url, bool templated_host,
		struct postern_error *error);
/* For the table of options: what does not depend on other options. */
int postern__webhook_url_form_check(const char *url,
		struct postern_error *error);
/* The URL of a message. POSTERN_E_INVALID: the message has no value for it, or
   one that cannot be used; the text says which. */
int postern__webhook_url_fill(const char *url,
		const struct postern_message *message, struct postern__buf *out,
		struct postern_error *error);
/* Scheme, host and port, which are fit to be shown: the rest may have
   secrets. */
void postern__webhook_url_shown(const char *url, char *out, size_t size);

/* sign.c */
/* The bytes of a secret, as Standard Webhooks wants them. */
#define WEBHOOK_SECRET_LEN_MIN 24
#define WEBHOOK_SECRET_LEN_MAX 64

struct postern__webhook_secret {
	unsigned char bytes[WEBHOOK_SECRET_LEN_MAX];
	size_t len;
};

/* "whsec_" and base64, or the bytes themselves. */
int postern__webhook_secret_parse(const char *text,
		struct postern__webhook_secret *out, struct postern_error *error);
/* Append "v1,SIGNATURE", one for each secret, separated by a space. */
void postern__webhook_sign(const struct postern__webhook_secret *secrets,
		size_t count, const char *id, int64_t time_s, const void *body,
		size_t body_len, struct postern__buf *out);

/* answer.c */
/* What an answer is kept of while it arrives. */
struct postern__webhook_answer {
	size_t headers_len;
	size_t body_len;
	bool cut; /* the rest of the body was not read */
	char retry_after[128];
	char excerpt[WEBHOOK_EXCERPT_LEN_MAX];
	size_t excerpt_len;
};

/* False: too much was received. */
bool postern__webhook_answer_header(struct postern__webhook_answer *answer,
		const char *line, size_t len);
bool postern__webhook_answer_body(struct postern__webhook_answer *answer,
		const char *bytes, size_t len);
/* How long a Retry-After asks to wait, at most WEBHOOK_RETRY_AFTER_MS_MAX; 0:
   it does not, or is not valid. */
int64_t postern__webhook_retry_after_ms(const char *value, int64_t now_ms);

/* What follows from an answer. */
struct postern__webhook_verdict {
	struct postern_outcome outcome;
	/* The handler is held before the run is finished: for so long, 0: not. */
	int64_t hold_ms;
	bool pauses; /* until an operator resumes it */
};

void postern__webhook_answer_judge(const struct postern__webhook_answer *answer,
		long status, int64_t now_ms, struct postern__webhook_verdict *out);

#endif
