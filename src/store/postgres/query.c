/* SPDX-License-Identifier: MIT */

/*
 * Statements, in the binary form of the protocol: parameters are written one
 * after the other into one buffer, results are read in place.
 *
 * Most statements are not prepared: a pooler may give the next one another
 * session. The plans inside of functions are kept by the session anyway. A
 * statement that runs all the time is prepared if there is no pooler, and sent
 * as text if the prepared statement is missing.
 */

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/postgres/marked.h"
#include "store/postgres/postgres.h"

/* An array of one dimension: the number of dimensions, whether an item is NULL,
   the type, and the length and the first index of the dimension. */
#define ARRAY_HEADER_LEN 20

static void put_32(struct postern__buf *buf, uint32_t value) {
	value = htobe32(value);
	postern__buf_append(buf, &value, sizeof value);
}

static uint32_t read_32(const uint8_t *bytes) {
	uint32_t value;
	memcpy(&value, bytes, sizeof value);
	return be32toh(value);
}

static uint64_t read_64(const uint8_t *bytes) {
	uint64_t value;
	memcpy(&value, bytes, sizeof value);
	return be64toh(value);
}

void postern__pg_query(struct pg_query *query,
		struct pg_connection *connection) {
	query->connection = connection;
	query->result = NULL;
	query->count = 0;
	query->in_array = false;
	postern__buf_reset(&connection->bytes);
}

/* A parameter, or an item of the open array. */
static void put_value(struct pg_query *query, enum pg_type type,
		const void *bytes, size_t len) {
	struct postern__buf *buf = &query->connection->bytes;
	assert(len <= INT32_MAX);
	if (query->in_array) {
		put_32(buf, bytes ? (uint32_t)len : UINT32_MAX);
		query->items++;
		query->has_null = query->has_null || !bytes;
	} else {
		assert(query->count < PG_PARAMETER_MAX);
		query->types[query->count] = type;
		query->starts[query->count] = buf->len;
		query->lengths[query->count] = bytes ? (int)len : -1;
		query->count++;
	}
	if (bytes) {
		postern__buf_append(buf, bytes, len);
	}
}

void postern__pg_bool(struct pg_query *query, bool value) {
	char byte = value ? 1 : 0;
	put_value(query, PG_BOOL, &byte, sizeof byte);
}

void postern__pg_int2(struct pg_query *query, int16_t value) {
	uint16_t word = htobe16((uint16_t)value);
	put_value(query, PG_INT2, &word, sizeof word);
}

void postern__pg_int4(struct pg_query *query, int64_t value) {
	assert(value >= INT32_MIN && value <= INT32_MAX);
	uint32_t word = htobe32((uint32_t)value);
	put_value(query, PG_INT4, &word, sizeof word);
}

void postern__pg_int8(struct pg_query *query, int64_t value) {
	uint64_t word = htobe64((uint64_t)value);
	put_value(query, PG_INT8, &word, sizeof word);
}

void postern__pg_text(struct pg_query *query, const char *text) {
	put_value(query, PG_TEXT, text, text ? strlen(text) : 0);
}

void postern__pg_bytes(struct pg_query *query, const void *bytes, size_t len) {
	put_value(query, PG_BYTEA, len > 0 ? bytes : "", len);
}

void postern__pg_uuid(struct pg_query *query, const uint8_t bytes[16]) {
	put_value(query, PG_UUID, bytes, 16);
}

void postern__pg_null(struct pg_query *query, enum pg_type type) {
	put_value(query, type, NULL, 0);
}

static Oid array_of(enum pg_type type) {
	switch (type) {
	case PG_BOOL: return 1000;
	case PG_BYTEA: return 1001;
	case PG_INT2: return 1005;
	case PG_INT4: return 1007;
	case PG_TEXT: return 1009;
	case PG_INT8: return 1016;
	case PG_UUID: return 2951;
	}
	assert(false); /* the switch covers all types */
	return 0;
}

