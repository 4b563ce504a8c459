/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_TROUBLE_H
#define POSTERN_RUNNER_TROUBLE_H

/*
 * Of all that the runner reports as trouble, the one text that is good news:
 * the end of what was reported before. A log tells it apart by this.
 */
#define POSTERN__TROUBLE_OVER "the store works again"

#endif
