/* SPDX-License-Identifier: MIT */

/*
 * Staging a message in a transaction of the caller: what is the same for all
 * databases. The message is validated here as if it were accepted; the
 * database validates what only it knows, the channel and its limit.
 */

#include "store/publish.h"

#include <inttypes.h>
#include <postern/publish.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/json_text.h"
#include "base/sized.h"
#include "core/box.h"
#include "store/store.h"

/* Escaped, a byte of a header may become six. */
#define HEADERS_JSON_LEN_MAX \
	((size_t)6 * POSTERN_HEADERS_LEN_MAX + 16 * POSTERN_HEADER_COUNT_MAX)

/* Version 4 of RFC 9562. */
static void generate_id(char out[POSTERN_ID_SIZE]) {
	const struct postern_random *random = postern_random_system();
	uint64_t a = random->next(random->context);
	uint64_t b = random->next(random->context);
	a = (a & ~UINT64_C(0xf000)) | UINT64_C(0x4000);
	b = (b & ~(UINT64_C(3) << 62)) | UINT64_C(2) << 62;
	(void)snprintf(out, POSTERN_ID_SIZE,
			"%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64
			"-%012" PRIx64,
			a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48,
			b & UINT64_C(0xffffffffffff));
}

static const struct postern_store_kind *kind_of(
		enum postern_sql_dialect dialect) {
	const struct postern_store_kind *kind;
	for (size_t i = 0; (kind = postern__store_kind_at(i)); i++) {
		if (kind->ops->dialect == dialect && kind->publish) {
			return kind;
		}
	}
	return NULL;
}

static void write_headers(const struct postern_message *message,
		struct postern__buf *out) {
	postern__json_open(out, '{');
	for (size_t i = 0; i < message->header_count; i++) {
		postern__json_pair_text(out, message->headers[i].name,
				message->headers[i].value);
	}
	postern__json_close(out, '}');
}

static int publish_message(const struct postern_store_kind *kind,
		const struct postern_publication *publication,
		const struct postern_message *message, struct postern_error *error) {
	struct postern__buf headers;
	struct postern_staging staging = {
		.transaction = publication->transaction,
		.schema = publication->schema ? publication->schema : "postern",
		.channel = publication->channel,
		.message = message,
	};
	int r = POSTERN_OK;
	postern__buf_init(&headers, HEADERS_JSON_LEN_MAX);
	if (message->header_count > 0) {
		write_headers(message, &headers);
		r = postern__buf_check(&headers, "the headers", error);
		staging.headers = postern__buf_text(&headers);
	}
	if (r == POSTERN_OK) {
		r = kind->publish(&staging, error);
	}
	postern__buf_finish(&headers);
	return r;
}

int postern_publish(const struct postern_publication *given, char *id_out,
		struct postern_error *error) {
	struct postern_publication publication = { .size = sizeof publication };
	struct postern_message message = { .size = sizeof message };
	char id[POSTERN_ID_SIZE];
	int r = postern__sized_copy(&publication, sizeof publication, given,
			"a publication", error);
	if (r == POSTERN_OK) {
		r = postern__sized_copy(&message, sizeof message, publication.message,
				"a message", error);
	}
	const struct postern_store_kind *kind = kind_of(publication.dialect);
	if (r == POSTERN_OK && !kind) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"cannot publish: the dialect %d has no store in this library",
				(int)publication.dialect);
	}
	if (r == POSTERN_OK && (!publication.transaction || !publication.channel)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"cannot publish: the %s is NULL",
				publication.channel ? "transaction" : "channel");
	}
	if (r != POSTERN_OK) {
		return r;
	}
	if (!message.id) {
		generate_id(id);
		message.id = id;
	}
	message.type = message.type ? message.type : "";
	r = postern__message_check(&message, error);
	if (r == POSTERN_OK) {
		r = publish_message(kind, &publication, &message, error);
	}
	if (r == POSTERN_OK && id_out) {
		(void)snprintf(id_out, POSTERN_ID_SIZE, "%s", message.id);
	}
	return r;
}
