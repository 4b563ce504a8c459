/* SPDX-License-Identifier: MIT */
/*
 * The schemes in which senders of webhooks sign.
 *
 * A request is refused if a header that takes part occurs twice: which one
 * another program on the way has looked at is not known. Timestamps are decimal
 * digits and nothing else, because their text is signed. The time is compared
 * before the signature is computed, so an old request costs nothing; the reason
 * goes to the log of the receiver only.
 */

#include "server/signature.h"

#include <postern/error.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/fail.h"

/* Digits of a time in seconds: enough for 30,000 years. */
#define TIME_LEN_MAX 12

static const size_t digest_lens[] = {
	[POSTERN__HMAC_SHA256] = 32,
	[POSTERN__HMAC_SHA1] = 20,
	[POSTERN__HMAC_SHA512] = 64,
};

/* The value of a header that must be there once. */
static int find_header(const struct postern_header *headers, size_t count,
		const char *name, const char **out, struct postern_error *error) {
	const char *value = NULL;
	for (size_t i = 0; i < count; i++) {
		if (strcasecmp(headers[i].name, name) != 0) {
			continue;
		}
		if (value) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the header '%s' is there twice", name);
		}
		value = headers[i].value;
	}
	if (!value) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the header '%s' is missing", name);
	}
	*out = value;
	return POSTERN_OK;
}

static int read_time(const char *text, size_t len, int64_t *out,
		struct postern_error *error) {
	int64_t time_s = 0;
	bool good = len > 0 && len <= TIME_LEN_MAX;
	for (size_t i = 0; good && i < len; i++) {
		good = text[i] >= '0' && text[i] <= '9';
		time_s = time_s * 10 + (text[i] - '0');
	}
	if (!good) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the timestamp is not a number of seconds");
	}
	*out = time_s;
	return POSTERN_OK;
}

static int hex_digit(char c) {
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool hex_decode(const char *text, size_t len, unsigned char *out) {
	bool good = len % 2 == 0;
	for (size_t i = 0; good && i < len; i += 2) {
		int high = hex_digit(text[i]);
		int low = hex_digit(text[i + 1]);
		good = high >= 0 && low >= 0;
		out[i / 2] = (unsigned char)(good ? high * 16 + low : 0);
	}
	return good;
}

/* Whether a text is a signature of the right length. */
static bool decode_signature(const char *text, size_t len, int encoding,
		size_t digest_len, unsigned char out[POSTERN__HMAC_LEN_MAX]) {
	unsigned char bytes[POSTERN__BASE64_DECODED_MAX(POSTERN__HMAC_LEN_MAX * 2)];
	size_t decoded = len / 2;
	if (len > (size_t)POSTERN__HMAC_LEN_MAX * 2) {
		return false;
	}
	bool good = encoding == POSTERN__SIGNATURE_HEX
						? hex_decode(text, len, bytes)
						: postern__base64_decode(text, len, bytes, &decoded);
	if (!good || decoded != digest_len) {
		return false;
	}
	memcpy(out, bytes, digest_len);
	return true;
}

/* Keep a signature if it is well-formed. */
static int add_signature(struct postern__signed *out, const char *text,
		size_t len, int encoding, struct postern_error *error) {
	unsigned char bytes[POSTERN__HMAC_LEN_MAX];
	if (!decode_signature(text, len, encoding, out->len, bytes)) {
		return POSTERN_OK;
	}
	if (out->count == POSTERN__SIGNATURE_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"there are more than %d signatures",
				POSTERN__SIGNATURE_COUNT_MAX);
	}
	memcpy(out->signatures[out->count++], bytes, out->len);
	return POSTERN_OK;
}

static void add_piece(struct postern__signed *out, const char *text,
		size_t len) {
	out->pieces[out->piece_count++] =
			(struct postern__hmac_piece){ .bytes = text, .len = len };
}

/* The part of a list up to a separator; *text moves behind it. */
static const char *next_part(const char **text, char separator,
		size_t *len_out) {
	const char *part = *text;
	const char *end = strchr(part, separator);
	*len_out = end ? (size_t)(end - part) : strlen(part);
	*text = end ? end + 1 : part + *len_out;
	return part;
}

