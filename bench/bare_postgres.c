/* SPDX-License-Identifier: MIT */
/*
 * The limit: how fast PostgreSQL itself does the durable writes of the job,
 * and nothing else. Two threads with a connection each, prepared
 * statements, binary parameters, pipelines; no layers, and only the
 * checks that decide what is written.
 *
 *   bare_postgres URL MESSAGES BATCH [COMMIT [CONNECTIONS]]
 *
 * The database has the tables of Postern (created by `postern migrate`), so
 * that both write to the same ones. Ids are random, every tenth message is a
 * copy of one of the last thousand, bodies have 256 bytes.
 *
 * Without COMMIT, the completions of one batch and the messages of the next
 * share a transaction. It needs two round trips: only the result of inserting
 * the keys shows which messages are new. Columns are sent as arrays.
 *
 * With COMMIT, all messages are accepted first; then CONNECTIONS, each with a
 * thread, write for each a row of a business table together with its
 * completion, COMMIT of them in one transaction, one transaction after the
 * other.
 */

#include <endian.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_LEN 256
#define ID_LEN 36
#define WINDOW 1000
#define CONNECTIONS 2
#define WRITERS_MAX 16
/* Message numbers are allocated in blocks, as by the sequence. */
#define BLOCK 1000
/* As large as the random node ids of Postern. */
#define NODE "7046029254386353131"

/* Types of array elements: their OIDs in the catalogue. */
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25, OID_UUID = 2950 };

/* Force plans that use the indices, which are the best for a thousand rows. */
static const char settings[] =
		"SET search_path = postern, public;"
		"SET enable_hashjoin = off; SET enable_mergejoin = off;"
		"SET enable_seqscan = off; SET enable_bitmapscan = off;"
		"SET client_min_messages = warning;"
		"SET plan_cache_mode = force_generic_plan;"
		"CREATE TABLE IF NOT EXISTS public.bench_effect"
		" (id text NOT NULL, body text NOT NULL)";

enum { BEGIN, COMMIT, SEEN, AGAIN, MESSAGE, OPEN, CLOSE, TAKE, EFFECT, COUNT };

#define NOW "(extract(epoch FROM now()) * 1000)::bigint"

static const char *const texts[COUNT] = {
	[BEGIN] = "BEGIN",
	[COMMIT] = "COMMIT",
	[SEEN] = "INSERT INTO seen (k0, k1, k2, seq, at, digest, channel)"
			 " SELECT k0, k1, k2, seq, " NOW ", digest, 1"
			 " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
			 " $4::bigint[], $5::uuid[]) AS u (k0, k1, k2, seq, digest)"
			 " ON CONFLICT DO NOTHING RETURNING seq",
	[AGAIN] = "INSERT INTO duplicate AS d"
			  " (seq, duplicates, duplicate_at, conflicts)"
			  " SELECT s.seq, count(*), " NOW ", 0"
			  " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
			  " $4::uuid[]) AS u (k0, k1, k2, digest)"
			  " JOIN seen s ON s.k0 = u.k0 AND s.k1 = u.k1 AND s.k2 = u.k2"
			  " AND s.digest = u.digest GROUP BY s.seq"
			  " ON CONFLICT (seq) DO UPDATE"
			  " SET duplicates = d.duplicates + excluded.duplicates,"
			  " duplicate_at = excluded.duplicate_at",
	[MESSAGE] = "INSERT INTO message (seq, received_at, channel, id, type,"
				" content_type, body)"
				" SELECT seq, " NOW ", 1, id, 'bench', 'application/json', body"
				" FROM unnest($1::bigint[], $2::text[], $3::bytea[])"
				" AS u (seq, id, body)",
	[OPEN] = "INSERT INTO open (seq, fence, node, due_at, since, suspect,"
			 " handler, failures, starts, crashes, solo)"
			 " SELECT seq, 1, " NODE ", " NOW ", " NOW ", 0, 1, 0, 1, 0, false"
			 " FROM unnest($1::bigint[]) AS u (seq)",
	[CLOSE] = "WITH gone AS (DELETE FROM open o"
			  " WHERE o.seq = ANY ($1) AND o.handler = 1 AND o.fence = 1"
			  " AND o.node = " NODE " RETURNING o.seq)"
			  " INSERT INTO ledger (seq, fence, finished_at, duration,"
			  " handler, failures, starts, crashes, state)"
			  " SELECT seq, 1, " NOW ", 0, 1, 0, 1, 0, 3 FROM gone",
	[TAKE] = "WITH gone AS (DELETE FROM open WHERE seq = $1 AND handler = 1"
			 " AND fence = 1 AND node = " NODE " RETURNING seq)"
			 " INSERT INTO ledger (seq, fence, finished_at, duration,"
			 " handler, failures, starts, crashes, state)"
			 " SELECT seq, 1, " NOW ", 0, 1, 0, 1, 0, 3 FROM gone",
	[EFFECT] = "INSERT INTO public.bench_effect (id, body) VALUES ($1, $2)",
};