void postern__pg_array(struct pg_query *query, enum pg_type type) {
	struct postern__buf *buf = &query->connection->bytes;
	put_value(query, type, "", 0);
	query->types[query->count - 1] = array_of(type);
	query->array = buf->len;
	query->items = 0;
	query->has_null = false;
	query->in_array = true;
	put_32(buf, 1);
	put_32(buf, 0);
	put_32(buf, (uint32_t)type);
	put_32(buf, 0);
	put_32(buf, 1);
}

void postern__pg_array_end(struct pg_query *query) {
	struct postern__buf *buf = &query->connection->bytes;
	assert(query->in_array);
	query->in_array = false;
	if (buf->failed) {
		return;
	}
	/* These fields of the header are known only now. */
	uint32_t has_null = htobe32(query->has_null);
	uint32_t items = htobe32(query->items);
	memcpy(buf->data + query->array + 4, &has_null, sizeof has_null);
	memcpy(buf->data + query->array + 12, &items, sizeof items);
	query->lengths[query->count - 1] = (int)(buf->len - query->array);
}

void postern__pg_group(struct pg_query *query, uint64_t group) {
	if (group) {
		postern__pg_int8(query, (int64_t)group);
	} else {
		postern__pg_null(query, PG_INT8);
	}
}

void postern__pg_null_array(struct pg_query *query, enum pg_type type) {
	postern__pg_null(query, type);
	query->types[query->count - 1] = array_of(type);
}

/* Returns the text with the name of the schema, which is quoted, so that it
   cannot contain SQL. */
static const char *render_sql(struct pg_connection *connection,
		const char *sql) {
	struct postern__buf *text = &connection->text;
	postern__buf_reset(text);
	for (const char *at = sql;;) {
		const char *mark = strchr(at, '@');
		if (!mark) {
			postern__buf_append_text(text, at);
			return postern__buf_text(text);
		}
		postern__buf_append(text, at, (size_t)(mark - at));
		postern__buf_append_text(text, connection->store->schema);
		at = mark + 1;
	}
}

