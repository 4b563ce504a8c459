/* SPDX-License-Identifier: MIT */

/*
 * The arguments of a command line, parsed into flags and operands.
 */

#include "cli/args.h"

#include "cli/command.h"
#include "tap.h"

static const struct postern__flag own_flags[] = {
	{ "limit", 'l', false, "N", "" },
	{ "header", 'H', true, "NAME=VALUE", "" },
	{ "yes", 'y', false, NULL, "" },
	{ "type", 0, false, "TYPE", "" },
	{ 0 },
};

static const struct postern__flag common_flags[] = {
	{ "json", 0, false, NULL, "" },
	{ "type", 0, false, "OTHER", "" },
	{ 0 },
};

static const struct postern__flag *const tables[] = { own_flags, common_flags };

/* The list of words ends with NULL. */
static int parse_words(const char *const *words, struct postern__args *args,
		struct postern_error *error) {
	size_t count = 0;
	while (words[count]) {
		count++;
	}
	return postern__args_parse(words, count, tables, 2, args, error);
}

static void values(void) {
	const char *rows[][4] = {
		{ "--limit", "5", NULL, NULL },
		{ "--limit=5", NULL, NULL, NULL },
		{ "-l", "5", NULL, NULL },
		{ "-l5", NULL, NULL, NULL },
		{ "a", "--limit", "5", NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__args args;
		struct postern_error error;
		if (!CHECK_OK(parse_words(rows[i], &args, &error), &error)) {
			continue;
		}
		CHECK_STR(postern__args_value(&args, "limit"), "5");
		CHECK(postern__args_has(&args, "limit"));
		CHECK(!postern__args_has(&args, "yes"));
		CHECK_STR(postern__args_value(&args, "header"), NULL);
		postern__args_finish(&args);
	}
}

static void operands(void) {
	const char *words[] = { "one", "--yes", "-", "--", "--json", "-l", "--",
		NULL };
	struct postern__args args;
	struct postern_error error;
	if (!CHECK_OK(parse_words(words, &args, &error), &error)) {
		return;
	}
	CHECK_INT(postern__args_operand_count(&args), 5);
	CHECK_STR(postern__args_operand(&args, 0), "one");
	CHECK_STR(postern__args_operand(&args, 1), "-");
	CHECK_STR(postern__args_operand(&args, 2), "--json");
	CHECK_STR(postern__args_operand(&args, 3), "-l");
	CHECK_STR(postern__args_operand(&args, 4), "--");
	CHECK_STR(postern__args_operand(&args, 5), NULL);
	CHECK(postern__args_has(&args, "yes"));
	CHECK(!postern__args_has(&args, "json"));
	postern__args_finish(&args);
}

static void repeated(void) {
	const char *words[] = { "-Ha=1", "--header", "b=2", "--header=c=3", NULL };
	struct postern__args args;
	struct postern_error error;
	size_t index = 0;
	if (!CHECK_OK(parse_words(words, &args, &error), &error)) {
		return;
	}
	CHECK_STR(postern__args_next(&args, "header", &index), "a=1");
	CHECK_STR(postern__args_next(&args, "header", &index), "b=2");
	CHECK_STR(postern__args_next(&args, "header", &index), "c=3");
	CHECK_STR(postern__args_next(&args, "header", &index), NULL);
	postern__args_finish(&args);
}

static void dashes(void) {
	const char *words[] = { "--limit", "-5", "--type=", NULL };
	struct postern__args args;
	struct postern_error error;
	if (!CHECK_OK(parse_words(words, &args, &error), &error)) {
		return;
	}
	CHECK_STR(postern__args_value(&args, "limit"), "-5");
	CHECK_STR(postern__args_value(&args, "type"), "");
	postern__args_finish(&args);
}

static void first_table(void) {
	const char *words[] = { "--type", "t", NULL };
	struct postern__args args;
	struct postern_error error;
	if (!CHECK_OK(parse_words(words, &args, &error), &error)) {
		return;
	}
	CHECK_STR(args.items[0].flag->value, "TYPE");
	postern__args_finish(&args);
}

static void refused(void) {
	struct {
		const char *words[3];
		const char *text;
	} rows[] = {
		{ { "--limti", "5" },
				"unknown flag '--limti', did you mean '--limit'?" },
		{ { "--nothing-like-it" }, "unknown flag '--nothing-like-it'" },
		{ { "--server=unix:x" },
				"unknown flag '--server': this command "
				"uses the configuration (--config) or --store" },
		{ { "--lim", "5" }, "did you mean '--limit'?" },
		{ { "--limit" }, "'--limit' needs N" },
		{ { "-l" }, "'--limit' needs N" },
		{ { "--yes=1" }, "'--yes' takes no value" },
		{ { "-y1" }, "unknown flag '-y1'" },
		{ { "-x" }, "unknown flag '-x'" },
		{ { "--limit=1", "-l2" }, "'--limit' is given twice" },
		{ { "--json", "--json" }, "'--json' is given twice" },
		{ { "--=x" }, "unknown flag '--'" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__args args;
		struct postern_error error = { 0 };
		CHECK_INT(parse_words(rows[i].words, &args, &error), POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, rows[i].text);
	}
}

static void too_many(void) {
	static const char *words[POSTERN__ARGS_MAX + 1];
	struct postern__args args;
	struct postern_error error;
	for (size_t i = 0; i < POSTERN__ARGS_MAX + 1; i++) {
		words[i] = "x";
	}
	if (CHECK_OK(postern__args_parse(words, POSTERN__ARGS_MAX, tables, 2, &args,
						 &error),
				&error)) {
		postern__args_finish(&args);
	}
	CHECK_INT(postern__args_parse(words, POSTERN__ARGS_MAX + 1, tables, 2,
					  &args, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "more than 1024 arguments");
}

static void long_unknown(void) {
	char word[300] = "--";
	const char *words[] = { word, NULL };
	struct postern__args args;
	struct postern_error error;
	memset(word + 2, 'x', sizeof word - 3);
	CHECK_INT(parse_words(words, &args, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "unknown flag '--xxx");
}

static const struct tap_case cases[] = {
	{ "the value of a flag is in the same argument or in the next", values },
	{ "operands and flags can be mixed until two dashes", operands },
	{ "a repeated flag keeps every value, in order", repeated },
	{ "a value can start with a dash, or be empty", dashes },
	{ "the first table that has a flag is used", first_table },
	{ "errors suggest the closest name", refused },
	{ "the number of arguments has a limit", too_many },
	{ "an unknown flag that is very long is still named", long_unknown },
};

TAP_MAIN(cases)
