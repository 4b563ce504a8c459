/* SPDX-License-Identifier: MIT */

/*
 * The routes that read deliveries and messages: listings, and one message with
 * everything about it.
 *
 * Several stores are listed one after the other. A cursor then names the store
 * in which the listing continues: "NAME:" and the store's own cursor; nothing
 * after the colon means its beginning.
 */

#include <inttypes.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "server/api.h"
#include "server/route.h"

/* Messages with one id that are shown; they differ in source or channel. */
#define FOUND_MAX 20

static void list_response(struct postern__call *call) {
	call->response->status = 200;
}

/* What is derived of a row: the state for people, and why and where. */
static void write_shown(struct postern__buf *buf,
		const struct postern_row *row) {
	char node[17]; /* more digits than a JSON number can hold exactly */
	bool leased = row->node != 0;
	(void)snprintf(node, sizeof node, "%016" PRIx64, row->node);
	postern__json_pair_text(buf, "shown", postern_state_name(row->shown));
	postern__json_pair_text(buf, "reason", row->reason);
	postern__write_time(buf, "until", row->until_ms);
	postern__json_pair_text(buf, "held_reason", row->held_reason);
	postern__json_pair_text(buf, "held_by", row->held_by);
	postern__write_time(buf, "held_at", row->held_at_ms);
	postern__json_pair_text(buf, "node", leased ? node : NULL);
	postern__json_pair_text(buf, "host", row->host);
	if (row->pid) {
		postern__json_pair_int(buf, "pid", row->pid);
	} else {
		postern__json_pair_null(buf, "pid");
	}
	postern__write_time(buf, "since",
			row->started_at_ms ? row->started_at_ms : row->leased_at_ms);
	postern__write_time(buf, "reported_at", row->reported_at_ms);
	postern__json_pair_uint(buf, "attempt", row->attempt);
}

/* The attempts of the handler in total; null if it is not configured. */
static void write_max_attempts(const struct postern__call *call,
		const struct postern_row *row) {
	struct postern__buf *buf = &call->response->body;
	const struct postern__config *config = call->api->config;
	const struct postern__config_handler *handler =
			config && !row->max_attempts
					? postern__config_handler_named(config, row->handler)
					: NULL;
	uint32_t max = row->max_attempts;
	if (handler) {
		max = handler->values.max_attempts > 0 ? handler->values.max_attempts
											   : 1;
	}
	if (max > 0) {
		postern__json_pair_uint(buf, "max_attempts", max);
	} else {
		postern__json_pair_null(buf, "max_attempts");
	}
}

static void write_row(const struct postern__call *call, const char *store,
		const struct postern_row *row) {
	struct postern__buf *buf = &call->response->body;
	postern__json_pair_text(buf, "store", store);
	postern__json_pair_int(buf, "seq", row->seq);
	postern__json_pair_text(buf, "message_id", row->message_id);
	postern__json_pair_text(buf, "source", row->source);
	postern__json_pair_text(buf, "channel", row->channel);
	postern__json_pair_text(buf, "handler", row->handler);
	postern__json_pair_text(buf, "type", row->type);
	postern__json_pair_text(buf, "state", postern_state_name(row->state));
	write_shown(buf, row);
	write_max_attempts(call, row);
	postern__json_pair_uint(buf, "failures", row->failures);
	postern__json_pair_uint(buf, "starts", row->starts);
	postern__json_pair_uint(buf, "crashes", row->crashes);
	postern__json_pair_uint(buf, "returns", row->returns);
	postern__json_pair_uint(buf, "fence", row->fence);
	postern__write_time(buf, "received_at", row->received_at_ms);
	postern__write_time(buf, "next_at", row->next_at_ms);
	postern__write_time(buf, "leased_at", row->leased_at_ms);
	postern__write_time(buf, "finished_at", row->finished_at_ms);
	postern__json_pair_text(buf, "last_error", row->last_error);
	postern__write_group(buf, row->group);
}

/* The parameters of a listing. */
struct page {
	struct postern_filter filter; /* limit: what is left of it */
	size_t first;                 /* the store to continue in */
	bool known;                   /* a store has the names of the filter */
	struct postern_error unknown; /* of the last store that has not */
	/* Where to continue; "" at the end. */
	char cursor[POSTERN__STORE_NAME_LEN_MAX + 1 + POSTERN_CURSOR_LEN_MAX + 1];
};

/* Which of several stores a cursor names; store_count: none. */
static size_t find_store(const struct postern__call *call, const char *cursor,
		size_t len) {
	size_t i = 0;
	while (i < call->store_count &&
			(strlen(call->stores[i]->name) != len ||
					memcmp(call->stores[i]->name, cursor, len) != 0)) {
		i++;
	}
	return i;
}

