/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_KEY_RULE_H
#define POSTERN_CORE_KEY_RULE_H

/*
 * Key rules: what makes a dedupe key of a message.
 *
 *   id                the message's id, with its source
 *   header:NAME       a header, whatever the case of its name
 *   correlation-id    the correlation id
 *   composite         the handler's key, ':', and the correlation id
 *   json:/POINTER     a value of the body
 *   hash:body         the body
 *   callback          what a function of the program answers
 *   RULE+RULE         several, except id, hash:body and callback
 *
 * A rule either makes a key, or there is none, and why is in a text. Values
 * with the same characters are the same key, whether a number or a string;
 * parts of a joined key are escaped, so that it has only one reading.
 */

#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>

#define POSTERN__KEY_RULE_LEN_MAX 400
#define POSTERN__KEY_PART_COUNT_MAX 8
/* Longest key, in bytes, except that of hash:body. */
#define POSTERN__KEY_TEXT_LEN_MAX 1000

enum postern__key_part_kind {
	POSTERN__KEY_ID,
	POSTERN__KEY_HEADER,
	POSTERN__KEY_CORRELATION_ID,
	POSTERN__KEY_COMPOSITE,
	POSTERN__KEY_JSON,
	POSTERN__KEY_HASH_BODY,
	POSTERN__KEY_CALLBACK
};

struct postern__key_part {
	enum postern__key_part_kind kind;
	const char *text; /* the header's name, or the pointer; in the rule */
	size_t len;
};

struct postern__key_rule {
	char text[POSTERN__KEY_RULE_LEN_MAX + 1];
	struct postern__key_part parts[POSTERN__KEY_PART_COUNT_MAX];
	size_t part_count;
	/* Of the rule `callback`; set by the caller. */
	postern_key_callback *callback;
	void *context;
};

/* Parse a rule; NULL is `id`. POSTERN_E_INVALID names what is wrong. */
int postern__key_rule_parse(struct postern__key_rule *rule, const char *text,
		struct postern_error *error);

/* Whether it is `id` alone, which nearly all are. */
bool postern__key_rule_is_id(const struct postern__key_rule *rule);
bool postern__key_rule_is_callback(const struct postern__key_rule *rule);
/* Whether the key depends on the handler: with such a rule on a channel every
   handler has its own key. */
bool postern__key_rule_is_composite(const struct postern__key_rule *rule);

/* The characters of a key. */
struct postern__key_text {
	char text[POSTERN__KEY_TEXT_LEN_MAX + 1];
	size_t len;
};

/*
 * Make the key of a message. The key borrows from the message or from `room`.
 *
 * handler  for people, of composite: the handler's key. NULL where the key gets
 *          the handler's scope, which outlives a renamed handler.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND  the message has no key: absent, twice, null, an object,
 *                       no JSON, empty
 *   POSTERN_E_INVALID   the key is too long, or has a control character
 */
int postern__key_rule_apply(const struct postern__key_rule *rule,
		const struct postern_message *message, const char *handler,
		struct postern__key_text *room, struct postern_dedupe_key *out,
		struct postern_error *error);

#endif
