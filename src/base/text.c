/* SPDX-License-Identifier: MIT */

/*
 * Durations, sizes, counts and misspelled names. Durations and sizes have the
 * same notation with different units, so each is a table of units and both
 * share one parser and one formatter.
 */

#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <postern/error.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

/* Quotes at most 60 bytes of an invalid input. */
#define QUOTE "'%.60s'"

/* No candidate is near to a longer name: bounds the work and the stack. */
#define CLOSEST_LEN_MAX 64

struct unit {
	const char *name;
	uint64_t factor;
};

struct notation {
	const char *noun;
	const char *example; /* lists the units */
	uint64_t max;
	size_t unit_count;
	struct unit units[5]; /* rising */
};

static const struct notation duration_notation = {
	.noun = "duration",
	.example = "a number with one of the units ms, s, m, h, d, such as 30s",
	.max = INT64_MAX,
	.unit_count = 5,
	.units = {
		{ "ms", 1 },
		{ "s", 1000 },
		{ "m", 60 * 1000 },
		{ "h", 60 * 60 * 1000 },
		{ "d", 24 * 60 * 60 * 1000 },
	},
};

static const struct notation size_notation = {
	.noun = "size",
	.example = "a number with one of the units B, KiB, MiB, GiB, such as 64KiB",
	.max = UINT64_MAX,
	.unit_count = 4,
	.units = {
		{ "B", 1 },
		{ "KiB", UINT64_C(1) << 10 },
		{ "MiB", UINT64_C(1) << 20 },
		{ "GiB", UINT64_C(1) << 30 },
	},
};

enum digits { DIGITS_OK, DIGITS_NONE, DIGITS_OVERFLOW };

/* Read digits, at least one, and move *text past them. */
static enum digits read_digits(const char **text, uint64_t *out) {
	const char *at = *text;
	uint64_t value = 0;
	bool overflow = false;
	for (; *at >= '0' && *at <= '9'; at++) {
		overflow |= __builtin_mul_overflow(value, (uint64_t)10, &value);
		overflow |=
				__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value);
	}
	if (at == *text) {
		return DIGITS_NONE;
	}
	*text = at;
	*out = value;
	return overflow ? DIGITS_OVERFLOW : DIGITS_OK;
}

static const struct unit *find_unit(const struct notation *notation,
		const char *name) {
	for (size_t i = 0; i < notation->unit_count; i++) {
		if (strcmp(notation->units[i].name, name) == 0) {
			return &notation->units[i];
		}
	}
	return NULL;
}

/* "KB", "kb", "k", "MB" …: the binary unit that was probably meant. */
static const char *meant_unit(const char *name) {
	static const char *const meant[] = { "KiB", "MiB", "GiB" };
	static const char letters[] = "kmg";
	size_t len = strlen(name);
	if (len == 0 || len > 3) {
		return NULL;
	}
	const char *letter = strchr(letters, name[0] | 0x20);
	if (!letter || *letter == '\0') {
		return NULL;
	}
	bool known =
			len == 1 || (len == 2 && (name[1] | 0x20) == 'b') ||
			(len == 3 && (name[1] | 0x20) == 'i' && (name[2] | 0x20) == 'b');
	return known ? meant[letter - letters] : NULL;
}

static int refuse_unit(const struct notation *notation, const char *text,
		const char *unit, struct postern_error *error) {
	if (*unit == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s " QUOTE " has no unit; write %s", notation->noun, text,
				notation->example);
	}
	const char *meant = notation == &size_notation ? meant_unit(unit) : NULL;
	if (meant) {
		return postern__fail(error, POSTERN_E_INVALID,
				"size " QUOTE " has a unit that is not clear; write %s", text,
				meant);
	}
	if (*unit == '.' || *unit == ',') {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s " QUOTE " has a fraction; write a whole number of a "
				"smaller unit",
				notation->noun, text);
	}
	return postern__fail(error, POSTERN_E_INVALID,
			QUOTE " is not a %s; write %s", text, notation->noun,
			notation->example);
}

static int read_quantity(const struct notation *notation, const char *text,
		uint64_t *out, struct postern_error *error) {
	uint64_t number;
	const char *rest = text;
	enum digits digits = read_digits(&rest, &number);
	if (digits == DIGITS_NONE) {
		return postern__fail(error, POSTERN_E_INVALID,
				QUOTE " is not a %s; write %s", text, notation->noun,
				notation->example);
	}
	const struct unit *unit = find_unit(notation, rest);
	if (!unit && *rest == '\0' && digits == DIGITS_OK && number == 0) {
		unit = &notation->units[0];
	}
	if (!unit) {
		return refuse_unit(notation, text, rest, error);
	}
	if (digits == DIGITS_OVERFLOW || number > notation->max / unit->factor) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s " QUOTE " is too large", notation->noun, text);
	}
	*out = number * unit->factor;
	return POSTERN_OK;
}

/* The largest unit that divides the value gives the shortest text. */
static void write_quantity(const struct notation *notation, const char *sign,
		uint64_t value, char *out, size_t size) {
	if (value == 0) {
		(void)snprintf(out, size, "0");
		return;
	}
	size_t i = notation->unit_count - 1;
	while (value % notation->units[i].factor != 0) {
		i--;
	}
	(void)snprintf(out, size, "%s%" PRIu64 "%s", sign,
			value / notation->units[i].factor, notation->units[i].name);
}

