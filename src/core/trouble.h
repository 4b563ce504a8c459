/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_TROUBLE_H
#define POSTERN_CORE_TROUBLE_H

/*
 * Of all that is reported as trouble, what is none: the end of what was
 * reported before, and, as the beginning of a text, what a clean-up removed,
 * what was taken over from nodes that are gone, and whom a node waits for that
 * has nothing to do until then. A log tells them apart by this.
 */
#define POSTERN__TROUBLE_OVER "the store works again"
#define POSTERN__TROUBLE_CLEANED "cleaned up "
#define POSTERN__TROUBLE_TAKEN "took over "
#define POSTERN__TROUBLE_WAITING "waiting "

/* Neither: work that waits for somebody to change a configuration. */
#define POSTERN__TROUBLE_STRANDED "staged messages wait: "

/* Of the remarks of a store that is being opened, the beginning of the one that
   is no warning. */
#define POSTERN__REMARK_CREATED "created store"

/* There is an event for it, too: whoever hears that needs no text. */
#define POSTERN__TROUBLE_LOCK_LOST \
	"the processing lock was lost; another process goes on"

/*
 * What a run is put off by when this machine or the store, not the handler, is
 * to blame: no process to be had, a full disk. It costs the delivery no
 * attempt.
 */
#define POSTERN__TROUBLE_DELAY_MS 5000

#endif
