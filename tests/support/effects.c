/* SPDX-License-Identifier: MIT */
/* Chooses the database; the parts that are the same for all. */

#include "support/effects.h"

#include <stdio.h>
#include <string.h>

static bool has_scheme(const char *url, const struct effects_ops *ops) {
	return ops && strncmp(url, ops->scheme, strlen(ops->scheme)) == 0;
}

void effects_init(struct effects *effects, const char *url) {
	*effects = (struct effects){ .url = url };
	if (has_scheme(url, &effects_sqlite)) {
		effects->ops = &effects_sqlite;
	} else if (has_scheme(url, effects_postgres)) {
		effects->ops = effects_postgres;
	}
	if (effects->ops) {
		effects->ops->init(effects);
	}
}

bool effects_prepare(const struct effects *effects) {
	return !effects->ops || effects->ops->prepare(effects);
}

bool effects_write(const struct effects *effects, void *transaction,
		int64_t seq, const char *handler, uint64_t fence) {
	char sql[2 * EFFECTS_TEXT_MAX];
	if (!effects->ops) {
		return true;
	}
	(void)snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (%lld, '%s', %llu)",
			effects->table, (long long)seq, handler, (unsigned long long)fence);
	return effects->ops->write(effects, transaction, sql);
}

bool effects_read(const struct effects *effects, effects_reader *reader,
		void *context) {
	return !effects->ops || effects->ops->read(effects, reader, context);
}

bool effects_can_publish(const struct effects *effects) {
	return effects->publishes;
}

bool effects_publish(const struct effects *effects, const char *channel,
		const struct postern_message *message) {
	return effects->ops->publish(effects, channel, message);
}

void effects_remove(const struct effects *effects) {
	if (effects->ops) {
		effects->ops->remove(effects);
	}
}
