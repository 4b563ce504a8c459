/* SPDX-License-Identifier: MIT */

/*
 * The routes that only look: counts, listings, one message with all that is
 * known of it.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <postern/runner.h>
#include <postern/sys/clock.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/time.h"
#include "base/utf8.h"
#include "server/api.h"
#include "server/route.h"

/* Messages with one id that are shown; they differ in source or channel. */
#define FOUND_MAX 20

static void answer(struct postern__call *call) {
	call->response->status = 200;
}

/* A time of 0 is one that has not come. */
static void write_time(struct postern__buf *buf, const char *name, int64_t ms) {
	if (ms == 0) {
		postern__json_pair_null(buf, name);
	} else {
		postern__json_pair_time(buf, name, ms);
	}
}

static void write_channel(struct postern__buf *buf,
		const struct postern_channel_stats *channel) {
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "name", channel->name);
	postern__json_pair_uint(buf, "accepted", channel->accepted);
	postern__json_pair_uint(buf, "duplicates", channel->duplicates);
	postern__json_pair_uint(buf, "conflicts", channel->conflicts);
	postern__json_pair_uint(buf, "dropped", channel->dropped);
	postern__json_pair_uint(buf, "parked", channel->parked);
	postern__json_close(buf, '}');
}

static void write_handler(struct postern__buf *buf,
		const struct postern_handler_stats *handler) {
	postern__json_open(buf, '{');
	postern__json_pair_text(buf, "key", handler->key);
	postern__json_pair_text(buf, "channel", handler->channel);
	postern__json_pair_bool(buf, "registered", handler->registered);
	postern__json_pair_bool(buf, "paused", handler->paused);
	postern__json_pair_uint(buf, "pending", handler->pending);
	postern__json_pair_uint(buf, "retrying", handler->retrying);
	postern__json_pair_uint(buf, "leased", handler->leased);
	postern__json_pair_uint(buf, "poisoned", handler->poisoned);
	write_time(buf, "oldest_pending_at", handler->oldest_pending_at_ms);
	postern__json_pair_uint(buf, "done", handler->done);
	postern__json_pair_uint(buf, "discarded", handler->discarded);
	postern__json_close(buf, '}');
}

static void write_channels(struct postern__buf *buf, const char *name,
		const struct postern_stats *stats) {
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < stats->channel_count; i++) {
		write_channel(buf, &stats->channels[i]);
	}
	postern__json_close(buf, ']');
}

static void write_handlers(struct postern__buf *buf, const char *name,
		const struct postern_stats *stats) {
	postern__json_key(buf, name);
	postern__json_open(buf, '[');
	for (size_t i = 0; i < stats->handler_count; i++) {
		write_handler(buf, &stats->handlers[i]);
	}
	postern__json_close(buf, ']');
}

