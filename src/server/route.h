/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_ROUTE_H
#define POSTERN_SERVER_ROUTE_H

/*
 * Shared by the files of the api: a request on its way to its route, and what
 * every route needs to read it and to respond.
 */

#include <jansson.h>
#include <postern/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "server/api.h"
#include "server/stores.h"

#define POSTERN__ROUTE_PART_COUNT_MAX 2

struct postern__call {
	const struct postern__api *api;
	const struct postern__request *request;
	struct postern__response *response;
	struct postern__arena arena; /* ends with the call */
	/* The segments in the places of "{}", decoded. */
	const char *parts[POSTERN__ROUTE_PART_COUNT_MAX];
	size_t part_count;
	/* The stores of the request, in the order of the configuration. */
	const struct postern__open_store *stores[POSTERN__STORE_COUNT_MAX];
	size_t store_count;
	/* NULL: the route has to wait. */
	postern__api_done *done;
	void *done_context;
	bool pending; /* set by the route: done() will be or was called */
};

typedef void postern__route(struct postern__call *call);

postern__route postern__route_accept;
postern__route postern__route_webhook;
postern__route postern__route_stats;
postern__route postern__route_sources;
postern__route postern__route_channels;
postern__route postern__route_handlers;
postern__route postern__route_nodes;
postern__route postern__route_list;
postern__route postern__route_groups;
postern__route postern__route_find;
postern__route postern__route_show;
postern__route postern__route_body;
postern__route postern__route_retry;
postern__route postern__route_cancel;
postern__route postern__route_discard;
postern__route postern__route_retry_all;
postern__route postern__route_discard_all;
postern__route postern__route_pause;
postern__route postern__route_resume;
postern__route postern__route_close;
postern__route postern__route_open;
postern__route postern__route_cleanup;
postern__route postern__route_marks;
postern__route postern__route_claim;
postern__route postern__route_settle;
postern__route postern__route_extend;
postern__route postern__route_health;
postern__route postern__route_ready;
postern__route postern__route_metrics;

/* Respond with an error of the library; its code decides the status. */
void postern__call_fail(struct postern__call *call,
		const struct postern_error *error);

/* The same, with the name of the store if there are several. */
void postern__call_fail_in(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern_error *error);

void postern__response_fail(struct postern__response *response,
		const struct postern_error *error);

/* The result of a request in one of its stores. */
struct postern__part {
	const struct postern__open_store *store;
	struct postern_error error; /* code is POSTERN_OK for a success */
};

/*
 * Begin the response to a request that was made in several stores; a failure of
 * one does not affect the others. Close it with '}'. The response is a problem,
 * the first one, only if a store failed and nothing was changed in any: then
 * the request can be repeated as it is.
 */
void postern__call_open_parts(struct postern__call *call,
		const struct postern__part *parts, size_t count, bool changed);

/* Members of a part's own object: `store`, and if it failed `error`, `code`. */
void postern__write_part(struct postern__buf *buf,
		const struct postern__part *part);

/* The same as postern__response_fail(), left open for more members. */
void postern__response_open_fail(struct postern__response *response,
		const struct postern_error *error);

/* "busy" for POSTERN_E_BUSY; NULL for a code that is not an error. */
const char *postern__code_name(int code);

