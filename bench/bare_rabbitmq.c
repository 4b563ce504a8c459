/* SPDX-License-Identifier: MIT */

/*
 * The limits of RabbitMQ: programs that do what Postern does with a queue and
 * a database, and nothing else.
 *
 *   bare_rabbitmq publish PORT QUEUE COUNT UNCONFIRMED
 *   bare_rabbitmq sqlite PORT QUEUE COUNT FILE
 *   bare_rabbitmq postgres PORT QUEUE COUNT URL
 *
 * The consumers write each message, its key and its completion in batches of
 * what is there, at most 1,000 messages, and acknowledge a batch after its
 * commit. The time in seconds is printed.
 */

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_MAX 1000
#define PREFETCH 1000
#define BODY_LEN 256
#define ID_SIZE 32

static amqp_connection_state_t link_state;
static char ids[BATCH_MAX][ID_SIZE];
static char body[BODY_LEN];

static void must(bool works, const char *what) {
	if (!works) {
		(void)fprintf(stderr, "bare_rabbitmq: cannot %s\n", what);
		exit(EXIT_FAILURE);
	}
}

static double now(void) {
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void answered(const char *what) {
	must(amqp_get_rpc_reply(link_state).reply_type == AMQP_RESPONSE_NORMAL,
			what);
}

static void open_link(int port) {
	link_state = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(link_state);
	must(amqp_socket_open(socket, "127.0.0.1", port) == AMQP_STATUS_OK,
			"connect");
	amqp_rpc_reply_t reply = amqp_login(link_state, "/", 0, 131072, 0,
			AMQP_SASL_METHOD_PLAIN, "guest", "guest");
	must(reply.reply_type == AMQP_RESPONSE_NORMAL, "log in");
	(void)amqp_channel_open(link_state, 1);
	answered("open a channel");
}

static void publish(const char *queue, long count, long unconfirmed_max) {
	long unconfirmed = 0;
	amqp_frame_t frame;
	(void)amqp_confirm_select(link_state, 1);
	answered("confirm");
	for (long i = 0; i < count || unconfirmed > 0;) {
		if (i < count && unconfirmed < unconfirmed_max) {
			char id[ID_SIZE];
			(void)snprintf(id, sizeof id, "m%ld", i);
			const amqp_basic_properties_t properties = {
				._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
						  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG,
				.delivery_mode = 2,
				.message_id = amqp_cstring_bytes(id),
				.type = amqp_cstring_bytes("t"),
			};
			must(amqp_basic_publish(link_state, 1, amqp_empty_bytes,
						 amqp_cstring_bytes(queue), 1, 0, &properties,
						 (amqp_bytes_t){ sizeof body, body }) == 0,
					"publish");
			i++;
			unconfirmed++;
			continue;
		}
		static long last;
		must(amqp_simple_wait_frame(link_state, &frame) == 0, "read");
		must(frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "be confirmed");
		const amqp_basic_ack_t *ack = frame.payload.method.decoded;
		unconfirmed -= ack->multiple ? (long)ack->delivery_tag - last : 1;
		last = ack->multiple || (long)ack->delivery_tag == last + 1
					   ? (long)ack->delivery_tag
					   : last;
		amqp_maybe_release_buffers(link_state);
	}
}

/* A batch in SQLite. */
static sqlite3 *file;
static sqlite3_stmt *statements[3];

static void open_sqlite(const char *path) {
	must(sqlite3_open(path, &file) == SQLITE_OK, "open the file");
	must(sqlite3_exec(file,
				 "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
				 "CREATE TABLE message (seq INTEGER PRIMARY KEY, id TEXT,"
				 " source TEXT, type TEXT, at INTEGER, body BLOB);"
				 "CREATE TABLE seen (key TEXT PRIMARY KEY, seq INTEGER)"
				 " WITHOUT ROWID;"
				 "CREATE TABLE done (seq INTEGER, handler INTEGER, at INTEGER,"
				 " PRIMARY KEY (seq, handler)) WITHOUT ROWID;",
				 NULL, NULL, NULL) == SQLITE_OK,
			"create the tables");
	static const char *const texts[] = {
		("INSERT INTO message (id, source, type, at, body)"
		 " VALUES (?1, 's', 't', 1, ?2)"),
		"INSERT INTO seen VALUES (?1, last_insert_rowid())",
		"INSERT INTO done VALUES (last_insert_rowid(), 1, 1)",
	};
	for (size_t i = 0; i < 3; i++) {
		must(sqlite3_prepare_v2(file, texts[i], -1, &statements[i], NULL) ==
						SQLITE_OK,
				"prepare");
	}
}

static void write_sqlite(long count) {
	must(sqlite3_exec(file, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK,
			"begin");
	for (long i = 0; i < count; i++) {
		for (size_t j = 0; j < 3; j++) {
			if (j < 2) {
				(void)sqlite3_bind_text(statements[j], 1, ids[i], -1,
						SQLITE_STATIC);
			}
			if (j == 0) {
				(void)sqlite3_bind_blob(statements[j], 2, body, sizeof body,
						SQLITE_STATIC);
			}
			must(sqlite3_step(statements[j]) == SQLITE_DONE, "insert");
			(void)sqlite3_reset(statements[j]);
		}
	}
	must(sqlite3_exec(file, "COMMIT", NULL, NULL, NULL) == SQLITE_OK, "commit");
}

/* A batch in PostgreSQL. */
static PGconn *database;

static void run_sql(const char *text) {
	PGresult *result = PQexec(database, text);
	ExecStatusType status = PQresultStatus(result);
	must(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK,
			PQerrorMessage(database));
	PQclear(result);
}

static void open_postgres(const char *url) {
	database = PQconnectdb(url);
	must(PQstatus(database) == CONNECTION_OK, "connect to the database");
	run_sql("CREATE SCHEMA bare; SET search_path TO bare;"
			"CREATE TABLE message (seq bigserial PRIMARY KEY, id text,"
			" source text, type text, at bigint, body bytea);"
			"CREATE TABLE seen (key text PRIMARY KEY, seq bigint);"
			"CREATE TABLE done (seq bigint, handler int, at bigint,"
			" PRIMARY KEY (seq, handler))");
}

static void write_postgres(long count) {
	static char array[BATCH_MAX * ID_SIZE + 3];
	const char *values[] = { array, body };
	const int lengths[] = { 0, BODY_LEN };
	const int formats[] = { 0, 1 };
	size_t len = 0;
	for (long i = 0; i < count; i++) {
		len += (size_t)snprintf(array + len, sizeof array - len, "%c%s",
				i ? ',' : '{', ids[i]);
	}
	(void)snprintf(array + len, sizeof array - len, "}");
	PGresult *result = PQexecParams(database,
			"WITH m AS (INSERT INTO message (id, source, type, at, body)"
			" SELECT id, 's', 't', 1, $2 FROM unnest($1::text[]) AS id"
			" RETURNING seq, id), s AS (INSERT INTO seen SELECT id, seq FROM m)"
			" INSERT INTO done SELECT seq, 1, 1 FROM m",
			2, NULL, values, lengths, formats, 0);
	must(PQresultStatus(result) == PGRES_COMMAND_OK, PQerrorMessage(database));
	PQclear(result);
}

static void consume(const char *queue, long count, void (*write)(long count)) {
	amqp_envelope_t envelope;
	long done = 0;
	long batch = 0;
	uint64_t tag = 0;
	(void)amqp_basic_qos(link_state, 1, 0, PREFETCH, 0);
	answered("set the prefetch");
	(void)amqp_basic_consume(link_state, 1, amqp_cstring_bytes(queue),
			amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	answered("consume");
	while (done < count) {
		const struct timeval none = { 0 };
		amqp_maybe_release_buffers(link_state);
		amqp_rpc_reply_t reply = amqp_consume_message(link_state, &envelope,
				batch > 0 ? &none : NULL, 0);
		bool got = reply.reply_type == AMQP_RESPONSE_NORMAL;
		if (got) {
			amqp_bytes_t id = envelope.message.properties.message_id;
			(void)snprintf(ids[batch++], ID_SIZE, "%.*s", (int)id.len,
					(const char *)id.bytes);
			tag = envelope.delivery_tag;
			amqp_destroy_envelope(&envelope);
		}
		if (batch == BATCH_MAX / 2 || (!got && batch > 0)) {
			write(batch);
			must(amqp_basic_ack(link_state, 1, tag, 1) == 0, "acknowledge");
			done += batch;
			batch = 0;
		}
	}
}

int main(int argc, char **argv) {
	must(argc == 6, "run: publish|sqlite|postgres PORT QUEUE COUNT MORE");
	long count = strtol(argv[4], NULL, 10);
	bool lite = strcmp(argv[1], "sqlite") == 0;
	bool publishes = strcmp(argv[1], "publish") == 0;
	open_link((int)strtol(argv[2], NULL, 10));
	if (lite) {
		open_sqlite(argv[5]);
	} else if (!publishes) {
		open_postgres(argv[5]);
	}
	double begin = now();
	if (publishes) {
		publish(argv[3], count, strtol(argv[5], NULL, 10));
	} else {
		consume(argv[3], count, lite ? write_sqlite : write_postgres);
	}
	(void)printf("%.3f\n", now() - begin);
	(void)amqp_connection_close(link_state, AMQP_REPLY_SUCCESS);
	(void)amqp_destroy_connection(link_state);
	return EXIT_SUCCESS;
}
