/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors.
 *
 * A text is read from left to right as quoted values, words and other bytes.
 * The rules decide by the bytes alone, without a list of known messages: an
 * error that they group too finely costs an operator one more row, and one that
 * they group too coarsely hides another error. So a word is an id only if it
 * has digits, and a quote opens a value only where a word may begin.
 */

#include "core/error_group.h"

#include <stdbool.h>
#include <string.h>

#include "base/siphash.h"

/* Shorter words of hexadecimal digits may be ordinary words ("b2b"). */
#define HEX_ID_LEN_MIN 6
#define MIXED_ID_LEN_MIN 8

struct shape {
	char *out;
	size_t len;
};

static bool is_digit(char c) {
	return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		   (unsigned char)c >= 0x80;
}

static bool is_word(char c) {
	return is_digit(c) || is_letter(c);
}

static bool is_hex(char c) {
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static void add(struct shape *shape, char c) {
	if (shape->len < POSTERN__ERROR_SHAPE_LEN_MAX) {
		shape->out[shape->len++] = c;
	}
}

static char last(const struct shape *shape) {
	return shape->len > 0 ? shape->out[shape->len - 1] : ' ';
}

static size_t word_len(const char *text) {
	size_t len = 0;
	while (is_word(text[len])) {
		len++;
	}
	return len;
}

static size_t hex_len(const char *text) {
	size_t len = 0;
	while (is_hex(text[len])) {
		len++;
	}
	return len;
}

/* The length of a UUID at the beginning of the text; 0: there is none. */
static size_t uuid_len(const char *text) {
	static const size_t groups[] = { 8, 4, 4, 4, 12 };
	size_t len = 0;
	for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
		if (i > 0 && text[len++] != '-') {
			return 0;
		}
		if (hex_len(text + len) != groups[i]) {
			return 0;
		}
		len += groups[i];
	}
	return is_word(text[len]) ? 0 : len;
}

/* Whether the word is an id or a number as a whole. */
static bool is_id(const char *word, size_t len) {
	size_t digit_runs = 0;
	for (size_t i = 0; i < len; i++) {
		digit_runs += is_digit(word[i]) && (i == 0 || !is_digit(word[i - 1]));
	}
	if (digit_runs == 0) {
		return false;
	}
	if (len > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X')) {
		return hex_len(word + 2) == len - 2;
	}
	return (len >= HEX_ID_LEN_MIN && hex_len(word) == len) ||
		   (len >= MIXED_ID_LEN_MIN && digit_runs > 1);
}

/* Numbers with a sign, a decimal point or separators are one number. */
static void add_number(struct shape *shape) {
	size_t len = shape->len;
	char *out = shape->out;
	if (last(shape) == '#') {
		return;
	}
	if (len >= 2 && (out[len - 1] == '.' || out[len - 1] == ',') &&
			out[len - 2] == '#') {
		shape->len--;
		return;
	}
	bool is_signed = len >= 1 && (out[len - 1] == '-' || out[len - 1] == '+') &&
					 (len == 1 || out[len - 2] == ' ' || out[len - 2] == '=' ||
							 out[len - 2] == '(' || out[len - 2] == ':');
	shape->len -= is_signed;
	add(shape, '#');
}

static void add_word(struct shape *shape, const char *word, size_t len) {
	if (is_id(word, len)) {
		add_number(shape);
		return;
	}
	for (size_t i = 0; i < len; i++) {
		if (!is_digit(word[i])) {
			add(shape, word[i]);
		} else if (i == 0 || !is_digit(word[i - 1])) {
			add_number(shape);
		}
	}
}

/* The length of a quoted value at the beginning of the text, quotes included;
   0: there is none. Behind a word the character is an apostrophe. "=(" opens a
   value as in PostgreSQL's "Key (id)=(42)". */
static size_t quoted_len(const char *text, const char *begin) {
	char close = *text;
	char before = text > begin ? text[-1] : ' ';
	if (*text == '(' && before == '=') {
		close = ')';
	} else if (!strchr("'\"`", *text) || is_word(before)) {
		return 0;
	}
	for (size_t i = 1; text[i]; i++) {
		if (text[i] == close && !is_word(text[i + 1])) {
			return i + 1;
		}
	}
	return 0;
}

static void add_quoted(struct shape *shape) {
	if (last(shape) != '?') { /* a doubled quote is part of the value */
		add(shape, '?');
	}
}

size_t postern__error_shape(const char *text,
		char out[POSTERN__ERROR_SHAPE_LEN_MAX + 1]) {
	struct shape shape = { .out = out };
	for (const char *place = text; *place;) {
		size_t len = uuid_len(place);
		if (len > 0) {
			add_number(&shape);
			place += len;
		} else if ((len = word_len(place)) > 0) {
			add_word(&shape, place, len);
			place += len;
		} else if ((len = quoted_len(place, text)) > 0) {
			add_quoted(&shape);
			place += len;
		} else {
			bool is_space = (unsigned char)*place <= ' ' || *place == 0x7f;
			if (!is_space) {
				add(&shape, *place);
			} else if (last(&shape) != ' ') {
				add(&shape, ' ');
			}
			place++;
		}
	}
	shape.len -= shape.len > 0 && last(&shape) == ' ';
	out[shape.len] = '\0';
	return shape.len;
}

uint64_t postern__error_group(const char *text) {
	/* Fixed: all nodes and all stores have the same groups. */
	static const uint8_t key[POSTERN__SIPHASH_KEY_LEN] = "postern group 1";
	if (!text) {
		return 0;
	}
	char shape[POSTERN__ERROR_SHAPE_LEN_MAX + 1];
	size_t len = postern__error_shape(text, shape);
	uint64_t group = postern__siphash_of(key, shape, len);
	return group ? group : 1;
}
