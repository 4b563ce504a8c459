/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_BIND_H
#define POSTERN_HANDLER_SQL_BIND_H

/*
 * The values of one message's parameters, bound to SQLite statements. What is
 * costly is made when the first statement asks for it, and once.
 */

#include <sqlite3.h>
#include <stdbool.h>

#include "base/buf.h"
#include "handler/sql_params.h"

struct postern_delivery;
struct postern_message;
struct postern_outcome;

struct postern__sql_values {
	sqlite3 *db;
	/* Borrowed: statements point into them until their bindings are
	   cleared. */
	const struct postern_message *message;
	const struct postern_delivery *delivery;
	bool body_is_text; /* seen to be; else not looked at yet */
	bool body_is_json;
	struct postern__buf headers;
};

void postern__sql_values_init(struct postern__sql_values *values, sqlite3 *db,
		const struct postern_message *message,
		const struct postern_delivery *delivery);
void postern__sql_values_finish(struct postern__sql_values *values);

/*
 * Bind a parameter. Its value is not copied: clear the bindings before the
 * message goes. False, with the outcome set, if it cannot be.
 */
bool postern__sql_bind(struct postern__sql_values *values, sqlite3_stmt *stmt,
		int index, enum postern__sql_param param,
		struct postern_outcome *outcome);

#endif
