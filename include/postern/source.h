/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SOURCE_H
#define POSTERN_SOURCE_H

/*
 * Message sources of a runner: each feeds a channel from some transport, from
 * the start of the runner until its drain. postern/sys/source.h is for those
 * who write one.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/runner.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_source;

#define POSTERN_SOURCE_NAME_LEN_MAX 200
#define POSTERN_SOURCE_COUNT_MAX 1000
#define POSTERN_SOURCE_IN_FLIGHT_MAX 100000

/* Zero the struct and set `size`; zeroes are the defaults named here. */
struct postern_source_options {
	size_t size;
	/* For logs and statistics, unique in the runner; required. */
	const char *name;
	/* Where its messages go, unless the source itself names a channel. */
	const char *channel;
	/* The most messages (10,000) and body bytes (32 MiB) of this source that
	   wait to be stored; beyond that the source is paused. One message is
	   always taken. */
	uint32_t in_flight_max;
	size_t in_flight_bytes_max;
};

/*
 * Add a source before postern_runner_start(). The runner becomes the owner of
 * `source`, also if this fails.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_INVALID   no name, or one that is in use; an option out of range;
 *                       a source that was written for another version
 *   POSTERN_E_NOTFOUND  no such channel
 *   POSTERN_E_BUSY      the runner runs
 */
POSTERN_EXPORT int
postern_runner_add_source_taking(struct postern_runner *runner,
		const struct postern_source_options *options,
		struct postern_source *source, struct postern_error *error);

/* One option of a source, as it would be written in a configuration; an option
   with several values is given once for each of them. */
struct postern_source_setting {
	const char *name;
	const char *value;
};

/*
 * Add a source of a kind by name, with its options as text: "lines" is in this
 * library, others are registered (postern/sys/source.h). Before
 * postern_runner_start(). POSTERN_E_INVALID also for a kind that is unknown, an
 * option that is unknown or missing, or a value that is wrong.
 *
 *   const struct postern_source_setting settings[] = {
 *       { "file", "orders.jsonl" },
 *   };
 *   postern_runner_add_source(runner, &options, "lines", settings, 1, &error);
 */
POSTERN_EXPORT int postern_runner_add_source(struct postern_runner *runner,
		const struct postern_source_options *options, const char *kind,
		const struct postern_source_setting *settings, size_t setting_count,
		struct postern_error *error);

/*
 * The kind "lines": a CloudEvent in JSON per line.
 *
 *   file           a file or a named pipe; "-": standard input
 *   follow         on: read on when the file grows or is replaced
 *   max_line_size  4 MiB: longer lines are rejected
 *   max_attempts   5: how often a line is sent whose handler fails, in a
 * channel that answers with that (mode `guard` or `direct`), before it is given
 * up: postern_box_fault()
 *
 * A file is read from its beginning at every start, because none of these
 * transports can be acknowledged: what was accepted before is a duplicate.
 * Lines that cannot be accepted are counted and logged with their number, and
 * stop no other. The lag of a file is in bytes. What was read from a pipe and
 * not accepted is lost when the process ends.
 */

/* The state of a source. Counts are since the runner was created. */
struct postern_source_state {
	char name[POSTERN_SOURCE_NAME_LEN_MAX + 1];
	const char *kind;                              /* static */
	char channel[POSTERN_SOURCE_NAME_LEN_MAX + 1]; /* empty: several */
	bool running;                                  /* started and not stopped */
	bool connected;
	bool paused;         /* until messages that wait are stored */
	int64_t since_ms;    /* wall clock: connected or disconnected since */
	int64_t lag;         /* -1: unknown */
	int64_t error_at_ms; /* wall clock; 0: no error yet */
	char error[POSTERN_ERROR_TEXT_MAX]; /* the last one, also if it is over */
	uint64_t in_flight;                 /* waiting to be stored */
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t conflicts;
	uint64_t rejected;
	uint64_t unavailable;
	uint64_t failed; /* a handler failed, in a channel that answers with that */
	uint64_t quarantined; /* of the rejected and the conflicts: were kept */
	int64_t dead_letters; /* messages the transport gave up; -1: unknown */
};

/*
 * The states of the runner's sources: writes at most `max` to `out` and returns
 * how many there are. From any thread.
 *
 * size  sizeof(struct postern_source_state): that of the header the program was
 *       compiled with.
 */
POSTERN_EXPORT size_t postern_runner_sources(struct postern_runner *runner,
		struct postern_source_state *out, size_t size, size_t max);

#ifdef __cplusplus
}
#endif

#endif
