/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_SIGNATURE_H
#define POSTERN_SERVER_SIGNATURE_H

/*
 * Verifies the signature of a webhook that is received.
 *
 * A scheme is one row: which header has the signature, how it is written, what
 * is signed, and where the sender puts the id and the type of a message. What
 * is signed always ends with the body, byte for byte as it was received.
 */

#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "webhook/hmac.h"

struct postern__arena;
struct postern_error;

/* How the text of a secret stands for its bytes. */
enum postern__secret_encoding {
	POSTERN__SECRET_BY_SCHEME = -1,
	POSTERN__SECRET_RAW,
	POSTERN__SECRET_HEX,
	POSTERN__SECRET_BASE64
};

enum postern__signature_encoding {
	POSTERN__SIGNATURE_HEX,
	POSTERN__SIGNATURE_BASE64
};

/* While one secret replaces another there are two; some senders need more. */
#define POSTERN__SECRET_COUNT_MAX 8
#define POSTERN__SECRET_LEN_MAX 4096
/* A sender signs with each of its secrets, too. */
#define POSTERN__SIGNATURE_COUNT_MAX 16

struct postern__secret {
	const unsigned char *bytes;
	size_t len;
};

struct postern__signature_scheme;

/* What is needed to verify. The members after `tolerance_ms` are of schemes
   that have options only. */
struct postern__verifier {
	const struct postern__signature_scheme *scheme;
	struct postern__secret secrets[POSTERN__SECRET_COUNT_MAX];
	size_t secret_count;
	int64_t tolerance_ms;
	const char *header;
	const char *prefix; /* NULL: none */
	int algorithm;      /* enum postern__hmac */
	int encoding;       /* enum postern__signature_encoding */
};

/* What a request says about its signature. */
struct postern__signed {
	/* What is signed before the body. */
	struct postern__hmac_piece pieces[5];
	size_t piece_count;
	int64_t time_s; /* since 1970; -1: the scheme has no time */
	size_t len;     /* of each signature */
	unsigned char signatures[POSTERN__SIGNATURE_COUNT_MAX]
							[POSTERN__HMAC_LEN_MAX];
	size_t count;
};

struct postern__signature_scheme {
	const char *name; /* "stripe"; also in the option `verify` */
	bool has_options; /* header, algorithm, encoding, prefix */
	bool has_time;    /* it is signed, so `tolerance` applies */
	/* Headers that its function reads; NULL: it needs none, or an option. */
	const char *signature_header;
	const char *id_header;
	const char *time_header;
	const char *secret_mark; /* before a secret that is base64; may be NULL */
	int secret_encoding;     /* enum postern__secret_encoding */
	/* Rules (core/key_rule.h) for where senders put these; NULL: nowhere in
	   particular. */
	const char *id;
	const char *type;
	/* Read what the headers say. Signatures that are not of this scheme or
	   malformed are left out. POSTERN_E_INVALID: there is none. */
	int (*read)(const struct postern__verifier *verifier,
			const struct postern_header *headers, size_t count,
			struct postern__signed *out, struct postern_error *error);
};

#define POSTERN__SIGNATURE_SCHEME_NAMES "none|standard|stripe|github|hmac|svix"

/* The scheme at a position of that list; NULL: `none`. */
const struct postern__signature_scheme *postern__signature_scheme(int index);

/*
 * The bytes that a secret's text stands for, copied into the arena.
 * POSTERN_E_INVALID: the text is not of the encoding, or there are no bytes;
 * the error does not show any of it.
 */
int postern__secret_decode(const struct postern__signature_scheme *scheme,
		int encoding, const char *text, struct postern__arena *arena,
		struct postern__secret *out, struct postern_error *error);

/*
 * Verify a request. Returns POSTERN_OK, or
 *   POSTERN_E_INVALID  it is not signed by a known secret, or not now; the
 *                      error has the reason, for the log of the receiver
 *   POSTERN_E_NOMEM    memory is exhausted
 */
int postern__signature_verify(const struct postern__verifier *verifier,
		const struct postern_header *headers, size_t header_count,
		const void *body, size_t body_len, int64_t now_ms,
		struct postern_error *error);

#endif
