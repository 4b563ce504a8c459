/* SPDX-License-Identifier: MIT */
/*
 * Parsing and formatting the value of an option. A text is parsed completely
 * before anything is stored, so a value that is refused changes nothing.
 */

#include "base/option.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/redact.h"
#include "base/text.h"

#define TEXT POSTERN_OPTION_TEXT
#define DURATION POSTERN_OPTION_DURATION
#define SIZE POSTERN_OPTION_SIZE
#define COUNT POSTERN_OPTION_COUNT
#define SWITCH POSTERN_OPTION_SWITCH
#define CHOICE POSTERN_OPTION_CHOICE
#define TEXTS POSTERN_OPTION_TEXTS
#define DURATIONS POSTERN_OPTION_DURATIONS

#define DURATION_COUNT_MAX POSTERN_OPTION_DURATION_COUNT_MAX
/* Longer than any value that is compared with its fallback. */
#define FORMATTED_LEN_MAX ((size_t)1024 * 1024)

/* A value of any type, before it is stored in its member. */
struct parsed {
	uint64_t number; /* AUTO: UINT64_MAX */
	const char *text;
	const void *list;
	size_t list_count;
};

/* A list in a struct: the pointer is directly before its count. */
struct texts_member {
	const char *const *items;
	size_t count;
};
struct durations_member {
	const int64_t *items;
	size_t count;
};

/* Whether a text that is not a quantity would be one with a smaller number. */
static bool is_too_large(const struct postern_option *option,
		const char *text) {
	size_t len = strspn(text, "0123456789");
	char smaller[16];
	int64_t ms;
	uint64_t bytes;
	(void)snprintf(smaller, sizeof smaller, "1%.14s", text + len);
	if (len == 0) {
		return false;
	}
	return option->type == SIZE
				   ? postern__size_parse(smaller, &bytes, NULL) == POSTERN_OK
				   : postern__duration_parse(smaller, &ms, NULL) == POSTERN_OK;
}

/* A duration or a size. */
static int parse_quantity(const struct postern_option *option, const char *text,
		uint64_t *out, struct postern_error *error) {
	_Static_assert(POSTERN__DURATION_TEXT_MAX == POSTERN__SIZE_TEXT_MAX,
			"room for both");
	char min[POSTERN__DURATION_TEXT_MAX];
	char max[POSTERN__DURATION_TEXT_MAX];
	int64_t ms = 0;
	uint64_t number = 0;
	int r;
	if (option->type == SIZE) {
		r = postern__size_parse(text, &number, error);
		postern__size_format(option->min, min);
		postern__size_format(option->max, max);
	} else {
		r = postern__duration_parse(text, &ms, error);
		number = (uint64_t)ms;
		postern__duration_format((int64_t)option->min, min);
		postern__duration_format((int64_t)option->max, max);
	}
	if (r != POSTERN_OK && !is_too_large(option, text)) {
		return r;
	}
	if (r != POSTERN_OK || number < option->min || number > option->max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.60s' is out of range; write %s to %s", text, min, max);
	}
	*out = number;
	return POSTERN_OK;
}

static int parse_switch(const char *text, uint64_t *out,
		struct postern_error *error) {
	static const char *const words[] = { "off", "on", "false", "true", "no",
		"yes" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (strcmp(text, words[i]) == 0) {
			*out = i % 2;
			return POSTERN_OK;
		}
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.80s' is not a switch; write on or off", text);
}

/* Choices are few and short: "poison|hold|fail". */
#define CHOICE_COUNT_MAX 8
#define CHOICES_LEN_MAX 96

struct choices {
	char room[CHOICES_LEN_MAX];
	const char *words[CHOICE_COUNT_MAX];
	size_t count;
};

static void split_choices(const struct postern_option *option,
		struct choices *out) {
	int len = snprintf(out->room, sizeof out->room, "%s", option->choices);
	assert(len > 0 && len < CHOICES_LEN_MAX);
	(void)len;
	out->count = 0;
	char *rest = out->room;
	for (char *word = strsep(&rest, "|"); word; word = strsep(&rest, "|")) {
		assert(out->count < CHOICE_COUNT_MAX);
		out->words[out->count++] = word;
	}
}

static int parse_choice(const struct postern_option *option, const char *text,
		uint64_t *out, struct postern_error *error) {
	struct choices choices;
	split_choices(option, &choices);
	for (size_t i = 0; i < choices.count; i++) {
		if (strcmp(choices.words[i], text) == 0) {
			*out = i;
			return POSTERN_OK;
		}
	}
	const char *near = postern__closest(text, choices.words, choices.count);
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.80s' is not one of %s%s%s%s", text, option->choices,
			near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int parse_durations(const struct postern_option *option,
		const char *const *texts, size_t count, struct postern__arena *arena,
		struct parsed *out, struct postern_error *error) {
	if (count > DURATION_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "more than %d delays",
				DURATION_COUNT_MAX);
	}
	int64_t *list = postern__arena_array(arena, count, sizeof *list);
	if (!list) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t ms;
		int r = parse_quantity(option, texts[i], &ms, error);
		if (r != POSTERN_OK) {
			return r;
		}
		list[i] = (int64_t)ms;
	}
	out->list = list;
	out->list_count = count;
	return POSTERN_OK;
}

