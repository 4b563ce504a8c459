/* SPDX-License-Identifier: MIT */

/*
 * POST /v1/channels/{channel}/messages: accept the message of a request, which
 * draft.c reads, and respond when it is durable. The responses to messages are
 * written here, for every route that accepts some.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/message.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "core/content_keys.h"
#include "core/inline.h"
#include "server/draft.h"
#include "server/receipt.h"
#include "server/route.h"

/* Retry-After in seconds when too many messages wait to be written. */
#define RETRY_AFTER_PRESSURE "1"

void postern__write_identity(struct postern__buf *body, const char *store,
		const char *id, const char *source, int64_t seq) {
	postern__json_pair_text(body, "store", store);
	if (id) {
		postern__json_pair_text(body, "id", id);
	}
	postern__json_pair_text(body, "source", source);
	if (seq > 0) {
		postern__json_pair_int(body, "seq", seq);
	} else {
		/* No handler wants the message, and the channel drops such messages. */
		postern__json_pair_null(body, "seq");
		postern__json_pair_bool(body, "dropped", true);
	}
}

void postern__write_answered(struct postern__buf *body, const char *store,
		const char *id, const char *source) {
	postern__json_pair_text(body, "store", store);
	postern__json_pair_text(body, "id", id);
	postern__json_pair_text(body, "source", source);
}

/* The response to a message whose handlers have run. False: it is the one that
   any message would have. */
static bool write_result(struct postern__response *response,
		const struct postern_error *error, const char *store, const char *id,
		const char *source) {
	switch (error->code) {
	case POSTERN_OK:
	case POSTERN_E_DUPLICATE:
		response->status = 200;
		postern__json_open(&response->body, '{');
		postern__json_pair_text(&response->body, "status",
				error->code == POSTERN_OK ? "done" : "duplicate");
		postern__write_answered(&response->body, store, id, source);
		postern__json_close(&response->body, '}');
		return true;
	case POSTERN_E_FAILED:
		/* The server works, what is behind it does not. */
		postern__response_problem(response, 502, error->code, error->text);
		return true;
	case POSTERN_E_BUSY:
	case POSTERN_E_STALE:
	case POSTERN_E_TIMEOUT:
		postern__response_problem(response, 503, error->code, error->text);
		postern__response_header(response, "Retry-After", RETRY_AFTER_PRESSURE);
		return true;
	default: return false;
	}
}

void postern__write_parked(struct postern__buf *body,
		const struct postern_receipt *receipt) {
	if (receipt->error.code == POSTERN_OK && receipt->seq > 0 &&
			receipt->error.text[0]) {
		postern__json_pair_bool(body, "parked", true);
		postern__json_pair_text(body, "reason", receipt->error.text);
	}
}

void postern__write_receipt(struct postern__response *response,
		const struct postern_receipt *receipt, bool answered, const char *store,
		const char *id, const char *source) {
	const struct postern_error *error = &receipt->error;
	struct postern__buf *body = &response->body;

	if (answered && write_result(response, error, store, id, source)) {
		return;
	}
	switch (error->code) {
	case POSTERN_OK:
	case POSTERN_E_DUPLICATE:
		response->status = error->code == POSTERN_OK ? 202 : 200;
		postern__json_open(body, '{');
		postern__json_pair_text(body, "status",
				error->code == POSTERN_OK ? "accepted" : "duplicate");
		postern__write_identity(body, store, id, source, receipt->seq);
		postern__write_parked(body, receipt);
		postern__json_close(body, '}');
		break;
	case POSTERN_E_CONFLICT:
		postern__response_open_problem(response, 409, error->code,
				"a message with this identity and another body was accepted "
				"before; the first body is kept");
		postern__write_identity(body, store, id, source, receipt->seq);
		postern__json_close(body, '}');
		break;
	case POSTERN_E_INVALID:
		postern__response_problem(response, 422, error->code, error->text);
		break;
	case POSTERN_E_BUSY:
		postern__response_problem(response, 429, error->code, error->text);
		postern__response_header(response, "Retry-After", RETRY_AFTER_PRESSURE);
		break;
	default: postern__response_fail(response, error); break;
	}
}

