/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_SINK_H
#define POSTERN_SOURCE_SINK_H

/*
 * A sink: what stands between a source and the box. It owns the source, counts
 * what is in flight, pauses and resumes the source, and keeps its state for
 * statistics and health, so that a source has nothing to do but to read,
 * acknowledge and report changes of its connection.
 *
 * A message in flight keeps the sink allocated, even if the runner was
 * destroyed before the store answered.
 */

#include <postern/box.h>
#include <postern/source.h>
#include <postern/sys/source.h>

#include "core/accept.h"
#include "core/commit.h"

/* What the runner provides for its sinks. */
struct postern__sink_context {
	struct postern_box *box;
	int64_t retry_delay_ms;
};

/* Create the sink of a source, which it becomes the owner of, also on failure.
   The options must be valid: postern__sink_check(). */
int postern__sink_create(const struct postern__sink_context *context,
		const struct postern_source_options *options,
		struct postern_source *source, struct postern_sink **out,
		struct postern_error *error);
int postern__sink_check(struct postern_box *box,
		const struct postern_source_options *options,
		const struct postern_source *source, struct postern_error *error);
/* Destroys the source. It must have ended. NULL is fine. */
void postern__sink_destroy(struct postern_sink *sink);

const char *postern__sink_name(const struct postern_sink *sink);
/* The source, and the channel that it feeds; "" if it names channels itself. */
struct postern_source *postern__sink_source(const struct postern_sink *sink,
		const char **channel_out);

int postern__sink_start(struct postern_sink *sink, struct postern_error *error);
/* Take no further messages, and stop the source. Does not wait; again is
   fine. */
void postern__sink_stop(struct postern_sink *sink);
/* The messages whose completion was not delivered yet. */
size_t postern__sink_in_flight(struct postern_sink *sink);
/* Complete what is in flight as unavailable, and end the source. Does nothing
   if it was not started. */
void postern__sink_end(struct postern_sink *sink);

void postern__sink_state(struct postern_sink *sink,
		struct postern_source_state *out);

/* For a source whose transport is the store itself: accept one batch of staged
   messages, in one transaction with their removal. See postern__collect(). */
int postern__sink_collect(struct postern_sink *sink, bool rests,
		struct postern__collected *out, struct postern_error *error);

#endif
