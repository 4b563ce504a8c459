/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_SERVED_H
#define POSTERN_CLI_SERVED_H

/*
 * Whether a running server has the configuration that a command has read.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct postern__config;

/*
 * Compare the names of stores, channels and handlers with those that the
 * server tells in GET /v1/stats. False: they differ, and `text` names the first
 * difference: "it lacks the channel 'orders'".
 */
bool postern__served_is_same(const struct postern__config *config,
		const json_t *stats, char *text, size_t size);

#endif
