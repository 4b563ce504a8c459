/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_TROUBLE_H
#define POSTERN_RUNNER_TROUBLE_H

/*
 * Of all that the runner reports as trouble, what is none: the end of what was
 * reported before, and, as the beginning of a text, what a clean-up removed and
 * what was taken over from nodes that are gone. A log tells them apart by this.
 */
#define POSTERN__TROUBLE_OVER "the store works again"
#define POSTERN__TROUBLE_CLEANED "cleaned up "
#define POSTERN__TROUBLE_TAKEN "took over "

#endif
