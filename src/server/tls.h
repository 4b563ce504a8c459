/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_TLS_H
#define POSTERN_SERVER_TLS_H

/*
 * The certificate by which a server identifies itself over TLS, with its key.
 *
 * libmicrohttpd uses GnuTLS, so this does, too. Nothing older than TLS 1.2 is
 * spoken.
 */

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <stdint.h>

struct postern_error;

/* A certificate and those of the authorities that signed it. */
#define POSTERN__TLS_CHAIN_COUNT_MAX 16

/* What MHD_OPTION_HTTPS_PRIORITIES is. Without forward secrecy a stolen key
   would open what was recorded before. */
#define POSTERN__TLS_PRIORITIES \
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:%SERVER_PRECEDENCE"

/* Never changes after it was loaded; shared by the connections that use it. */
struct postern__tls {
	atomic_uint user_count;
	gnutls_pcert_st chain[POSTERN__TLS_CHAIN_COUNT_MAX];
	unsigned chain_count;
	gnutls_privkey_t key;
};

/*
 * Load both files, which are PEM. The key must be that of the first
 * certificate, and not be readable for all users.
 *
 * out  yours; end it with postern__tls_release().
 *
 * POSTERN_E_INVALID  a file is missing or is not what it should be; the text
 *                    begins with "cert_file: " or "key_file: "
 */
int postern__tls_load(const char *cert_file, const char *key_file,
		struct postern__tls **out, struct postern_error *error);

struct postern__tls *postern__tls_keep(struct postern__tls *self);

/* When the first certificate begins and ends, in ms since 1970. */
void postern__tls_times(const struct postern__tls *self, int64_t *from_out,
		int64_t *until_out);

/* The last one destroys it; NULL is fine. */
void postern__tls_release(struct postern__tls *self);

#endif