/* webhook-signature: v1,BASE64 v1,BASE64 …, of "ID.TIMESTAMP.BODY". */
static int read_standard(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t count,
		struct postern__signed *out, struct postern_error *error) {
	const struct postern__signature_scheme *scheme = verifier->scheme;
	const char *id;
	const char *time;
	const char *list;
	int r = find_header(headers, count, scheme->id_header, &id, error);
	r = r ? r : find_header(headers, count, scheme->time_header, &time, error);
	r = r ? r
		  : find_header(headers, count, scheme->signature_header, &list, error);
	r = r ? r : read_time(time, strlen(time), &out->time_s, error);
	while (!r && *list) {
		size_t len;
		const char *part = next_part(&list, ' ', &len);
		if (len > 3 && memcmp(part, "v1,", 3) == 0) {
			r = add_signature(out, part + 3, len - 3, POSTERN__SIGNATURE_BASE64,
					error);
		}
	}
	if (!r) {
		add_piece(out, id, strlen(id));
		add_piece(out, ".", 1);
		add_piece(out, time, strlen(time));
		add_piece(out, ".", 1);
	}
	return r;
}

/* Stripe-Signature: t=TIMESTAMP,v1=HEX,v1=HEX,v0=…, of "TIMESTAMP.BODY". */
static int read_stripe(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t count,
		struct postern__signed *out, struct postern_error *error) {
	const char *list;
	int r = find_header(headers, count, verifier->scheme->signature_header,
			&list, error);
	while (!r && *list) {
		size_t len;
		const char *part = next_part(&list, ',', &len);
		if (len > 3 && memcmp(part, "v1=", 3) == 0) {
			r = add_signature(out, part + 3, len - 3, POSTERN__SIGNATURE_HEX,
					error);
		} else if (len >= 2 && memcmp(part, "t=", 2) == 0) {
			r = out->piece_count > 0
						? postern__fail(error, POSTERN_E_INVALID,
								  "the timestamp is there twice")
						: read_time(part + 2, len - 2, &out->time_s, error);
			add_piece(out, part + 2, len - 2);
		}
	}
	if (!r && out->piece_count == 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the header '%s' has no timestamp",
				verifier->scheme->signature_header);
	}
	if (!r) {
		add_piece(out, ".", 1);
	}
	return r;
}

/* One signature of the body alone, after a prefix. */
static int read_plain(const struct postern_header *headers, size_t count,
		const char *name, const char *prefix, int encoding,
		struct postern__signed *out, struct postern_error *error) {
	const char *text;
	size_t prefix_len = strlen(prefix);
	int r = find_header(headers, count, name, &text, error);
	if (r) {
		return r;
	}
	if (strncmp(text, prefix, prefix_len) != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the header '%s' does not begin with '%s'", name, prefix);
	}
	return add_signature(out, text + prefix_len, strlen(text) - prefix_len,
			encoding, error);
}

static int read_github(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t count,
		struct postern__signed *out, struct postern_error *error) {
	(void)verifier;
	return read_plain(headers, count, "X-Hub-Signature-256",
			"sha256=", POSTERN__SIGNATURE_HEX, out, error);
}

static int read_hmac(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t count,
		struct postern__signed *out, struct postern_error *error) {
	return read_plain(headers, count, verifier->header,
			verifier->prefix ? verifier->prefix : "", verifier->encoding, out,
			error);
}

/* In the order of POSTERN__SIGNATURE_SCHEME_NAMES. */
static const struct postern__signature_scheme schemes[] = {
	{
			.name = "standard",
			.has_time = true,
			.signature_header = "webhook-signature",
			.id_header = "webhook-id",
			.time_header = "webhook-timestamp",
			.secret_mark = "whsec_",
			.secret_encoding = POSTERN__SECRET_BASE64,
			.id = "header:webhook-id",
			.type = "json:/type",
			.read = read_standard,
	},
	{
			/* A secret of Stripe has the same mark, which is part of it. */
			.name = "stripe",
			.has_time = true,
			.signature_header = "Stripe-Signature",
			.secret_encoding = POSTERN__SECRET_RAW,
			.id = "json:/id",
			.type = "json:/type",
			.read = read_stripe,
	},
	{
			.name = "github",
			.signature_header = "X-Hub-Signature-256",
			.secret_encoding = POSTERN__SECRET_RAW,
			.id = "header:X-GitHub-Delivery",
			.type = "header:X-GitHub-Event",
			.read = read_github,
	},
	{
			.name = "hmac",
			.has_options = true,
			.secret_encoding = POSTERN__SECRET_RAW,
			.read = read_hmac,
	},
	{
			/* Standard Webhooks, before that was its name. */
			.name = "svix",
			.has_time = true,
			.signature_header = "svix-signature",
			.id_header = "svix-id",
			.time_header = "svix-timestamp",
			.secret_mark = "whsec_",
			.secret_encoding = POSTERN__SECRET_BASE64,
			.id = "header:svix-id",
			.type = "json:/type",
			.read = read_standard,
	},
};

