/* SPDX-License-Identifier: MIT */
/*
 * The options of a source `webhook`. What does not apply to the chosen scheme
 * is refused, because whoever writes it believes that it protects.
 */

#include "server/webhook_settings.h"

#include <assert.h>
#include <postern/error.h>
#include <postern/sys/option.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/utf8.h"

#define NAME_LEN_MAX 64
#define SOURCE_LEN_MAX POSTERN_ATTRIBUTE_LEN_MAX

/* What is written in a configuration. */
struct settings {
	const char *name;
	int verify;
	const char *secret;
	const char *secret_file;
	const char *const *secret_files;
	size_t secret_file_count;
	int secret_encoding;
	int64_t tolerance_ms;
	const char *header;
	int algorithm;
	int encoding;
	const char *prefix;
	const char *id;
	const char *type;
	const char *subject;
	const char *source;
};

static int fail_of(const struct settings *settings, const char *why,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_INVALID, "webhook '%s': %s",
			settings->name, why);
}

static int add_secret(struct postern__webhook_settings *self,
		const struct settings *settings, const char *text,
		struct postern_error *error) {
	struct postern__verifier *verifier = &self->verifier;
	assert(verifier->secret_count < POSTERN__SECRET_COUNT_MAX);
	return postern__secret_decode(verifier->scheme, settings->secret_encoding,
			text, self->arena, &verifier->secrets[verifier->secret_count++],
			error);
}

static int add_secret_file(struct postern__webhook_settings *self,
		const struct settings *settings, const char *path,
		struct postern_error *error) {
	char *text;
	struct postern_error why;
	int r = postern__secret_read(path, self->arena, &text, &why);
	if (r) {
		/* A missing file is an error of the configuration. */
		return postern__fail(error,
				r == POSTERN_E_NOTFOUND ? POSTERN_E_INVALID : r,
				"webhook '%s': %s", settings->name, why.text);
	}
	r = add_secret(self, settings, text, &why);
	return r ? postern__fail(error, r, "webhook '%s': '%s': %s", settings->name,
					   path, why.text)
			 : POSTERN_OK;
}

static int read_secrets(struct postern__webhook_settings *self,
		const struct settings *settings, struct postern_error *error) {
	int ways = (settings->secret != NULL) + (settings->secret_file != NULL) +
			   (settings->secret_file_count > 0);
	if (ways != 1) {
		return fail_of(settings,
				ways ? "'secret', 'secret_file' and 'secret_files' cannot be "
					   "combined"
					 : "a signature needs a secret; set 'secret_file'",
				error);
	}
	struct postern_error why;
	if (settings->secret) {
		int r = add_secret(self, settings, settings->secret, &why);
		return r ? postern__fail(error, r, "webhook '%s': secret: %s",
						   settings->name, why.text)
				 : POSTERN_OK;
	}
	if (settings->secret_file) {
		return add_secret_file(self, settings, settings->secret_file, error);
	}
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < settings->secret_file_count; i++) {
		r = add_secret_file(self, settings, settings->secret_files[i], error);
	}
	return r;
}

/* Options that do not apply to what is verified are mistakes. */
static int check_applicable(const struct settings *settings,
		const struct postern__signature_scheme *scheme,
		struct postern_error *error) {
	bool secrets = settings->secret || settings->secret_file ||
				   settings->secret_file_count > 0 ||
				   settings->secret_encoding != POSTERN__SECRET_BY_SCHEME;
	bool own = settings->header || settings->prefix ||
			   settings->algorithm >= 0 || settings->encoding >= 0;
	if (!scheme && secrets) {
		return fail_of(settings,
				"with verify: none no secret is used; remove it, or choose "
				"what to verify",
				error);
	}
	if (!(scheme && scheme->has_options) && own) {
		return fail_of(settings,
				"'header', 'algorithm', 'encoding' and 'prefix' are for "
				"verify: hmac",
				error);
	}
	if (!(scheme && scheme->has_time) && settings->tolerance_ms >= 0) {
		return fail_of(settings,
				"'tolerance' is for signatures with a time: verify: standard, "
				"svix or stripe",
				error);
	}
	if (scheme && scheme->has_options && !settings->header) {
		return fail_of(settings,
				"verify: hmac needs 'header', the header that has the "
				"signature",
				error);
	}
	return POSTERN_OK;
}