struct arrival {
	int64_t key[3];
	uint8_t digest[16];
	int64_t seq;
	bool fresh;
	char id[ID_LEN];
	char body[BODY_LEN];
};

struct feed {
	uint64_t random;
	uint64_t sent;
	uint64_t made;
	struct arrival recent[WINDOW];
};

/* A message that was accepted, for which an effect is written later. */
struct stored_message {
	int64_t seq;
	char id[ID_LEN];
	char body[BODY_LEN];
};

/* A binary parameter of a statement. */
struct bytes {
	uint8_t *data;
	size_t len;
	size_t cap;
};

#define PARAMETERS 5

struct worker {
	const char *url;
	size_t number;
	size_t messages;
	size_t batch;
	bool complete; /* together with the next batch */
	PGconn *link;
	struct feed feed;
	int64_t first; /* the number of the sequence's next block */
	int64_t taken; /* numbers that this worker has allocated */
	struct arrival *arrivals;
	int64_t *open; /* the last batch, to be completed */
	size_t open_count;
	uint64_t accepted;
	struct bytes parameters[PARAMETERS];
	struct stored_message *stored; /* not `complete`: all of them */
};

static void die(const char *what, const char *why) {
	(void)fprintf(stderr, "bare_postgres: %s: %s\n", what, why);
	exit(1);
}

static void check(bool good, const struct worker *worker, const char *what) {
	if (!good) {
		die(what, worker->link ? PQerrorMessage(worker->link) : "no memory");
	}
}