/* One text: a word, or durations with commas between them. */
static int split_durations(const struct postern_option *option,
		const char *text, struct postern__arena *arena, struct parsed *out,
		struct postern_error *error) {
	const char *words[DURATION_COUNT_MAX + 1];
	size_t count = 0;
	if (option->choices && strcmp(text, option->choices) == 0) {
		return POSTERN_OK;
	}
	char *rest = postern__arena_strdup(arena, text);
	if (!rest) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	while (rest && count <= DURATION_COUNT_MAX) {
		const char *word = strsep(&rest, ",");
		words[count++] = word + strspn(word, " ");
	}
	int r = parse_durations(option, words, count, arena, out, error);
	if (r == POSTERN_E_INVALID && error && count == 1 && option->choices) {
		return postern__fail(error, r, "%s; or write '%s', or a list of pauses",
				error->text, option->choices);
	}
	return r;
}

static int parse_text(const struct postern_option *option, const char *text,
		struct postern__arena *arena, const char **out,
		struct postern_error *error) {
	int r = option->check ? option->check(text, error) : POSTERN_OK;
	if (r == POSTERN_OK && text[0] == '\0') {
		r = postern__fail(error, POSTERN_E_INVALID, "the value is empty");
	}
	if (r == POSTERN_OK) {
		*out = postern__arena_strdup(arena, text);
		r = *out ? r : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return r;
}

static int parse(const struct postern_option *option, const char *text,
		struct postern__arena *arena, struct parsed *out,
		struct postern_error *error) {
	*out = (struct parsed){ 0 };
	if ((option->flags & POSTERN_OPTION_NONE) && strcmp(text, "none") == 0) {
		return POSTERN_OK;
	}
	if ((option->flags & POSTERN_OPTION_AUTO) && strcmp(text, "default") == 0) {
		out->number = UINT64_MAX;
		return POSTERN_OK;
	}
	switch (option->type) {
	case TEXT: return parse_text(option, text, arena, &out->text, error);
	case DURATION:
	case SIZE: return parse_quantity(option, text, &out->number, error);
	case COUNT:
		return postern__count_parse(text, option->min, option->max,
				&out->number, error);
	case SWITCH: return parse_switch(text, &out->number, error);
	case CHOICE: return parse_choice(option, text, &out->number, error);
	case DURATIONS: return split_durations(option, text, arena, out, error);
	case TEXTS: break;
	}
	return postern__fail(error, POSTERN_E_INVALID, "not a list; write [%.60s]",
			text);
}

/* Whether the value of a LATER option is equal to its fallback. */
static int check_later(const struct postern_option *option, const char *text,
		const struct parsed *parsed, struct postern__arena *arena,
		struct postern_error *error) {
	struct parsed fallback;
	int r = parse(option, option->fallback, arena, &fallback, error);
	if (r != POSTERN_OK) {
		return r;
	}
	bool same = parsed->text && fallback.text
						? strcmp(parsed->text, fallback.text) == 0
						: parsed->number == fallback.number;
	return same ? POSTERN_OK
				: postern__fail(error, POSTERN_E_INVALID,
						  "'%.80s' is not in this version", text);
}

static void store_value(const struct postern_option *option,
		const struct parsed *parsed, void *object) {
	void *member = (char *)object + option->offset;
	switch (option->type) {
	case TEXT: *(const char **)member = parsed->text; break;
	case DURATION: *(int64_t *)member = (int64_t)parsed->number; break;
	case SIZE: *(uint64_t *)member = parsed->number; break;
	case COUNT: *(uint32_t *)member = (uint32_t)parsed->number; break;
	case SWITCH: *(bool *)member = parsed->number != 0; break;
	case CHOICE: *(int *)member = (int)parsed->number; break;
	case TEXTS:
		*(struct texts_member *)member =
				(struct texts_member){ parsed->list, parsed->list_count };
		break;
	case DURATIONS:
		*(struct durations_member *)member =
				(struct durations_member){ parsed->list, parsed->list_count };
		break;
	}
}

int postern__option_set(const struct postern_option *option, const char *text,
		void *object, struct postern__arena *arena,
		struct postern_error *error) {
	bool later = option->flags & POSTERN_OPTION_LATER;
	struct parsed parsed;
	int r = parse(option, text, arena, &parsed, error);
	if (r == POSTERN_OK && later) {
		r = check_later(option, text, &parsed, arena, error);
	}
	if (r == POSTERN_OK && !later) {
		store_value(option, &parsed, object);
	}
	return r;
}

int postern__option_set_list(const struct postern_option *option,
		const char *const *texts, size_t count, void *object,
		struct postern__arena *arena, struct postern_error *error) {
	struct parsed parsed = { .list = count > 0 ? texts : NULL,
		.list_count = count };
	int r = POSTERN_OK;
	if (option->type == DURATIONS) {
		r = parse_durations(option, texts, count, arena, &parsed, error);
	} else if (option->type != TEXTS) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"must be one value, not a list");
	} else if (count < option->min || count > option->max) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"must have %llu to %llu entries",
				(unsigned long long)option->min,
				(unsigned long long)option->max);
	}
	for (size_t i = 0; r == POSTERN_OK && option->check && i < count; i++) {
		r = option->check(texts[i], error);
	}
	if (r == POSTERN_OK) {
		store_value(option, &parsed, object);
	}
	return r;
}

