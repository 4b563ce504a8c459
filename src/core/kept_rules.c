/* SPDX-License-Identifier: MIT */
/*
 * The key rules in force are kept in the store. A box with other rules is
 * refused until the change is confirmed: keys that were remembered by the
 * former rule would not be found, and copies would run again.
 */

#include "core/kept_rules.h"

#include "base/buf.h"
#include "base/fail.h"
#include "core/box.h"
#include "core/key_rules.h"

#include <postern/sys/memory.h>
#include <string.h>

#define RULES_TEXT_MAX                  \
	((POSTERN_KEY_RULE_COUNT_MAX + 1) * \
			(POSTERN_ATTRIBUTE_LEN_MAX + POSTERN__KEY_RULE_LEN_MAX + 8))

/* The rules as a text: "{order.*: json:/id, default: id}"; NULL: out of
   memory. */
static const char *rules_text(const struct postern__key_rules *rules,
		const char *none, struct postern_memory *memory) {
	struct postern__buf buf;
	size_t count = rules->count;
	bool has_default = count > 0 && !rules->items[count - 1].type;
	if (count == 0) {
		return postern_memory_text(memory, none);
	}
	if (count == 1 && has_default) {
		return postern_memory_text(memory, rules->items[0].rule.text);
	}
	postern__buf_init(&buf, RULES_TEXT_MAX);
	for (size_t i = 0; i < count; i++) {
		const struct postern__typed_rule *rule = &rules->items[i];
		postern__buf_printf(&buf, "%s%s: %s", i ? ", " : "{",
				rule->type ? rule->type : "default", rule->rule.text);
	}
	if (!has_default && none[0]) {
		postern__buf_printf(&buf, ", default: %s", none);
	}
	postern__buf_append_text(&buf, "}");
	char *text = buf.failed
						 ? NULL
						 : postern_memory_text(memory, postern__buf_text(&buf));
	postern__buf_finish(&buf);
	return text;
}

static int fail_changed(const struct postern_generation *generation,
		const struct postern_kept_rule *rule, struct postern_error *error) {
	const struct postern__channel *channel =
			postern__generation_channel_by_id(generation, rule->channel);
	const char *name = channel ? channel->name : "?";
	const char *what = "channel";
	const char *owner = name;
	for (size_t i = 0; rule->handler && i < generation->handler_count; i++) {
		if (generation->handlers[i]->id == rule->handler) {
			what = "handler";
			owner = generation->handlers[i]->key;
		}
	}
	return postern__fail(error, POSTERN_E_CONFLICT,
			"the key of %s '%.40s' was '%.30s' and is '%.30s' now, so copies "
			"of "
			"accepted messages would run; restore it, or run "
			"'postern migrate --accept-key-change %.40s'",
			what, owner, rule->former, rule->rule[0] ? rule->rule : "none",
			name);
}

static bool collect_rules(const struct postern_generation *generation,
		struct postern_memory *memory, struct postern_kept_rule *rules) {
	size_t count = 0;
	bool ok = true;
	for (size_t i = 0; ok && i < generation->channel_count; i++) {
		const struct postern__channel *channel = generation->channels[i];
		rules[count] = (struct postern_kept_rule){
			.channel = channel->id,
			.rule = rules_text(&channel->key_rules, "id", memory),
			.confirmed = channel->accepts_key_change,
			.guarded = channel->mode == POSTERN_MODE_GUARD,
		};
		ok = rules[count++].rule;
	}
	for (size_t i = 0; ok && i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		rules[count] = (struct postern_kept_rule){
			.channel = handler->channel->id,
			.handler = handler->id,
			.rule = rules_text(&handler->key_rules, "", memory),
			.confirmed = handler->channel->accepts_key_change,
			.guarded = handler->channel->mode == POSTERN_MODE_GUARD,
		};
		ok = rules[count++].rule;
	}
	return ok;
}

int postern__rules_keep(struct postern_box *box,
		const struct postern_generation *generation,
		struct postern_error *error) {
	if (!box->store || !box->store->ops->keep_rules) {
		return POSTERN_OK;
	}
	struct postern_memory *memory = postern_memory_create();
	size_t count = generation->channel_count + generation->handler_count;
	struct postern_kept_rule *rules =
			memory ? postern_memory_alloc(memory, (count + 1) * sizeof(*rules))
				   : NULL;
	int r = rules && collect_rules(generation, memory, rules)
					? box->store->ops->keep_rules(box->store, rules, count,
							  memory, error)
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; !r && i < count; i++) {
		if (rules[i].changed && !rules[i].confirmed) {
			r = fail_changed(generation, &rules[i], error);
		}
	}
	postern_memory_destroy(memory);
	return r;
}

int postern_box_accept_key_change(struct postern_box *box, const char *channel,
		struct postern_error *error) {
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern__channel *found =
			postern__generation_channel(generation, channel);
	if (found) {
		found->accepts_key_change = true;
	}
	postern__generation_release(generation);
	return found ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
						   channel);
}
