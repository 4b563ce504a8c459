/* SPDX-License-Identifier: MIT */

/*
 * A scanner over a text that it never copies. The validating pass keeps a
 * stack of one byte per open bracket and no recursion, so the depth of a text
 * costs no call stack. The walking pass finds the end of a value by counting
 * brackets outside of strings, which is enough in a text that is valid.
 */

#include "base/json_scan.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"

struct scanner {
	const char *begin;
	const char *at;
	const char *end;
	struct postern_error *error;
	size_t depth;
	char open[POSTERN__JSON_DEPTH_MAX]; /* '{' or '[' */
};

static bool fail_at(struct scanner *scanner, const char *at, const char *text) {
	(void)postern__fail(scanner->error, POSTERN_E_INVALID,
			"invalid JSON at byte %zu: %s", (size_t)(at - scanner->begin) + 1,
			text);
	return false;
}

static bool is_blank(char c) {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct scanner *scanner) {
	while (scanner->at < scanner->end && is_blank(*scanner->at)) {
		scanner->at++;
	}
}

/* The next byte, or a zero byte at the end. */
static char peek(const struct scanner *scanner) {
	return scanner->at < scanner->end ? *scanner->at : '\0';
}

static bool is_digit(char c) {
	return c >= '0' && c <= '9';
}

static void skip_digits(struct scanner *scanner) {
	while (is_digit(peek(scanner))) {
		scanner->at++;
	}
}

