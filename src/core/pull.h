/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_PULL_H
#define POSTERN_CORE_PULL_H

/*
 * Pull handlers: claims that wait, and leases of workers outside of the nodes.
 */

#include "core/box.h"

#include <postern/pull.h>

struct postern_edit;
struct postern_row;

/* pull.c: with the mutex held unless noted. */
/* Whether workers claim the handler's deliveries. */
bool postern__handler_is_pulled(const struct postern__handler *handler);
/* The handler of this generation with this key or legacy key; NULL: none. */
struct postern__handler *
postern__pull_handler(const struct postern_generation *generation,
		const char *key);
/* When a waiting claim for the handler could get something that is due;
   POSTERN__NEVER: as things are now, never. */
int64_t postern__pull_at_ms(const struct postern_box *box,
		const struct postern__handler_state *state);
/* When there is something to do for pull handlers that no hint is about: the
   end of a wait, or of a lease. */
int64_t postern__pulls_check_at_ms(const struct postern_box *box);
/* The handler was removed, or is of another kind now: answer the claims that
   wait for it soon. */
void postern__pulls_abandon(struct postern_box *box,
		struct postern__handler_state *state);
/* Without the mutex: answer the claims that wait, as far as possible, and
   settle ended leases. */
int postern__pulls_serve(struct postern_box *box, struct postern_error *error);
/* Without the mutex: answer all claims that wait, with nothing. */
void postern__pulls_end(struct postern_box *box);
/* Look for leases that have ended soon. Those of a handler that was a pull
   handler when they were claimed may remain. */
void postern__pulls_look(struct postern_box *box);
/* The same in delay_ms, when a lease ends. */
void postern__pulls_look_in(struct postern_box *box, int64_t delay_ms);
/* Without the mutex: whether the box has a handler with this key or legacy key;
   pulled: one that is a pull handler. */
bool postern__box_has_handler(struct postern_box *box, const char *key,
		bool pulled);

/* pull_settle.c: without the mutex. */
/* Settle the deliveries of this node's handlers whose pull lease has ended. */
int postern__pulls_expire(struct postern_box *box, struct postern_error *error);
/* Return claimed deliveries that nobody has; nothing is counted. */
void postern__pulls_return(struct postern_box *box,
		const struct postern_claimed *items, size_t count);
/* Poison a claimed delivery whose message is missing: no worker gets it. */
void postern__pull_poison(struct postern_box *box,
		struct postern__handler *handler,
		const struct postern_claimed *claimed);
/* End a pull lease for an operator. */
int postern__pull_cancel(struct postern_box *box,
		const struct postern_edit *edit, const struct postern_row *row,
		struct postern_error *error);

#endif