/* Send the text, or the statement that is prepared under the name. */
static int send_statement(struct pg_query *query, const char *sql,
		const char *name, struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	const char *text = name ? name : render_sql(connection, sql);
	int r = postern__buf_check(&connection->bytes, "a batch", error);
	if (r == POSTERN_OK) {
		r = postern__buf_check(&connection->text, "a statement", error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	const char *values[PG_PARAMETER_MAX];
	int formats[PG_PARAMETER_MAX];
	const char *bytes = postern__buf_text(&connection->bytes);
	for (int i = 0; i < query->count; i++) {
		values[i] = query->lengths[i] < 0 ? NULL : bytes + query->starts[i];
		formats[i] = 1;
	}
	int sent = name ? PQsendQueryPrepared(connection->link, name, query->count,
							  values, query->lengths, formats, 1)
					: PQsendQueryParams(connection->link, text, query->count,
							  query->types, values, query->lengths, formats, 1);
	return sent ? POSTERN_OK : postern__pg_fail(connection, NULL, error);
}

static int check_result(struct pg_connection *connection,
		const PGresult *result, struct postern_error *error) {
	ExecStatusType status = PQresultStatus(result);
	return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK
				   ? POSTERN_OK
				   : postern__pg_fail(connection, result, error);
}

static int run_and_await(struct pg_query *query, const char *sql,
		const char *name, struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	int r = send_statement(query, sql, name, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_await(connection, &query->result, error);
	if (r != POSTERN_OK) {
		return r;
	}
	return check_result(connection, query->result, error);
}

int postern__pg_run(struct pg_query *query, const char *sql,
		struct postern_error *error) {
	return run_and_await(query, sql, NULL, error);
}

int postern__pg_pipe_begin(struct pg_connection *connection,
		struct postern_error *error) {
	return PQenterPipelineMode(connection->link)
				   ? POSTERN_OK
				   : postern__pg_fail(connection, NULL, error);
}

int postern__pg_pipe(struct pg_query *query, const char *sql,
		struct postern_error *error) {
	return send_statement(query, sql, NULL, error);
}

int postern__pg_pipe_named(struct pg_query *query, const char *name,
		struct postern_error *error) {
	return send_statement(query, NULL, name, error);
}

int postern__pg_pipe_text(struct pg_connection *connection, const char *sql,
		struct postern_error *error) {
	const char *text = render_sql(connection, sql);
	int r = postern__buf_check(&connection->text, "a statement", error);
	if (r == POSTERN_OK && !PQsendQueryParams(connection->link, text, 0, NULL,
								   NULL, NULL, NULL, 1)) {
		r = postern__pg_fail(connection, NULL, error);
	}
	return r;
}

int postern__pg_pipe_prepare(struct pg_connection *connection, const char *name,
		const char *sql, struct postern_error *error) {
	const char *text = render_sql(connection, sql);
	int r = postern__buf_check(&connection->text, "a statement", error);
	if (r == POSTERN_OK &&
			!PQsendPrepare(connection->link, name, text, 0, NULL)) {
		r = postern__pg_fail(connection, NULL, error);
	}
	return r;
}

/* Sync: everything before it is one transaction, unless one is open. */
static int sync_pipe(struct pg_connection *connection, int r,
		struct postern_error *error) {
	return r == POSTERN_OK && !PQpipelineSync(connection->link)
				   ? postern__pg_fail(connection, NULL, error)
				   : r;
}

static int exit_pipe(struct pg_query *query, int r,
		struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	if (r != POSTERN_OK || !PQexitPipelineMode(connection->link)) {
		/* Results that will not be read may still arrive. */
		connection->lost = true;
		return r != POSTERN_OK ? r : postern__pg_fail(connection, NULL, error);
	}
	return check_result(connection, query->result, error);
}

int postern__pg_pipe_end(struct pg_query *query, size_t count, size_t index,
		int64_t patience_ms, int r, struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	r = sync_pipe(connection, r, error);
	if (r == POSTERN_OK) {
		r = postern__pg_await_pipe(connection, count, index, patience_ms,
				&query->result, error);
	}
	return exit_pipe(query, r, error);
}

/* One round trip, but two transactions: the statement stays prepared even if
   the run fails. */
static int prepare_and_run(struct pg_query *query, const char *name,
		const char *sql, bool *named, struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	int64_t patience_ms = connection->store->command_timeout_ms;
	PGresult *prepared = NULL;
	int r = postern__pg_pipe_begin(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_pipe_prepare(connection, name, sql, error);
	r = sync_pipe(connection, r, error);
	if (r == POSTERN_OK) {
		r = postern__pg_pipe_named(query, name, error);
	}
	r = sync_pipe(connection, r, error);
	if (r == POSTERN_OK) {
		r = postern__pg_await_pipe(connection, 1, 0, patience_ms, &prepared,
				error);
	}
	if (r == POSTERN_OK) {
		*named = PQresultStatus(prepared) == PGRES_COMMAND_OK;
		r = postern__pg_await_pipe(connection, 1, 0, patience_ms,
				&query->result, error);
	}
	PQclear(prepared);
	return exit_pipe(query, r, error);
}

static bool is_unprepared(const struct pg_query *query) {
	const char *state = PQresultErrorField(query->result, PG_DIAG_SQLSTATE);
	return state && strcmp(state, "26000") == 0;
}

int postern__pg_run_named(struct pg_query *query, const char *name,
		const char *sql, bool *named, struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	bool alone = PQtransactionStatus(connection->link) == PQTRANS_IDLE;
	/* Inside a transaction, preparing must not be able to fail it. */
	if (!connection->direct || !alone) {
		return postern__pg_run(query, sql, error);
	}
	int r = *named ? run_and_await(query, NULL, name, error)
				   : prepare_and_run(query, name, sql, named, error);
	if (r == POSTERN_OK || connection->lost ||
			(*named && !is_unprepared(query))) {
		return r;
	}
	/* Handlers use the same session, and may deallocate the statement or
	   prepare another under its name. */
	*named = false;
	postern__pg_end(query);
	return postern__pg_run(query, sql, error);
}

/* Sends the statements of a list and counts them. */
static int send_list(struct pg_connection *connection, const char *const *list,
		size_t *count, struct postern_error *error) {
	int r = POSTERN_OK;
	for (; r == POSTERN_OK && *list; list++) {
		r = postern__pg_pipe_text(connection, *list, error);
		*count += 1;
	}
	return r;
}

int postern__pg_run_between(struct pg_query *query, const char *const *before,
		const char *sql, const char *const *after,
		struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	size_t count = 0;
	int r = postern__pg_pipe_begin(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = send_list(connection, before, &count, error);
	size_t index = count++;
	if (r == POSTERN_OK) {
		r = postern__pg_pipe(query, sql, error);
	}
	if (r == POSTERN_OK) {
		r = send_list(connection, after, &count, error);
	}
	return postern__pg_pipe_end(query, count, index,
			connection->store->command_timeout_ms, r, error);
}

void postern__pg_end(struct pg_query *query) {
	PQclear(query->result);
	query->result = NULL;
}

int postern__pg_exec(struct pg_connection *connection, const char *sql,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, sql, error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_run_script(struct pg_query *query, const char *sql,
		struct postern_error *error) {
	struct pg_connection *connection = query->connection;
	const char *text = render_sql(connection, sql);
	int r = postern__buf_check(&connection->text, "a script", error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (!PQsendQuery(connection->link, text)) {
		return postern__pg_fail(connection, NULL, error);
	}
	r = postern__pg_await(connection, &query->result, error);
	return r == POSTERN_OK ? check_result(connection, query->result, error) : r;
}

int postern__pg_script(struct pg_connection *connection, const char *sql,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run_script(&query, sql, error);
	postern__pg_end(&query);
	return r;
}

int64_t postern__pg_changes(const struct pg_query *query) {
	return strtoll(PQcmdTuples(query->result), NULL, 10);
}

int postern__pg_rows(const struct pg_query *query) {
	return PQntuples(query->result);
}

bool postern__pg_is_null(const struct pg_query *query, int row, int column) {
	return PQgetisnull(query->result, row, column);
}

static int64_t read_int(const uint8_t *bytes, size_t len) {
	switch (len) {
	case 1: return bytes[0];
	case 2: return (int16_t)(bytes[0] << 8 | bytes[1]);
	case 4: return (int32_t)read_32(bytes);
	case 8: return (int64_t)read_64(bytes);
	default: return 0; /* NULL */
	}
}

int64_t postern__pg_get(const struct pg_query *query, int row, int column) {
	return read_int((const uint8_t *)PQgetvalue(query->result, row, column),
			(size_t)PQgetlength(query->result, row, column));
}

bool postern__pg_get_text(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, const char **out) {
	if (postern__pg_is_null(query, row, column)) {
		*out = NULL;
		return true;
	}
	*out = postern_memory_copy(memory, PQgetvalue(query->result, row, column),
			(size_t)PQgetlength(query->result, row, column));
	return *out;
}

const void *postern__pg_get_bytes(const struct pg_query *query, int row,
		int column, size_t *len_out) {
	*len_out = (size_t)PQgetlength(query->result, row, column);
	return postern__pg_is_null(query, row, column)
				   ? NULL
				   : PQgetvalue(query->result, row, column);
}

void postern__pg_items(const struct pg_query *query, int row, int column,
		struct pg_items *out) {
	size_t len;
	const uint8_t *bytes = postern__pg_get_bytes(query, row, column, &len);
	*out = (struct pg_items){ 0 };
	/* An empty array has no dimension, and no length. */
	if (bytes && len >= ARRAY_HEADER_LEN) {
		out->at = bytes + ARRAY_HEADER_LEN;
		out->end = bytes + len;
		out->left = read_32(bytes + 12);
	}
}

bool postern__pg_next(struct pg_items *items, int64_t *out) {
	if (items->left == 0 || items->end - items->at < 4) {
		return false;
	}
	uint32_t len = read_32(items->at);
	items->at += 4;
	items->left--;
	if (len == UINT32_MAX) {
		*out = 0;
		return true;
	}
	if (len > (size_t)(items->end - items->at)) {
		return false;
	}
	*out = read_int(items->at, len);
	items->at += len;
	return true;
}
