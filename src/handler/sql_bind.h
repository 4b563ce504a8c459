/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_BIND_H
#define POSTERN_HANDLER_SQL_BIND_H

/*
 * The values of one message's parameters, bound to SQLite statements.
 */

#include <sqlite3.h>
#include <stdbool.h>

#include "handler/sql_params.h"
#include "handler/sql_values.h"

struct postern_outcome;

/*
 * Bind a parameter. Its value is not copied: clear the bindings before the
 * message is freed. False, with the outcome set, on failure.
 */
bool postern__sql_bind(struct postern__sql_values *values, sqlite3_stmt *stmt,
		int index, enum postern__sql_param param,
		struct postern_outcome *outcome);

#endif