/* False: refused. */
static bool set_cursor(struct postern__call *call, const char *text,
		struct page *page) {
	if (call->store_count > 1 && *text) {
		size_t len = strcspn(text, ":");
		page->first = find_store(call, text, len);
		if (page->first == call->store_count || text[len] != ':') {
			postern__call_refuse(call, 400,
					"invalid cursor, or its store is no longer configured");
			return false;
		}
		text += len + 1;
	}
	if (strlen(text) > POSTERN_CURSOR_LEN_MAX) {
		postern__call_refuse(call, 400, "invalid cursor");
		return false;
	}
	page->filter.cursor = *text ? text : NULL;
	return true;
}

/* Set one member of the listing's filter. False: refused. */
static bool set_list(struct postern__call *call,
		const struct postern__parameter *parameter, struct page *page) {
	if (strcmp(parameter->name, "limit") == 0) {
		return postern__call_limit(call, parameter->value, &page->filter.limit);
	}
	if (strcmp(parameter->name, "q") == 0) {
		postern__call_refuse(call, 400,
				"the search parameter 'q' is not in this version");
		return false;
	}
	return postern__call_filter(call, parameter->name, parameter->value,
			&page->filter);
}

static bool read_page(struct postern__call *call, struct page *page) {
	/* The names of a filter, and what only a listing has. */
	static const char *const names[] = { POSTERN__FILTER_NAMES, "limit",
		"cursor", "q", "store", NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	const char *cursor = "";
	size_t count;
	*page = (struct page){ .filter = { .size = sizeof page->filter,
								   .limit = POSTERN_LIST_LIMIT_DEFAULT } };
	if (!postern__call_query(call, names, parameters, &count)) {
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		const struct postern__parameter *parameter = &parameters[i];
		bool good = true;
		if (strcmp(parameter->name, "store") == 0) {
			good = postern__call_choose(call, parameter->value);
		} else if (strcmp(parameter->name, "cursor") == 0) {
			cursor = parameter->value;
		} else {
			good = set_list(call, parameter, page);
		}
		if (!good) {
			return false;
		}
	}
	/* Last, because it names one of the stores that were chosen. */
	return set_cursor(call, cursor, page);
}

/* Where to continue: in this store, or at its beginning. */
static void put_cursor(const struct postern__call *call, size_t index,
		const char *cursor, struct page *page) {
	bool several = call->store_count > 1;
	(void)snprintf(page->cursor, sizeof page->cursor, "%s%s%s",
			several ? call->stores[index]->name : "", several ? ":" : "",
			cursor ? cursor : "");
}

/* List one store's part of the page. False: refused. */
static bool list_store(struct postern__call *call, size_t index,
		struct page *page) {
	const struct postern__open_store *store = call->stores[index];
	struct postern__buf *body = &call->response->body;
	struct postern_filter filter = page->filter;
	struct postern_listing *listing;
	struct postern_error error;
	bool full = filter.limit == 0;

	if (full) {
		filter.limit = 1; /* only to see whether there is more */
	}
	int r = postern_box_list(store->box, &filter, &listing, &error);
	if (r == POSTERN_E_NOTFOUND) {
		/* Another store may have the handler or the channel. */
		page->unknown = error;
		page->filter.cursor = NULL;
		return true;
	}
	if (r != POSTERN_OK) {
		postern__call_fail_in(call, store, &error);
		return false;
	}
	page->known = true;
	size_t count = postern_listing_count(listing);
	for (size_t i = 0; !full && i < count; i++) {
		postern__json_open(body, '{');
		write_row(call, store->name, postern_listing_get(listing, i));
		postern__json_close(body, '}');
	}
	if (full && count > 0) {
		put_cursor(call, index, NULL, page);
	} else if (!full && postern_listing_cursor(listing)) {
		put_cursor(call, index, postern_listing_cursor(listing), page);
	}
	page->filter.limit -= full ? 0 : (uint32_t)count;
	page->filter.cursor = NULL; /* the next store begins at its newest */
	postern_listing_destroy(listing);
	return true;
}

void postern__route_list(struct postern__call *call) {
	struct postern__buf *body = &call->response->body;
	struct page page;
	if (!read_page(call, &page) ||
			!postern__call_may_filter(call, &page.filter)) {
		return;
	}
	/* A page that continues another one had the names before. */
	page.known = page.first > 0 || page.filter.cursor;
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = page.first; i < call->store_count && !*page.cursor; i++) {
		if (!list_store(call, i, &page)) {
			return;
		}
	}
	if (!page.known) {
		postern__call_fail(call, &page.unknown);
		return;
	}
	postern__json_close(body, ']');
	postern__json_pair_text(body, "cursor", *page.cursor ? page.cursor : NULL);
	postern__json_close(body, '}');
	list_response(call);
}

