/* SPDX-License-Identifier: MIT */

/*
 * POST /v1/channels/{channel}/webhooks/{name}: a request that its signature
 * authenticates.
 *
 * The signature is verified before anything else is read of the request. A
 * sender whose signature is refused is not told why; the log of the server
 * has the reason. Of what a request says, only the signed part identifies its
 * message: ce-* headers are ignored, an event in structured form is not.
 */

#include <jansson.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/message.h>
#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/inline.h"
#include "core/key_rule.h"
#include "server/config.h"
#include "server/draft.h"
#include "server/grant.h"
#include "server/receipt.h"
#include "server/route.h"
#include "server/webhook_source.h"

#define RETRY_AFTER_PRESSURE "1"

/* A webhook, and where its messages go. */
struct target {
	const char *channel; /* its present name */
	const struct postern__open_store *store;
	struct postern__webhook_source *source;
	const struct postern__webhook_settings *settings;
};

/* False: refused. */
static bool find_target(struct postern__call *call, struct target *out) {
	const char *given = call->parts[0];
	const struct postern__config_channel *channel =
			call->api->config
					? postern__config_channel_named(call->api->config, given)
					: NULL;
	out->channel = channel ? channel->name : given;
	out->store = postern__call_of_channel(call, out->channel);
	if (out->store->runner) {
		out->source = postern__webhook_source_find(out->store->runner,
				out->channel, call->parts[1]);
	}
	if (!out->source) {
		postern__call_refuse(call, 404,
				"the channel '%.80s' has no webhook '%.80s'", given,
				call->parts[1]);
		return false;
	}
	out->settings = postern__webhook_source_settings(out->source);
	return true;
}

/* Without a signature the sender needs a token. False: refused. */
static bool check_token(struct postern__call *call,
		const struct target *target) {
	const struct postern__grant *grant = call->request->grant;
	if (!grant || (grant->permissions & POSTERN__PERMIT_SEND)) {
		return postern__call_may_use(call, target->channel);
	}
	postern__webhook_source_refuse(target->source,
			"the sender needs a token, because the source verifies nothing");
	postern__call_refuse(call, grant->name ? 403 : 401,
			"this webhook needs a token of the role send");
	if (!grant->name) {
		postern__response_header(call->response, "WWW-Authenticate", "Bearer");
	}
	return false;
}

/* False: refused. */
static bool check_signature(struct postern__call *call,
		const struct target *target) {
	const struct postern__request *request = call->request;
	const struct postern_clock *clock =
			call->api->clock ? call->api->clock : postern_clock_system();
	struct postern_error error;
	if (!target->settings->verifier.scheme) {
		return check_token(call, target);
	}
	int r = postern__signature_verify(&target->settings->verifier,
			request->headers, request->header_count, request->body,
			request->body_len, clock->wall_ms(clock->context), &error);
	if (r == POSTERN_E_INVALID) {
		postern__webhook_source_refuse(target->source, error.text);
		postern__call_refuse(call, 401, "the signature is not valid");
		postern__response_header(call->response, "WWW-Authenticate",
				"Signature");
	} else if (r) {
		postern__call_fail(call, &error);
	}
	return r == POSTERN_OK;
}

/* Whether a rule names an attribute of a CloudEvent: its value is encoded. */
static bool reads_ce(const struct postern__webhook_settings *settings) {
	const struct postern__key_rule *rules[] = { &settings->id.parsed,
		&settings->type.parsed, &settings->subject.parsed };
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		for (size_t n = 0; n < rules[i]->part_count; n++) {
			const struct postern__key_part *part = &rules[i]->parts[n];
			if (part->kind == POSTERN__KEY_HEADER &&
					strncasecmp(part->text, "ce-", 3) == 0) {
				return true;
			}
		}
	}
	return false;
}

/* Find one attribute by its rule; *out stays as it is if there is none. False:
   refused. */
static bool apply_rule(struct postern__call *call,
		const struct postern_header *headers, const char *what,
		const struct postern__webhook_rule *rule, const char **out) {
	const struct postern__request *request = call->request;
	const struct postern_message message = {
		.size = sizeof message,
		.headers = headers,
		.header_count = request->header_count,
		.body = request->body,
		.body_len = request->body_len,
	};
	struct postern__key_text room;
	struct postern_dedupe_key key;
	struct postern_error error;
	if (!rule->text) {
		return true;
	}
	int r = postern__key_rule_apply(&rule->parsed, &message, NULL, &room, &key,
			&error);
	if (r == POSTERN_E_NOTFOUND) {
		return true;
	}
	if (r) {
		postern__call_refuse(call, 422,
				"the %s, by the rule '%s', is longer than %d bytes or not "
				"UTF-8 without control characters",
				what, rule->text, POSTERN__KEY_TEXT_LEN_MAX);
		return false;
	}
	*out = postern__arena_copy(&call->arena, key.value, key.value_len);
	if (!*out) {
		postern__call_refuse(call, 503, "out of memory");
	}
	return *out != NULL;
}

