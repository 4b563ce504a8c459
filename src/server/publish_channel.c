/* SPDX-License-Identifier: MIT */

/*
 * The handler kind "publish: {channel: NAME}": stages the message for another
 * channel of the same store, in the transaction that completes its delivery. So
 * it is there exactly once, under the same id.
 */

#include "server/publish_channel.h"

#include <assert.h>
#include <postern/publish.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"

struct channel_handler {
	struct postern_handler base;
	enum postern_sql_dialect dialect;
	char *channel;
	char *schema; /* NULL: the database has none */
};

static const struct postern_handler_ops channel_ops;

static struct channel_handler *from_base(struct postern_handler *handler) {
	assert(handler->ops == &channel_ops);
	return container_of(handler, struct channel_handler, base);
}

static enum postern_outcome_kind outcome_of(int code) {
	switch (code) {
	case POSTERN_OK: return POSTERN_DONE;
	case POSTERN_E_INVALID: return POSTERN_POISON; /* it is too large */
	case POSTERN_E_NOTFOUND:
	case POSTERN_E_UNSUPPORTED: return POSTERN_HOLD;
	default: return POSTERN_SNOOZE;
	}
}

static void channel_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct channel_handler *self = from_base(handler);
	const struct postern_publication publication = {
		.size = sizeof publication,
		.dialect = self->dialect,
		.transaction = postern_run_delivery(run)->transaction,
		.schema = self->schema,
		.channel = self->channel,
		.message = postern_run_message(run),
	};
	struct postern_error error = { 0 };
	struct postern_outcome outcome;
	int r = postern_publish(&publication, NULL, &error);
	postern_outcome_set(&outcome, outcome_of(r), POSTERN_HINDERED_DELAY_MS,
			r == POSTERN_OK ? NULL : error.text);
	postern_run_finish(run, &outcome);
}

static void channel_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	/* It is one short statement. */
	(void)handler;
	(void)run;
	(void)why;
}

static void channel_destroy(struct postern_handler *handler) {
	struct channel_handler *self = from_base(handler);
	free(self->channel);
	free(self->schema);
	free(self);
}

static const struct postern_handler_ops channel_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = true,
	.start = channel_start,
	.cancel = channel_cancel,
	.destroy = channel_destroy,
};

static int channel_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct postern__publish_channel *settings = setup->settings;
	struct channel_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &channel_ops;
	self->base.transactional = true;
	self->dialect = setup->dialect;
	self->channel = strdup(settings->channel);
	self->schema = setup->schema ? strdup(setup->schema) : NULL;
	if (!self->channel || (setup->schema && !self->schema)) {
		channel_destroy(&self->base);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = &self->base;
	return POSTERN_OK;
}

static const struct postern_option options[] = {
	{
			.name = "channel",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__publish_channel, channel),
			.flags = POSTERN_OPTION_REQUIRED,
			.help = "another channel",
			.form = "CHANNEL",
	},
};

const struct postern_handler_kind postern__publish_channel_kind = {
	.size = sizeof(struct postern_handler_kind),
	.name = "publish_channel",
	.help = "another channel",
	.options = options,
	.option_count = 1,
	.settings_size = sizeof(struct postern__publish_channel),
	.transactional = true,
	.timeout_ms = POSTERN_TRANSACTION_TIMEOUT_MS,
	.create = channel_create,
};

void postern__publish_channel_register(void) {
	static bool registered;
	/* If memory is exhausted, the kind is refused as an unknown one. */
	registered = registered ||
				 (postern_handler_kind_register(&postern__publish_channel_kind,
						  NULL) == 0 &&
						 postern_handler_kind_register(
								 &postern__publish_elsewhere_kind, NULL) == 0);
}
