/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_QUARANTINE_H
#define POSTERN_CORE_QUARANTINE_H

/*
 * Messages that can never be accepted, and are kept.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/message.h>

struct postern__channel;
struct postern__content;

/* Called before the receipt of a message that is quarantined, with the reason.
   As postern_accepted. */
typedef void postern__quarantined(void *context,
		const struct postern_error *why);

/* What queues an accept without waiting, and what becomes of its result. */
struct postern__accept_call {
	postern_accepted *done;
	/* NULL: a message that cannot be accepted is not quarantined. */
	postern__quarantined *quarantined;
	void *context;
};

/* As postern_box_accept_async(). In a channel that stores its messages, what is
   unrouted is parked, and what can never be accepted is quarantined: the
   receipt is that of the message that is kept. */
int postern__accept_async(struct postern_box *box, const char *channel,
		const struct postern_message *message,
		const struct postern__accept_call *call, struct postern_error *error);
/* Quarantine a message that is not even valid. In a channel that stores none:
   POSTERN_E_INVALID with the reason, as for a body over
   POSTERN_QUARANTINE_BODY_LEN_MAX. */
int postern__quarantine_async(struct postern_box *box, const char *channel,
		const struct postern_message *message, const char *reason,
		const struct postern__accept_call *call, struct postern_error *error);

/* quarantine.c: the content of a message that is quarantined. */
int postern__quarantine_content(struct postern__channel *channel,
		const struct postern_message *message, const char *reason,
		struct postern__content **out, struct postern_error *error);

#endif
