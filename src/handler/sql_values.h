/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_VALUES_H
#define POSTERN_HANDLER_SQL_VALUES_H

/*
 * The values of one message's parameters. Expensive ones are created when the
 * first statement needs them, and once.
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
	bool body_is_text; /* validated; else not checked yet */
	bool body_is_json;
	struct postern__buf headers; /* as JSON, once created */
};

void postern__sql_values_init(struct postern__sql_values *values,
		const struct postern_message *message,
		const struct postern_delivery *delivery);
void postern__sql_values_finish(struct postern__sql_values *values);

/* Whether the body is valid text; if not, the outcome is set. */
bool postern__sql_body_is_text(struct postern__sql_values *values,
		struct postern_outcome *outcome);
/* Fill values->headers; false with the outcome set if there is no memory. */
bool postern__sql_make_headers(struct postern__sql_values *values,
		struct postern_outcome *outcome);

#endif
