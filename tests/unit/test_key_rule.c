/* SPDX-License-Identifier: MIT */

/* What makes a dedupe key of a message. */

#include <postern/message.h>
#include <stdlib.h>

#include "base/json_pointer.h"
#include "core/key_rule.h"
#include "tap.h"

/* The key that a rule makes, or the text of its error. */
static struct postern_message message;
static struct postern__key_text room;
static struct postern_error error;

static void message_reset(void) {
	message = (struct postern_message){
		.size = sizeof message,
		.id = "m1",
		.source = "shop",
		.type = "order.paid",
	};
}

static void set_body(const char *body) {
	message.body = body;
	message.body_len = strlen(body);
}

static int apply(const char *text, struct postern_dedupe_key *key) {
	struct postern__key_rule rule;
	*key = (struct postern_dedupe_key){ 0 };
	return CHECK_OK(postern__key_rule_parse(&rule, text, &error), &error)
				   ? postern__key_rule_apply(&rule, &message, "mail-v1", &room,
							 key, &error)
				   : POSTERN_E_CORRUPT;
}

static void check_key(const char *rule, const char *expected) {
	struct postern_dedupe_key key;
	if (CHECK_OK(apply(rule, &key), &error) &&
			CHECK_INT(key.value_len, strlen(expected))) {
		CHECK(memcmp(key.value, expected, key.value_len) == 0);
		CHECK(!key.source);
		CHECK(!key.is_id);
	}
}

