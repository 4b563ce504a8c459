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

struct collecting {
	struct postern_memory *memory;
	struct postern_kept_rule *rules;
	size_t count;
	bool former; /* also under former names, which the store may have yet */
	bool failed;
};

static void add_rule(struct collecting *work, struct postern_kept_rule rule) {
	work->failed = work->failed || !rule.rule;
	work->rules[work->count++] = rule;
}

static const char *name_of(const struct postern__channel *channel, size_t i) {
	return i == 0 ? channel->name : channel->former_names[i - 1];
}

static size_t count_names(const struct collecting *work,
		const struct postern__channel *channel) {
	return 1 + (work->former ? channel->former_name_count : 0);
}

static size_t count_keys(const struct collecting *work,
		const struct postern__handler *handler) {
	return 1 + (work->former ? handler->legacy_key_count : 0);
}

static void add_channel(struct collecting *work,
		const struct postern__channel *channel) {
	for (size_t i = 0; i < count_names(work, channel); i++) {
		add_rule(work, (struct postern_kept_rule){
							   .channel = channel->id,
							   .channel_name = name_of(channel, i),
							   .rule = rules_text(&channel->key_rules, "id",
									   work->memory),
							   .confirmed = channel->accepts_key_change,
							   .guarded = channel->mode == POSTERN_MODE_GUARD,
					   });
	}
}

static void add_handler(struct collecting *work,
		const struct postern__handler *handler) {
	const struct postern__channel *channel = handler->channel;
	const size_t names = count_names(work, channel);
	for (size_t i = 0; i < names * count_keys(work, handler); i++) {
		size_t key = i / names;
		add_rule(work,
				(struct postern_kept_rule){
						.channel = channel->id,
						.channel_name = name_of(channel, i % names),
						.handler = handler->id,
						.handler_key = key == 0 ? handler->key
												: handler->legacy_keys[key - 1],
						.rule = rules_text(&handler->key_rules, "",
								work->memory),
						.confirmed = channel->accepts_key_change,
						.guarded = channel->mode == POSTERN_MODE_GUARD,
				});
	}
}

static bool collect_rules(const struct postern_generation *generation,
		struct collecting *work) {
	size_t count = 0;
	for (size_t i = 0; i < generation->channel_count; i++) {
		count += count_names(work, generation->channels[i]);
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		count +=
				count_names(work, handler->channel) * count_keys(work, handler);
	}
	work->rules = postern_memory_alloc(work->memory,
			(count + 1) * sizeof(*work->rules));
	if (!work->rules) {
		return false;
	}
	for (size_t i = 0; i < generation->channel_count; i++) {
		add_channel(work, generation->channels[i]);
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		add_handler(work, generation->handlers[i]);
	}
	return !work->failed;
}

static int fail_changed(const struct postern_kept_rule *rule,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_CONFLICT,
			"the key of %s '%.40s' was '%.30s' and is '%.30s' now, so copies "
			"of "
			"accepted messages would run; restore it, or run "
			"'postern migrate --accept-key-change %.40s'",
			rule->handler_key ? "handler" : "channel",
			rule->handler_key ? rule->handler_key : rule->channel_name,
			rule->former, rule->rule[0] ? rule->rule : "none",
			rule->channel_name);
}

static int compare(struct postern_box *box,
		const struct postern_generation *generation, bool former,
		struct postern_error *error) {
	if (!box->store || !box->store->ops->keep_rules) {
		return POSTERN_OK;
	}
	struct collecting work = {
		.memory = postern_memory_create(),
		.former = former,
	};
	int r = work.memory && collect_rules(generation, &work)
					? box->store->ops->keep_rules(box->store, work.rules,
							  work.count, work.memory, error)
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; !r && i < work.count; i++) {
		if (work.rules[i].changed && !work.rules[i].confirmed) {
			r = fail_changed(&work.rules[i], error);
		}
	}
	postern_memory_destroy(work.memory);
	return r;
}

int postern__rules_keep(struct postern_box *box,
		const struct postern_generation *generation,
		struct postern_error *error) {
	return compare(box, generation, false, error);
}

int postern__rules_compare(struct postern_box *box,
		struct postern_error *error) {
	return compare(box, box->generation, true, error);
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