int postern__option_set_fallbacks(const struct postern_option *options,
		size_t count, void *object, struct postern__arena *arena,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		if (options[i].fallback) {
			r = postern__option_set(&options[i], options[i].fallback, object,
					arena, error);
		}
	}
	return r;
}

static void format_text(const struct postern_option *option, const char *text,
		struct postern__buf *out) {
	char redacted[POSTERN__REDACT_TEXT_MAX];
	if (text && (option->flags & POSTERN_OPTION_SECRET)) {
		postern__redact(text, redacted, sizeof redacted);
		text = redacted;
	}
	postern__buf_append_text(out, text ? text : "none");
}

static void format_durations(const struct postern_option *option,
		const struct durations_member *list, struct postern__buf *out) {
	char text[POSTERN__DURATION_TEXT_MAX];
	if (!list->items) {
		postern__buf_append_text(out,
				option->choices ? option->choices : "none");
	}
	for (size_t i = 0; list->items && i < list->count; i++) {
		postern__duration_format(list->items[i], text);
		postern__buf_printf(out, "%s%s", i > 0 ? "," : "", text);
	}
}

static void format_texts(const struct texts_member *list,
		struct postern__buf *out) {
	for (size_t i = 0; i < list->count; i++) {
		postern__buf_printf(out, "%s%s", i > 0 ? ", " : "", list->items[i]);
	}
}

static void format_number(const struct postern_option *option, uint64_t number,
		struct postern__buf *out) {
	char text[POSTERN__DURATION_TEXT_MAX];
	struct choices choices;

	if ((option->flags & POSTERN_OPTION_NONE) && number == 0) {
		postern__buf_append_text(out, "none");
		return;
	}
	if ((option->flags & POSTERN_OPTION_AUTO) && number == UINT64_MAX) {
		postern__buf_append_text(out, "default");
		return;
	}
	switch (option->type) {
	case DURATION:
		postern__duration_format((int64_t)number, text);
		postern__buf_append_text(out, text);
		break;
	case SIZE:
		postern__size_format(number, text);
		postern__buf_append_text(out, text);
		break;
	case CHOICE:
		split_choices(option, &choices);
		postern__buf_append_text(out, choices.words[number]);
		break;
	case SWITCH: postern__buf_append_text(out, number ? "on" : "off"); break;
	default: postern__buf_printf(out, "%llu", (unsigned long long)number);
	}
}

void postern__option_format(const struct postern_option *option,
		const void *object, struct postern__buf *out) {
	const void *member = (const char *)object + option->offset;
	if (option->flags & POSTERN_OPTION_LATER) {
		postern__buf_append_text(out, option->fallback);
		return;
	}
	switch (option->type) {
	case TEXT: format_text(option, *(const char *const *)member, out); break;
	case DURATION:
		format_number(option, (uint64_t) * (const int64_t *)member, out);
		break;
	case SIZE: format_number(option, *(const uint64_t *)member, out); break;
	case COUNT: format_number(option, *(const uint32_t *)member, out); break;
	case SWITCH: format_number(option, *(const bool *)member, out); break;
	case CHOICE:
		format_number(option, (uint64_t) * (const int *)member, out);
		break;
	case TEXTS: format_texts(member, out); break;
	case DURATIONS: format_durations(option, member, out); break;
	}
}