const struct postern__signature_scheme *postern__signature_scheme(int index) {
	size_t count = sizeof schemes / sizeof schemes[0];
	return index > 0 && (size_t)index <= count ? &schemes[index - 1] : NULL;
}

int postern__secret_decode(const struct postern__signature_scheme *scheme,
		int encoding, const char *text, struct postern__arena *arena,
		struct postern__secret *out, struct postern_error *error) {
	bool by_scheme = encoding == POSTERN__SECRET_BY_SCHEME;
	size_t mark_len = scheme->secret_mark ? strlen(scheme->secret_mark) : 0;
	if (by_scheme) {
		encoding = scheme->secret_encoding;
		if (mark_len && strncmp(text, scheme->secret_mark, mark_len) == 0) {
			text += mark_len;
		}
	}
	size_t len = strlen(text);
	if (len > POSTERN__SECRET_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the secret is longer than %d characters",
				POSTERN__SECRET_LEN_MAX);
	}
	unsigned char *bytes = postern__arena_copy(arena, text, len);
	if (!bytes) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	bool good = true;
	if (encoding == POSTERN__SECRET_HEX) {
		good = hex_decode(text, len, bytes);
		len /= 2;
	} else if (encoding == POSTERN__SECRET_BASE64) {
		good = postern__base64_decode(text, len, bytes, &len);
	}
	if (!good) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the secret is not %s; if its characters are the secret, set "
				"secret_encoding: raw",
				encoding == POSTERN__SECRET_HEX ? "hex" : "base64");
	}
	if (len == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "the secret is empty");
	}
	*out = (struct postern__secret){ .bytes = bytes, .len = len };
	return POSTERN_OK;
}

static int check_time(const struct postern__verifier *verifier,
		const struct postern__signed *given, int64_t now_ms,
		struct postern_error *error) {
	if (!verifier->scheme->has_time) {
		return POSTERN_OK;
	}
	int64_t age_ms = now_ms - given->time_s * 1000;
	if (age_ms > verifier->tolerance_ms || -age_ms > verifier->tolerance_ms) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the timestamp is %lld s %s; the tolerance is %lld s",
				(long long)(age_ms > 0 ? age_ms : -age_ms) / 1000,
				age_ms > 0 ? "old" : "in the future",
				(long long)verifier->tolerance_ms / 1000);
	}
	return POSTERN_OK;
}

/* Compare all of them, whichever matches. */
static bool has_signature(const struct postern__signed *given,
		const unsigned char *digest) {
	bool found = false;
	for (size_t i = 0; i < given->count; i++) {
		found |= postern__hmac_equals(given->signatures[i], digest, given->len);
	}
	return found;
}

int postern__signature_verify(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t header_count,
		const void *body, size_t body_len, int64_t now_ms,
		struct postern_error *error) {
	unsigned char digest[POSTERN__HMAC_LEN_MAX];
	int algorithm = verifier->scheme->has_options ? verifier->algorithm
												  : POSTERN__HMAC_SHA256;
	struct postern__signed given = { .time_s = -1,
		.len = digest_lens[algorithm] };
	int r = verifier->scheme->read(verifier, headers, header_count, &given,
			error);
	r = r ? r : check_time(verifier, &given, now_ms, error);
	if (!r && given.count == 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"there is no well-formed signature");
	}
	if (r) {
		return r;
	}
	add_piece(&given, body_len ? body : "", body_len);
	bool found = false;
	for (size_t i = 0; i < verifier->secret_count; i++) {
		const struct postern__secret *secret = &verifier->secrets[i];
		size_t len =
				postern__hmac_sign((enum postern__hmac)algorithm, secret->bytes,
						secret->len, given.pieces, given.piece_count, digest);
		if (len != given.len) {
			return postern__fail(error, POSTERN_E_NOMEM,
					"the signature cannot be computed: out of memory");
		}
		found |= has_signature(&given, digest);
	}
	return found ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_INVALID,
						   "no signature matches");
}
