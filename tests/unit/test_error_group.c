/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors, by example.
 */

#include "core/error_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"
#include "tap.h"

static void shapes(void) {
	static const struct {
		const char *text;
		const char *shape;
	} rows[] = {
		{ "", "" },
		{ "connection refused", "connection refused" },
		/* Exit codes, signals, times. */
		{ "exit code 7", "exit code #" },
		{ "killed by signal 9 after 30s", "killed by signal # after #s" },
		{ "took 12.5 s, not 3", "took # s, not #" },
		{ "offset -3", "offset #" },
		{ "1,024 of 2,048 bytes", "# of # bytes" },
		{ "at 2026-11-18T18:45:51Z", "at #-#-#T#:#:#Z" },
		/* PostgreSQL. */
		{ "duplicate key value violates unique constraint \"orders_pkey\"",
				"duplicate key value violates unique constraint ?" },
		{ "Key (id)=(42) already exists.", "Key (id)=? already exists." },
		{ "Key (email)=(anna@example.org) already exists.",
				"Key (email)=? already exists." },
		{ "invalid input syntax for type integer: \"abc\"",
				"invalid input syntax for type integer: ?" },
		{ "ERROR 23505 (line 3, column 14)", "ERROR # (line #, column #)" },
		{ "value 'it''s' is too long", "value ? is too long" },
		/* curl, HTTP. */
		{ "HTTP 503 from https://pay.example/charge/81/retry",
				"HTTP # from https://pay.example/charge/#/retry" },
		{ "connect to 10.0.0.17 port 8443 failed: Connection refused",
				"connect to # port # failed: Connection refused" },
		{ "curl: (28) Operation timed out after 30001 milliseconds",
				"curl: (#) Operation timed out after # milliseconds" },
		/* Ids. */
		{ "no order 5f2a9c", "no order #" },
		{ "no order 507f1f77bcf86cd799439011", "no order #" },
		{ "no order deadbeef-dead-beef-dead-beefdeadbeef", "no order #" },
		{ "no order 01ARZ3NDEKTSV4RRFFQ69G5FAV", "no order #" },
		{ "bad pointer 0xDEADBEEF0", "bad pointer #" },
		{ "order7 of cust_19 failed", "order# of cust_# failed" },
		/* Words that look like ids. */
		{ "a bad face in a cafe", "a bad face in a cafe" },
		{ "invalid utf8 in b2b order", "invalid utf# in b#b order" },
		{ "cannot decode base64", "cannot decode base#" },
		/* Paths and quotes. */
		{ "cannot open '/var/spool/8/x.json': No such file",
				"cannot open ?: No such file" },
		{ "cannot open /var/spool/8/x.json",
				"cannot open /var/spool/#/x.json" },
		{ "can't open it, isn't there", "can't open it, isn't there" },
		{ "the users' list can't be read", "the users' list can't be read" },
		{ "unclosed \"quote of 3", "unclosed \"quote of #" },
		{ "''", "?" },
		/* Spaces, control characters, other bytes. */
		{ "  two\t\r\nlines \x01 ", "two lines" },
		{ "Verbindung abgelehnt: \xc3\xbc 3",
				"Verbindung abgelehnt: \xc3\xbc #" },
		{ "broken \xff\xfe 12", "broken \xff\xfe #" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char shape[POSTERN__ERROR_SHAPE_LEN_MAX + 1];
		size_t len = postern__error_shape(rows[i].text, shape);
		CHECK_STR(shape, rows[i].shape);
		CHECK_INT(len, strlen(rows[i].shape));
	}
}

static void groups(void) {
	CHECK(postern__error_group("exit code 7") ==
			postern__error_group("exit code 12"));
	CHECK(postern__error_group("exit code 7") !=
			postern__error_group("exit status 7"));
	CHECK(postern__error_group("no order 'a'") ==
			postern__error_group("no order 'b c d'"));
	CHECK(postern__error_group("") != 0);
	CHECK(postern__error_group(NULL) == 0);
	/* Stored, so it never changes. */
	CHECK_INT(postern__error_group("connection refused"),
			INT64_C(5540362603583721885));
}

static void long_texts(void) {
	char text[2000];
	char shape[POSTERN__ERROR_SHAPE_LEN_MAX + 1];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	CHECK_INT(postern__error_shape(text, shape), POSTERN__ERROR_SHAPE_LEN_MAX);
	/* A long quoted value leaves room for what follows. */
	text[0] = '\'';
	(void)snprintf(text + 1500, sizeof text - 1500, "' is too long");
	(void)postern__error_shape(text, shape);
	CHECK_STR(shape, "? is too long");
}

/* Any bytes have a shape, and a number in place of another the same one. */
static void any_bytes(void) {
	static const char bytes[] = "'\"`()= -.,#?azAZ09\x7f\x80\n";
	struct dice dice = { .state = 15 };
	for (int i = 0; i < 20000; i++) {
		char text[40];
		char shape[POSTERN__ERROR_SHAPE_LEN_MAX + 1];
		size_t len = dice_below(&dice, sizeof text);
		for (size_t j = 0; j < len; j++) {
			text[j] = bytes[dice_below(&dice, sizeof bytes - 1)];
		}
		text[len] = '\0';
		CHECK(postern__error_shape(text, shape) <= len);
		CHECK(!strpbrk(shape, "0123456789\n\x7f"));
		CHECK(postern__error_group(text) != 0);
	}
}

static const struct tap_case cases[] = {
	{ "a shape has no numbers, ids and quoted values", shapes },
	{ "errors of one shape have one group, never 0", groups },
	{ "a long error counts up to a limit", long_texts },
	{ "any bytes have a shape without digits", any_bytes },
};

TAP_MAIN(cases)
