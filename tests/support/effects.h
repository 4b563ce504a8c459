/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_EFFECTS_H
#define POSTERN_TESTS_EFFECTS_H

/*
 * Effects: rows that transactional handlers write, one for each run, into the
 * database of the store. Afterwards they are read directly from the database.
 * Also messages published in a transaction of another program, with a row of
 * its own.
 *
 *   effects_init(&effects, "postgres://…?schema=run_17");
 *   effects_prepare(&effects);      once the store exists
 *   effects_write(&effects, delivery->transaction, seq, "ledger", fence);
 *   effects_read(&effects, reader, context);
 */

#include <postern/message.h>
#include <stdbool.h>
#include <stdint.h>

#define EFFECTS_TEXT_MAX 160

struct effects_ops;

struct effects {
	const struct effects_ops *ops;
	const char *url; /* borrowed */
	char table[EFFECTS_TEXT_MAX];
	/* The SQL of the sql handler "sums". */
	char sums[EFFECTS_TEXT_MAX];
	bool publishes; /* other programs may */
};

typedef void effects_reader(void *context, int64_t seq, const char *handler,
		uint64_t fence);

/* What a database implements; see effects_sqlite.c and effects_postgres.c. */
struct effects_ops {
	const char *scheme;
	void (*init)(struct effects *effects);
	bool (*prepare)(const struct effects *effects);
	bool (*write)(const struct effects *effects, void *transaction,
			const char *sql);
	bool (*read)(const struct effects *effects, effects_reader *reader,
			void *context);
	/* Called only if the database's effects have `publishes`. */
	bool (*publish)(const struct effects *effects, const char *channel,
			const struct postern_message *message);
	void (*remove)(const struct effects *effects);
};

extern const struct effects_ops effects_sqlite;
/* NULL in a build without PostgreSQL. */
extern const struct effects_ops *const effects_postgres;

/* Chooses the database by the URL of the store. A memory store has none: all
   calls succeed, and there are no effects. */
void effects_init(struct effects *effects, const char *url);
/* Create the tables, unless handlers do. */
bool effects_prepare(const struct effects *effects);
bool effects_write(const struct effects *effects, void *transaction,
		int64_t seq, const char *handler, uint64_t fence);
/* Calls `reader` for each effect, in no order; false if they cannot be read. */
bool effects_read(const struct effects *effects, effects_reader *reader,
		void *context);
bool effects_can_publish(const struct effects *effects);
/* Returns whether the transaction committed. Only the required attributes of
   the message are used. */
bool effects_publish(const struct effects *effects, const char *channel,
		const struct postern_message *message);
/* Remove the schema of the store; a file is kept. */
void effects_remove(const struct effects *effects);

#endif
