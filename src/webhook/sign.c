/* SPDX-License-Identifier: MIT */

/*
 * Signatures as Standard Webhooks defines them: HMAC-SHA-256 of
 * "ID.TIMESTAMP.BODY" in base64, one for each secret, so that a receiver that
 * knows any of them accepts the request while secrets are exchanged.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/fail.h"
#include "webhook/hmac.h"
#include "webhook/webhook.h"

#define PREFIX "whsec_"

/* Longer than the base64 of the longest secret. */
#define ENCODED_LEN_MAX 256

int postern__webhook_secret_parse(const char *text,
		struct postern__webhook_secret *out, struct postern_error *error) {
	unsigned char bytes[POSTERN__BASE64_DECODED_MAX(ENCODED_LEN_MAX)];
	size_t len = strlen(text);
	bool encoded = strncmp(text, PREFIX, strlen(PREFIX)) == 0;
	if (len > ENCODED_LEN_MAX) {
		len = WEBHOOK_SECRET_LEN_MAX + 1; /* refused below */
	} else if (!encoded) {
		memcpy(bytes, text, len < sizeof bytes ? len : sizeof bytes);
	} else if (!postern__base64_decode(text + strlen(PREFIX),
					   len - strlen(PREFIX), bytes, &len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the secret is not base64 after '" PREFIX "'");
	}
	if (len < WEBHOOK_SECRET_LEN_MIN || len > WEBHOOK_SECRET_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a secret has %d to %d bytes: make one with: echo " PREFIX
				"$(openssl rand -base64 32)",
				WEBHOOK_SECRET_LEN_MIN, WEBHOOK_SECRET_LEN_MAX);
	}
	memcpy(out->bytes, bytes, len);
	out->len = len;
	explicit_bzero(bytes, sizeof bytes);
	return POSTERN_OK;
}

void postern__webhook_sign(const struct postern__webhook_secret *secrets,
		size_t count, const char *id, int64_t time_s, const void *body,
		size_t body_len, struct postern__buf *out) {
	char time[32];
	int time_len = snprintf(time, sizeof time, ".%" PRId64 ".", time_s);
	const struct postern__hmac_piece pieces[] = {
		{ id, strlen(id) },
		{ time, (size_t)time_len },
		{ body ? body : "", body_len },
	};
	for (size_t i = 0; i < count; i++) {
		unsigned char bytes[POSTERN__HMAC_LEN_MAX];
		char text[POSTERN__BASE64_ENCODED(POSTERN__HMAC_LEN_MAX)];
		size_t len = postern__hmac_sign(POSTERN__HMAC_SHA256, secrets[i].bytes,
				secrets[i].len, pieces, sizeof pieces / sizeof pieces[0],
				bytes);
		if (len == 0) {
			out->failed = POSTERN_E_NOMEM;
			return;
		}
		postern__base64_encode(bytes, len, text);
		postern__buf_append_text(out, i > 0 ? " v1," : "v1,");
		postern__buf_append(out, text, POSTERN__BASE64_ENCODED(len));
	}
}