bool postern__option_is_fallback(const struct postern_option *option,
		const void *object) {
	struct postern__buf text;
	postern__buf_init(&text, FORMATTED_LEN_MAX);
	postern__option_format(option, object, &text);
	bool same = option->fallback &&
				strcmp(postern__buf_text(&text), option->fallback) == 0;
	postern__buf_finish(&text);
	return same;
}

static size_t member_size(enum postern_option_type type) {
	switch (type) {
	case TEXT: return sizeof(const char *);
	case DURATION: return sizeof(int64_t);
	case SIZE: return sizeof(uint64_t);
	case COUNT: return sizeof(uint32_t);
	case SWITCH: return sizeof(bool);
	case CHOICE: return sizeof(int);
	case TEXTS: return sizeof(struct texts_member);
	case DURATIONS: return sizeof(struct durations_member);
	}
	return 0;
}

/* Whether split_choices() has room for the words of a CHOICE. */
static bool are_choices(const char *choices) {
	size_t count = 1;
	for (const char *c = choices; c && *c; c++) {
		count += *c == '|';
	}
	return choices && *choices && strlen(choices) < CHOICES_LEN_MAX &&
		   count <= CHOICE_COUNT_MAX;
}

int postern__option_row_check(const struct postern_option *option,
		size_t object_size, struct postern_error *error) {
	size_t size = member_size(option->type);
	if (size == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "unknown type %d",
				(int)option->type);
	}
	if (size > object_size || option->offset > object_size - size) {
		return postern__fail(error, POSTERN_E_INVALID,
				"its member is not inside the struct of %zu bytes",
				object_size);
	}
	if (option->type == CHOICE && !are_choices(option->choices)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"choices must be 1 to %d words, as in 'on|off'",
				CHOICE_COUNT_MAX);
	}
	if ((option->flags & POSTERN_OPTION_LATER) && !option->fallback) {
		return postern__fail(error, POSTERN_E_INVALID,
				"an option for later needs a fallback");
	}
	bool counted = option->type != TEXT && option->type != SWITCH &&
				   option->type != CHOICE;
	if (counted && (option->max == 0 || option->min > option->max)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"max is not set, or less than min");
	}
	return POSTERN_OK;
}

bool postern__option_is_name(const char *name) {
	static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	size_t len = name ? strnlen(name, POSTERN__OPTION_NAME_LEN_MAX + 1) : 0;
	return len > 0 && len <= POSTERN__OPTION_NAME_LEN_MAX && name[0] >= 'a' &&
		   name[0] <= 'z' && strspn(name, all) == len;
}

static int check_row(const struct postern_option *options, size_t index,
		size_t object_size, struct postern_error *error) {
	const struct postern_option *option = &options[index];
	for (size_t i = 0; i < index; i++) {
		if (strcmp(options[i].name, option->name) == 0) {
			return postern__fail(error, POSTERN_E_INVALID, "there are two");
		}
	}
	if ((option->flags & POSTERN_OPTION_REQUIRED) && option->fallback) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a required option cannot have a fallback");
	}
	return postern__option_row_check(option, object_size, error);
}

int postern__option_rows_check(const struct postern_option *options,
		size_t count, size_t object_size, struct postern_error *error) {
	struct postern__arena arena;
	struct postern_error why;
	postern__arena_init(&arena);
	void *object = postern__arena_alloc(&arena, object_size + 1);
	int r = object ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; !r && i < count; i++) {
		if (!postern__option_is_name(options[i].name)) {
			r = postern__fail(error, POSTERN_E_INVALID,
					"the name of an option must have lower-case letters, "
					"digits and '_'");
			break;
		}
		r = check_row(options, i, object_size, &why);
		if (!r) {
			r = postern__option_set_fallbacks(&options[i], 1, object, &arena,
					&why);
		}
		if (r) {
			(void)postern__fail(error, r, "option '%s': %s", options[i].name,
					why.text);
		}
	}
	postern__arena_finish(&arena);
	return r;
}

const char *postern__option_form(const struct postern_option *option) {
	static const char *const forms[] = {
		[TEXT] = "TEXT",
		[DURATION] = "DURATION",
		[SIZE] = "SIZE",
		[COUNT] = "COUNT",
		[SWITCH] = "on|off",
		[TEXTS] = "TEXT,...",
		[DURATIONS] = "DURATION,...",
	};
	if (option->form) {
		return option->form;
	}
	return option->type == CHOICE ? option->choices : forms[option->type];
}
