/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_RENEWER_H
#define POSTERN_RUNNER_RENEWER_H

/*
 * Processing without a runner, for the command line: two threads renew the node
 * lease and cancel handlers that are past their timeout, because the thread
 * that runs a handler can do neither.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <stddef.h>

/* As postern_box_process(). If the threads cannot be started, the node is
   renewed between two runs only, and timeouts are not enforced. */
int postern__process_renewing(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

#endif