/* The id in the response; NULL: none. A copy's generated id is not stored. */
static const char *answered_id(const struct postern_receipt *receipt,
		const char *id, bool made_id) {
	int code = receipt->error.code;
	bool copy = code == POSTERN_E_DUPLICATE || code == POSTERN_E_CONFLICT;
	return made_id && copy && receipt->seq > 0 ? NULL : id;
}

/* State of a message in postern_box_accept_async(). */
struct postern__awaited {
	struct postern__response *response;
	postern__api_done *done;
	void *done_context;
	bool answered;      /* the channel runs its handlers before it answers */
	bool made_id;       /* the id was generated here */
	const char *store;  /* its name, which outlives us */
	const char *source; /* in text */
	char text[];        /* the id, followed by the source */
};

void postern__awaited_finish(void *context,
		const struct postern_receipt *receipt) {
	struct postern__awaited *awaited = context;
	postern__write_receipt(awaited->response, receipt, awaited->answered,
			awaited->store,
			answered_id(receipt, awaited->text, awaited->made_id),
			awaited->source);
	postern__response_check(awaited->response);
	awaited->done(awaited->done_context);
	free(awaited);
}

struct postern__awaited *postern__awaited_create(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern__draft *draft, const char *source, bool answered) {
	const char *id = draft->message.id;
	size_t id_size = strlen(id) + 1;
	size_t source_size = strlen(source) + 1;
	struct postern__awaited *awaited =
			malloc(sizeof *awaited + id_size + source_size);
	if (awaited) {
		awaited->response = call->response;
		awaited->done = call->done;
		awaited->done_context = call->done_context;
		awaited->answered = answered;
		awaited->made_id = id == draft->id;
		awaited->store = store->name;
		awaited->source = awaited->text + id_size;
		memcpy(awaited->text, id, id_size);
		memcpy(awaited->text + id_size, source, source_size);
	}
	return awaited;
}

static int accept_async(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern__draft *draft, const char *source, bool answered,
		struct postern_error *error) {
	struct postern__awaited *awaited =
			postern__awaited_create(call, store, draft, source, answered);
	if (!awaited) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	/* From here on another thread may complete the response. */
	int r = postern_box_accept_async(store->box, call->parts[0],
			&draft->message, postern__awaited_finish, awaited, error);
	if (r != POSTERN_OK) {
		free(awaited);
		return r;
	}
	call->pending = true;
	return POSTERN_OK;
}

void postern__route_accept(struct postern__call *call) {
	static const char *const none[] = { NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	struct postern__draft draft = { .has_specversion = false };
	if (!postern__call_query(call, none, parameters, &count) ||
			!postern__draft_check_form(call)) {
		return;
	}
	const char *channel = call->parts[0];
	const struct postern__open_store *store =
			postern__call_of_channel(call, channel);
	if (postern__request_form(call->request) == POSTERN__FORM_BATCH) {
		postern__accept_batch(call, store);
		return;
	}
	bool answered = postern__box_runs_inline(store->box, channel);
	draft.makes_ids = postern__box_make_id(store->box, channel, draft.id);
	if (!postern__draft_read(call, &draft)) {
		return;
	}
	const char *source = draft.message.source ? draft.message.source : channel;
	struct postern_receipt receipt = { .seq = 0 };
	if (call->done) {
		receipt.error.code = accept_async(call, store, &draft, source, answered,
				&receipt.error);
		if (receipt.error.code == POSTERN_OK) {
			return;
		}
	} else {
		/* As a batch: for the receipt, which says more than the code. */
		struct postern_error error;
		int r = postern_box_accept_batch(store->box, channel, &draft.message, 1,
				&receipt, &error);
		if (r != POSTERN_OK) {
			receipt = (struct postern_receipt){ .error = error };
			receipt.error.code = r;
		}
	}
	const char *id = draft.message.id;
	postern__write_receipt(call->response, &receipt, answered, store->name,
			answered_id(&receipt, id, id == draft.id), source);
}
