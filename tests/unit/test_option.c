/* SPDX-License-Identifier: MIT */
/*
 * Values of options: parsing, storing, formatting.
 */

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/option.h"
#include "tap.h"

struct object {
	const char *text;
	int64_t delay_ms;
	uint64_t bytes;
	uint32_t number;
	bool on;
	int choice;
	const char *const *texts;
	size_t text_count;
	const int64_t *pauses;
	size_t pause_count;
};

static bool is_same(const struct object *a, const struct object *b) {
	return a->text == b->text && a->delay_ms == b->delay_ms &&
		   a->bytes == b->bytes && a->number == b->number && a->on == b->on &&
		   a->choice == b->choice && a->texts == b->texts &&
		   a->text_count == b->text_count && a->pauses == b->pauses &&
		   a->pause_count == b->pause_count;
}

static int check_colour(const char *text, struct postern_error *error) {
	return strcmp(text, "red") == 0
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID, "not a colour");
}

#define AT(member) offsetof(struct object, member)
enum { LAST, DELAY, BYTES, NUMBER, ON, WHAT, WORDS, PAUSES, SOON, COUNT };
static const struct postern_option options[COUNT] = {
	[LAST] = { .name = "text",
			.type = POSTERN_OPTION_TEXT,
			.offset = AT(text),
			.flags = POSTERN_OPTION_NONE | POSTERN_OPTION_SECRET,
			.fallback = "none" },
	[DELAY] = { .name = "delay",
			.type = POSTERN_OPTION_DURATION,
			.offset = AT(delay_ms),
			.flags = POSTERN_OPTION_AUTO,
			.min = 1,
			.max = 60000,
			.fallback = "default" },
	[BYTES] = { .name = "bytes",
			.type = POSTERN_OPTION_SIZE,
			.offset = AT(bytes),
			.min = 1,
			.max = 1024,
			.fallback = "1KiB" },
	[NUMBER] = { .name = "number",
			.type = POSTERN_OPTION_COUNT,
			.offset = AT(number),
			.max = 9,
			.fallback = "3" },
	[ON] = { .name = "on",
			.type = POSTERN_OPTION_SWITCH,
			.offset = AT(on),
			.fallback = "on" },
	[WHAT] = { .name = "what",
			.type = POSTERN_OPTION_CHOICE,
			.offset = AT(choice),
			.choices = "a|bee",
			.fallback = "bee" },
	[WORDS] = { .name = "words",
			.type = POSTERN_OPTION_TEXTS,
			.offset = AT(texts),
			.min = 1,
			.max = 2,
			.check = check_colour },
	[PAUSES] = { .name = "pauses",
			.type = POSTERN_OPTION_DURATIONS,
			.offset = AT(pauses),
			.max = 60000,
			.choices = "random",
			.fallback = "random" },
	[SOON] = { .name = "soon",
			.type = POSTERN_OPTION_TEXT,
			.flags = POSTERN_OPTION_LATER,
			.fallback = "x" },
};

static struct postern__arena arena;

static void setup(struct object *object) {
	struct postern_error error;
	postern__arena_init(&arena);
	*object = (struct object){ .choice = 7 };
	CHECK_OK(postern__option_set_fallbacks(options, COUNT, object, &arena,
					 &error),
			&error);
}

static void check_format(const struct object *object, int index,
		const char *expected) {
	struct postern__buf buf;
	postern__buf_init(&buf, 1024);
	postern__option_format(&options[index], object, &buf);
	CHECK_STR(postern__buf_text(&buf), expected);
	postern__buf_finish(&buf);
}

static void fallbacks(void) {
	struct object object;
	setup(&object);
	CHECK(!object.text && object.delay_ms == -1 && object.bytes == 1024);
	CHECK(object.number == 3 && object.on && object.choice == 1);
	CHECK(!object.pauses && !object.texts);
	for (int i = 0; i < COUNT; i++) {
		if (options[i].fallback) {
			check_format(&object, i, options[i].fallback);
			CHECK(postern__option_is_fallback(&options[i], &object));
		}
	}
	CHECK(!postern__option_is_fallback(&options[WORDS], &object));
	postern__arena_finish(&arena);
}