static void check_none(const char *rule, const char *why) {
	struct postern_dedupe_key key;
	CHECK_INT(apply(rule, &key), POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(error.text, why);
}

static void by_id(void) {
	struct postern_dedupe_key key;
	message_reset();
	CHECK_OK(apply("id", &key), &error);
	CHECK_STR(key.source, "shop");
	CHECK_STR(key.value, "m1");
	CHECK(key.is_id);
	CHECK_OK(apply(NULL, &key), &error);
	CHECK(key.is_id);
}

static void by_header(void) {
	static const struct postern_header headers[] = {
		{ "MessageId", "abc" },
		{ "X-Twice", "1" },
		{ "x-twice", "1" },
		{ "empty", "" },
		{ "control", "a\x01" },
	};
	struct postern_dedupe_key key;
	message_reset();
	message.headers = headers;
	message.header_count = 5;
	check_key("header:MessageId", "abc");
	check_key("header:messageid", "abc");
	check_none("header:X-Twice", "header:X-Twice is there twice");
	check_none("header:X-Other", "is missing");
	check_none("header:empty", "is empty");
	CHECK_INT(apply("header:control", &key), POSTERN_E_INVALID);
}

static void by_correlation_id(void) {
	message_reset();
	check_none("correlation-id", "is missing");
	check_none("composite", "needs a correlation id");
	message.correlation_id = "c9";
	check_key("correlation-id", "c9");
	check_key("composite", "mail-v1:c9");
}

static void by_json(void) {
	message_reset();
	set_body("{\"order\": {\"id\": \"o-7\", \"n\": 7, \"big\": "
			 "12345678901234567890123, \"f\": 1.0, \"ok\": true, \"none\": "
			 "null, "
			 "\"list\": [10, {\"x\": \"y\"}], \"empty\": \"\", \"q\\u00e9\": "
			 "\"\\u0041\\n\"}, \"a/b\": {\"m~n\": 1}, \"two\": 1, \"two\": 2}");
	check_key("json:/order/id", "o-7");
	/* 7 and "7" are one key, 1 and 1.0 are two. */
	check_key("json:/order/n", "7");
	check_key("json:/order/f", "1.0");
	check_key("json:/order/big", "12345678901234567890123");
	check_key("json:/order/ok", "true");
	check_key("json:/order/list/0", "10");
	check_key("json:/order/list/1/x", "y");
	check_key("json:/a~1b/m~0n", "1");
	check_none("json:/order/none", "is null");
	check_none("json:/order", "is an object");
	check_none("json:/order/list", "is an array");
	check_none("json:/order/list/2", "is missing");
	check_none("json:/order/list/00", "is missing");
	check_none("json:/order/list/-", "is missing");
	check_none("json:/order/id/x", "is missing");
	check_none("json:/two", "is there twice");
	check_none("json:/order/empty", "is empty");
	struct postern_dedupe_key key;
	CHECK_INT(apply("json:/order/q\xc3\xa9", &key), POSTERN_E_INVALID);
	set_body("not JSON");
	check_none("json:/order/id", "needs a body in JSON");
	set_body("");
	check_none("json:/order/id", "needs a body in JSON");
	set_body("\"plain\"");
	check_none("json:/x", "is missing");
}

static void joined(void) {
	message_reset();
	message.correlation_id = "c+9%";
	set_body("{\"a\": \"1+2\", \"b\": \"3\"}");
	check_key("json:/a+json:/b", "1%2B2+3");
	check_key("json:/a+correlation-id", "1%2B2+c%2B9%25");
	/* A key has one reading: 1+2 and 3 is not 1 and 2+3. */
	set_body("{\"a\": \"1\", \"b\": \"2+3\"}");
	check_key("json:/a+json:/b", "1+2%2B3");
	/* Alone, nothing is escaped. */
	check_key("correlation-id", "c+9%");
	check_none("json:/a+json:/c", "json:/c is missing");
}

static void by_body(void) {
	struct postern_dedupe_key key;
	message_reset();
	set_body("any bytes");
	CHECK_OK(apply("hash:body", &key), &error);
	CHECK(key.value == message.body);
	CHECK_INT(key.value_len, 9);
}

static void too_long(void) {
	struct postern_dedupe_key key;
	char value[POSTERN__KEY_TEXT_LEN_MAX + 2];
	message_reset();
	memset(value, 'x', sizeof value);
	value[sizeof value - 1] = '\0';
	message.correlation_id = value;
	CHECK_INT(apply("correlation-id", &key), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "longer than 1000 bytes");
	value[POSTERN__KEY_TEXT_LEN_MAX] = '\0';
	check_key("correlation-id", value);
	/* Escapes count with what they stand for. */
	char *body = malloc(7 * POSTERN__KEY_TEXT_LEN_MAX);
	if (CHECK(body)) {
		size_t len = 2;
		memcpy(body, "[\"", len);
		for (int i = 0; i < POSTERN__KEY_TEXT_LEN_MAX; i++, len += 6) {
			memcpy(body + len, "\\u0041", 6);
		}
		memcpy(body + len, "\"]", 3);
		set_body(body);
		memset(value, 'A', POSTERN__KEY_TEXT_LEN_MAX);
		check_key("json:/0", value);
	}
	free(body);
}

static void bad_rules(void) {
	static const struct {
		const char *rule;
		const char *why;
	} bad[] = {
		{ "", "unknown key rule ''" },
		{ "ids", "unknown key rule 'ids'" },
		{ "header:", "unknown key rule 'header:'" },
		{ "header:a b", "'a b' is not the name of a header" },
		{ "json:", "unknown key rule 'json:'" },
		{ "json:order/id", "does not begin with '/'" },
		{ "json:/a~2", "is not followed by 0 or 1" },
		{ "json:/a~", "is not followed by 0 or 1" },
		{ "id+correlation-id", "cannot be joined" },
		{ "json:/a+hash:body", "cannot be joined" },
		{ "correlation-id+", "unknown key rule" },
		{ "composite+composite+composite+composite+composite+composite+"
		  "composite+composite+composite",
				"more than 8 parts" },
	};
	struct postern__key_rule rule;
	char text[POSTERN__KEY_RULE_LEN_MAX + 2];
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		CHECK_INT(postern__key_rule_parse(&rule, bad[i].rule, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, bad[i].why);
	}
	memset(text, 'x', sizeof text);
	memcpy(text, "json:/", 6);
	text[sizeof text - 1] = '\0';
	CHECK_INT(postern__key_rule_parse(&rule, text, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "longer than");
	text[6 + POSTERN__JSON_POINTER_LEN_MAX] = '\0';
	CHECK_INT(postern__key_rule_parse(&rule, text, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "longer than");
}

static void plus_in_a_pointer(void) {
	message_reset();
	set_body("{\"a+b\": 1, \"c\": 2}");
	check_key("json:/a+b", "1");
	check_key("json:/a+b+json:/c", "1+2");
}

static const struct tap_case cases[] = {
	{ "the rule id is source and id", by_id },
	{ "a header is found whatever its case, and is no key if it is there twice",
			by_header },
	{ "a correlation id, by itself and with the handler", by_correlation_id },
	{ "a value of the body", by_json },
	{ "several values make one key with one reading", joined },
	{ "the body", by_body },
	{ "a key that is too long is refused", too_long },
	{ "a rule that is not valid is refused with the reason", bad_rules },
	{ "a plus sign in a pointer joins nothing", plus_in_a_pointer },
};

TAP_MAIN(cases)