int postern__duration_parse(const char *text, int64_t *ms_out,
		struct postern_error *error) {
	uint64_t ms;
	int r = read_quantity(&duration_notation, text, &ms, error);
	if (r == POSTERN_OK) {
		*ms_out = (int64_t)ms;
	}
	return r;
}

void postern__duration_format(int64_t ms,
		char out[POSTERN__DURATION_TEXT_MAX]) {
	/* Negated as unsigned, because INT64_MIN has no positive counterpart. */
	uint64_t amount = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
	write_quantity(&duration_notation, ms < 0 ? "-" : "", amount, out,
			POSTERN__DURATION_TEXT_MAX);
}

int postern__size_parse(const char *text, uint64_t *bytes_out,
		struct postern_error *error) {
	return read_quantity(&size_notation, text, bytes_out, error);
}

void postern__size_format(uint64_t bytes, char out[POSTERN__SIZE_TEXT_MAX]) {
	write_quantity(&size_notation, "", bytes, out, POSTERN__SIZE_TEXT_MAX);
}

int postern__count_parse(const char *text, uint64_t min, uint64_t max,
		uint64_t *out, struct postern_error *error) {
	uint64_t number;
	const char *rest = text;
	enum digits digits = read_digits(&rest, &number);
	if (digits == DIGITS_NONE || *rest != '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				QUOTE " is not a number from %" PRIu64 " to %" PRIu64, text,
				min, max);
	}
	if (digits == DIGITS_OVERFLOW || number < min || number > max) {
		return postern__fail(error, POSTERN_E_INVALID,
				QUOTE " is out of range; write %" PRIu64 " to %" PRIu64, text,
				min, max);
	}
	*out = number;
	return POSTERN_OK;
}

static int64_t rate_period_ms(char unit) {
	switch (unit) {
	case 's': return 1000;
	case 'm': return (int64_t)60 * 1000;
	case 'h': return (int64_t)3600 * 1000;
	default: return 0;
	}
}

int postern__rate_parse(const char *text, uint32_t max, uint32_t *count_out,
		int64_t *period_ms_out, struct postern_error *error) {
	uint64_t number;
	const char *rest = text;
	enum digits digits = read_digits(&rest, &number);
	int64_t period =
			digits != DIGITS_NONE && rest[0] == '/' && rest[1] && !rest[2]
					? rate_period_ms(rest[1])
					: 0;
	if (period == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				QUOTE " is not a rate; write a number per second, minute or "
					  "hour, such as 100/s, 10/m or 5/h",
				text);
	}
	if (digits == DIGITS_OVERFLOW || number < 1 || number > max) {
		return postern__fail(error, POSTERN_E_INVALID,
				QUOTE " is out of range; write 1 to %" PRIu32
					  " per second, minute or hour",
				text, max);
	}
	*count_out = (uint32_t)number;
	*period_ms_out = period;
	return POSTERN_OK;
}

/*
 * The number of insertions, removals, replacements and swaps of adjacent bytes
 * that turn a into b, with no byte changed twice (optimal string alignment);
 * three rows of the table are needed at a time.
 */
static size_t distance(const char *a, size_t a_len, const char *b,
		size_t b_len) {
	size_t rows[3][CLOSEST_LEN_MAX + 1];
	assert(a_len <= CLOSEST_LEN_MAX && b_len <= CLOSEST_LEN_MAX);
	for (size_t j = 0; j <= b_len; j++) {
		rows[0][j] = j;
	}
	for (size_t i = 1; i <= a_len; i++) {
		size_t *row = rows[i % 3];
		const size_t *above = rows[(i + 2) % 3];
		const size_t *above2 = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
			if (above[j] + 1 < best) {
				best = above[j] + 1;
			}
			if (row[j - 1] + 1 < best) {
				best = row[j - 1] + 1;
			}
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
					a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best) {
				best = above2[j - 2] + 1;
			}
			row[j] = best;
		}
	}
	return rows[a_len % 3][b_len];
}

const char *postern__closest(const char *name, const char *const *candidates,
		size_t count) {
	size_t len = strlen(name);
	if (len == 0 || len > CLOSEST_LEN_MAX) {
		return NULL;
	}
	size_t limit = len / 3 > 2 ? len / 3 : 2;
	if (limit >= len) {
		limit = len - 1; /* otherwise every short candidate would be near */
	}
	const char *best = NULL;
	size_t best_distance = limit + 1;
	for (size_t i = 0; i < count; i++) {
		size_t candidate_len = strlen(candidates[i]);
		if (candidate_len > CLOSEST_LEN_MAX) {
			continue;
		}
		size_t d = distance(name, len, candidates[i], candidate_len);
		/* "lim" probably means "limit"; "nope" and "done" are unrelated. */
		bool chance = d > 1 && len < 5 && candidates[i][0] != name[0];
		if (d < best_distance && !chance) {
			best = candidates[i];
			best_distance = d;
		}
	}
	return best;
}

int postern__hex_value(char c) {
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	if (c >= 'A' && c <= 'F') {
		return c - 'A' + 10;
	}
	return -1;
}
