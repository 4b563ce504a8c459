/* SPDX-License-Identifier: MIT */

/*
 * The rows of the kinds `webhook` and `publish: {http: …}`, which are the same
 * thing under two names: what one calls a webhook, others call an outbox.
 */

#include <postern/sys/option.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/file.h"
#include "webhook/request.h"
#include "webhook/webhook.h"

#define TIMEOUT_MS ((int64_t)30 * 1000)
#define ATTEMPTS 10
#define CONCURRENCY 64

#define MINUTE_MS ((int64_t)60 * 1000)
#define HOUR_MS (60 * MINUTE_MS)

/* As Standard Webhooks recommends. */
static const int64_t backoff_ms[] = { 5000, 5 * MINUTE_MS, 30 * MINUTE_MS,
	2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS,
	24 * HOUR_MS };

static int check_header(const char *line, struct postern_error *error) {
	size_t len = strcspn(line, ":");
	bool ok = line[len] == ':' &&
			  line[len + 1 + strspn(line + len + 1, " ")] != '\0';
	for (const char *at = line; ok && *at; at++) {
		ok = *at >= ' ' && *at <= '~';
	}
	/* The value may be a secret. */
	if (!ok || len > POSTERN_HEADER_NAME_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a header in 'headers' is not \"Name: value\" in ASCII");
	}
	if (!postern__webhook_header_name_ok(line, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the header '%.*s' in 'headers' is not valid, or is set by "
				"Postern",
				(int)len, line);
	}
	return POSTERN_OK;
}

static int check_secrets(const struct postern__webhook_sending *settings,
		struct postern_error *error) {
	struct postern__webhook_secret secret;
	size_t count = settings->secret_file_count +
				   (settings->secret_file ? 1 : 0) + (settings->secret ? 1 : 0);
	if (count > WEBHOOK_SECRET_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "over %d secrets",
				WEBHOOK_SECRET_COUNT_MAX);
	}
	int r = settings->secret ? postern__webhook_secret_parse(settings->secret,
									   &secret, error)
							 : POSTERN_OK;
	explicit_bzero(&secret, sizeof secret);
	return r;
}

static int webhook_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct postern__webhook_sending *settings = setup->settings;
	struct postern__webhook_block block;
	if (!settings || !settings->url) {
		return postern__fail(error, POSTERN_E_INVALID, "'%s' needs a url",
				setup->kind->name);
	}
	int r = postern__webhook_url_check(settings->url, settings->templated_host,
			error);
	for (size_t i = 0; !r && i < settings->header_count; i++) {
		r = check_header(settings->headers[i], error);
	}
	for (size_t i = 0; !r && i < settings->allow_private_count; i++) {
		r = postern__webhook_block_parse(settings->allow_private[i], &block,
				error);
	}
	if (!r && settings->allow_private_count > 0 && !settings->templated_host) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"allow_private needs templated_host: true; a host that is "
				"written in the URL may be private");
	}
	if (!r && !settings->client_cert_file != !settings->client_key_file) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'client_cert_file' and 'client_key_file' need each other");
	}
	return r ? r : check_secrets(settings, error);
}

static int check_secret_file(const char *path, struct postern_error *error) {
	struct postern__webhook_secret secret;
	struct postern__arena arena = { 0 };
	struct postern_error why;
	char *text;
	int r = postern__secret_read(path, &arena, &text, &why);
	if (!r) {
		r = postern__webhook_secret_parse(text, &secret, &why);
		explicit_bzero(text, strlen(text));
		explicit_bzero(&secret, sizeof secret);
	}
	postern__arena_finish(&arena);
	return r ? postern__fail(error, POSTERN_E_INVALID, "the secret in '%s': %s",
					   path, why.text)
			 : POSTERN_OK;
}

static int check_file(const char *path, const char *option,
		struct postern_error *error) {
	return path && access(path, R_OK) != 0
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "'%s', the %s, cannot be read", path, option)
				   : POSTERN_OK;
}

