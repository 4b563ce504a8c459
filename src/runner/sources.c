/* SPDX-License-Identifier: MIT */
/*
 * The sources of a runner: started after its threads, because their messages
 * are committed by the writer; stopped first when it drains; ended when each
 * message in flight has its completion, or the drain is over.
 */

#include <postern/source.h>

#include "base/fail.h"
#include "base/sized.h"
#include "core/metrics.h"
#include "runner/runner.h"
#include "source/kinds.h"
#include "source/sink.h"
#include "source/staged.h"

#include <stdlib.h>
#include <string.h>

static int copy_options(const struct postern_source_options *given,
		struct postern_source_options *out, struct postern_error *error) {
	*out = (struct postern_source_options){ .size = sizeof(*out) };
	return given ? postern__sized_copy(out, sizeof(*out), given,
						   "source options", error)
				 : POSTERN_OK;
}

static int check_source(const struct postern_runner *runner,
		const struct postern_source_options *options,
		const struct postern_source *source, struct postern_error *error) {
	int r = postern__sink_check(runner->box, options, source, error);
	if (r) {
		return r;
	}
	if (runner->writer_started) {
		return postern__fail(error, POSTERN_E_BUSY,
				"source '%s' must be added before the runner starts",
				options->name);
	}
	if (runner->sink_count == POSTERN_SOURCE_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a runner has at most %d sources", POSTERN_SOURCE_COUNT_MAX);
	}
	for (size_t i = 0; i < runner->sink_count; i++) {
		if (strcmp(postern__sink_name(runner->sinks[i]), options->name) == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"two sources are named '%s'", options->name);
		}
	}
	return POSTERN_OK;
}

int postern_runner_add_source_taking(struct postern_runner *runner,
		const struct postern_source_options *given,
		struct postern_source *source, struct postern_error *error) {
	struct postern_sink **sinks = NULL;
	struct postern_source_options options;
	int r = copy_options(given, &options, error);
	if (!r) {
		r = check_source(runner, &options, source, error);
	}
	if (!r) {
		sinks = realloc(runner->sinks,
				(runner->sink_count + 1) * sizeof(struct postern_sink *));
		if (!sinks) {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	if (r) {
		source->ops->destroy(source);
		return r;
	}
	runner->sinks = sinks;
	const struct postern__sink_context context = {
		.box = runner->box,
		.retry_delay_ms = runner->options.restart_delay_ms,
	};
	r = postern__sink_create(&context, &options, source,
			&runner->sinks[runner->sink_count], error);
	runner->sink_count += r == POSTERN_OK;
	return r;
}

int postern_runner_add_source(struct postern_runner *runner,
		const struct postern_source_options *options, const char *kind_name,
		const struct postern_source_setting *settings, size_t setting_count,
		struct postern_error *error) {
	struct postern_source *source;
	const struct postern_source_kind *kind =
			postern__source_kind_find(kind_name ? kind_name : "");
	if (!kind) {
		return postern__fail(error, POSTERN_E_INVALID,
				"there is no kind of source named '%s'",
				kind_name ? kind_name : "");
	}
	int r = postern__source_create(kind, settings, setting_count, &source,
			error);
	return r ? r
			 : postern_runner_add_source_taking(runner, options, source, error);
}

int postern__sources_add_staged(struct postern_runner *runner,
		struct postern_error *error) {
	if (!runner->box->store->ops->collect) {
		return POSTERN_OK;
	}
	struct postern_source_options options = {
		.size = sizeof(options),
		.name = "staged",
	};
	struct postern_source *staged;
	int r = postern__staged_create(runner->box, &staged, error);
	if (!r) {
		r = postern_runner_add_source_taking(runner, &options, staged, error);
	}
	if (!r) {
		runner->staged = staged;
	}
	return r;
}

void postern__sources_store_notified(struct postern_runner *runner) {
	if (runner->staged) {
		postern__staged_wake(runner->staged);
	}
}

static size_t read_sources(void *context, struct postern_source_state *out,
		size_t max) {
	return postern_runner_sources(context, out, sizeof(*out), max);
}

int postern__sources_start(struct postern_runner *runner,
		struct postern_error *error) {
	int r = POSTERN_OK;
	postern__sources_announce(runner->box, read_sources, runner);
	for (size_t i = 0; !r && i < runner->sink_count; i++) {
		r = postern__sink_start(runner->sinks[i], error);
	}
	return r;
}

void postern__sources_stop(struct postern_runner *runner) {
	for (size_t i = 0; i < runner->sink_count; i++) {
		postern__sink_stop(runner->sinks[i]);
	}
}

bool postern__sources_in_flight(const struct postern_runner *runner) {
	for (size_t i = 0; i < runner->sink_count; i++) {
		if (postern__sink_in_flight(runner->sinks[i]) > 0) {
			return true;
		}
	}
	return false;
}

void postern__sources_end(struct postern_runner *runner) {
	for (size_t i = 0; i < runner->sink_count; i++) {
		postern__sink_end(runner->sinks[i]);
	}
}

void postern__sources_destroy(struct postern_runner *runner) {
	postern__sources_withdraw(runner->box, runner);
	for (size_t i = 0; i < runner->sink_count; i++) {
		postern__sink_destroy(runner->sinks[i]);
	}
	free(runner->sinks);
}

struct postern_source *postern__sources_at(const struct postern_runner *runner,
		size_t index, const char **channel_out) {
	return index < runner->sink_count
				   ? postern__sink_source(runner->sinks[index], channel_out)
				   : NULL;
}

size_t postern_runner_sources(struct postern_runner *runner,
		struct postern_source_state *out, size_t size, size_t max) {
	for (size_t i = 0; i < runner->sink_count && i < max; i++) {
		struct postern_source_state state;
		postern__sink_state(runner->sinks[i], &state);
		postern__sized_fill((char *)out + i * size, size, &state,
				sizeof(state));
	}
	return runner->sink_count;
}