static int64_t now_ns(clockid_t clock) {
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t next_random(struct feed *feed) {
	uint64_t x = feed->random += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void next_arrival(struct feed *feed, struct arrival *out) {
	feed->sent++;
	if (feed->sent % 10 == 0) {
		uint64_t known = feed->made < WINDOW ? feed->made : WINDOW;
		*out = feed->recent[next_random(feed) % known];
		return;
	}
	uint64_t words[5];
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		words[i] = next_random(feed);
	}
	memcpy(out->key, words, sizeof out->key);
	memcpy(out->digest, words + 3, sizeof out->digest);
	for (size_t i = 0; i < ID_LEN; i++) {
		out->id[i] = "0123456789abcdef"[(words[i / 16] >> (i % 16 * 4)) & 15];
	}
	memset(out->body, 'x', sizeof out->body);
	memcpy(out->body, out->id, ID_LEN);
	feed->recent[feed->made % WINDOW] = *out;
	feed->made++;
}

/* In index order, so that adjacent keys are written one after the other. */
static int compare(const void *a, const void *b) {
	const struct arrival *left = a;
	const struct arrival *right = b;
	for (size_t i = 0; i < 3; i++) {
		if (left->key[i] != right->key[i]) {
			return left->key[i] < right->key[i] ? -1 : 1;
		}
	}
	return left->seq < right->seq ? -1 : left->seq > right->seq;
}

static int compare_numbers(const void *a, const void *b) {
	int64_t left = *(const int64_t *)a;
	int64_t right = *(const int64_t *)b;
	return left < right ? -1 : left > right;
}

/* The blocks of the two workers alternate, so that numbers ascend. */
static int64_t next_seq(struct worker *worker) {
	int64_t block = worker->taken / BLOCK;
	int64_t place = worker->taken % BLOCK;
	worker->taken++;
	return worker->first +
		   (block * CONNECTIONS + (int64_t)worker->number) * BLOCK + place;
}

static uint8_t *room(struct bytes *bytes, size_t len) {
	if (bytes->len + len > bytes->cap) {
		bytes->cap = 2 * (bytes->len + len);
		bytes->data = realloc(bytes->data, bytes->cap);
		if (!bytes->data) {
			die("parameters", "no memory");
		}
	}
	bytes->len += len;
	return bytes->data + bytes->len - len;
}

static void put_32(struct bytes *bytes, uint32_t value) {
	value = htobe32(value);
	memcpy(room(bytes, sizeof value), &value, sizeof value);
}

/* Start an array of one dimension with so many elements. */
static struct bytes *begin_array(struct worker *worker, int index, Oid type,
		size_t count) {
	struct bytes *bytes = &worker->parameters[index];
	bytes->len = 0;
	put_32(bytes, 1);
	put_32(bytes, 0);
	put_32(bytes, type);
	put_32(bytes, (uint32_t)count);
	put_32(bytes, 1);
	return bytes;
}

static void add_bytes(struct bytes *bytes, const void *data, size_t len) {
	put_32(bytes, (uint32_t)len);
	memcpy(room(bytes, len), data, len);
}

static void add_int8(struct bytes *bytes, int64_t value) {
	uint64_t word = htobe64((uint64_t)value);
	add_bytes(bytes, &word, sizeof word);
}

static void send(struct worker *worker, int which, int count) {
	const char *values[PARAMETERS];
	int lengths[PARAMETERS];
	int formats[PARAMETERS];
	for (int i = 0; i < count; i++) {
		values[i] = (const char *)worker->parameters[i].data;
		lengths[i] = (int)worker->parameters[i].len;
		formats[i] = 1;
	}
	char name[8];
	(void)snprintf(name, sizeof name, "s%d", which);
	check(PQsendQueryPrepared(worker->link, name, count, values, lengths,
				  formats, 1),
			worker, texts[which]);
}

static void flush(struct worker *worker) {
	check(PQpipelineSync(worker->link), worker, "flush");
}

/* The next result of the pipeline; the caller clears it. */
static PGresult *receive(struct worker *worker, int which) {
	PGresult *result = PQgetResult(worker->link);
	ExecStatusType status = PQresultStatus(result);
	check(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, worker,
			texts[which]);
	PGresult *end = PQgetResult(worker->link);
	check(!end, worker, "more than one answer");
	return result;
}

/* The number of rows that the statement changed. */
static size_t changed(struct worker *worker, int which) {
	PGresult *result = receive(worker, which);
	size_t count = strtoul(PQcmdTuples(result), NULL, 10);
	PQclear(result);
	return count;
}

static void receive_sync(struct worker *worker) {
	PGresult *result = PQgetResult(worker->link);
	check(PQresultStatus(result) == PGRES_PIPELINE_SYNC, worker, "sync");
	PQclear(result);
}

static void send_completions(struct worker *worker) {
	struct bytes *seqs = begin_array(worker, 0, OID_INT8, worker->open_count);
	for (size_t i = 0; i < worker->open_count; i++) {
		add_int8(seqs, worker->open[i]);
	}
	send(worker, CLOSE, 1);
}

static void add_keys(struct worker *worker, size_t count, bool fresh,
		size_t known) {
	const struct arrival *arrivals = worker->arrivals;
	for (int part = 0; part < 3; part++) {
		struct bytes *keys = begin_array(worker, part, OID_INT8, known);
		for (size_t i = 0; i < count; i++) {
			if (fresh || !arrivals[i].fresh) {
				add_int8(keys, arrivals[i].key[part]);
			}
		}
	}
}

static void add_digests(struct worker *worker, int index, size_t count,
		bool fresh, size_t known) {
	const struct arrival *arrivals = worker->arrivals;
	struct bytes *digests = begin_array(worker, index, OID_UUID, known);
	for (size_t i = 0; i < count; i++) {
		if (fresh || !arrivals[i].fresh) {
			add_bytes(digests, arrivals[i].digest, sizeof arrivals[i].digest);
		}
	}
}

static void send_keys(struct worker *worker, size_t count) {
	for (size_t i = 0; i < count; i++) {
		next_arrival(&worker->feed, &worker->arrivals[i]);
		worker->arrivals[i].seq = next_seq(worker);
		worker->arrivals[i].fresh = false;
	}
	qsort(worker->arrivals, count, sizeof *worker->arrivals, compare);
	add_keys(worker, count, true, count);
	struct bytes *seqs = begin_array(worker, 3, OID_INT8, count);
	for (size_t i = 0; i < count; i++) {
		add_int8(seqs, worker->arrivals[i].seq);
	}
	add_digests(worker, 4, count, true, count);
	send(worker, SEEN, 5);
}

/* Read which messages are new. The rows are in the order of the parameters. */
static size_t read_fresh(struct worker *worker, size_t count) {
	PGresult *result = receive(worker, SEEN);
	size_t fresh = (size_t)PQntuples(result);
	size_t at = 0;
	for (size_t row = 0; row < fresh; row++) {
		uint64_t word;
		memcpy(&word, PQgetvalue(result, (int)row, 0), sizeof word);
		int64_t seq = (int64_t)be64toh(word);
		while (at < count && worker->arrivals[at].seq != seq) {
			at++;
		}
		check(at < count, worker, "a number that was never sent");
		worker->arrivals[at].fresh = true;
	}
	PQclear(result);
	return fresh;
}

static void keep_messages(struct worker *worker, size_t count) {
	for (size_t i = 0; i < count; i++) {
		const struct arrival *arrival = &worker->arrivals[i];
		if (arrival->fresh) {
			struct stored_message *message =
					&worker->stored[worker->accepted++];
			message->seq = arrival->seq;
			memcpy(message->id, arrival->id, sizeof message->id);
			memcpy(message->body, arrival->body, sizeof message->body);
		}
	}
}

static void send_messages(struct worker *worker, size_t count, size_t fresh) {
	struct bytes *seqs = begin_array(worker, 0, OID_INT8, fresh);
	struct bytes *ids = begin_array(worker, 1, OID_TEXT, fresh);
	struct bytes *bodies = begin_array(worker, 2, OID_BYTEA, fresh);
	size_t found = 0;
	for (size_t i = 0; i < count; i++) {
		const struct arrival *arrival = &worker->arrivals[i];
		if (arrival->fresh) {
			add_int8(seqs, arrival->seq);
			add_bytes(ids, arrival->id, ID_LEN);
			add_bytes(bodies, arrival->body, BODY_LEN);
			worker->open[found++] = arrival->seq;
		}
	}
	send(worker, MESSAGE, 3);
	send(worker, OPEN, 1);
	worker->open_count = worker->complete ? found : 0;
	if (worker->complete) {
		/* In the order of the index, too. */
		qsort(worker->open, found, sizeof *worker->open, compare_numbers);
		worker->accepted += found;
	} else {
		keep_messages(worker, count);
	}
}

static void send_copies(struct worker *worker, size_t count, size_t fresh) {
	add_keys(worker, count, false, count - fresh);
	add_digests(worker, 3, count, false, count - fresh);
	send(worker, AGAIN, 4);
}

/* The second half of a transaction: new messages, and counts of copies. */
static void accept_fresh(struct worker *worker, size_t count, size_t fresh) {
	send_messages(worker, count, fresh);
	if (fresh < count) {
		send_copies(worker, count, fresh);
	}
	send(worker, COMMIT, 0);
	flush(worker);
	(void)changed(worker, MESSAGE);
	(void)changed(worker, OPEN);
	check(fresh == count || changed(worker, AGAIN) > 0, worker, "another body");
	(void)changed(worker, COMMIT);
	receive_sync(worker);
}

/* Complete the last batch and accept the next. */
static void do_batch(struct worker *worker, size_t count) {
	size_t ended = worker->open_count;
	send(worker, BEGIN, 0);
	if (ended > 0) {
		send_completions(worker);
	}
	send_keys(worker, count);
	flush(worker);
	(void)changed(worker, BEGIN);
	check(ended == 0 || changed(worker, CLOSE) == ended, worker,
			"a lost lease");
	size_t fresh = read_fresh(worker, count);
	receive_sync(worker);
	accept_fresh(worker, count, fresh);
}

static void complete_last(struct worker *worker) {
	send_completions(worker);
	flush(worker);
	check(changed(worker, CLOSE) == worker->open_count, worker, "a lost lease");
	receive_sync(worker);
}

static void *work(void *context) {
	struct worker *worker = context;
	for (size_t sent = 0; sent < worker->messages; sent += worker->batch) {
		size_t left = worker->messages - sent;
		do_batch(worker, left < worker->batch ? left : worker->batch);
	}
	if (worker->open_count > 0) {
		complete_last(worker);
	}
	return NULL;
}

static void set_parameter(struct worker *worker, int index, const void *data,
		size_t len) {
	worker->parameters[index].len = 0;
	memcpy(room(&worker->parameters[index], len), data, len);
}

/* One transaction, in one round trip. */
static void transact(struct worker *worker, const struct stored_message *stored,
		size_t count) {
	send(worker, BEGIN, 0);
	for (size_t i = 0; i < count; i++) {
		uint64_t seq = htobe64((uint64_t)stored[i].seq);
		set_parameter(worker, 0, &seq, sizeof seq);
		send(worker, TAKE, 1);
		set_parameter(worker, 0, stored[i].id, ID_LEN);
		set_parameter(worker, 1, stored[i].body, BODY_LEN);
		send(worker, EFFECT, 2);
	}
	send(worker, COMMIT, 0);
	flush(worker);
	(void)changed(worker, BEGIN);
	for (size_t i = 0; i < count; i++) {
		check(changed(worker, TAKE) == 1, worker, "a lost lease");
		(void)changed(worker, EFFECT);
	}
	(void)changed(worker, COMMIT);
	receive_sync(worker);
}

/* A thread that writes effects: every count-th transaction is its own. */
struct writer {
	struct worker worker; /* its connection */
	const struct worker *accepted;
	size_t number;
	size_t count;
	size_t commit;
};

static void *write_effects(void *context) {
	struct writer *writer = context;
	size_t commit = writer->commit;
	size_t turn = 0;
	for (size_t of = 0; of < CONNECTIONS; of++) {
		const struct worker *from = &writer->accepted[of];
		for (size_t i = 0; i < from->accepted; i += commit) {
			size_t left = from->accepted - i;
			if (turn++ % writer->count == writer->number) {
				transact(&writer->worker, from->stored + i,
						left < commit ? left : commit);
			}
		}
	}
	return NULL;
}

static void open_worker(struct worker *worker) {
	worker->link = PQconnectdb(worker->url);
	check(PQstatus(worker->link) == CONNECTION_OK, worker, "connect");
	PGresult *result = PQexec(worker->link, settings);
	check(PQresultStatus(result) == PGRES_COMMAND_OK, worker, "settings");
	PQclear(result);
	for (int i = 0; i < COUNT; i++) {
		char name[8];
		(void)snprintf(name, sizeof name, "s%d", i);
		result = PQprepare(worker->link, name, texts[i], 0, NULL);
		check(PQresultStatus(result) == PGRES_COMMAND_OK, worker, texts[i]);
		PQclear(result);
	}
	result = PQexec(worker->link, "SELECT nextval('message_seq')");
	check(PQntuples(result) == 1, worker, "a number");
	worker->first = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	check(PQenterPipelineMode(worker->link), worker, "pipeline");

	worker->feed.random =
			(uint64_t)now_ns(CLOCK_REALTIME) * (worker->number + 1);
	worker->arrivals = calloc(worker->batch, sizeof *worker->arrivals);
	worker->open = calloc(worker->batch, sizeof *worker->open);
	size_t stored = worker->complete ? 1 : worker->messages + 1;
	worker->stored = calloc(stored, sizeof *worker->stored);
	if (!worker->arrivals || !worker->open || !worker->stored) {
		die("batch", "no memory");
	}
}

static void close_worker(struct worker *worker) {
	PQfinish(worker->link);
	free(worker->arrivals);
	free(worker->open);
	free(worker->stored);
	for (size_t i = 0; i < PARAMETERS; i++) {
		free(worker->parameters[i].data);
	}
}

static void run_all(void *(*function)(void *), void *first, size_t size,
		size_t count) {
	pthread_t threads[WRITERS_MAX];
	for (size_t i = 0; i < count; i++) {
		if (pthread_create(&threads[i], NULL, function,
					(char *)first + i * size)) {
			die("thread", "cannot be made");
		}
	}
	for (size_t i = 0; i < count; i++) {
		(void)pthread_join(threads[i], NULL); /* it was made */
	}
}

int main(int argc, char **argv) {
	static struct worker workers[CONNECTIONS];
	static struct writer writers[WRITERS_MAX];
	size_t total = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
	size_t batch = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	size_t commit = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	size_t writer_count = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
	if (argc > 6 || total == 0 || batch == 0 || writer_count == 0 ||
			writer_count > WRITERS_MAX) {
		(void)fprintf(stderr, "usage: bare_postgres URL MESSAGES BATCH"
							  " [COMMIT [CONNECTIONS]]\n");
		return 2;
	}
	for (size_t i = 0; i < CONNECTIONS; i++) {
		workers[i].url = argv[1];
		workers[i].number = i;
		workers[i].messages = total / CONNECTIONS + (i < total % CONNECTIONS);
		workers[i].batch = batch;
		workers[i].complete = commit == 0;
		open_worker(&workers[i]);
	}
	for (size_t i = 0; commit > 0 && i < writer_count; i++) {
		struct writer *writer = &writers[i];
		*writer = (struct writer){
			.worker = { .url = argv[1], .batch = 1, .complete = true },
			.accepted = workers,
			.number = i,
			.count = writer_count,
			.commit = commit,
		};
		open_worker(&writer->worker);
	}
	/* Both workers allocate numbers from the same first block. */
	workers[0].first = workers[CONNECTIONS - 1].first;

	int64_t started = now_ns(CLOCK_MONOTONIC);
	run_all(work, workers, sizeof workers[0], CONNECTIONS);
	double accept_seconds = (double)(now_ns(CLOCK_MONOTONIC) - started) / 1e9;
	uint64_t accepted = 0;
	for (size_t i = 0; i < CONNECTIONS; i++) {
		accepted += workers[i].accepted;
	}
	if (commit > 0) {
		run_all(write_effects, writers, sizeof writers[0], writer_count);
	}
	double seconds = (double)(now_ns(CLOCK_MONOTONIC) - started) / 1e9;

	(void)printf("{\"accepted\": %llu, \"duplicates\": %llu,"
				 " \"completed\": %llu, \"seconds\": %.6f,"
				 " \"messages_per_second\": %.0f, \"accept_seconds\": %.6f}\n",
			(unsigned long long)accepted,
			(unsigned long long)(total - accepted),
			(unsigned long long)accepted, seconds, (double)accepted / seconds,
			accept_seconds);
	for (size_t i = 0; i < CONNECTIONS; i++) {
		close_worker(&workers[i]);
	}
	for (size_t i = 0; commit > 0 && i < writer_count; i++) {
		close_worker(&writers[i].worker);
	}
	return 0;
}
