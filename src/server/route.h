/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_ROUTE_H
#define POSTERN_SERVER_ROUTE_H

/*
 * What the api's own files share: a request on its way to its route, and what
 * every route needs to read it and to answer.
 */

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
	struct postern__arena arena; /* goes with the call */
	/* What stood in the place of each "{}", decoded. */
	const char *parts[POSTERN__ROUTE_PART_COUNT_MAX];
	/* What the request is about, in the order of the configuration. */
	const struct postern__open_store *stores[POSTERN__STORE_COUNT_MAX];
	size_t store_count;
	/* NULL: the route has to wait. */
	postern__api_done *done;
	void *done_context;
	bool pending; /* set by the route: done() will be or was called */
};

typedef void postern__route(struct postern__call *call);

postern__route postern__route_accept;
postern__route postern__route_stats;
postern__route postern__route_channels;
postern__route postern__route_handlers;
postern__route postern__route_nodes;
postern__route postern__route_list;
postern__route postern__route_find;
postern__route postern__route_show;
postern__route postern__route_body;
postern__route postern__route_retry;
postern__route postern__route_discard;
postern__route postern__route_retry_all;
postern__route postern__route_discard_all;
postern__route postern__route_pause;
postern__route postern__route_resume;
postern__route postern__route_cleanup;
postern__route postern__route_health;
postern__route postern__route_ready;

/* Answer with what the library said; its code decides the status. */
void postern__call_fail(struct postern__call *call,
		const struct postern_error *error);

/* The same, saying in which store if there are several. */
void postern__call_fail_in(struct postern__call *call,
		const struct postern__open_store *store,
		const struct postern_error *error);

void postern__response_fail(struct postern__response *response,
		const struct postern_error *error);

/* What a request came to in one of its stores. */
struct postern__part {
	const struct postern__open_store *store;
	struct postern_error error; /* its code is POSTERN_OK if it went well */
};

/*
 * Begin the answer to a request that went through several stores and left none
 * out because of another; close it with '}'. It is a problem, the first one,
 * only if a store failed and nothing was changed in any: then the request can
 * be made again as it is.
 */
void postern__call_open_parts(struct postern__call *call,
		const struct postern__part *parts, size_t count, bool changed);

/* Members of a part's own object: `store`, and if it failed `error`, `code`. */
void postern__write_part(struct postern__buf *buf,
		const struct postern__part *part);

/* The same as postern__response_fail(), left open for more members. */
void postern__response_open_fail(struct postern__response *response,
		const struct postern_error *error);

/* "busy" for POSTERN_E_BUSY; NULL for what is no error. */
const char *postern__code_name(int code);

/* Answer with a problem of our own wording. */
void postern__call_refuse(struct postern__call *call, int status,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A problem that is left open for more members; close it with '}'. */
void postern__response_open_problem(struct postern__response *response,
		int status, int code, const char *detail);

/* name is static, value is copied and cut. */
void postern__response_header(struct postern__response *response,
		const char *name, const char *value);

/* A moment; null for 0, which is one that has not come. */
void postern__write_time(struct postern__buf *buf, const char *name,
		int64_t ms);

/* The first header of this name, in any case; NULL if there is none. */
const char *postern__call_header(const struct postern__call *call,
		const char *name);

/* Set the stores that the request is about. False: refused. */
bool postern__call_stores(struct postern__call *call);

/* Narrow them down to the one with this name. False: refused with 404. */
bool postern__call_choose(struct postern__call *call, const char *name);

/* The store of a channel; if nobody knows the channel, some other, which will
   say so. */
const struct postern__open_store *
postern__call_of_channel(const struct postern__call *call, const char *channel);

/* The one store that has the message. NULL: refused, because none has it or
   several have. */
const struct postern__open_store *
postern__call_of_seq(struct postern__call *call, int64_t seq);

/*
 * For requests that say it all in their path: the query has at most `store`,
 * by which the stores are narrowed down. False: refused.
 */
bool postern__call_store_query(struct postern__call *call);

/* The number of a message in a path: 1 and up. False: refused with 404. */
bool postern__call_seq(struct postern__call *call, const char *text,
		int64_t *out);

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
 * "type", "since", "until", "message_id", "source", "seq". False: refused. The
 * value must live as long as the filter.
 */
bool postern__call_filter(struct postern__call *call, const char *name,
		const char *value, struct postern_filter *filter);

#define POSTERN__FILTER_NAMES                                              \
	"state", "channel", "handler", "type", "since", "until", "message_id", \
			"source", "seq"

/* A number of rows: 1 to POSTERN_LIST_LIMIT_MAX. False: refused. */
bool postern__call_limit(struct postern__call *call, const char *text,
		uint32_t *out);

#endif
