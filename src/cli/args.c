/* SPDX-License-Identifier: MIT */
/*
 * Parses the words of a command line by tables of flags.
 *
 * Tables are searched in turn, so a command's own flag hides an option of the
 * configuration with the same name.
 */

#include "cli/args.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "cli/command.h"

/* Flags that are compared for "did you mean". */
#define CANDIDATES_MAX 256

struct parser {
	const char *const *words;
	size_t count;
	size_t index; /* of the next word */
	const struct postern__flag *const *tables;
	size_t table_count;
	struct postern__args *args;
};

static const struct postern__flag *find_long(const struct parser *parser,
		const char *name, size_t len) {
	for (size_t i = 0; i < parser->table_count; i++) {
		const struct postern__flag *flag = parser->tables[i];
		for (; flag->name; flag++) {
			if (strlen(flag->name) == len &&
					memcmp(flag->name, name, len) == 0) {
				return flag;
			}
		}
	}
	return NULL;
}

static const struct postern__flag *find_short(const struct parser *parser,
		char letter) {
	for (size_t i = 0; i < parser->table_count; i++) {
		const struct postern__flag *flag = parser->tables[i];
		for (; flag->name; flag++) {
			if (flag->letter && flag->letter == letter) {
				return flag;
			}
		}
	}
	return NULL;
}

static int fail_unknown(const struct parser *parser, const char *name,
		size_t len, struct postern_error *error) {
	const char *candidates[CANDIDATES_MAX];
	size_t count = 0;
	for (size_t i = 0; i < parser->table_count; i++) {
		const struct postern__flag *flag = parser->tables[i];
		for (; flag->name && count < CANDIDATES_MAX; flag++) {
			candidates[count++] = flag->name;
		}
	}
	char text[65] = { 0 };
	const char *near = NULL;
	if (len < sizeof text) {
		memcpy(text, name, len);
		near = postern__closest(text, candidates, count);
	}
	if (strcmp(text, "server") == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"unknown flag '--server': this command uses the configuration "
				"(--config) or --store");
	}
	if (near) {
		return postern__fail(error, POSTERN_E_INVALID,
				"unknown flag '--%.*s', did you mean '--%s'?", (int)len, name,
				near);
	}
	return postern__fail(error, POSTERN_E_INVALID, "unknown flag '--%.*s'",
			len > 100 ? 100 : (int)len, name);
}

static int add_arg(struct parser *parser, const struct postern__flag *flag,
		const char *value, struct postern_error *error) {
	struct postern__args *args = parser->args;
	for (size_t i = 0; flag && !flag->repeats && i < args->count; i++) {
		if (args->items[i].flag == flag) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'--%s' is given twice", flag->name);
		}
	}
	assert(args->count < parser->count);
	args->items[args->count++] =
			(struct postern__arg){ .flag = flag, .value = value };
	return POSTERN_OK;
}

/* The value of a flag that takes one, in the same word or the next. */
static int add_value(struct parser *parser, const struct postern__flag *flag,
		const char *value, struct postern_error *error) {
	if (!value) {
		if (parser->index == parser->count) {
			return postern__fail(error, POSTERN_E_INVALID, "'--%s' needs %s",
					flag->name, flag->value);
		}
		value = parser->words[parser->index++];
	}
	return add_arg(parser, flag, value, error);
}

static int parse_long(struct parser *parser, const char *word,
		struct postern_error *error) {
	const char *name = word + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] == '=' ? name + len + 1 : NULL;
	const struct postern__flag *flag = find_long(parser, name, len);
	if (!flag) {
		return fail_unknown(parser, name, len, error);
	}
	if (!flag->value) {
		if (value) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'--%s' takes no value", flag->name);
		}
		return add_arg(parser, flag, NULL, error);
	}
	return add_value(parser, flag, value, error);
}

static int parse_short(struct parser *parser, const char *word,
		struct postern_error *error) {
	const struct postern__flag *flag = find_short(parser, word[1]);
	if (!flag || (!flag->value && word[2])) {
		return postern__fail(error, POSTERN_E_INVALID,
				"unknown flag '%.100s' (put an operand that starts with '-' "
				"after '--')",
				word);
	}
	if (!flag->value) {
		return add_arg(parser, flag, NULL, error);
	}
	return add_value(parser, flag, word[2] ? word + 2 : NULL, error);
}

static int parse_all(struct parser *parser, struct postern_error *error) {
	bool ended = false;
	while (parser->index < parser->count) {
		const char *word = parser->words[parser->index++];
		int r;
		if (ended || word[0] != '-' || !word[1]) {
			r = add_arg(parser, NULL, word, error);
		} else if (strcmp(word, "--") == 0) {
			ended = true;
			continue;
		} else if (word[1] == '-') {
			r = parse_long(parser, word, error);
		} else {
			r = parse_short(parser, word, error);
		}
		if (r) {
			return r;
		}
		parser->args->operands_before +=
				!ended && !parser->args->items[parser->args->count - 1].flag;
	}
	return POSTERN_OK;
}

int postern__args_parse(const char *const *words, size_t count,
		const struct postern__flag *const *tables, size_t table_count,
		struct postern__args *out, struct postern_error *error) {
	struct postern__args args = { 0 };
	if (count > POSTERN__ARGS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "more than %d arguments",
				POSTERN__ARGS_MAX);
	}
	args.items = calloc(count + 1, sizeof *args.items);
	if (!args.items) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	struct parser parser = {
		.words = words,
		.count = count,
		.tables = tables,
		.table_count = table_count,
		.args = &args,
	};
	int r = parse_all(&parser, error);
	if (r) {
		postern__args_finish(&args);
		return r;
	}
	*out = args;
	return POSTERN_OK;
}

void postern__args_finish(struct postern__args *args) {
	free(args->items);
	*args = (struct postern__args){ 0 };
}

static bool is_named(const struct postern__arg *arg, const char *name) {
	return arg->flag && strcmp(arg->flag->name, name) == 0;
}

bool postern__args_has(const struct postern__args *args, const char *name) {
	for (size_t i = 0; i < args->count; i++) {
		if (is_named(&args->items[i], name)) {
			return true;
		}
	}
	return false;
}

const char *postern__args_value(const struct postern__args *args,
		const char *name) {
	size_t index = 0;
	return postern__args_next(args, name, &index);
}

const char *postern__args_next(const struct postern__args *args,
		const char *name, size_t *index) {
	while (*index < args->count) {
		const struct postern__arg *arg = &args->items[(*index)++];
		if (is_named(arg, name)) {
			return arg->value;
		}
	}
	return NULL;
}

size_t postern__args_operand_count(const struct postern__args *args) {
	size_t count = 0;
	for (size_t i = 0; i < args->count; i++) {
		count += !args->items[i].flag;
	}
	return count;
}

const char *postern__args_operand(const struct postern__args *args,
		size_t index) {
	for (size_t i = 0; i < args->count; i++) {
		if (!args->items[i].flag && index-- == 0) {
			return args->items[i].value;
		}
	}
	return NULL;
}
