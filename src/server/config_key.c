/* SPDX-License-Identifier: MIT */
/*
 * The key of a channel or handler: a rule for every type, or a mapping of types
 * to rules, in which `default` is the rule for all others.
 */

#include "server/config_section.h"

#include <string.h>

#include "base/arena.h"
#include "base/pattern.h"
#include "core/key_rule.h"

static void read_rule(struct postern__config *config,
		const struct postern__yaml_node *node, struct postern_key_rule *out) {
	struct postern__key_rule parsed;
	struct postern_error error;
	out->rule = postern__config_text_read(config, node);
	if (!out->rule) {
		return;
	}
	if (postern__key_rule_parse(&parsed, out->rule, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, NULL,
				&error);
	} else if (postern__key_rule_is_callback(&parsed)) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"the key rule 'callback' is a function of a program: use "
				"json:, "
				"header: or another rule in a configuration");
	}
}

static void read_type(struct postern__config *config,
		const struct postern__yaml_node *node, struct postern_key_rule *out) {
	struct postern_error error;
	if (strcmp(node->key, "default") == 0) {
		return;
	}
	out->type = node->key;
	if (postern__pattern_check(node->key, strlen(node->key), &error) !=
			POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->key_place, NULL,
				&error);
	}
}

void postern__config_key_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_key_rule **out, size_t *count_out) {
	bool by_type = node->kind == POSTERN__YAML_MAPPING;
	size_t count = by_type ? node->count : 1;
	if (node->kind == POSTERN__YAML_LIST || count == 0 ||
			count > POSTERN_KEY_RULE_COUNT_MAX) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"key is a rule, or a mapping of at most %d types to rules: "
				"{order.placed: \"json:/order/id\", default: id}",
				POSTERN_KEY_RULE_COUNT_MAX);
		return;
	}
	struct postern_key_rule *rules =
			postern__arena_array(&config->arena, count, sizeof *rules);
	if (!rules) {
		config->mistakes.no_memory = true;
		return;
	}
	memset(rules, 0, count * sizeof *rules);
	const struct postern__yaml_node *entry = by_type ? node->first : node;
	for (size_t i = 0; i < count; i++, entry = entry->next) {
		if (by_type) {
			read_type(config, entry, &rules[i]);
		}
		read_rule(config, entry, &rules[i]);
	}
	*out = rules;
	*count_out = count;
}
