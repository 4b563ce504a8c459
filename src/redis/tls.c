/* SPDX-License-Identifier: MIT */

/*
 * TLS by OpenSSL. The certificate of the server is always checked, for the name
 * of the host. OpenSSL's own socket would raise SIGPIPE when the server has
 * closed the connection, so bytes pass through a BIO whose send() does not.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "redis/redis.h"

static BIO_METHOD *quiet_method;
static pthread_once_t quiet_once = PTHREAD_ONCE_INIT;

static int fd_of(BIO *bio) {
	return *(const int *)BIO_get_data(bio);
}

static int quiet_write(BIO *bio, const char *bytes, int len) {
	BIO_clear_retry_flags(bio);
	ssize_t sent = send(fd_of(bio), bytes, (size_t)len, MSG_NOSIGNAL);
	if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
		BIO_set_retry_write(bio);
	}
	return (int)sent;
}

static int quiet_read(BIO *bio, char *bytes, int size) {
	BIO_clear_retry_flags(bio);
	ssize_t received = recv(fd_of(bio), bytes, (size_t)size, 0);
	if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
		BIO_set_retry_read(bio);
	}
	return (int)received;
}

static long quiet_control(BIO *bio, int command, long number, void *pointer) {
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

static void create_method(void) {
	quiet_method =
			BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet");
	if (quiet_method) {
		(void)BIO_meth_set_write(quiet_method, quiet_write);
		(void)BIO_meth_set_read(quiet_method, quiet_read);
		(void)BIO_meth_set_ctrl(quiet_method, quiet_control);
	}
}

static int fail_memory(struct postern_error *error) {
	ERR_clear_error();
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

/* The reason that OpenSSL has stored. */
static int fail_tls(const char *what, struct postern_error *error) {
	const char *reason = ERR_reason_error_string(ERR_get_error());
	ERR_clear_error();
	return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s: %s", what,
			reason ? reason : "the connection was closed");
}

int postern__redis_tls_create(const struct postern__redis_address *address,
		SSL_CTX **out, struct postern_error *error) {
	(void)pthread_once(&quiet_once, create_method);
	SSL_CTX *tls = quiet_method ? SSL_CTX_new(TLS_client_method()) : NULL;
	if (!tls) {
		return fail_memory(error);
	}
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	(void)SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE |
										SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	int loaded = address->ca_file[0]
						 ? SSL_CTX_load_verify_file(tls, address->ca_file)
						 : SSL_CTX_set_default_verify_paths(tls);
	ERR_clear_error();
	if (loaded != 1) {
		SSL_CTX_free(tls);
		return postern__fail(error, POSTERN_E_INVALID,
				"the certificates of 'ca_file' cannot be read: '%s'",
				address->ca_file);
	}
	*out = tls;
	return POSTERN_OK;
}

/* The name or the number that the certificate must be valid for. */
static bool expect_host(SSL *ssl, const char *host) {
	unsigned char number[sizeof(struct in6_addr)];
	if (inet_pton(AF_INET, host, number) == 1 ||
			inet_pton(AF_INET6, host, number) == 1) {
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	}
	return SSL_set1_host(ssl, host) == 1 &&
		   SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* After a call that did not succeed: wait, so that it can be repeated. */
static int wait_again(struct postern__redis_socket *self, int result,
		const struct postern__redis_deadline *deadline, const char *what,
		struct postern_error *error) {
	int number = errno;
	switch (SSL_get_error(self->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		return postern__redis_socket_wait(self->fd, POLLIN, deadline, error);
	case SSL_ERROR_WANT_WRITE:
		return postern__redis_socket_wait(self->fd, POLLOUT, deadline, error);
	case SSL_ERROR_SYSCALL:
		ERR_clear_error();
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s: %s", what,
				result < 0 && number ? strerror(number)
									 : "the connection was closed");
	case SSL_ERROR_ZERO_RETURN:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the connection was closed");
	default: return fail_tls(what, error);
	}
}

static int fail_handshake(struct postern__redis_socket *self, int code,
		struct postern_error *error) {
	long verified = SSL_get_verify_result(self->ssl);
	if (verified == X509_V_OK) {
		return code;
	}
	ERR_clear_error();
	return postern__fail(error, POSTERN_E_INVALID,
			"the certificate of the server is refused: %s",
			X509_verify_cert_error_string(verified));
}

int postern__redis_tls_open(struct postern__redis_socket *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	SSL *ssl = SSL_new(tls);
	BIO *bio = ssl ? BIO_new(quiet_method) : NULL;
	if (!bio) {
		SSL_free(ssl);
		return fail_memory(error);
	}
	BIO_set_data(bio, &self->fd);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	self->ssl = ssl;
	if (!expect_host(ssl, address->host)) {
		return fail_memory(error);
	}
	for (;;) {
		int result = SSL_connect(ssl);
		if (result == 1) {
			return POSTERN_OK;
		}
		int r = wait_again(self, result, deadline, "TLS", error);
		if (r) {
			return fail_handshake(self, r, error);
		}
	}
}

int postern__redis_tls_send(struct postern__redis_socket *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	while (len > 0) {
		size_t sent = 0;
		int result = SSL_write_ex(self->ssl, bytes, len, &sent);
		if (result == 1) {
			bytes += sent;
			len -= sent;
			continue;
		}
		int r = wait_again(self, result, deadline, "sending", error);
		if (r) {
			return r;
		}
	}
	return POSTERN_OK;
}

int postern__redis_tls_receive(struct postern__redis_socket *self, char *bytes,
		size_t size, size_t *len_out,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	for (;;) {
		int result = SSL_read_ex(self->ssl, bytes, size, len_out);
		if (result == 1) {
			return POSTERN_OK;
		}
		int r = wait_again(self, result, deadline, "receiving", error);
		if (r) {
			return r;
		}
	}
}
