/* SPDX-License-Identifier: MIT */
/*
 * The text is signed piece by piece, so that a body is not copied to stand
 * behind its timestamp.
 */

#include "webhook/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

static const char *digest_name(enum postern__hmac algorithm) {
	switch (algorithm) {
	case POSTERN__HMAC_SHA1: return "SHA1";
	case POSTERN__HMAC_SHA512: return "SHA512";
	case POSTERN__HMAC_SHA256:
	default: return "SHA256";
	}
}

size_t postern__hmac_sign(enum postern__hmac algorithm, const void *key,
		size_t key_len, const struct postern__hmac_piece *pieces, size_t count,
		unsigned char out[POSTERN__HMAC_LEN_MAX]) {
	/* The library does not write to the name. */
	char *digest = (char *)digest_name(algorithm);
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end(),
	};
	size_t len = 0;
	EVP_MAC *mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
	EVP_MAC_CTX *context = mac ? EVP_MAC_CTX_new(mac) : NULL;
	bool good = context && EVP_MAC_init(context, key, key_len, params) == 1;
	for (size_t i = 0; good && i < count; i++) {
		good = EVP_MAC_update(context, pieces[i].bytes, pieces[i].len) == 1;
	}
	good = good &&
		   EVP_MAC_final(context, out, &len, POSTERN__HMAC_LEN_MAX) == 1;
	EVP_MAC_CTX_free(context);
	EVP_MAC_free(mac);
	return good ? len : 0;
}

bool postern__hmac_equals(const void *a, const void *b, size_t len) {
	return CRYPTO_memcmp(a, b, len) == 0;
}