static int hex_digit(char c) {
	if (is_digit(c)) {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number of the four hex digits at `at`, or -1. */
static int32_t hex_quad(const char *at, const char *end) {
	int32_t number = 0;
	if (end - at < 4) {
		return -1;
	}
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(at[i]);
		if (digit < 0) {
			return -1;
		}
		number = number * 16 + digit;
	}
	return number;
}

static bool is_high_surrogate(int32_t code) {
	return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low_surrogate(int32_t code) {
	return code >= 0xdc00 && code <= 0xdfff;
}

/* Behind a backslash. */
static bool scan_escape(struct scanner *scanner) {
	const char *begin = scanner->at - 1;
	char c = peek(scanner);
	if (c != '\0' && strchr("\"\\/bfnrt", c)) {
		scanner->at++;
		return true;
	}
	if (c != 'u') {
		return fail_at(scanner, begin, "unknown escape");
	}
	int32_t code = hex_quad(scanner->at + 1, scanner->end);
	if (code < 0) {
		return fail_at(scanner, begin, "\\u needs four hex digits");
	}
	scanner->at += 5;
	if (is_high_surrogate(code)) {
		bool paired = scanner->end - scanner->at >= 6 &&
					  scanner->at[0] == '\\' && scanner->at[1] == 'u' &&
					  is_low_surrogate(hex_quad(scanner->at + 2, scanner->end));
		scanner->at += paired ? 6 : 0;
		return paired || fail_at(scanner, begin, "a lone surrogate");
	}
	return !is_low_surrogate(code) ||
		   fail_at(scanner, begin, "a lone surrogate");
}

/* At a quote. UTF-8 was validated for the whole text. */
static bool scan_string(struct scanner *scanner) {
	const char *begin = scanner->at++;
	while (scanner->at < scanner->end) {
		char c = *scanner->at;
		if (c == '"') {
			scanner->at++;
			return true;
		}
		if ((unsigned char)c < 0x20) {
			return fail_at(scanner, scanner->at,
					"a control character in a string");
		}
		scanner->at++;
		if (c == '\\' && !scan_escape(scanner)) {
			return false;
		}
	}
	return fail_at(scanner, begin, "a string without an end");
}

static bool scan_number(struct scanner *scanner) {
	const char *begin = scanner->at;
	if (peek(scanner) == '-') {
		scanner->at++;
	}
	if (peek(scanner) == '0') {
		scanner->at++;
	} else if (is_digit(peek(scanner))) {
		skip_digits(scanner);
	} else {
		return fail_at(scanner, begin, "not a value");
	}
	if (peek(scanner) == '.') {
		scanner->at++;
		if (!is_digit(peek(scanner))) {
			return fail_at(scanner, begin, "a number without decimals");
		}
		skip_digits(scanner);
	}
	if (peek(scanner) == 'e' || peek(scanner) == 'E') {
		scanner->at++;
		if (peek(scanner) == '+' || peek(scanner) == '-') {
			scanner->at++;
		}
		if (!is_digit(peek(scanner))) {
			return fail_at(scanner, begin, "a number without an exponent");
		}
		skip_digits(scanner);
	}
	return true;
}

static bool scan_word(struct scanner *scanner, const char *word) {
	size_t len = strlen(word);
	if ((size_t)(scanner->end - scanner->at) < len ||
			memcmp(scanner->at, word, len) != 0) {
		return fail_at(scanner, scanner->at, "not a value");
	}
	scanner->at += len;
	return true;
}

/* A value that has no others in it. */
static bool scan_scalar(struct scanner *scanner) {
	switch (peek(scanner)) {
	case '"': return scan_string(scanner);
	case 't': return scan_word(scanner, "true");
	case 'f': return scan_word(scanner, "false");
	case 'n': return scan_word(scanner, "null");
	default: return scan_number(scanner);
	}
}

static bool scan_key(struct scanner *scanner) {
	skip_blanks(scanner);
	if (peek(scanner) != '"') {
		return fail_at(scanner, scanner->at, "expected a member name");
	}
	if (!scan_string(scanner)) {
		return false;
	}
	skip_blanks(scanner);
	if (peek(scanner) != ':') {
		return fail_at(scanner, scanner->at, "expected ':'");
	}
	scanner->at++;
	return true;
}

/* Push a bracket; an object goes on with its first key. *empty_out: it is
   closed already. */
static bool scan_open(struct scanner *scanner, bool *empty_out) {
	char bracket = *scanner->at;
	if (scanner->depth == POSTERN__JSON_DEPTH_MAX) {
		return fail_at(scanner, scanner->at, "nested too deeply");
	}
	scanner->at++;
	skip_blanks(scanner);
	*empty_out = peek(scanner) == (bracket == '{' ? '}' : ']');
	if (*empty_out) {
		scanner->at++;
		return true;
	}
	scanner->open[scanner->depth++] = bracket;
	return bracket == '[' || scan_key(scanner);
}

/* Behind a value: close what ends here, or go on behind a comma. *more_out:
   another value follows. */
static bool scan_behind(struct scanner *scanner, bool *more_out) {
	*more_out = false;
	while (scanner->depth > 0) {
		bool object = scanner->open[scanner->depth - 1] == '{';
		skip_blanks(scanner);
		char c = peek(scanner);
		if (c == ',') {
			scanner->at++;
			*more_out = true;
			return !object || scan_key(scanner);
		}
		if (c != (object ? '}' : ']')) {
			return fail_at(scanner, scanner->at,
					object ? "expected ',' or '}'" : "expected ',' or ']'");
		}
		scanner->at++;
		scanner->depth--;
	}
	return true;
}

static bool scan_value(struct scanner *scanner) {
	for (bool more = true; more;) {
		skip_blanks(scanner);
		char c = peek(scanner);
		bool whole = true;
		if (c == '{' || c == '[') {
			if (!scan_open(scanner, &whole)) {
				return false;
			}
		} else if (!scan_scalar(scanner)) {
			return false;
		}
		if (whole && !scan_behind(scanner, &more)) {
			return false;
		}
	}
	return true;
}

static enum postern__json_type type_of(char first) {
	switch (first) {
	case '{': return POSTERN__JSON_OBJECT;
	case '[': return POSTERN__JSON_ARRAY;
	case '"': return POSTERN__JSON_STRING;
	case 't': return POSTERN__JSON_TRUE;
	case 'f': return POSTERN__JSON_FALSE;
	case 'n': return POSTERN__JSON_NULL;
	default: return POSTERN__JSON_NUMBER;
	}
}

int postern__json_scan(const char *text, size_t len,
		struct postern__json_value *out, struct postern_error *error) {
	if (!postern__utf8_valid(text, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"invalid JSON: not valid UTF-8");
	}
	struct scanner scanner = {
		.begin = text,
		.at = text,
		.end = text + len,
		.error = error,
	};
	skip_blanks(&scanner);
	const char *begin = scanner.at;
	if (begin == scanner.end) {
		return postern__fail(error, POSTERN_E_INVALID,
				"invalid JSON: the text is empty");
	}
	if (!scan_value(&scanner)) {
		return POSTERN_E_INVALID;
	}
	const char *end = scanner.at;
	skip_blanks(&scanner);
	if (scanner.at != scanner.end) {
		(void)fail_at(&scanner, scanner.at, "more text behind the value");
		return POSTERN_E_INVALID;
	}
	*out = (struct postern__json_value){
		.type = type_of(*begin),
		.text = begin,
		.len = (size_t)(end - begin),
	};
	return POSTERN_OK;
}

static const char *past_blanks(const char *at) {
	while (is_blank(*at)) {
		at++;
	}
	return at;
}

static const char *past_string(const char *at) {
	for (at++; *at != '"'; at++) {
		at += *at == '\\';
	}
	return at + 1;
}

/* The end of a number or a word. Not strcspn(): the text may have no zero byte
   at its end. */
static const char *past_word(const char *at) {
	while (!is_blank(*at) && *at != ',' && *at != ']' && *at != '}') {
		at++;
	}
	return at;
}

/* The end of the valid value that begins here. */
static const char *past_value(const char *at) {
	size_t depth = 0;
	do {
		switch (*at) {
		case '"': at = past_string(at); break;
		case '{':
		case '[':
			depth++;
			at++;
			break;
		case '}':
		case ']':
			depth--;
			at++;
			break;
		case ',':
		case ':':
		case ' ':
		case '\t':
		case '\n':
		case '\r': at++; break;
		default: at = past_word(at); break;
		}
	} while (depth > 0);
	return at;
}

static struct postern__json_value take_value(const char **at) {
	const char *begin = past_blanks(*at);
	*at = past_value(begin);
	return (struct postern__json_value){
		.type = type_of(*begin),
		.text = begin,
		.len = (size_t)(*at - begin),
	};
}

struct postern__json_walk postern__json_enter(
		const struct postern__json_value *value) {
	assert(value->type == POSTERN__JSON_OBJECT ||
			value->type == POSTERN__JSON_ARRAY);
	return (struct postern__json_walk){
		.at = value->text + 1,
		.object = value->type == POSTERN__JSON_OBJECT,
	};
}

bool postern__json_next(struct postern__json_walk *walk,
		struct postern__json_value *key, struct postern__json_value *value) {
	const char *at = past_blanks(walk->at);
	if (*at == ',') {
		at++;
	} else if (*at == '}' || *at == ']') {
		return false;
	}
	if (walk->object) {
		struct postern__json_value name = take_value(&at);
		if (key) {
			*key = name;
		}
		at = past_blanks(at) + 1; /* the colon */
	}
	*value = take_value(&at);
	walk->at = at;
	return true;
}

static size_t put_utf8(char *out, uint32_t code) {
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/* The character of the escape at *at, behind its backslash; moves on. */
static uint32_t take_escape(const char **at) {
	static const char letters[] = "bfnrt";
	static const char meanings[] = "\b\f\n\r\t";
	char c = *(*at)++;
	if (c != 'u') {
		const char *letter = strchr(letters, c);
		return (unsigned char)(letter ? meanings[letter - letters] : c);
	}
	uint32_t code = (uint32_t)hex_quad(*at, *at + 4);
	*at += 4;
	if (is_high_surrogate((int32_t)code)) {
		uint32_t low = (uint32_t)hex_quad(*at + 2, *at + 6);
		*at += 6;
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	return code;
}

size_t postern__json_unescape(const struct postern__json_value *string,
		char *out) {
	assert(string->type == POSTERN__JSON_STRING);
	const char *at = string->text + 1;
	const char *end = string->text + string->len - 1;
	size_t len = 0;
	while (at < end) {
		if (*at == '\\') {
			at++;
			len += put_utf8(out + len, take_escape(&at));
		} else {
			out[len++] = *at++;
		}
	}
	return len;
}

bool postern__json_equals(const struct postern__json_value *string,
		const char *text) {
	assert(string->type == POSTERN__JSON_STRING);
	const char *at = string->text + 1;
	const char *end = string->text + string->len - 1;
	while (at < end) {
		char bytes[4];
		size_t len = 1;
		if (*at == '\\') {
			at++;
			len = put_utf8(bytes, take_escape(&at));
		} else {
			bytes[0] = *at++;
		}
		/* Not strncmp: a zero byte in the string is not the end of the text. */
		for (size_t i = 0; i < len; i++, text++) {
			if (*text == '\0' || *text != bytes[i]) {
				return false;
			}
		}
	}
	return *text == '\0';
}
