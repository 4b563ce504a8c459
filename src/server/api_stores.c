/* SPDX-License-Identifier: MIT */

/*
 * Chooses the stores of a request.
 *
 * All stores of the server, unless the request names some. A command names the
 * stores of its own configuration, by their files: a store that it does not
 * name must not be changed, and a store that it names must not be left out
 * silently.
 */

#include <postern/inspect.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/json_text.h"
#include "base/text.h"
#include "server/route.h"

static void add_store(struct postern__call *call,
		const struct postern__open_store *store) {
	for (size_t i = 0; i < call->store_count; i++) {
		if (call->stores[i] == store) {
			return;
		}
	}
	call->stores[call->store_count++] = store;
}

/* Read one Postern-Store header. False: refused. */
static bool add_named(struct postern__call *call, const char *name) {
	const struct postern__open_store *store =
			postern__stores_find(call->api->stores, name);
	if (!store) {
		postern__call_refuse(call, 421,
				"the server does not have this store: it was started with "
				"another configuration, or the store's file was removed or "
				"replaced; restart the server, or choose another store");
		return false;
	}
	add_store(call, store);
	return true;
}

static void refuse_markers_only(struct postern__call *call, const char *name) {
	postern__call_refuse(call, 501,
			"the store '%s' keeps markers only: it has no messages", name);
}

/* Leave out the stores that keep markers only. False: refused. */
static bool keep_boxes(struct postern__call *call) {
	size_t count = 0;
	for (size_t i = 0; i < call->store_count; i++) {
		if (call->stores[i]->box) {
			call->stores[count++] = call->stores[i];
		}
	}
	if (count == 0) {
		refuse_markers_only(call, call->stores[0]->name);
		return false;
	}
	call->store_count = count;
	return true;
}

bool postern__call_stores(struct postern__call *call, bool messages) {
	const struct postern__request *request = call->request;
	const struct postern__stores *stores = call->api->stores;
	for (size_t i = 0; i < request->header_count; i++) {
		if (strcasecmp(request->headers[i].name, POSTERN__API_STORE_HEADER) ==
						0 &&
				!add_named(call, request->headers[i].value)) {
			return false;
		}
	}
	for (size_t i = 0; i < stores->count && call->store_count == 0; i++) {
		call->stores[i] = &stores->items[i];
	}
	if (call->store_count == 0) {
		call->store_count = stores->count;
	}
	return !messages || keep_boxes(call);
}

bool postern__call_choose(struct postern__call *call, const char *name) {
	const char *names[POSTERN__STORE_COUNT_MAX];
	for (size_t i = 0; i < call->store_count; i++) {
		if (strcmp(call->stores[i]->name, name) == 0) {
			call->stores[0] = call->stores[i];
			call->store_count = 1;
			return true;
		}
		names[i] = call->stores[i]->name;
	}
	const struct postern__open_store *other =
			postern__stores_find(call->api->stores, name);
	if (other && !other->box) {
		refuse_markers_only(call, other->name);
		return false;
	}
	const char *near = postern__closest(name, names, call->store_count);
	postern__call_refuse(call, 404, "no store '%s'%s%s%s", name,
			near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
	return false;
}

/* The error, with the name of the store if there are several. */
static struct postern_error prefix_store(const struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern_error *error) {
	struct postern_error told = *error;
	if (call->api->stores->count > 1) {
		(void)postern__fail(&told, error->code, "store '%s': %s", store->name,
				error->text);
	}
	return told;
}

void postern__call_fail_in(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern_error *error) {
	struct postern_error told = prefix_store(call, store, error);
	postern__call_fail(call, &told);
}

void postern__call_open_parts(struct postern__call *call,
		const struct postern__part *parts, size_t count, bool changed) {
	for (size_t i = 0; i < count && !changed; i++) {
		if (parts[i].error.code != POSTERN_OK) {
			struct postern_error told =
					prefix_store(call, parts[i].store, &parts[i].error);
			postern__response_open_fail(call->response, &told);
			return;
		}
	}
	postern__json_open(&call->response->body, '{');
	call->response->status = 200;
}

void postern__write_part(struct postern__buf *buf,
		const struct postern__part *part) {
	postern__json_pair_text(buf, "store", part->store->name);
	if (part->error.code != POSTERN_OK) {
		postern__json_pair_text(buf, "error", part->error.text);
		postern__json_pair_text(buf, "code",
				postern__code_name(part->error.code));
	}
}

bool postern__call_store_query(struct postern__call *call) {
	static const char *const names[] = { "store", NULL };
	struct postern__parameter parameters[POSTERN__PARAMETER_COUNT_MAX];
	size_t count;
	return postern__call_query(call, names, parameters, &count) &&
		   (count == 0 || postern__call_choose(call, parameters[0].value));
}

const struct postern__open_store *
postern__call_of_channel(const struct postern__call *call,
		const char *channel) {
	const struct postern__config_channel *known =
			call->api->config
					? postern__config_channel_named(call->api->config, channel)
					: NULL;
	for (size_t i = 0; known && i < call->store_count; i++) {
		if (strcmp(call->stores[i]->name, known->store->name) == 0) {
			return call->stores[i];
		}
	}
	return call->stores[0];
}

/* Each store has its own message numbers; commands have a flag for the
   store. */
static void refuse_several(struct postern__call *call, int64_t seq,
		const struct postern__buf *names) {
	bool command = call->request->transport &&
				   strcmp(call->request->transport, "cli") == 0;
	postern__call_refuse(call, 409,
			"several stores have a message %s%lld (%s): choose one with %s",
			command ? "#" : "", (long long)seq, postern__buf_text(names),
			command ? "--in NAME" : "?store=NAME");
}

/* Whether a box has a message with this number, or deliveries of one whose row
   is missing. POSTERN_E_NOTFOUND: neither. */
static int find_message(struct postern_box *box, int64_t seq,
		struct postern_error *error) {
	const struct postern_filter filter = {
		.size = sizeof filter,
		.seq = seq,
		.limit = 1,
	};
	struct postern_detail *detail;
	struct postern_listing *listing;
	int r = postern_box_get(box, seq, &detail, error);
	if (r == POSTERN_OK) {
		postern_detail_destroy(detail);
		return r;
	}
	if (r == POSTERN_E_NOTFOUND &&
			postern_box_list(box, &filter, &listing, NULL) == POSTERN_OK) {
		r = postern_listing_count(listing) > 0 ? POSTERN_OK : r;
		postern_listing_destroy(listing);
	}
	return r;
}

const struct postern__open_store *
postern__call_of_seq(struct postern__call *call, int64_t seq) {
	const struct postern__open_store *found = NULL;
	struct postern_error error;
	struct postern__buf names;
	size_t count = 0;
	if (call->store_count == 1) {
		return call->stores[0];
	}
	postern__buf_init(&names, POSTERN_ERROR_TEXT_MAX);
	for (size_t i = 0; i < call->store_count; i++) {
		int r = find_message(call->stores[i]->box, seq, &error);
		if (r == POSTERN_E_NOTFOUND) {
			continue;
		}
		if (r != POSTERN_OK) {
			postern__call_fail_in(call, call->stores[i], &error);
			found = NULL;
			goto out;
		}
		found = call->stores[i];
		postern__buf_printf(&names, "%s%s", count++ > 0 ? ", " : "",
				found->name);
	}
	if (count == 0) {
		postern__call_refuse(call, 404, "no message %lld", (long long)seq);
	} else if (count > 1) {
		refuse_several(call, seq, &names);
		found = NULL;
	}
out:
	postern__buf_finish(&names);
	return found;
}