/* NULL: refused. */
static struct postern_stats *get_stats(struct postern__call *call) {
	static const char *const none[] = { NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	if (!postern__call_query(call, none, parameters, &count)) {
		return NULL;
	}
	struct postern_stats *stats;
	struct postern_error error;
	if (postern_box_stats(call->api->box, &stats, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
		return NULL;
	}
	return stats;
}

void postern__route_stats(struct postern__call *call) {
	struct postern_stats *stats = get_stats(call);
	if (!stats) {
		return;
	}
	struct postern__buf *body = &call->response->body;
	postern__json_open(body, '{');
	postern__json_pair_text(body, "store", stats->store);
	write_channels(body, "channels", stats);
	write_handlers(body, "handlers", stats);
	postern__json_close(body, '}');
	postern_stats_destroy(stats);
	answer(call);
}

void postern__route_channels(struct postern__call *call) {
	struct postern_stats *stats = get_stats(call);
	if (!stats) {
		return;
	}
	postern__json_open(&call->response->body, '{');
	write_channels(&call->response->body, "items", stats);
	postern__json_close(&call->response->body, '}');
	postern_stats_destroy(stats);
	answer(call);
}

void postern__route_handlers(struct postern__call *call) {
	struct postern_stats *stats = get_stats(call);
	if (!stats) {
		return;
	}
	postern__json_open(&call->response->body, '{');
	write_handlers(&call->response->body, "items", stats);
	postern__json_close(&call->response->body, '}');
	postern_stats_destroy(stats);
	answer(call);
}

static void write_row(struct postern__buf *buf, const struct postern_row *row) {
	postern__json_pair_int(buf, "seq", row->seq);
	postern__json_pair_text(buf, "message_id", row->message_id);
	postern__json_pair_text(buf, "source", row->source);
	postern__json_pair_text(buf, "channel", row->channel);
	postern__json_pair_text(buf, "handler", row->handler);
	postern__json_pair_text(buf, "type", row->type);
	postern__json_pair_text(buf, "state", postern_state_name(row->state));
	postern__json_pair_uint(buf, "failures", row->failures);
	postern__json_pair_uint(buf, "starts", row->starts);
	postern__json_pair_uint(buf, "crashes", row->crashes);
	postern__json_pair_uint(buf, "fence", row->fence);
	write_time(buf, "received_at", row->received_at_ms);
	write_time(buf, "next_at", row->next_at_ms);
	write_time(buf, "leased_at", row->leased_at_ms);
	write_time(buf, "finished_at", row->finished_at_ms);
	postern__json_pair_text(buf, "last_error", row->last_error);
}

/* The names of a filter, and what only a listing has. */
static const char *const list_names[] = { POSTERN__FILTER_NAMES, "limit",
	"cursor", "q", NULL };

/* Set one member of the listing's filter. False: refused. */
static bool set_list(struct postern__call *call,
		const struct postern__parameter *parameter,
		struct postern_filter *filter) {
	if (strcmp(parameter->name, "limit") == 0) {
		return postern__call_limit(call, parameter->value, &filter->limit);
	}
	if (strcmp(parameter->name, "cursor") == 0) {
		if (strlen(parameter->value) > POSTERN_CURSOR_LEN_MAX) {
			postern__call_refuse(call, 400, "this is not one of our cursors");
			return false;
		}
		filter->cursor = *parameter->value ? parameter->value : NULL;
		return true;
	}
	if (strcmp(parameter->name, "q") == 0) {
		postern__call_refuse(call, 400,
				"searching with 'q' is not in this version");
		return false;
	}
	return postern__call_filter(call, parameter->name, parameter->value,
			filter);
}

void postern__route_list(struct postern__call *call) {
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	if (!postern__call_query(call, list_names, parameters, &count)) {
		return;
	}
	struct postern_filter filter = { .size = sizeof filter };
	for (size_t i = 0; i < count; i++) {
		if (!set_list(call, &parameters[i], &filter)) {
			return;
		}
	}

	struct postern_listing *listing;
	struct postern_error error;
	if (postern_box_list(call->api->box, &filter, &listing, &error) !=
			POSTERN_OK) {
		postern__call_fail(call, &error);
		return;
	}
	struct postern__buf *body = &call->response->body;
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		postern__json_open(body, '{');
		write_row(body, postern_listing_get(listing, i));
		postern__json_close(body, '}');
	}
	postern__json_close(body, ']');
	postern__json_pair_text(body, "cursor", postern_listing_cursor(listing));
	postern__json_close(body, '}');
	postern_listing_destroy(listing);
	answer(call);
}

static void write_base64(struct postern__buf *buf, const unsigned char *bytes,
		size_t len) {
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
								 "abcdefghijklmnopqrstuvwxyz0123456789+/";

	postern__buf_append_char(buf, '"');
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		unsigned long group = (unsigned long)bytes[i] << 16;
		group |= left > 1 ? (unsigned long)bytes[i + 1] << 8 : 0;
		group |= left > 2 ? (unsigned long)bytes[i + 2] : 0;
		char out[4] = {
			digits[group >> 18 & 63],
			digits[group >> 12 & 63],
			left > 1 ? digits[group >> 6 & 63] : '=',
			left > 2 ? digits[group & 63] : '=',
		};
		postern__buf_append(buf, out, sizeof out);
	}
	postern__buf_append_char(buf, '"');
}

