/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SOURCE_TARGET_H
#define POSTERN_TESTS_SOURCE_TARGET_H

/*
 * The source under test, and the transport it reads. A program of the suite is
 * linked with one file that defines source_target; to test another source,
 * write such a file and name it in meson.build.
 */

#include <postern/sys/source.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>

struct source_target {
	const char *name;

	/* Make an empty transport, before everything else. */
	void (*open)(void);
	/* Remove the transport; the source is destroyed. */
	void (*close)(void);

	/* The source, not yet started. NULL if the runner adds it by itself. */
	struct postern_source *(*create)(void);

	/* If the transport is a staging table in the store: collect() of it. NULL:
	   it is not. */
	int (*collect)(struct postern_store *inner,
			struct postern_collection *collection,
			struct postern_memory *memory, struct postern_error *error);

	/* Put a message with this id into the transport: source "test", type
	   "t", the id as body. */
	void (*put)(const char *id);
	/* Put something that cannot become a message. */
	void (*put_bad)(void);

	/* How many messages (good or bad) the transport regards as acknowledged:
	   it would not deliver them again to the same source. `exists`: the
	   source was not destroyed. */
	size_t (*acknowledged)(bool exists);

	/* Cut the connection; the source connects again, and the transport
	   delivers what was not acknowledged. NULL if there is no connection. */
	void (*disconnect)(void);

	/* From now on the transport delivers in a random order, and some messages
	   twice. NULL if it cannot. */
	void (*shuffle)(void);

	/* Many messages may be in flight, so that the source can be paused. */
	bool pauses;
};

extern const struct source_target source_target;

#endif
