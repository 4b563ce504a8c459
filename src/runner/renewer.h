/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_RENEWER_H
#define POSTERN_RUNNER_RENEWER_H

/*
 * Keeps a node alive while a box is pumped by hand, where the store needs
 * that, and ends handlers whose time is over: the thread that runs one can do
 * neither.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <stddef.h>

/* As postern_box_process(). If there is no thread to be had, the node is
   renewed between two handlers only, and a handler has the time it takes. */
int postern__process_renewing(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

#endif
