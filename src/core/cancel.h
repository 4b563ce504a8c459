/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_CANCEL_H
#define POSTERN_CORE_CANCEL_H

/* Runs that an operator cancels. */

#include "core/box.h"

/* Without the mutex: cancel a run, and wait for its end; as
   postern_box_change(). */
int postern__cancel(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error);

/* Without the mutex: read which runs of this node others have requested to
   cancel, and cancel them. Without a call of the store if this node has no
   leases, or others cannot request it. */
int postern__cancels_poll(struct postern_box *box, struct postern_error *error);

/* With the mutex: settle a run that was cancelled, whatever its outcome. */
void postern__run_settle_cancelled(struct postern_run *run);

#endif
