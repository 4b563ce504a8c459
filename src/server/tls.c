/* SPDX-License-Identifier: MIT */
/*
 * Both files are read by us, so that their errors are those of every other
 * file. The key's text is overwritten as soon as it was parsed.
 */

#include "server/tls.h"

#include <assert.h>
#include <postern/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/file.h"

/* A chain of certificates with large keys, and comments between them. */
#define FILE_LEN_MAX ((size_t)256 * 1024)

#define KEY_ID_SIZE 64

static int fail(struct postern_error *error, const char *name, const char *file,
		const char *what) {
	return postern__fail(error, POSTERN_E_INVALID, "%s: '%.80s' %s", name, file,
			what);
}

/* Put the option's name in front of an error of its file. */
static int name_error(struct postern_error *error, const char *name, int r) {
	if (r == POSTERN_OK || r == POSTERN_E_NOMEM) {
		return r;
	}
	return postern__fail(error, POSTERN_E_INVALID, "%s: %s", name, error->text);
}

static int load_chain(struct postern__tls *self, const char *file,
		struct postern__arena *arena, struct postern_error *error) {
	char *text;
	size_t len;
	unsigned count = POSTERN__TLS_CHAIN_COUNT_MAX;
	int r = postern__file_read(file, FILE_LEN_MAX, arena, &text, &len, error);
	if (r != POSTERN_OK) {
		return name_error(error, "cert_file", r);
	}
	const gnutls_datum_t datum = { (unsigned char *)text, (unsigned)len };
	int c = gnutls_pcert_list_import_x509_raw(self->chain, &count, &datum,
			GNUTLS_X509_FMT_PEM, GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
	if (c == GNUTLS_E_SHORT_MEMORY_BUFFER) {
		return fail(error, "cert_file", file, "has more than 16 certificates");
	}
	if (c < 0 || count == 0) {
		return fail(error, "cert_file", file,
				"has no certificate in PEM, with the line '-----BEGIN "
				"CERTIFICATE-----'");
	}
	self->chain_count = count;
	return POSTERN_OK;
}

static int load_key(struct postern__tls *self, const char *file,
		struct postern__arena *arena, struct postern_error *error) {
	char *text;
	size_t len;
	int r = postern__key_read(file, FILE_LEN_MAX, arena, &text, &len, error);
	if (r != POSTERN_OK) {
		return name_error(error, "key_file", r);
	}
	const gnutls_datum_t datum = { (unsigned char *)text, (unsigned)len };
	int c = gnutls_privkey_init(&self->key);
	if (c == GNUTLS_E_SUCCESS) {
		c = gnutls_privkey_import_x509_raw(self->key, &datum,
				GNUTLS_X509_FMT_PEM, NULL, 0);
	}
	explicit_bzero(text, len);
	switch (c) {
	case GNUTLS_E_SUCCESS: return POSTERN_OK;
	case GNUTLS_E_MEMORY_ERROR:
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	case GNUTLS_E_DECRYPTION_FAILED:
		return fail(error, "key_file", file,
				"has a password; write the key without one, as 'openssl pkey' "
				"does");
	default:
		return fail(error, "key_file", file,
				"has no private key in PEM, with a line such as '-----BEGIN "
				"PRIVATE KEY-----'");
	}
}

/* Whether the key is that of the first certificate. */
static bool is_pair(const struct postern__tls *self) {
	unsigned char ids[2][KEY_ID_SIZE] = { 0 };
	size_t lens[2] = { KEY_ID_SIZE, KEY_ID_SIZE };
	gnutls_pubkey_t public_key;
	if (gnutls_pubkey_init(&public_key) != GNUTLS_E_SUCCESS) {
		return false;
	}
	bool pair = gnutls_pubkey_import_privkey(public_key, self->key, 0, 0) ==
						GNUTLS_E_SUCCESS &&
				gnutls_pubkey_get_key_id(public_key, GNUTLS_KEYID_USE_SHA256,
						ids[0], &lens[0]) == GNUTLS_E_SUCCESS &&
				gnutls_pubkey_get_key_id(self->chain[0].pubkey,
						GNUTLS_KEYID_USE_SHA256, ids[1],
						&lens[1]) == GNUTLS_E_SUCCESS &&
				lens[0] == lens[1] && memcmp(ids[0], ids[1], lens[0]) == 0;
	gnutls_pubkey_deinit(public_key);
	return pair;
}

int postern__tls_load(const char *cert_file, const char *key_file,
		struct postern__tls **out, struct postern_error *error) {
	struct postern__arena arena;
	struct postern__tls *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	atomic_init(&self->user_count, 1);
	postern__arena_init(&arena);
	int r = load_chain(self, cert_file, &arena, error);
	if (r == POSTERN_OK) {
		r = load_key(self, key_file, &arena, error);
	}
	if (r == POSTERN_OK && !is_pair(self)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"key_file: '%.80s' is not the key of the first certificate in "
				"'%.80s'",
				key_file, cert_file);
	}
	if (r == POSTERN_OK) {
		*out = self;
		self = NULL;
	}
	postern__tls_release(self);
	postern__arena_finish(&arena);
	return r;
}

void postern__tls_times(const struct postern__tls *self, int64_t *from_out,
		int64_t *until_out) {
	gnutls_x509_crt_t certificate;
	*from_out = 0;
	*until_out = INT64_MAX;
	if (gnutls_pcert_export_x509((gnutls_pcert_st *)&self->chain[0],
				&certificate) == GNUTLS_E_SUCCESS) {
		*from_out = (int64_t)gnutls_x509_crt_get_activation_time(certificate) *
					1000;
		*until_out = (int64_t)gnutls_x509_crt_get_expiration_time(certificate) *
					 1000;
		gnutls_x509_crt_deinit(certificate);
	}
}

struct postern__tls *postern__tls_keep(struct postern__tls *self) {
	(void)atomic_fetch_add(&self->user_count, 1);
	return self;
}

void postern__tls_release(struct postern__tls *self) {
	if (!self || atomic_fetch_sub(&self->user_count, 1) > 1) {
		return;
	}
	for (unsigned i = 0; i < self->chain_count; i++) {
		gnutls_pcert_deinit(&self->chain[i]);
	}
	if (self->key) {
		gnutls_privkey_deinit(self->key);
	}
	free(self);
}