static void write_base64(struct postern__buf *buf, const void *bytes,
		size_t len) {
	size_t encoded = POSTERN__BASE64_ENCODED(len);
	postern__buf_append_char(buf, '"');
	char *place = postern__buf_reserve(buf, encoded);
	if (place) {
		postern__base64_encode(bytes, len, place);
		postern__buf_commit(buf, encoded);
	}
	postern__buf_append_char(buf, '"');
}

/* A zero byte is valid UTF-8, but many JSON parsers do not accept it. */
void postern__write_body(struct postern__buf *buf,
		const struct postern_message *message, size_t *room_left) {
	const char *bytes = message->body;
	size_t len = message->body_len;

	postern__json_pair_uint(buf, "body_len", len);
	if (len > *room_left || *room_left == 0) {
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

void postern__write_attributes(struct postern__buf *buf,
		const struct postern_message *message, const char *channel) {
	postern__json_pair_text(buf, "id", message->id);
	postern__json_pair_text(buf, "source", message->source);
	postern__json_pair_text(buf, "channel", channel);
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
}

static void write_message(struct postern__buf *buf, const char *store,
		const struct postern_detail *detail) {
	const struct postern_message *message = detail->message;

	postern__json_pair_text(buf, "store", store);
	postern__json_pair_int(buf, "seq", detail->seq);
	postern__write_attributes(buf, message, detail->channel);
	postern__json_pair_text(buf, "transport", message->transport);
	postern__write_time(buf, "received_at", message->received_at_ms);
	postern__write_time(buf, "completed_at", detail->completed_at_ms);
}

static void write_conflicts(struct postern__buf *buf,
		const struct postern_detail *detail) {
	postern__json_pair_uint(buf, "conflict_count", detail->conflict_count);
	postern__json_key(buf, "conflicts");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < detail->conflict_kept; i++) {
		const struct postern_conflict *conflict = &detail->conflicts[i];
		postern__json_open(buf, '{');
		postern__write_time(buf, "at", conflict->at_ms);
		postern__json_pair_uint(buf, "body_len", conflict->body_len);
		postern__json_pair_text(buf, "transport", conflict->transport);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
}

static void write_delivery(struct postern__call *call, const char *store,
		const struct postern_delivery_detail *delivery) {
	struct postern__buf *buf = &call->response->body;
	postern__json_open(buf, '{');
	write_row(call, store, &delivery->row);
	postern__json_key(buf, "attempts");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < delivery->attempt_count; i++) {
		const struct postern_attempt *attempt = &delivery->attempts[i];
		postern__json_open(buf, '{');
		postern__json_pair_uint(buf, "fence", attempt->fence);
		postern__write_time(buf, "started_at", attempt->started_at_ms);
		postern__write_time(buf, "finished_at", attempt->finished_at_ms);
		postern__json_pair_text(buf, "outcome", attempt->outcome);
		postern__json_pair_text(buf, "error", attempt->error);
		postern__json_close(buf, '}');
	}
	postern__json_close(buf, ']');
	postern__json_close(buf, '}');
}

static void write_detail(struct postern__call *call, const char *store,
		const struct postern_detail *detail, size_t *room_left) {
	struct postern__buf *buf = &call->response->body;
	postern__json_open(buf, '{');
	write_message(buf, store, detail);
	postern__write_body(buf, detail->message, room_left);
	postern__json_pair_uint(buf, "duplicates", detail->duplicate_count);
	postern__write_time(buf, "duplicate_at", detail->duplicate_at_ms);
	write_conflicts(buf, detail);
	postern__json_key(buf, "deliveries");
	postern__json_open(buf, '[');
	for (size_t i = 0; i < detail->delivery_count; i++) {
		write_delivery(call, store, &detail->deliveries[i]);
	}
	postern__json_close(buf, ']');
	postern__json_close(buf, '}');
}

/* The parameters of a search; NULL: any. */
struct wanted {
	const char *id;
	const char *source;
	const char *channel;
};

/* Read one store's part of the messages that were found. False: refused. */
static bool find_in(struct postern__call *call,
		const struct postern__open_store *store, const struct wanted *wanted,
		size_t *room_left) {
	int64_t seqs[FOUND_MAX];
	struct postern_error error;
	size_t count;
	int r = postern_box_find(store->box, wanted->id, wanted->source,
			wanted->channel, seqs, FOUND_MAX, &count, &error);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		struct postern_detail *detail;
		r = postern_box_get(store->box, seqs[i], &detail, &error);
		if (r == POSTERN_E_NOTFOUND) {
			r = POSTERN_OK; /* removed since it was found */
		} else if (r == POSTERN_OK) {
			write_detail(call, store->name, detail, room_left);
			postern_detail_destroy(detail);
		}
	}
	if (r != POSTERN_OK) {
		postern__call_fail_in(call, store, &error);
	}
	return r == POSTERN_OK;
}