/* Respond with a problem and a text of the route. */
void postern__call_refuse(struct postern__call *call, int status,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A problem that is left open for more members; close it with '}'. */
void postern__response_open_problem(struct postern__response *response,
		int status, int code, const char *detail);

/* name is static, value is copied and cut. */
void postern__response_header(struct postern__response *response,
		const char *name, const char *value);

/* The states of the sources of this process for a store, to be freed; NULL: out
   of memory. */
struct postern_source_state *
postern__copy_source_states(const struct postern__open_store *store,
		size_t *count_out);

/* Write the sources of this process under this name; others have their own. */
void postern__write_sources(const struct postern__call *call, const char *name);

/* The members of a message, but for its body. */
void postern__write_attributes(struct postern__buf *buf,
		const struct postern_message *message, const char *channel);
/*
 * "body" if it is text, "body_base64" if not, "body_omitted" if it is longer
 * than *room_left, which is reduced by what is shown.
 */
void postern__write_body(struct postern__buf *buf,
		const struct postern_message *message, size_t *room_left);

/* A time; null for 0, which means none. */
void postern__write_time(struct postern__buf *buf, const char *name,
		int64_t ms);

/* The first header of this name, in any case; NULL if there is none. */
const char *postern__request_header(const struct postern__request *request,
		const char *name);
const char *postern__call_header(const struct postern__call *call,
		const char *name);

/* Choose the stores of the request; with `messages` those that keep messages.
   False: refused. */
bool postern__call_stores(struct postern__call *call, bool messages);

/* Reduce the stores to the one with this name. False: refused with 404. */
bool postern__call_choose(struct postern__call *call, const char *name);

/* The store of a channel; for an unknown channel any store, which will report
   that. */
const struct postern__open_store *
postern__call_of_channel(const struct postern__call *call, const char *channel);

/* The store that has the message. NULL: refused, because no store or several
   have it. */
const struct postern__open_store *
postern__call_of_seq(struct postern__call *call, int64_t seq);

/*
 * For requests without parameters: the query may have only `store`, which
 * chooses the store. False: refused.
 */
bool postern__call_store_query(struct postern__call *call);

/* The number of a message in a path: 1 and up. False: refused with 404. */
bool postern__call_seq(struct postern__call *call, const char *text,
		int64_t *out);

/* Whether the sender may use a channel, or the channel of a handler: a token
   may be narrowed to some channels. False: refused. */
bool postern__call_may_use(struct postern__call *call, const char *channel);

/* The same of a message in the channel, whose name is not told. */
bool postern__call_may_see(struct postern__call *call, int64_t seq,
		const char *channel);
bool postern__call_may_handle(struct postern__call *call, const char *handler);
/* The same for the deliveries that match: the filter must name a channel or a
   handler. That of a handler is narrowed to the channel which has it now: it
   may have deliveries of another one. */
bool postern__call_may_filter(struct postern__call *call,
		struct postern_filter *filter);
/* The same for one delivery, by the channel of its message. */
bool postern__call_may_edit(struct postern__call *call, struct postern_box *box,
		int64_t seq);
/* Whether the sender may see bodies of messages. */
bool postern__call_may_see_bodies(const struct postern__call *call);

/* One parameter of a query, decoded, or of a JSON object. */
struct postern__parameter {
	const char *name;
	const char *value;
};

#define POSTERN__PARAMETER_COUNT_MAX 16

/*
 * Read the query. Every name must be one of `names` (ended by NULL) and come
 * once; values are valid UTF-8 without control characters. False: refused.
 */
bool postern__call_query(struct postern__call *call, const char *const *names,
		struct postern__parameter out[POSTERN__PARAMETER_COUNT_MAX],
		size_t *count_out);

/*
 * Set one member of a filter from its text; "state", "channel", "handler",
 * "type", "since", "until", "message_id", "source", "seq", "error", "group",
 * "oldest". False: refused. The value must live as long as the filter.
 */
bool postern__call_filter(struct postern__call *call, const char *name,
		const char *value, struct postern_filter *filter);

#define POSTERN__FILTER_NAMES                                              \
	"state", "channel", "handler", "type", "since", "until", "message_id", \
			"source", "seq", "error", "group", "oldest"

/* Write the group of an error as hexadecimal digits, null for none. */
void postern__write_group(struct postern__buf *buf, uint64_t group);

/* The edit of the deliveries that match. */
enum postern__edit {
	POSTERN__EDIT_NONE,
	POSTERN__EDIT_RETRY,
	POSTERN__EDIT_DISCARD
};

/* Whether the edit accepts a filter of this state. False: refused. */
bool postern__call_edit_state(struct postern__call *call,
		enum postern_state state, enum postern__edit edit);

/* The body as a JSON object, yours to json_decref(). NULL: refused. */
json_t *postern__call_object(struct postern__call *call);
/* For requests without parameters: no body, or {}. False: refused. */
bool postern__call_no_body(struct postern__call *call);

/* What the body of a change says about it. */
struct postern__change_body {
	json_t *json; /* NULL: no body; yours to json_decref() */
	const char *reason;
	const char *by;
	int64_t for_ms; /* of a pause; 0: without an end */
	bool cancels;   /* in: `uncounted` is allowed */
	bool uncounted;
};
/* Read a body that may have only such members; `for` and `until` only if
   timed. False: refused. */
bool postern__call_change_body(struct postern__call *call, bool timed,
		struct postern__change_body *out);
/* The same for a cancel. */
bool postern__call_cancel_body(struct postern__call *call,
		struct postern__change_body *out);
/* The same for one member of a body that has others, too. */
bool postern__call_change_member(struct postern__call *call, const char *name,
		json_t *value, bool timed, struct postern__change_body *out);

/* A number of rows: 1 to POSTERN_LIST_LIMIT_MAX. False: refused. */
bool postern__call_limit(struct postern__call *call, const char *text,
		uint32_t *out);

#endif