/* The rules that make sense of a request: a header, or a value of the body. */
static int read_rule(struct postern__webhook_settings *self,
		const struct settings *settings, const char *what, const char *written,
		const char *fallback, struct postern__webhook_rule *out,
		struct postern_error *error) {
	const char *text = written ? written : fallback;
	struct postern_error why;
	if (!text) {
		return POSTERN_OK;
	}
	out->text = postern__arena_strdup(self->arena, text);
	if (!out->text) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__key_rule_parse(&out->parsed, text, &why);
	for (size_t i = 0; !r && i < out->parsed.part_count; i++) {
		enum postern__key_part_kind kind = out->parsed.parts[i].kind;
		if (kind != POSTERN__KEY_HEADER && kind != POSTERN__KEY_JSON) {
			r = postern__fail(&why, POSTERN_E_INVALID,
					"'%.80s' is not header:NAME or json:/POINTER", text);
		}
	}
	return r ? postern__fail(error, POSTERN_E_INVALID, "webhook '%s': %s: %s",
					   settings->name, what, why.text)
			 : POSTERN_OK;
}

static int read_rules(struct postern__webhook_settings *self,
		const struct settings *settings, struct postern_error *error) {
	const struct postern__signature_scheme *scheme = self->verifier.scheme;
	int r = read_rule(self, settings, "id", settings->id,
			scheme ? scheme->id : NULL, &self->id, error);
	r = r ? r
		  : read_rule(self, settings, "type", settings->type,
					scheme ? scheme->type : NULL, &self->type, error);
	return r ? r
			 : read_rule(self, settings, "subject", settings->subject, NULL,
					   &self->subject, error);
}

/* NULL stays NULL. */
static int copy_text(struct postern__webhook_settings *self, const char *text,
		const char **out, struct postern_error *error) {
	*out = text ? postern__arena_strdup(self->arena, text) : NULL;
	return text && !*out
				   ? postern__fail(error, POSTERN_E_NOMEM, "out of memory")
				   : POSTERN_OK;
}

int postern__webhook_settings_read(const void *written,
		struct postern__arena *arena, struct postern__webhook_settings *self,
		struct postern_error *error) {
	const struct settings *settings = written;
	struct postern__verifier *verifier = &self->verifier;
	*self = (struct postern__webhook_settings){ .arena = arena };
	verifier->scheme = postern__signature_scheme(settings->verify);
	verifier->tolerance_ms = settings->tolerance_ms;
	if (verifier->tolerance_ms < 0) {
		verifier->tolerance_ms = POSTERN__SIGNATURE_TOLERANCE_MS;
	}
	verifier->algorithm = settings->algorithm >= 0 ? settings->algorithm
												   : POSTERN__HMAC_SHA256;
	verifier->encoding = settings->encoding >= 0 ? settings->encoding
												 : POSTERN__SIGNATURE_HEX;
	int r = check_applicable(settings, verifier->scheme, error);
	r = r ? r : copy_text(self, settings->name, &self->name, error);
	r = r ? r : copy_text(self, settings->source, &self->source, error);
	r = r ? r : copy_text(self, settings->header, &verifier->header, error);
	r = r ? r : copy_text(self, settings->prefix, &verifier->prefix, error);
	r = r ? r : read_rules(self, settings, error);
	return !r && verifier->scheme ? read_secrets(self, settings, error) : r;
}

/* A name stands in a path as it is. */
static int check_name(const char *text, struct postern_error *error) {
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz"
							  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	return len == 0 || text[len] || len > NAME_LEN_MAX
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "'%.80s' is not a name of a webhook: it has 1 to "
							 "%d letters, digits, '.', '_' and '-'",
							 text, NAME_LEN_MAX)
				   : POSTERN_OK;
}

static int check_source(const char *text, struct postern_error *error) {
	size_t len = strlen(text);
	return len > SOURCE_LEN_MAX || !postern__utf8_valid(text, len) ||
						   postern__utf8_has_control(text, len)
				   ? postern__fail(error, POSTERN_E_INVALID,
							 "a source has at most %d bytes of UTF-8 without "
							 "control characters",
							 SOURCE_LEN_MAX)
				   : POSTERN_OK;
}