/* False: refused. */
static bool read_wanted(struct postern__call *call, struct wanted *wanted) {
	static const char *const names[] = { "id", "source", "channel", "store",
		NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	*wanted = (struct wanted){ .id = NULL };
	if (!postern__call_query(call, names, parameters, &count)) {
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		const char *name = parameters[i].name;
		const char *value = parameters[i].value;
		if (strcmp(name, "store") == 0) {
			if (!postern__call_choose(call, value)) {
				return false;
			}
		} else if (strcmp(name, "source") == 0) {
			wanted->source = value;
		} else if (strcmp(name, "channel") == 0) {
			wanted->channel = value;
		} else {
			wanted->id = value;
		}
	}
	if (!wanted->id || !*wanted->id) {
		postern__call_refuse(call, 400, "'id' is required");
		return false;
	}
	return true;
}

/* How many bytes of bodies the response may have. */
static size_t body_room(const struct postern__call *call) {
	return postern__call_may_see_bodies(call) ? POSTERN__API_BODY_SHOWN_MAX : 0;
}

void postern__route_find(struct postern__call *call) {
	struct postern__buf *body = &call->response->body;
	size_t room_left = body_room(call);
	struct wanted wanted;
	if (!read_wanted(call, &wanted) ||
			!postern__call_may_use(call,
					wanted.channel ? wanted.channel : "")) {
		return;
	}
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < call->store_count; i++) {
		if (!find_in(call, call->stores[i], &wanted, &room_left)) {
			return;
		}
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
	list_response(call);
}

/* The message number in the path, and the store that has it. NULL: refused. */
static const struct postern__open_store *find_seq(struct postern__call *call,
		int64_t *seq_out) {
	if (!postern__call_store_query(call) ||
			!postern__call_seq(call, call->parts[0], seq_out)) {
		return NULL;
	}
	return postern__call_of_seq(call, *seq_out);
}

/*
 * A message whose row is missing, as in a damaged store: its deliveries can be
 * read and ended by its number. False: there are none.
 */
static bool write_remains(struct postern__call *call,
		const struct postern__open_store *store, int64_t seq) {
	static const char *const lost[] = { "id", "source", "channel", "type" };
	struct postern__buf *buf = &call->response->body;
	const struct postern_filter filter = { .size = sizeof filter, .seq = seq };
	struct postern_listing *listing;
	if (postern_box_list(store->box, &filter, &listing, NULL) != POSTERN_OK) {
		return false;
	}
	size_t count = postern_listing_count(listing);
	if (count > 0) {
		postern__json_open(buf, '{');
		postern__json_pair_text(buf, "store", store->name);
		postern__json_pair_int(buf, "seq", seq);
		for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++) {
			postern__json_pair_null(buf, lost[i]);
		}
		postern__json_pair_bool(buf, "message_missing", true);
		postern__json_key(buf, "deliveries");
		postern__json_open(buf, '[');
		for (size_t i = 0; i < count; i++) {
			const struct postern_delivery_detail delivery = {
				.row = *postern_listing_get(listing, i),
			};
			write_delivery(call, store->name, &delivery);
		}
		postern__json_close(buf, ']');
		postern__json_close(buf, '}');
	}
	postern_listing_destroy(listing);
	return count > 0;
}

void postern__route_show(struct postern__call *call) {
	struct postern_detail *detail;
	struct postern_error error;
	int64_t seq;
	const struct postern__open_store *store = find_seq(call, &seq);
	if (!store) {
		return;
	}
	int r = postern_box_get(store->box, seq, &detail, &error);
	if (r == POSTERN_OK) {
		size_t room_left = body_room(call);
		bool allowed = postern__call_may_see(call, seq, detail->channel);
		if (allowed) {
			write_detail(call, store->name, detail, &room_left);
		}
		postern_detail_destroy(detail);
		if (!allowed) {
			return;
		}
	} else if (r != POSTERN_E_NOTFOUND ||
			   !postern__call_may_see(call, seq, "") ||
			   !write_remains(call, store, seq)) {
		postern__call_fail(call, &error);
		return;
	}
	list_response(call);
}

/* Sent as bytes without a type: a browser must not run what a sender sent. The
   type of the body is in the message. */
void postern__route_body(struct postern__call *call) {
	struct postern_detail *detail;
	struct postern_error error;
	int64_t seq;
	const struct postern__open_store *store = find_seq(call, &seq);
	if (!store) {
		return;
	}
	if (postern_box_get(store->box, seq, &detail, &error) != POSTERN_OK) {
		postern__call_fail(call, &error);
		return;
	}
	if (postern__call_may_see(call, seq, detail->channel)) {
		call->response->content_type = "application/octet-stream";
		postern__buf_append(&call->response->body, detail->message->body,
				detail->message->body_len);
		list_response(call);
	}
	postern_detail_destroy(detail);
}
