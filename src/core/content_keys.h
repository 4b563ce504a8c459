/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_CONTENT_KEYS_H
#define POSTERN_CORE_CONTENT_KEYS_H

/*
 * The keys of a message that is accepted: of the message itself by the rule of
 * its channel, and of each handler with a rule of its own.
 */

#include "core/accept.h"

int postern__channel_keys_init(struct postern__channel *channel,
		const struct postern_channel_options *options, const char *name,
		struct postern_error *error);
int postern__handler_keys_init(struct postern__handler *handler,
		const struct postern_handler_options *options,
		struct postern_error *error);

/*
 * Set the keys of a content whose message and routes are set. What they need is
 * freed with the content.
 *
 * POSTERN_E_INVALID: the message has no key and the channel rejects that, or
 * the key breaks a limit.
 */
int postern__content_keys_make(struct postern__content *content,
		struct postern_error *error);

/* Whether a run of an inline message has a key; without one it is no copy of
   any other. */
bool postern__content_has_guard_key(const struct postern__content *content,
		size_t index);
/* That key as the value of a marker, yours to free(), see
   postern__marker_value(); a key that no other message has if there is none.
   False: out of memory. */
bool postern__content_guard_key(const struct postern__content *content,
		size_t index, char **out, size_t *len_out);

/*
 * The routes of parked messages, with their keys: postern__parked_route() is
 * the postern_router of a store's unpark(), with these as context. The
 * generation must outlive them. NULL: out of memory.
 */
struct postern__parked_routes;
struct postern__parked_routes *postern__parked_routes_create(
		struct postern_generation *generation);
void postern__parked_routes_destroy(struct postern__parked_routes *parked);
size_t postern__parked_route(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max);

#define POSTERN__GENERATED_ID_LEN 32
/* An id that no other message has. */
void postern__generated_id(const struct postern_box *box,
		char out[POSTERN__GENERATED_ID_LEN + 1]);
/* Make an id for a message without type and id; false: the channel needs one.
 */
bool postern__box_make_id(struct postern_box *box, const char *channel,
		char out[POSTERN__GENERATED_ID_LEN + 1]);
/* Whether a message without an id is accepted: its key is something else. */
bool postern__channel_makes_ids(const struct postern__channel *channel,
		const char *type);

#endif
