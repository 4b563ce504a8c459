/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_KEY_RULES_H
#define POSTERN_CORE_KEY_RULES_H

/*
 * The key rules of a channel or handler, by the types of messages.
 */

#include <postern/box.h>

#include "core/key_rule.h"

struct postern__typed_rule {
	char *type; /* a pattern; NULL: every type */
	/* Separates the keys of this rule from those of others: in the place of a
	   source, with a character that no source has. NULL: a rule for every
	   type. */
	char *space;
	struct postern__key_rule rule;
};

struct postern__key_rules {
	struct postern__typed_rule *items; /* in the order of their use */
	size_t count;
};

/* Copy and parse rules. `what` names their owner in errors: "channel 'orders'".
   Call finish() also after a failure. */
int postern__key_rules_init(struct postern__key_rules *rules,
		const struct postern_key_rule *given, size_t count, const char *what,
		struct postern_error *error);
/* Set the function of the rules `callback`; POSTERN_E_INVALID: it is NULL, and
   there are some, or it is not, and there are none. */
int postern__key_rules_set_callback(struct postern__key_rules *rules,
		postern_key_callback *callback, void *context, const char *what,
		struct postern_error *error);
void postern__key_rules_finish(struct postern__key_rules *rules);

/* The rule for messages of this type; NULL: none. */
const struct postern__typed_rule *
postern__key_rules_find(const struct postern__key_rules *rules,
		const char *type);
/* By the rules of a channel, the rule of the message itself; NULL: `id`. With
   `composite` the message is identified by its id. */
const struct postern__typed_rule *
postern__key_rules_of_message(const struct postern__key_rules *channel,
		const char *type);
/* The rule by which a handler has a key of its own; NULL: only the key of the
   message counts for it. */
const struct postern__typed_rule *
postern__key_rules_of_handler(const struct postern__key_rules *channel,
		const struct postern__key_rules *handler, const char *type);
/* As postern__key_rule_apply(). */
int postern__typed_rule_apply(const struct postern__typed_rule *rule,
		const struct postern_message *message, const char *handler,
		struct postern__key_text *room, struct postern_dedupe_key *out,
		struct postern_error *error);

/*
 * A key as the value of a marker, yours to free(); NULL: out of memory. The
 * other rules of its channel and handler do not change it:
 *
 *   ID                  of the channel's own messages, whose source is
 *                       own_source
 *   SOURCE LF ID        of others
 *   LF VALUE            by another rule than `id` for all types
 *   PATTERN LF LF VALUE by a rule for the types that match a pattern
 */
char *postern__marker_value(const struct postern_dedupe_key *key,
		const char *own_source, size_t *len_out);

#endif
