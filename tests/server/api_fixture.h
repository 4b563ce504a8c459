/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_API_FIXTURE_H
#define POSTERN_TESTS_API_FIXTURE_H

/*
 * A memory box with a few channels, and requests to its API.
 *
 *   orders  handlers ok (done), no/good (poison), both for every type
 *   strict  handler only-order for order.*; other types are rejected
 *   drops   the same as handler drop-order; other types are dropped, and what
 *           is complete expires
 *   parks   no handler at all
 */

#include <jansson.h>
#include <postern/postern.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/api.h"
#include "server/stores.h"
#include "support/fake_clock.h"

#define FIXTURE_RETENTION_MS 1000

struct fixture {
	struct fake_clock clock;
	struct postern_box *box;
	struct postern__stores stores; /* only one */
	struct postern__api api;
	/* Of the last request. */
	int status;
	struct postern__response response;
	json_t *json; /* NULL if the body is not JSON */
};

void fixture_init(struct fixture *self);
void fixture_finish(struct fixture *self);

/*
 * Send a request: "GET /v1/stats?x=y", header lines "name: value" ended by
 * NULL (or no lines at all: NULL), and a body. Returns the status.
 */
int fixture_send(struct fixture *self, const char *line,
		const char *const *lines, const void *body, size_t body_len);

/* Any request, as the server would pass it. */
int fixture_request(struct fixture *self,
		const struct postern__request *request);

/* Send a request without headers and body. */
int fixture_get(struct fixture *self, const char *line);

/* Send a request with a JSON body. */
int fixture_post(struct fixture *self, const char *line, const char *json);

/* Send a message with this id, type "order.placed" and source "shop". */
int fixture_message(struct fixture *self, const char *channel, const char *id,
		const char *body);

/* Run everything that is due. */
void fixture_process(struct fixture *self);

/* A string in the last response, by a path such as "items.0.state"; NULL if
   there is none. */
const char *fixture_text(const struct fixture *self, const char *path);
/* A number, by its path; -1 if there is none. */
long long fixture_number(const struct fixture *self, const char *path);
/* Any value, by its path; NULL if there is none. */
json_t *fixture_value(const struct fixture *self, const char *path);

/* The value of a header of the last response; NULL if there is none. */
const char *fixture_header(const struct fixture *self, const char *name);

#endif
