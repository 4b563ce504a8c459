/* SPDX-License-Identifier: MIT */

/*
 * Signatures of webhooks. The input is the number of a scheme, up to three
 * headers, a line each, and the body; '@' in the header of the signature
 * becomes the valid one. A second reading of the headers, which splits them
 * naively and compares texts, must come to the same result.
 */

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <postern/error.h>
#include <strings.h>

#include "base/base64.h"
#include "fuzz.h"
#include "server/signature.h"

#define NOW_S 1700000000
#define DIGEST_LEN 32

static const char key[] = "fuzz";

/* The signature of a text, in hex or base64. */
static void sign(const char *text, size_t len, bool hex, char out[80]) {
	unsigned char digest[DIGEST_LEN];
	unsigned digest_len = 0;
	MUST(HMAC(EVP_sha256(), key, sizeof key - 1, (const unsigned char *)text,
				 len, digest, &digest_len) &&
			digest_len == DIGEST_LEN);
	memset(out, 0, 80);
	if (!hex) {
		postern__base64_encode(digest, DIGEST_LEN, out);
		return;
	}
	for (size_t i = 0; i < DIGEST_LEN; i++) {
		(void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
	}
}

/* The text with the signature in the places of '@'; the caller frees it. */
static char *fill(const char *text, const char *signature) {
	char *out = calloc(strlen(text) * 80 + 1, 1);
	MUST(out);
	size_t len = 0;
	for (; *text; text++) {
		const char *piece = *text == '@' ? signature : NULL;
		size_t piece_len = piece ? strlen(piece) : 1;
		memcpy(out + len, piece ? piece : text, piece_len);
		len += piece_len;
	}
	return out;
}

/* "head.body", where head may be NULL: the caller frees it. */
static char *join(const char *first, const char *second, const char *body,
		size_t body_len, size_t *len_out) {
	size_t size = (first ? strlen(first) + 1 : 0) +
				  (second ? strlen(second) + 1 : 0) + body_len + 1;
	char *out = calloc(size, 1);
	MUST(out);
	int len = snprintf(out, size, "%s%s%s%s", first ? first : "",
			first ? "." : "", second ? second : "", second ? "." : "");
	memcpy(out + len, body, body_len);
	*len_out = (size_t)len + body_len;
	return out;
}

static bool is_now(const char *time) {
	size_t len = strlen(time);
	if (len == 0 || len > 12 || strspn(time, "0123456789") != len) {
		return false;
	}
	long long age = NOW_S - strtoll(time, NULL, 10);
	return age >= -300 && age <= 300;
}

/* Hex is compared in lower case. */
static bool has_item(const char *list, char separator, const char *prefix,
		const char *wanted, size_t *count_out) {
	bool found = false;
	size_t prefix_len = strlen(prefix);
	*count_out = 0;
	while (*list) {
		const char *end = strchr(list, separator);
		size_t len = end ? (size_t)(end - list) : strlen(list);
		if (len > prefix_len && memcmp(list, prefix, prefix_len) == 0) {
			(*count_out)++;
			found |= len - prefix_len == strlen(wanted) &&
					 (separator == ' ' ? memcmp(list + prefix_len, wanted,
												 strlen(wanted)) == 0
									   : strncasecmp(list + prefix_len, wanted,
												 strlen(wanted)) == 0);
		}
		list += len + (end != NULL);
	}
	return found;
}

/* The only time of a list of Stripe; NULL: none, or several. The caller frees
   it. */
static char *time_of(const char *list) {
	char *found = NULL;
	size_t count = 0;
	while (*list) {
		size_t len = strcspn(list, ",");
		if (len >= 2 && memcmp(list, "t=", 2) == 0 && count++ == 0) {
			found = fuzz_text(list + 2, len - 2);
		}
		list += len + (list[len] == ',');
	}
	if (count > 1) {
		free(found);
		found = NULL;
	}
	return found;
}

static bool verify(int scheme, const struct postern_header *headers,
		size_t count, const char *body, size_t len) {
	struct postern__verifier verifier = {
		.scheme = postern__signature_scheme(scheme),
		.secrets = { { (const unsigned char *)"other", 5 },
				{ (const unsigned char *)key, sizeof key - 1 } },
		.secret_count = 2,
		.tolerance_ms = 300000,
		.header = "X-Signature",
		.prefix = "p:",
		.algorithm = POSTERN__HMAC_SHA256,
		.encoding = POSTERN__SIGNATURE_HEX,
	};
	struct postern_error error = { 0 };
	int r = postern__signature_verify(&verifier, headers, count, body, len,
			(int64_t)NOW_S * 1000, &error);
	MUST(r == POSTERN_OK || r == POSTERN_E_INVALID);
	MUST(!r || (error.text[0] && fuzz_is_clean(error.text)));
	return r == POSTERN_OK;
}

/* Both results, unless there are so many signatures that they are refused. */
static void compare(bool actual, bool expected, size_t count) {
	MUST(!actual || expected);
	MUST(actual || !expected || count > POSTERN__SIGNATURE_COUNT_MAX);
}

static void try_standard(const char *id, const char *time, const char *given,
		const char *body, size_t body_len) {
	char signature[80];
	size_t len;
	size_t count;
	char *signed_text = join(id, time, body, body_len, &len);
	sign(signed_text, len, false, signature);
	char *list = fill(given, signature);
	const struct postern_header headers[] = { { "webhook-id", id },
		{ "webhook-timestamp", time }, { "webhook-signature", list } };
	bool expected =
			has_item(list, ' ', "v1,", signature, &count) && is_now(time);
	compare(verify(1, headers, 3, body, body_len), expected, count);
	free(list);
	free(signed_text);
}

static void try_stripe(const char *given, const char *body, size_t body_len) {
	char signature[80];
	size_t len;
	size_t count;
	char *time = time_of(given);
	char *signed_text = join(NULL, time ? time : "", body, body_len, &len);
	sign(signed_text, len, true, signature);
	char *list = fill(given, signature);
	const struct postern_header header = { "Stripe-Signature", list };
	bool expected = has_item(list, ',', "v1=", signature, &count) && time &&
					is_now(time);
	compare(verify(2, &header, 1, body, body_len), expected, count);
	free(list);
	free(signed_text);
	free(time);
}

static void try_plain(int scheme, const char *name, const char *prefix,
		const char *given, const char *body, size_t body_len) {
	char signature[80];
	sign(body, body_len, true, signature);
	char *value = fill(given, signature);
	const struct postern_header header = { name, value };
	size_t prefix_len = strlen(prefix);
	bool expected = strncmp(value, prefix, prefix_len) == 0 &&
					strcasecmp(value + prefix_len, signature) == 0;
	compare(verify(scheme, &header, 1, body, body_len), expected, 1);
	free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct fuzz_input input = { data, size };
	char *scheme = fuzz_until(&input, '\n');
	char *id = scheme[0] == '1' ? fuzz_until(&input, '\n') : NULL;
	char *time = scheme[0] == '1' ? fuzz_until(&input, '\n') : NULL;
	char *given = fuzz_until(&input, '\n');
	char *body = fuzz_text(input.at, input.len);
	switch (scheme[0]) {
	case '1': try_standard(id, time, given, body, input.len); break;
	case '2': try_stripe(given, body, input.len); break;
	case '3':
		try_plain(3, "X-Hub-Signature-256", "sha256=", given, body, input.len);
		break;
	default: try_plain(4, "X-Signature", "p:", given, body, input.len); break;
	}
	free(body);
	free(given);
	free(time);
	free(id);
	free(scheme);
	return 0;
}
