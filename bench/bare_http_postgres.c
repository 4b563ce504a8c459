/* SPDX-License-Identifier: MIT */
/* The inserts of an accepted message, into the tables of Postern in a database:
 * one pipeline of prepared statements for a group, with columns as arrays. */

#include <endian.h>
#include <libpq-fe.h>

#include "bare_http.h"

/* Types of array elements: their OIDs in the catalogue. */
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25, OID_UUID = 2950 };

static const char settings[] =
		"SET search_path = postern, public;"
		"SET enable_hashjoin = off; SET enable_mergejoin = off;"
		"SET enable_seqscan = off; SET enable_bitmapscan = off;"
		"SET client_min_messages = warning;"
		"SET plan_cache_mode = force_generic_plan;";

enum { BEGIN, SEEN, MESSAGE, OPEN, COMMIT, COUNT };

#define NOW "(extract(epoch FROM now()) * 1000)::bigint"

static const char *const texts[COUNT] = {
	[BEGIN] = "BEGIN",
	[SEEN] = "INSERT INTO seen (k0, k1, k2, seq, at, digest, channel)"
			 " SELECT k0, k1, k2, seq, " NOW ", digest, 1"
			 " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
			 " $4::bigint[], $5::uuid[]) AS u (k0, k1, k2, seq, digest)"
			 " ON CONFLICT DO NOTHING RETURNING seq",
	[MESSAGE] = "INSERT INTO message (seq, received_at, channel, id, type,"
				" content_type, body)"
				" SELECT seq, " NOW ", 1, id, '', 'text/plain', body"
				" FROM unnest($1::bigint[], $2::text[], $3::bytea[])"
				" AS u (seq, id, body)",
	[OPEN] = "INSERT INTO open (seq, fence, node, due_at, since, suspect,"
			 " handler, failures, starts, crashes, solo)"
			 " SELECT seq, 0, NULL, " NOW ", " NOW ", 0, 1, 0, 0, 0, false"
			 " FROM unnest($1::bigint[]) AS u (seq)",
	[COMMIT] = "COMMIT",
};

static const int
		parameter_counts[COUNT] = { [SEEN] = 5, [MESSAGE] = 3, [OPEN] = 1 };

/* A binary parameter: an array of one dimension. */
struct array {
	uint8_t *data;
	size_t len;
	size_t cap;
};

enum { K0, K1, K2, SEQ, DIGEST, ID, BODY, ARRAY_COUNT };

static const uint32_t types[ARRAY_COUNT] = { OID_INT8, OID_INT8, OID_INT8,
	OID_INT8, OID_UUID, OID_TEXT, OID_BYTEA };

static PGconn *database;
static struct array arrays[ARRAY_COUNT];

static void check(bool good, const char *what) {
	if (!good) {
		(void)fprintf(stderr, "bare_http_postgres: %s: %s\n", what,
				PQerrorMessage(database));
		exit(1);
	}
}

static void put(struct array *array, const void *bytes, size_t len) {
	if (array->len + len > array->cap) {
		array->cap = 2 * (array->cap + len);
		array->data = realloc(array->data, array->cap);
		check(array->data, "memory");
	}
	memcpy(array->data + array->len, bytes, len);
	array->len += len;
}

static void put_32(struct array *array, uint32_t value) {
	uint32_t bytes = htobe32(value);
	put(array, &bytes, sizeof bytes);
}

static void put_element(int which, const void *bytes, size_t len) {
	put_32(&arrays[which], (uint32_t)len);
	put(&arrays[which], bytes, len);
}

static void put_int(int which, uint64_t value) {
	uint64_t bytes = htobe64(value);
	put_element(which, &bytes, sizeof bytes);
}

static void begin_arrays(size_t count) {
	for (int i = 0; i < ARRAY_COUNT; i++) {
		arrays[i].len = 0;
		put_32(&arrays[i], 1); /* dimensions */
		put_32(&arrays[i], 0); /* no null */
		put_32(&arrays[i], types[i]);
		put_32(&arrays[i], (uint32_t)count);
		put_32(&arrays[i], 1); /* lower bound */
	}
}

void bare_open(const char *url) {
	database = PQconnectdb(url);
	check(PQstatus(database) == CONNECTION_OK, "connect");
	PGresult *result = PQexec(database, settings);
	check(PQresultStatus(result) == PGRES_COMMAND_OK, "settings");
	PQclear(result);
	for (int i = 0; i < COUNT; i++) {
		char name[8];
		(void)snprintf(name, sizeof name, "s%d", i);
		result = PQprepare(database, name, texts[i], 0, NULL);
		check(PQresultStatus(result) == PGRES_COMMAND_OK, texts[i]);
		PQclear(result);
	}
	check(PQenterPipelineMode(database) == 1, "pipeline");
}

static void send_statement(int which, const int *of) {
	const char *values[5];
	int lens[5];
	int formats[5];
	char name[8];
	for (int i = 0; i < parameter_counts[which]; i++) {
		values[i] = (const char *)arrays[of[i]].data;
		lens[i] = (int)arrays[of[i]].len;
		formats[i] = 1;
	}
	(void)snprintf(name, sizeof name, "s%d", which);
	check(PQsendQueryPrepared(database, name, parameter_counts[which], values,
				  lens, formats, 1) == 1,
			texts[which]);
}

/* Reads the results of all statements, and that of the end of the pipeline. */
static void read_results(size_t count) {
	for (int i = 0; i < COUNT; i++) {
		PGresult *result = PQgetResult(database);
		ExecStatusType status = PQresultStatus(result);
		check(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK,
				texts[i]);
		check(i != SEEN || (size_t)PQntuples(result) == count, "a copy");
		PQclear(result);
		check(!PQgetResult(database), "one result of each");
	}
	PGresult *result = PQgetResult(database);
	check(PQresultStatus(result) == PGRES_PIPELINE_SYNC, "pipeline");
	PQclear(result);
}

void bare_write(struct arrival **arrivals, size_t count) {
	static const int of_seen[] = { K0, K1, K2, SEQ, DIGEST };
	static const int of_message[] = { SEQ, ID, BODY };
	static const int of_open[] = { SEQ };
	begin_arrays(count);
	for (size_t i = 0; i < count; i++) {
		const struct arrival *arrival = arrivals[i];
		put_int(K0, arrival->key[0]);
		put_int(K1, arrival->key[1]);
		put_int(K2, arrival->key[2]);
		put_int(SEQ, (uint64_t)arrival->seq);
		put_element(DIGEST, arrival->digest, sizeof arrival->digest);
		put_element(ID, arrival->id, arrival->id_len);
		put_element(BODY, arrival->body, arrival->body_len);
	}
	send_statement(BEGIN, NULL);
	send_statement(SEEN, of_seen);
	send_statement(MESSAGE, of_message);
	send_statement(OPEN, of_open);
	send_statement(COMMIT, NULL);
	check(PQpipelineSync(database) == 1, "pipeline");
	read_results(count);
}