/* The header of the signature is no part of the message. */
static void remove_header(struct postern__draft *draft, const char *name) {
	struct postern_message *message = &draft->message;
	size_t kept = 0;
	for (size_t i = 0; i < message->header_count; i++) {
		if (!name || strcasecmp(draft->headers[i].name, name) != 0) {
			draft->headers[kept++] = draft->headers[i];
		}
	}
	message->header_count = kept;
}

/* False: refused. */
static bool read_id(struct postern__call *call,
		const struct postern_header *headers,
		const struct postern__webhook_rule *rule,
		struct postern__draft *draft) {
	const char **id = &draft->message.id;
	if (!rule->text) {
		return postern__draft_read_id(call, draft);
	}
	if (!apply_rule(call, headers, "id", rule, id)) {
		return false;
	}
	if (!*id && draft->makes_ids) {
		*id = draft->id;
	}
	if (!*id) {
		postern__call_refuse(call, 422,
				"the message has no id: '%s' is missing, or empty, or there "
				"twice",
				rule->text);
	}
	return *id != NULL;
}

/* False: refused. */
static bool read_message(struct postern__call *call,
		const struct target *target, struct postern__draft *draft) {
	const struct postern__webhook_settings *settings = target->settings;
	struct postern_message *message = &draft->message;
	enum postern__form form = postern__request_form(call->request);
	if (!postern__draft_check_form(call)) {
		return false;
	}
	if (form == POSTERN__FORM_BATCH) {
		postern__call_refuse(call, 415, "a webhook is one event, not a batch");
		return false;
	}
	if (form == POSTERN__FORM_STRUCTURED) {
		return postern__draft_read_event(call, draft);
	}
	draft->makes_ids = postern__box_make_id(target->store->box, target->channel,
			draft->id);
	const struct postern_header *headers = call->request->headers;
	if (reads_ce(settings) && !postern__draft_decode_headers(call, &headers)) {
		return false;
	}
	if (!read_id(call, headers, &settings->id, draft) ||
			!apply_rule(call, headers, "type", &settings->type,
					&message->type) ||
			!apply_rule(call, headers, "subject", &settings->subject,
					&message->subject)) {
		return false;
	}
	if (!postern__draft_fill(call, draft)) {
		return false;
	}
	const struct postern__signature_scheme *scheme = settings->verifier.scheme;
	remove_header(draft, scheme && scheme->signature_header
								 ? scheme->signature_header
								 : settings->verifier.header);
	return true;
}

/* While the server stops, its sources take nothing, but a message that is
   stored is kept for the next start, as one of any other client: some senders
   never send again. */
static int accept_without_source(struct postern__call *call,
		const struct target *target, const struct postern_message *message,
		struct postern__awaited *awaited) {
	struct postern_error error;
	int r = postern_box_accept_async(target->store->box, target->channel,
			message, postern__awaited_finish, awaited, &error);
	if (r) {
		postern__call_fail(call, &error);
	}
	return r;
}

/* Count and log a request that is signed, but is no message: the sender may
   not show the response to anyone. */
static void report_refusal(struct postern__call *call,
		const struct target *target) {
	const struct postern__buf *body = &call->response->body;
	json_t *problem = json_loadb(postern__buf_text(body), body->len, 0, NULL);
	const char *detail = json_string_value(json_object_get(problem, "detail"));
	postern__webhook_source_refuse(target->source,
			detail ? detail : "out of memory");
	json_decref(problem);
}

static void accept_message(struct postern__call *call,
		const struct target *target, const struct postern__draft *draft) {
	const struct postern_message *message = &draft->message;
	struct postern__awaited *awaited = postern__awaited_create(call,
			target->store, draft,
			message->source ? message->source : target->channel,
			postern__box_runs_inline(target->store->box, target->channel));
	if (!awaited) {
		postern__call_refuse(call, 503, "out of memory");
		return;
	}
	/* From here on another thread may complete the response. */
	switch (postern__webhook_source_accept(target->source, message,
			postern__awaited_finish, awaited)) {
	case POSTERN__WEBHOOK_TAKEN: call->pending = true; return;
	case POSTERN__WEBHOOK_STOPPED:
		if (accept_without_source(call, target, message, awaited) ==
				POSTERN_OK) {
			call->pending = true;
			return;
		}
		break;
	case POSTERN__WEBHOOK_FULL:
	default:
		postern__call_refuse(call, 429, "too many messages wait to be stored");
		postern__response_header(call->response, "Retry-After",
				RETRY_AFTER_PRESSURE);
		break;
	}
	free(awaited);
}

void postern__route_webhook(struct postern__call *call) {
	static const char *const none[] = { NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	struct target target = { .source = NULL };
	struct postern__draft draft = { .has_specversion = false };
	if (!postern__call_query(call, none, parameters, &count) ||
			!find_target(call, &target) || !check_signature(call, &target)) {
		return;
	}
	if (!read_message(call, &target, &draft)) {
		report_refusal(call, &target);
		return;
	}
	if (target.settings->source) {
		draft.message.source = target.settings->source;
	}
	draft.message.transport = "webhook";
	accept_message(call, &target, &draft);
}