static void values(void) {
	static const struct {
		int index;
		const char *text;
		const char *formatted; /* NULL: the same */
	} table[] = {
		{ LAST, "postgres://u:secret@h/d", "postgres://u:***@h/d" },
		{ LAST, "none", NULL },
		{ DELAY, "90s", "error" },
		{ DELAY, "60s", "1m" },
		{ DELAY, "default", NULL },
		{ BYTES, "512B", NULL },
		{ NUMBER, "0", NULL },
		{ ON, "no", "off" },
		{ WHAT, "a", NULL },
		{ PAUSES, "1s, 2s,250ms", "1s,2s,250ms" },
		{ PAUSES, "random", NULL },
		{ SOON, "x", NULL },
	};
	struct object object;
	setup(&object);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const char *formatted =
				table[i].formatted ? table[i].formatted : table[i].text;
		if (strcmp(formatted, "error") == 0) {
			CHECK_INT(postern__option_set(&options[table[i].index],
							  table[i].text, &object, &arena, NULL),
					POSTERN_E_INVALID);
			continue;
		}
		CHECK_INT(postern__option_set(&options[table[i].index], table[i].text,
						  &object, &arena, NULL),
				POSTERN_OK);
		check_format(&object, table[i].index, formatted);
	}
	postern__arena_finish(&arena);
}

static void refused(void) {
	static const struct {
		int index;
		const char *text;
		const char *error;
	} table[] = {
		{ LAST, "", "the value is empty" },
		{ DELAY, "2m", "'2m' is out of range; write 1ms to 1m" },
		{ DELAY, "99999999999999999999d",
				"'99999999999999999999d' is out of range; write 1ms to 1m" },
		{ BYTES, "2KiB", "'2KiB' is out of range; write 1B to 1KiB" },
		{ ON, "maybe", "'maybe' is not a switch; write on or off" },
		{ WHAT, "been", "'been' is not one of a|bee; did you mean 'bee'?" },
		{ WHAT, "zzzzz", "'zzzzz' is not one of a|bee" },
		{ WORDS, "red", "not a list; write [red]" },
		{ PAUSES, "1s,2m", "'2m' is out of range; write 0 to 1m" },
		{ PAUSES, "2m",
				"'2m' is out of range; write 0 to 1m; or write "
				"'random', or a list of pauses" },
		{ SOON, "y", "'y' is not in this version" },
	};
	struct object object;
	struct object before;
	setup(&object);
	before = object;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct postern_error error = { 0 };
		CHECK_INT(postern__option_set(&options[table[i].index], table[i].text,
						  &object, &arena, &error),
				POSTERN_E_INVALID);
		CHECK_STR(error.text, table[i].error);
		/* Nothing was stored. */
		CHECK(is_same(&object, &before));
	}
	postern__arena_finish(&arena);
}

static void check_list(struct object *object, int index, size_t count,
		const char *const *texts, const char *expected) {
	struct postern_error error = { 0 };
	int r = postern__option_set_list(&options[index], texts, count, object,
			&arena, &error);
	CHECK_INT(r, expected ? POSTERN_E_INVALID : POSTERN_OK);
	CHECK_STR(error.text, expected ? expected : "");
}

static void lists(void) {
	static const char *const words[] = { "red", "red", "blue" };
	static const char *const times[] = { "1s", "x" };
	const char *many[POSTERN_OPTION_DURATION_COUNT_MAX + 1];
	struct object object;
	setup(&object);
	check_list(&object, WORDS, 0, words, "must have 1 to 2 entries");
	check_list(&object, WORDS, 3, words, "must have 1 to 2 entries");
	check_list(&object, WORDS, 2, words + 1, "not a colour");
	check_list(&object, NUMBER, 1, words, "must be one value, not a list");
	CHECK(!object.texts);
	check_list(&object, WORDS, 2, words, NULL);
	check_format(&object, WORDS, "red, red");
	check_list(&object, PAUSES, 1, times, NULL);
	check_format(&object, PAUSES, "1s");
	check_list(&object, PAUSES, 2, times,
			"'x' is not a duration; write a number with one of the units ms, "
			"s, m, h, d, such as 30s");
	for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
		many[i] = "1s";
	}
	check_list(&object, PAUSES, sizeof many / sizeof many[0], many,
			"more than 64 delays");
	CHECK_INT(object.pause_count, 1);
	postern__arena_finish(&arena);
}

static void forms(void) {
	struct postern_option url = options[LAST];
	url.form = "URL";
	CHECK_STR(postern__option_form(&url), "URL");
	CHECK_STR(postern__option_form(&options[WHAT]), "a|bee");
	CHECK_STR(postern__option_form(&options[DELAY]), "DURATION");
	CHECK_STR(postern__option_form(&options[WORDS]), "TEXT,...");
}

static const struct tap_case cases[] = {
	{ "an option that is not set has its fallback", fallbacks },
	{ "a value is stored and formatted as it can be written", values },
	{ "a refused value is explained and changes nothing", refused },
	{ "a list is stored if its length and every entry are valid", lists },
	{ "the help has the form of a value", forms },
};

TAP_MAIN(cases)