static int webhook_check(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct postern__webhook_sending *settings = setup->settings;
	int r = settings->secret_file
					? check_secret_file(settings->secret_file, error)
					: POSTERN_OK;
	for (size_t i = 0; !r && i < settings->secret_file_count; i++) {
		r = check_secret_file(settings->secret_files[i], error);
	}
	if (!r) {
		r = check_file(settings->ca_file, "ca_file", error);
	}
	if (!r) {
		r = check_file(settings->client_cert_file, "client_cert_file", error);
	}
	return r ? r
			 : check_file(settings->client_key_file, "client_key_file", error);
}

#define AT(member) offsetof(struct postern__webhook_sending, member)

static const struct postern_option options[] = {
	{
			.name = "url",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(url),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_SECRET,
			.help = "where to post; {type}, {subject} and {id} in it are "
					"replaced",
			.form = "URL",
			.check = postern__webhook_url_form_check,
	},
	{
			.name = "templated_host",
			.type = POSTERN_OPTION_SWITCH,
			.offset = AT(templated_host),
			.fallback = "off",
			.help = "the host, too, comes from the message",
	},
	{
			.name = "allow_private",
			.type = POSTERN_OPTION_TEXTS,
			.offset = AT(allow_private),
			.max = WEBHOOK_BLOCK_COUNT_MAX,
			.help = "blocks that a templated host may be in",
			.form = "[10.1.0.0/16]",
	},
	{
			.name = "secret",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(secret),
			.flags = POSTERN_OPTION_SECRET | POSTERN_OPTION_HIDDEN,
			.help = "signs each request; better in a file",
			.form = "whsec_TEXT",
	},
	{
			.name = "secret_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(secret_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "the file of a secret that signs each request",
			.form = "FILE",
	},
	{
			.name = "secret_files",
			.type = POSTERN_OPTION_TEXTS,
			.offset = AT(secret_files),
			.flags = POSTERN_OPTION_PATH,
			.max = WEBHOOK_SECRET_COUNT_MAX,
			.help = "several, while one replaces another",
			.form = "[new, old]",
	},
	{
			.name = "headers",
			.type = POSTERN_OPTION_TEXTS,
			.offset = AT(headers),
			.flags = POSTERN_OPTION_SECRET,
			.max = WEBHOOK_HEADER_COUNT_MAX,
			.help = "headers to add",
			.form = "[\"Name: value\"]",
	},
	{
			.name = "connect_timeout",
			.type = POSTERN_OPTION_DURATION,
			.offset = AT(connect_timeout_ms),
			.min = 1,
			.max = 600000,
			.fallback = "10s",
			.help = "how long connecting may take",
	},
	{
			.name = "ca_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(ca_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "https: the certificates that are trusted",
			.form = "FILE",
	},
	{
			.name = "client_cert_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(client_cert_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "https: the certificate of this server",
			.form = "FILE",
	},
	{
			.name = "client_key_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(client_key_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "https: its key",
			.form = "FILE",
	},
};

#define KIND(name_, help_)                                               \
	{                                                                    \
		.size = sizeof(struct postern_handler_kind), .name = (name_),    \
		.help = (help_), .options = options,                             \
		.option_count = sizeof options / sizeof options[0],              \
		.settings_size = sizeof(struct postern__webhook_sending),        \
		.asynchronous = true, .timeout_ms = TIMEOUT_MS,                  \
		.max_attempts = ATTEMPTS, .concurrency = CONCURRENCY,            \
		.backoff_ms = backoff_ms,                                        \
		.backoff_count = sizeof backoff_ms / sizeof backoff_ms[0],       \
		.validate = webhook_validate, .create = postern__webhook_create, \
		.check = webhook_check,                                          \
	}

const struct postern_handler_kind postern__webhook_kind =
		KIND(WEBHOOK_KIND, "a receiver of webhooks");
const struct postern_handler_kind postern__webhook_publish_kind =
		KIND(WEBHOOK_PUBLISH_KIND, "a server that takes CloudEvents over HTTP");

int postern__webhook_register(struct postern_error *error) {
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static bool registered; /* with the mutex */
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&mutex);
	if (!registered) {
		r = postern_handler_kind_register(&postern__webhook_kind, error);
		if (!r) {
			r = postern_handler_kind_register(&postern__webhook_publish_kind,
					error);
		}
	}
	registered = registered || !r;
	(void)pthread_mutex_unlock(&mutex);
	return r;
}