static int check_header(const char *text, struct postern_error *error) {
	struct postern__key_rule rule;
	char text_of_rule[POSTERN__KEY_RULE_LEN_MAX + 1];
	(void)snprintf(text_of_rule, sizeof text_of_rule, "header:%s", text);
	return postern__key_rule_parse(&rule, text_of_rule, error);
}

#define AT(member) offsetof(struct settings, member)

const struct postern_option postern__webhook_options[] = {
	{
			.name = "name",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(name),
			.flags = POSTERN_OPTION_REQUIRED,
			.help = "the last part of its path: "
					"/v1/channels/CHANNEL/webhooks/NAME",
			.form = "NAME",
			.check = check_name,
	},
	{
			.name = "verify",
			.type = POSTERN_OPTION_CHOICE,
			.offset = AT(verify),
			.flags = POSTERN_OPTION_REQUIRED,
			.choices = POSTERN__SIGNATURE_SCHEME_NAMES,
			.help = "how the sender signs",
	},
	{
			.name = "secret",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(secret),
			.flags = POSTERN_OPTION_SECRET | POSTERN_OPTION_HIDDEN,
			.help = "the secret that the sender signs with",
			.form = "TEXT",
	},
	{
			.name = "secret_file",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(secret_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "a file whose only line is the secret",
			.form = "FILE",
	},
	{
			.name = "secret_files",
			.type = POSTERN_OPTION_TEXTS,
			.offset = AT(secret_files),
			.flags = POSTERN_OPTION_PATH,
			.min = 1,
			.max = POSTERN__SECRET_COUNT_MAX,
			.help = "several, any of which is valid: while one replaces "
					"another",
			.form = "[FILE, ...]",
	},
	{
			.name = "secret_encoding",
			.type = POSTERN_OPTION_CHOICE,
			.offset = AT(secret_encoding),
			.flags = POSTERN_OPTION_AUTO,
			.choices = "raw|hex|base64",
			.fallback = "default",
			.help = "what the characters of a secret stand for",
	},
	{
			.name = "tolerance",
			.type = POSTERN_OPTION_DURATION,
			.offset = AT(tolerance_ms),
			.flags = POSTERN_OPTION_AUTO,
			.min = 1000,
			.max = (uint64_t)24 * 60 * 60 * 1000,
			.fallback = "default",
			.help = "the longest difference between the time of a signature "
					"and now",
	},
	{
			.name = "header",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(header),
			.help = "verify: hmac: the header that has the signature",
			.form = "NAME",
			.check = check_header,
	},
	{
			.name = "algorithm",
			.type = POSTERN_OPTION_CHOICE,
			.offset = AT(algorithm),
			.flags = POSTERN_OPTION_AUTO,
			.choices = "sha256|sha1|sha512",
			.fallback = "default",
			.help = "verify: hmac: of the signature",
	},
	{
			.name = "encoding",
			.type = POSTERN_OPTION_CHOICE,
			.offset = AT(encoding),
			.flags = POSTERN_OPTION_AUTO,
			.choices = "hex|base64",
			.fallback = "default",
			.help = "verify: hmac: of the signature in its header",
	},
	{
			.name = "prefix",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(prefix),
			.help = "verify: hmac: before the signature in its header",
			.form = "TEXT",
	},
	{
			.name = "id",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(id),
			.help = "where the id of a message is: header:NAME or "
					"json:/POINTER",
			.form = "RULE",
	},
	{
			.name = "type",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(type),
			.help = "where its type is",
			.form = "RULE",
	},
	{
			.name = "subject",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(subject),
			.help = "where its subject is",
			.form = "RULE",
	},
	{
			.name = "source",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(source),
			.help = "the source of its messages; the channel's name if unset",
			.form = "TEXT",
			.check = check_source,
	},
};

const size_t postern__webhook_option_count =
		sizeof postern__webhook_options / sizeof postern__webhook_options[0];
const size_t postern__webhook_settings_size = sizeof(struct settings);
