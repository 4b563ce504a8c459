/* SPDX-License-Identifier: MIT */
/*
 * Waiting for room in the queue of messages to be stored. Room appears only
 * when a commit ends, so the end of each commit calls those who wait, once
 * half of the queue is free: a source that resumed for a single message would
 * be paused again by the next.
 */

#include "core/commit.h"

#define ROOM_COUNT (POSTERN__ASYNC_COUNT_MAX / 2)
#define ROOM_BYTES (POSTERN__ASYNC_BYTES_MAX / 2)

static bool has_room(const struct postern_box *box) {
	return box->accept_count <= ROOM_COUNT && box->accept_bytes <= ROOM_BYTES;
}

bool postern__room_await(struct postern_box *box,
		struct postern__room_waiter *waiter) {
	(void)pthread_mutex_lock(&box->mutex);
	bool waits = !has_room(box);
	if (waits) {
		postern__list_push_back(&box->room_waiters, &waiter->link);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return waits;
}

bool postern__room_forget(struct postern_box *box,
		struct postern__room_waiter *waiter) {
	(void)pthread_mutex_lock(&box->mutex);
	bool waited = postern__list_linked(&waiter->link);
	postern__list_remove(&waiter->link);
	(void)pthread_mutex_unlock(&box->mutex);
	return waited;
}

void postern__room_announce(struct postern_box *box) {
	while (has_room(box)) {
		struct postern__list *link =
				postern__list_pop_front(&box->room_waiters);
		if (!link) {
			break;
		}
		struct postern__room_waiter *waiter =
				container_of(link, struct postern__room_waiter, link);
		(void)pthread_mutex_unlock(&box->mutex);
		waiter->call(waiter);
		(void)pthread_mutex_lock(&box->mutex);
	}
}
