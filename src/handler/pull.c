/* SPDX-License-Identifier: MIT */
/*
 * The kind `pull`: workers outside of the process claim the deliveries and
 * settle them, over HTTP or through postern/pull.h. No run of it is ever
 * started here; the core asks the row for the limits of its claims.
 */

#include <stdlib.h>

#include "base/container.h"
#include "base/fail.h"
#include "handler/kinds.h"

#include <postern/pull.h>
#include <postern/sys/option.h>

#define DEFAULT_LEASE_MS ((int64_t)60 * 1000)
#define DEFAULT_MAX 100

struct pull_handler {
	struct postern_handler base;
	struct postern_pull_limits limits;
};

static const struct pull_handler *from_handler(
		const struct postern_handler *handler) {
	return container_of(handler, const struct pull_handler, base);
}

/* Never called: its deliveries are not leased to a node to be run. */
static void pull_start(struct postern_handler *handler,
		struct postern_run *run) {
	(void)handler;
	postern_run_return(run);
}

static void pull_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}

static void pull_destroy(struct postern_handler *handler) {
	free((void *)(uintptr_t)from_handler(handler));
}

static const struct postern_handler_ops pull_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = pull_start,
	.cancel = pull_cancel,
	.destroy = pull_destroy,
};

static void pull_limits(const struct postern_handler *handler,
		struct postern_pull_limits *out) {
	*out = from_handler(handler)->limits;
}

static int pull_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	const struct postern__pull_settings *settings = setup->settings;
	struct pull_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &pull_ops;
	self->limits.lease_ms = settings && settings->lease_ms > 0
									? settings->lease_ms
									: DEFAULT_LEASE_MS;
	self->limits.max =
			settings && settings->max > 0 ? settings->max : DEFAULT_MAX;
	*out = &self->base;
	return POSTERN_OK;
}

static const struct postern_option options[] = {
	{
			.name = "lease",
			.type = POSTERN_OPTION_DURATION,
			.offset = offsetof(struct postern__pull_settings, lease_ms),
			.min = POSTERN_PULL_LEASE_MS_MIN,
			.max = POSTERN_PULL_LEASE_MS_MAX,
			.fallback = "1m",
			.help = "how long a worker has for a delivery, if its claim does "
					"not say",
	},
	{
			.name = "max",
			.type = POSTERN_OPTION_COUNT,
			.offset = offsetof(struct postern__pull_settings, max),
			.min = 1,
			.max = POSTERN_PULL_COUNT_MAX,
			.fallback = "100",
			.help = "the most deliveries of one claim",
	},
};

const struct postern_handler_kind postern__pull_kind = {
	.size = sizeof(struct postern_handler_kind),
	.name = "pull",
	.help = "workers claim the deliveries over HTTP",
	.options = options,
	.option_count = sizeof options / sizeof options[0],
	.settings_size = sizeof(struct postern__pull_settings),
	.create = pull_create,
	.pull = pull_limits,
};
