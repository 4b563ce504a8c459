/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_WEBHOOK_REQUEST_H
#define POSTERN_WEBHOOK_REQUEST_H

/*
 * One request: a message on its way to its receiver. Made by the thread that
 * starts the run, sent by the engine.
 */

#include <postern/sys/handler.h>
#include <stdbool.h>

#include "base/buf.h"
#include "webhook/engine.h"
#include "webhook/webhook.h"

/* A handler's definition, which does not change. */
struct postern__webhook_target {
	char *url;
	bool templated_host;
	char shown[300]; /* the URL as far as it may be shown */
	struct postern__webhook_block *blocks;
	struct postern__webhook_guard guard;
	char **headers; /* "Name: value" */
	size_t header_count;
	int64_t connect_timeout_ms;
	char *ca_file;
	char *client_cert_file;
	char *client_key_file;
};

struct postern__webhook_request {
	struct postern__webhook_transfer transfer;
	const struct postern__webhook_target *target;
	struct postern_run *run;
	void *owner;
	int cancel; /* with the owner's mutex: 0, or 1 + enum postern_cancel */
	struct curl_slist *headers;
	struct postern__webhook_answer answer;
	char error[CURL_ERROR_SIZE];
	/* Why an address was refused, and which one; NULL: none was. */
	const char *refused;
	char refused_address[64];
	struct postern__webhook_verdict verdict; /* set when it has ended */
};

/*
 * Prepare a request. POSTERN_E_INVALID: there can be none for this message.
 *
 * now_ms  the wall clock, which the signature contains.
 */
int postern__webhook_request_create(const struct postern__webhook_target
											*target,
		const struct postern__webhook_secret *secrets, size_t secret_count,
		struct postern_run *run, int64_t now_ms,
		struct postern__webhook_request **out, struct postern_error *error);
/* NULL is fine. */
void postern__webhook_request_destroy(struct postern__webhook_request *request);

/* The transfer has ended: what follows, in request->verdict. */
void postern__webhook_request_judge(struct postern__webhook_request *request,
		CURLcode code, int64_t now_ms);

/* Whether a name may be that of a header of the configuration or of the
   message: not one that Postern sets, nor one of the exchange. */
bool postern__webhook_header_name_ok(const char *name, size_t len);

/* How often a connection was refused or opened, for tests. */
struct postern__webhook_socket_counts {
	unsigned long refused;
	unsigned long opened;
};
struct postern__webhook_socket_counts postern__webhook_socket_counts(void);

#endif