/*
 * "body" if it is text, "body_base64" if not, "body_omitted" if it is more than
 * *room_left, from which what is shown is taken. A zero byte is valid UTF-8,
 * but many readers of JSON choke on it.
 */
static void write_body(struct postern__buf *buf,
		const struct postern_message *message, size_t *room_left) {
	const char *bytes = message->body;
	size_t len = message->body_len;

	postern__json_pair_uint(buf, "body_len", len);
	if (len > *room_left) {
		postern__json_pair_bool(buf, "body_omitted", true);
		return;
	}
	*room_left -= len;
	if (postern__utf8_valid(bytes, len) &&
			(len == 0 || !memchr(bytes, '\0', len))) {
		postern__json_pair_string(buf, "body", bytes, len);
	} else {
		postern__json_key(buf, "body_base64");
		write_base64(buf, message->body, len);
	}
}

static void write_message(struct postern__buf *buf,
		const struct postern_detail *detail) {
	const struct postern_message *message = &detail->message;

	postern__json_pair_int(buf, "seq", detail->seq);
	postern__json_pair_text(buf, "id", message->id);
	postern__json_pair_text(buf, "source", message->source);
	postern__json_pair_text(buf, "channel", detail->channel);
	postern__json_pair_text(buf, "type", message->type);
	postern__json_pair_text(buf, "subject", message->subject);
	postern__json_pair_text(buf, "time", message->time);
	postern__json_pair_text(buf, "content_type", message->content_type);
	postern__json_pair_text(buf, "correlation_id", message->correlation_id);
	postern__json_pair_text(buf, "traceparent", message->traceparent);
	postern__json_key(buf, "headers");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < message->header_count; i++) {
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "name", message->headers[i].name);
		postern__json_pair_text(buf, "value", message->headers[i].value);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
	postern__json_pair_text(buf, "transport", message->transport);
	write_time(buf, "received_at", message->received_at_ms);
	write_time(buf, "completed_at", detail->completed_at_ms);
}

static void write_conflicts(struct postern__buf *buf,
		const struct postern_detail *detail) {
	postern__json_pair_uint(buf, "conflict_count", detail->conflict_count);
	postern__json_key(buf, "conflicts");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < detail->conflict_kept; i++) {
		const struct postern_conflict *conflict = &detail->conflicts[i];
		postern__json_open(buf, '{');
		write_time(buf, "at", conflict->at_ms);
		postern__json_pair_uint(buf, "body_len", conflict->body_len);
		postern__json_pair_text(buf, "transport", conflict->transport);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
}

static void write_delivery(struct postern__buf *buf,
		const struct postern_delivery_detail *delivery) {
	postern__json_open(buf, '{');
	write_row(buf, &delivery->row);
	postern__json_key(buf, "attempts");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < delivery->attempt_count; i++) {
		const struct postern_attempt *attempt = &delivery->attempts[i];
		postern__json_open(buf, '{');
		postern__json_pair_uint(buf, "fence", attempt->fence);
		write_time(buf, "started_at", attempt->started_at_ms);
		write_time(buf, "finished_at", attempt->finished_at_ms);
		postern__json_pair_text(buf, "outcome", attempt->outcome);
		postern__json_pair_text(buf, "error", attempt->error);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
	postern__json_close(buf, '}');
}

