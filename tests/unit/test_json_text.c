/* SPDX-License-Identifier: MIT */

/*
 * JSON output, compared byte by byte.
 */

#include "base/json_text.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "dice.h"
#include "tap.h"

static void nesting(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 1000);
	postern__json_open(&buf, '{');
	postern__json_pair_text(&buf, "id", "a");
	postern__json_pair_text(&buf, "subject", NULL);
	postern__json_pair_int(&buf, "low", INT64_MIN);
	postern__json_pair_uint(&buf, "high", UINT64_MAX);
	postern__json_pair_bool(&buf, "yes", true);
	postern__json_pair_bool(&buf, "no", false);
	postern__json_pair_null(&buf, "none");
	postern__json_pair_time(&buf, "at", 1);
	postern__json_pair_string(&buf, "part", "abc", 2);
	postern__json_key(&buf, "list");
	postern__json_open(&buf, '[');
	postern__json_int(&buf, 1);
	postern__json_text(&buf, "{");
	postern__json_open(&buf, '{');
	postern__json_close(&buf, '}');
	postern__json_open(&buf, '[');
	postern__json_close(&buf, ']');
	postern__json_raw(&buf, "[2]", 3);
	postern__json_text(&buf, "[:");
	postern__json_bool(&buf, true);
	postern__json_null(&buf);
	postern__json_time(&buf, 0);
	postern__json_close(&buf, ']');
	postern__json_close(&buf, '}');
	CHECK_STR(postern__buf_text(&buf),
			"{\"id\":\"a\",\"subject\":null,"
			"\"low\":-9223372036854775808,\"high\":18446744073709551615,"
			"\"yes\":true,\"no\":false,\"none\":null,"
			"\"at\":\"1970-01-01T00:00:00.001Z\",\"part\":\"ab\","
			"\"list\":[1,\"{\",{},[],[2],\"[:\",true,null,"
			"\"1970-01-01T00:00:00.000Z\"]}");
	postern__buf_finish(&buf);
}

static void lines(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 1000);
	for (int i = 0; i < 2; i++) {
		postern__json_open(&buf, '{');
		postern__json_close(&buf, '}');
		postern__buf_append_char(&buf, '\n');
	}
	CHECK_STR(postern__buf_text(&buf), "{}\n{}\n");
	postern__buf_finish(&buf);
}

static void escapes(void) {
	static const struct {
		const char *text;
		size_t len;
		const char *json;
	} rows[] = {
		{ "", 0, "\"\"" },
		{ NULL, 0, "\"\"" },
		{ "plain", 5, "\"plain\"" },
		{ "a\"b\\c", 5, "\"a\\\"b\\\\c\"" },
		{ "\n\r\t", 3, "\"\\n\\r\\t\"" },
		{ "\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"" },
		{ "\xc2\x80", 2, "\"\\u0080\"" },
		{ "</script>&", 10, "\"\\u003c/script\\u003e\\u0026\"" },
		{ "\xe2\x80\xa8\xe2\x80\xa9", 6, "\"\\u2028\\u2029\"" },
		{ "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 11,
				"\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"" },
		{ "a\xff", 2, "\"a\xef\xbf\xbd\"" },
		{ "\xe2\x82z", 3, "\"\xef\xbf\xbd\xef\xbf\xbdz\"" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__buf buf;
		postern__buf_init(&buf, 1000);
		postern__json_string(&buf, rows[i].text, rows[i].len);
		CHECK_STR(postern__buf_text(&buf), rows[i].json);
		postern__buf_finish(&buf);
	}
}

static void keys(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 1000);
	postern__json_open(&buf, '{');
	postern__json_pair_int(&buf, "a\"b", 1);
	postern__json_close(&buf, '}');
	CHECK_STR(postern__buf_text(&buf), "{\"a\\\"b\":1}");
	postern__buf_finish(&buf);
}

static void any_bytes(void) {
	struct dice dice = { 1 };
	for (unsigned i = 0; i < 5000; i++) {
		char text[40];
		size_t len = dice_below(&dice, sizeof text);
		for (size_t j = 0; j < len; j++) {
			text[j] = (char)dice_below(&dice, 256);
		}
		struct postern__buf buf;
		postern__buf_init(&buf, 1000);
		postern__json_string(&buf, text, len);
		const char *json = postern__buf_text(&buf);
		CHECK(postern__utf8_valid(json, buf.len));
		CHECK(!postern__utf8_has_control(json, buf.len));
		/* The first unescaped quote is the last byte. */
		size_t at = 1;
		while (at < buf.len && json[at] != '"') {
			at += json[at] == '\\' ? 2 : 1;
		}
		CHECK_INT(at, buf.len - 1);
		postern__buf_finish(&buf);
	}
}

static void full(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 8);
	postern__json_text(&buf, "longer than that");
	CHECK_INT(postern__buf_check(&buf, "the answer", NULL), POSTERN_E_INVALID);
	postern__buf_finish(&buf);
}

static const struct tap_case cases[] = {
	{ "values and keys are separated by commas", nesting },
	{ "texts separated by newlines get no commas", lines },
	{ "characters that are special in JSON or HTML are escaped", escapes },
	{ "keys are escaped too", keys },
	{ "any bytes become one string", any_bytes },
	{ "a full buffer is reported", full },
};

TAP_MAIN(cases)
