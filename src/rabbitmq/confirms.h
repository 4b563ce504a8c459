/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RABBITMQ_CONFIRMS_H
#define POSTERN_RABBITMQ_CONFIRMS_H

/* Publisher confirms: which item each tag stands for. One thread at a time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RABBITMQ_UNCONFIRMED_MAX 4096

struct postern__rabbitmq_unconfirmed {
	bool open;
	void *item; /* NULL: nobody waits for it any more */
};

struct postern__rabbitmq_confirms {
	uint64_t first; /* the first tag that is not confirmed */
	uint64_t next;  /* of the next message */
	struct postern__rabbitmq_unconfirmed entries[RABBITMQ_UNCONFIRMED_MAX];
};

/* A new channel: tags begin again. The items must have been taken out. */
void postern__rabbitmq_confirms_reset(struct postern__rabbitmq_confirms *self);
bool postern__rabbitmq_confirms_full(
		const struct postern__rabbitmq_confirms *self);
/* The item of the message that is published next; returns its tag. */
uint64_t postern__rabbitmq_confirms_add(struct postern__rabbitmq_confirms *self,
		void *item);
/* The entry of a tag that is not confirmed; NULL: there is none. */
struct postern__rabbitmq_unconfirmed *
postern__rabbitmq_confirms_at(struct postern__rabbitmq_confirms *self,
		uint64_t tag);

typedef void postern__rabbitmq_confirmed(void *context, void *item);

/* The broker has confirmed (or refused) a tag, or with `multiple` all up to it,
   of which 0 means all. Calls back for each item. False: that tag was never
   published. */
bool postern__rabbitmq_confirms_take(struct postern__rabbitmq_confirms *self,
		uint64_t tag, bool multiple, postern__rabbitmq_confirmed *call,
		void *context);

#endif
