/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_VALUES_H
#define POSTERN_HANDLER_SQL_VALUES_H

/*
 * The values of one message's parameters. What is costly is made when the
 * first statement asks for it, and once.
 */

#include <stdbool.h>

#include "base/buf.h"

struct postern_delivery;
struct postern_message;
struct postern_outcome;

struct postern__sql_values {
	/* Borrowed. */
	const struct postern_message *message;
	const struct postern_delivery *delivery;
	bool body_is_text; /* seen to be; else not looked at yet */
	bool body_is_json;
	struct postern__buf headers; /* as JSON, once made */
};

void postern__sql_values_init(struct postern__sql_values *values,
		const struct postern_message *message,
		const struct postern_delivery *delivery);
void postern__sql_values_finish(struct postern__sql_values *values);

/* Whether the body can be a text; if not, the outcome says so. */
bool postern__sql_body_is_text(struct postern__sql_values *values,
		struct postern_outcome *outcome);
/* Fill values->headers; false with the outcome set if there is no memory. */
bool postern__sql_make_headers(struct postern__sql_values *values,
		struct postern_outcome *outcome);

#endif
