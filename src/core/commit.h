/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_COMMIT_H
#define POSTERN_CORE_COMMIT_H

/*
 * The commit queue: what waits in it, and group commits.
 */

#include "core/box.h"

/* commit.c: with the mutex held. */
struct postern__group *postern__group_create(void);
void postern__group_destroy(struct postern__group *group);
/* Write one group commit, unless all writers are busy; releases the mutex
   while it writes. Returns the store's error, if any; *count_out (may be NULL)
   is the number of items that are no longer queued. */
int postern__commit_group(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* Whether there is an item to write and a free writer. */
bool postern__commit_ready(const struct postern_box *box);
/* Whether there is a free writer. */
bool postern__commit_free(const struct postern_box *box);

/* room.c */
/* Whoever found the queue of postern_box_accept_async() full. */
struct postern__room_waiter {
	struct postern__list link;
	/* Called once, without the mutex; must not call functions of the box. */
	void (*call)(struct postern__room_waiter *waiter);
};
/* Without the mutex: have the waiter called when there is room. Returns false,
   and does not call it, if there is room now. */
bool postern__room_await(struct postern_box *box,
		struct postern__room_waiter *waiter);
/* Without the mutex: false if the waiter does not wait, because it was called
   or is about to be. */
bool postern__room_forget(struct postern_box *box,
		struct postern__room_waiter *waiter);
/* With the mutex, which is released for each call: a commit ended. */
void postern__room_announce(struct postern_box *box);

#endif