static void write_detail(struct postern__buf *buf,
		const struct postern_detail *detail, size_t *room_left) {
	postern__json_open(buf, '{');
	write_message(buf, detail);
	write_body(buf, &detail->message, room_left);
	postern__json_pair_uint(buf, "duplicates", detail->duplicate_count);
	write_time(buf, "duplicate_at", detail->duplicate_at_ms);
	write_conflicts(buf, detail);
	postern__json_key(buf, "deliveries");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < detail->delivery_count; i++) {
		write_delivery(buf, &detail->deliveries[i]);
	}
	postern__json_close(buf, ']');
	postern__json_close(buf, '}');
}

static void write_found(struct postern__call *call, const int64_t *seqs,
		size_t count) {
	struct postern__buf *body = &call->response->body;
	size_t room_left = POSTERN__API_BODY_SHOWN_MAX;
	struct postern_error error;

	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < count; i++) {
		struct postern_detail *detail;
		int r = postern_box_get(call->api->box, seqs[i], &detail, &error);
		if (r == POSTERN_E_NOTFOUND) {
			continue; /* gone since it was found */
		}
		if (r != POSTERN_OK) {
			postern__call_fail(call, &error);
			return;
		}
		write_detail(body, detail, &room_left);
		postern_detail_destroy(detail);
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
	answer(call);
}

void postern__route_find(struct postern__call *call) {
	static const char *const names[] = { "id", "source", "channel", NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	if (!postern__call_query(call, names, parameters, &count)) {
		return;
	}
	const char *values[3] = { NULL };
	for (size_t i = 0; i < count; i++) {
		for (size_t n = 0; names[n]; n++) {
			if (parameters[i].name == names[n]) {
				values[n] = parameters[i].value;
			}
		}
	}
	if (!values[0] || !*values[0]) {
		postern__call_refuse(call, 400, "which message? 'id' is missing");
		return;
	}

	int64_t seqs[FOUND_MAX];
	struct postern_error error;
	if (postern_box_find(call->api->box, values[0], values[1], values[2], seqs,
				FOUND_MAX, &count, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
		return;
	}
	write_found(call, seqs, count);
}

/* NULL: refused. */
static struct postern_detail *get_detail(struct postern__call *call) {
	int64_t seq;
	if (!postern__call_seq(call, call->parts[0], &seq)) {
		return NULL;
	}
	struct postern_detail *detail;
	struct postern_error error;
	if (postern_box_get(call->api->box, seq, &detail, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
		return NULL;
	}
	return detail;
}

void postern__route_show(struct postern__call *call) {
	struct postern_detail *detail = get_detail(call);
	if (detail) {
		size_t room_left = POSTERN__API_BODY_SHOWN_MAX;
		write_detail(&call->response->body, detail, &room_left);
		postern_detail_destroy(detail);
		answer(call);
	}
}

/* As bytes of no type: what a stranger sent must not be run by whoever looks
   at it, and its own type is in the message. */
void postern__route_body(struct postern__call *call) {
	struct postern_detail *detail = get_detail(call);
	if (detail) {
		call->response->content_type = "application/octet-stream";
		postern__buf_append(&call->response->body, detail->message.body,
				detail->message.body_len);
		postern_detail_destroy(detail);
		answer(call);
	}
}

void postern__route_health(struct postern__call *call) {
	postern__buf_append_text(&call->response->body, "{\"status\":\"ok\"}");
	answer(call);
}

void postern__route_ready(struct postern__call *call) {
	const struct postern__api *api = call->api;
	struct postern_error error;

	if (api->is_draining && api->is_draining(api->is_draining_context)) {
		(void)postern__fail(&error, POSTERN_E_UNAVAILABLE,
				"the server is stopping");
		postern__call_fail(call, &error);
	} else if (!api->runner) {
		(void)postern__fail(&error, POSTERN_E_UNAVAILABLE, "nothing is run");
		postern__call_fail(call, &error);
	} else if (postern_runner_health(api->runner, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
	} else {
		postern__buf_append_text(&call->response->body,
				"{\"status\":\"ready\"}");
		answer(call);
	}
}
