/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_LIST_H
#define POSTERN_BASE_LIST_H

/*
 * A doubly linked list whose links are members of the items, so that linking
 * cannot fail and unlinking needs no search.
 *
 *   struct job {
 *       struct postern__list link;
 *       int number;
 *   };
 *
 *   struct postern__list jobs;
 *   postern__list_init(&jobs);
 *   postern__list_push_back(&jobs, &job->link);
 *   postern__list_each(item, &jobs) {
 *       struct job *job = container_of(item, struct job, link);
 *       …
 *   }
 *
 * The list is a ring whose head is a link that belongs to no item. A link that
 * is in no list must be zeroed or initialised; removing it does nothing.
 */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/container.h"

struct postern__list {
	struct postern__list *prev;
	struct postern__list *next;
};

/* Make an empty list, or a link that is in no list. */
static inline void postern__list_init(struct postern__list *list) {
	list->prev = list;
	list->next = list;
}

static inline bool postern__list_empty(const struct postern__list *list) {
	return list->next == list;
}

/* Whether this link, zeroed or initialised at first, is in a list now. */
static inline bool postern__list_linked(const struct postern__list *item) {
	return item->next && item->next != item;
}

/* Insert item, which must be in no list, after `place`. */
static inline void postern__list_insert(struct postern__list *place,
		struct postern__list *item) {
	assert(!postern__list_linked(item));
	item->prev = place;
	item->next = place->next;
	place->next->prev = item;
	place->next = item;
}

static inline void postern__list_push_front(struct postern__list *list,
		struct postern__list *item) {
	postern__list_insert(list, item);
}

static inline void postern__list_push_back(struct postern__list *list,
		struct postern__list *item) {
	postern__list_insert(list->prev, item);
}

/* Unlink; afterwards the item may be pushed again, or removed again. */
static inline void postern__list_remove(struct postern__list *item) {
	if (postern__list_linked(item)) {
		item->prev->next = item->next;
		item->next->prev = item->prev;
	}
	postern__list_init(item);
}

/* The first or last link, NULL if there is none. It stays in the list. */
static inline struct postern__list *postern__list_first(
		const struct postern__list *list) {
	return postern__list_empty(list) ? NULL : list->next;
}

static inline struct postern__list *postern__list_last(
		const struct postern__list *list) {
	return postern__list_empty(list) ? NULL : list->prev;
}

/* Unlink and return the first link, NULL if there is none. */
static inline struct postern__list *postern__list_pop_front(
		struct postern__list *list) {
	struct postern__list *item = postern__list_first(list);
	if (item) {
		postern__list_remove(item);
	}
	return item;
}

/*
 * A for loop over the links, first to last, in which `item` (declared here)
 * may be removed or freed. Its successor may not.
 */
#define postern__list_each(item, list)                                         \
	for (struct postern__list *item = (list)->next, *item##_next = item->next; \
			item != (list); item = item##_next, item##_next = item->next)

#endif
