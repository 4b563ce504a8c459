/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_EFFECTS_H
#define POSTERN_TESTS_EFFECTS_H

/*
 * Effects: rows that transactional handlers write, one for each run, into the
 * database that the store is in. Afterwards they are read past the store. And
 * the other way round: messages that are published by somebody else's
 * transaction, with a row of its own.
 *
 *   effects_init(&effects, "postgres://…?schema=run_17");
 *   effects_prepare(&effects);      once the store is there
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
	/* What a sql handler of the key "sums" does. */
	char sums[EFFECTS_TEXT_MAX];
};

typedef void effects_reader(void *context, int64_t seq, const char *handler,
		uint64_t fence);

/* What a database has to do; see effects_sqlite.c and effects_postgres.c. */
struct effects_ops {
	const char *scheme;
	void (*init)(struct effects *effects);
	bool (*prepare)(const struct effects *effects);
	bool (*write)(const struct effects *effects, void *transaction,
			const char *sql);
	bool (*read)(const struct effects *effects, effects_reader *reader,
			void *context);
	/* NULL where nobody can. */
	bool (*publish)(const struct effects *effects, const char *channel,
			const struct postern_message *message);
	void (*remove)(const struct effects *effects);
};

extern const struct effects_ops effects_sqlite;
/* NULL in a build without PostgreSQL. */
extern const struct effects_ops *const effects_postgres;

/* Of a store by its URL. A store in memory has none: all is done and nothing
   is there. */
void effects_init(struct effects *effects, const char *url);
/* Make the tables, where handlers should not. */
bool effects_prepare(const struct effects *effects);
bool effects_write(const struct effects *effects, void *transaction,
		int64_t seq, const char *handler, uint64_t fence);
/* In no order; false if they cannot be read. */
bool effects_read(const struct effects *effects, effects_reader *reader,
		void *context);
bool effects_can_publish(const struct effects *effects);
/* Whether it has committed. The message has only what it must have. */
bool effects_publish(const struct effects *effects, const char *channel,
		const struct postern_message *message);
/* Remove the schema that the store is in; a file stays. */
void effects_remove(const struct effects *effects);

#endif
