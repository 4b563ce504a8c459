/* SPDX-License-Identifier: MIT */

/*
 * Redaction of addresses. In every row the secret contains "hunter", so that
 * its absence is checked apart from the exact result.
 */

#include "base/fail.h"
#include "base/redact.h"

#include "base/utf8.h"
#include "dice.h"
#include "tap.h"

struct row {
	const char *address;
	const char *expected;
};

static void check_rows(const struct row *rows, size_t count) {
	for (size_t i = 0; i < count; i++) {
		char text[POSTERN__REDACT_TEXT_MAX];
		postern__redact(rows[i].address, text, sizeof text);
		CHECK_STR(text, rows[i].expected);
		CHECK(!strstr(text, "hunter"));
	}
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof((rows)[0]))

static void nothing_secret(void) {
	static const struct row rows[] = {
		{ "postgres://db/shop", "postgres://db/shop" },
		{ "postgres://app@db:5432/shop?sslmode=require",
				"postgres://app@db:5432/shop?sslmode=require" },
		{ "postgres://app@h1:5432,h2:5433/shop?target_session_attrs=any",
				"postgres://app@h1:5432,h2:5433/"
				"shop?target_session_attrs=any" },
		{ "postgres://app@[::1]:5432/shop", "postgres://app@[::1]:5432/shop" },
		{ "postgres://%2Fvar%2Frun/shop", "postgres://%2Fvar%2Frun/shop" },
		{ "amqp://localhost/%2F", "amqp://localhost/%2F" },
		{ "https://h:10209/x", "https://h:10209/x" },
		{ "https://h:80,i:/x?a=b=c", "https://h:80,i:/x?a=b=c" },
		{ "options='-c search_path=app'", "options='-c search_path=app'" },
		{ "https://pay.internal:8443/charge?v=2",
				"https://pay.internal:8443/charge?v=2" },
		{ "sqlite:postern.db", "sqlite:postern.db" },
		{ "sqlite:/data/a@b.db?shared=yes", "sqlite:/data/a@b.db?shared=yes" },
		{ "memory:", "memory:" },
		{ "unix:/run/postern.sock", "unix:/run/postern.sock" },
		{ "host=db user=app@server dbname=shop",
				"host=db user=app@server dbname=shop" },
		{ "  host = db   port='5432' ", "host=db port='5432'" },
		{ "postgres:host=db user=app", "postgres:host=db user=app" },
		{ "postgresql: host = db schema=a", "postgresql:host=db schema=a" },
		{ "", "" },
		{ NULL, "" },
	};
	CHECK_ROWS(rows);
}

static void passwords(void) {
	static const struct row rows[] = {
		{ "postgres://app:hunter2@db/shop", "postgres://app:***@db/shop" },
		{ "postgres://app:@db/shop", "postgres://app:***@db/shop" },
		{ "postgres://app:hunter%40:2@db:1/s", "postgres://app:***@db:1/s" },
		{ "postgres://app:hun@hunter@db/shop", "postgres://app:***@db/shop" },
		{ "redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0" },
		{ "redis://hunter2@cache:6379/0", "redis://***@cache:6379/0" },
		{ "nats://hunter2@bus", "nats://***@bus" },
		{ "https://hunter2@git.example/x", "https://***@git.example/x" },
		{ "amqp://guest:hunter@localhost/", "amqp://guest:***@localhost/" },
		{ "amqp://a:hunter@h1,b:hunter@h2/", "amqp://a:***@h2/" },
		{ "POSTGRES://app:hunter2@db", "POSTGRES://app:***@db" },
		{ "postgres://us%40er:hunter@db", "postgres://us%40er:***@db" },
	};
	CHECK_ROWS(rows);
}

static void parameters(void) {
	static const struct row rows[] = {
		{ "postgres://u:hunter@h/db?sslpassword=hunter&sslmode=prefer",
				"postgres://u:***@h/db?sslpassword=***&sslmode=prefer" },
		{ "postgres:///db?password=hunter", "postgres:///db?password=***" },
		{ "postgres:///db?PassWord=hunter", "postgres:///db?PassWord=***" },
		{ "postgres:///db?p%61ss%77ord=hunter",
				"postgres:///db?p%61ss%77ord=***" },
		{ "postgres:///db?p%2561ssword=hunter",
				"postgres:///db?p%2561ssword=***" },
		{ "https://h/x?token=hunter&a=1&api_key=hunter",
				"https://h/x?token=***&a=1&api_key=***" },
		{ "https://h/x?password=a=hunter", "https://h/x?password=***" },
		{ "https://h/x?a=1;password=hunter", "https://h/x?a=***" },
		{ "https://h/x?u:p=hunter", "https://h/x?u:p=***" },
		{ "https://h/x?password=a;b=hunter", "https://h/x?password=***" },
		{ "https://h/x?hunter2", "https://h/x?***" },
		{ "https://h/x?a=1&hunter2&b=2", "https://h/x?a=1&***&b=2" },
		{ "https://h/x?", "https://h/x?" },
		{ "https://h/x?a=&&b=", "https://h/x?a=&&b=" },
		{ "https://h/x#token=hunter", "https://h/x#***" },
		{ "https://h/x?a=1#hunter", "https://h/x?a=1#***" },
		{ "https://h?sig=hunter", "https://h?sig=***" },
		{ "sqlite:a.db?key=hunter", "sqlite:a.db?key=***" },
		{ "postgres:///db?listen_url=postgres%3A%2F%2Fu%3Ahunter%40h",
				"postgres:///db?listen_url=***" },
		{ "postgres:///db?options=-c%20my.secret%3Dhunter",
				"postgres:///db?options=***" },
		{ "https://h/x?a=%zzhunter", "https://h/x?a=***" },
		{ "https://h/x?a=%1zhunter", "https://h/x?a=***" },
		{ "https://h/x?a=%z1hunter", "https://h/x?a=***" },
		{ "https://h/x?a=hunter%2", "https://h/x?a=***" },
		{ "https://h/x?a=hunter%", "https://h/x?a=***" },
		{ "https://h/x?a=b%20", "https://h/x?a=b%20" },
		{ "https://h/x?=", "https://h/x?=" },
	};
	CHECK_ROWS(rows);
}

static void conninfo(void) {
	static const struct row rows[] = {
		{ "password=hunter2 host=db", "password=*** host=db" },
		{ "host=db password='hunter 2' port=5432",
				"host=db password=*** port=5432" },
		{ "password='a\\'hunter' host=db", "password=*** host=db" },
		{ "password=a\\ hunter host=db", "password=*** host=db" },
		{ "password = hunter", "password=***" },
		{ "password=", "password=***" },
		{ "host=db sslpassword=hunter", "host=db sslpassword=***" },
		{ "dbname=postgres://u:hunter@h/db", "dbname=***" },
		{ "host=db;password=hunter", "host=***" },
		{ "options='-c my.token=hunter' host=db", "options=*** host=db" },
		{ "postgres:host=db password='hunter 2' port=5432",
				"postgres:host=db password=*** port=5432" },
		{ "postgres:host=db pasword=hunter", "postgres:***" },
		{ "postgres:password=my hunter=2 host=db", "postgres:***" },
		{ "postgres:password='hunter host=db", "postgres:***" },
		{ "sqlite:host=db password=hunter", "sqlite:***" },
	};
	CHECK_ROWS(rows);
}

static void ambiguous(void) {
	static const struct row rows[] = {
		/* Passwords with characters that should have been encoded. */
		{ "postgres://u:hun/hunter@h/db", "postgres://***" },
		{ "postgres://db password=hunter:x@h/db", "postgres://***" },
		{ "postgres://u:hun?hunter@h/db", "postgres://***" },
		{ "postgres://u:hun#hunter@h/db", "postgres://***" },
		{ "postgres://u:hunter/x%40h/db", "postgres://***" },
		{ "postgres://u:hunter%40h/db", "postgres://***" },
		{ "postgres://u%3Ahunter@h/db", "postgres://***" },
		{ "postgres://u%253Ahunter@h/db", "postgres://***" },
		/* A part is missing or misspelt. */
		{ "postgres://u:hunter", "postgres://***" },
		{ "postgres://u:hunter/db", "postgres://***" },
		{ "postgres://u:1:hunter", "postgres://***" },
		{ "postgres://u:123456", "postgres://***" },
		{ "postgres:/u:hunter@h/db", "postgres:***" },
		{ "postgres:u:hunter@h/db", "postgres:***" },
		{ "user:hunter@h/db", "user:***" },
		{ "https:\\\\u:hunter@h", "https:***" },
		{ " postgres://u:hunter@h/db", "***" },
		{ "://u:hunter@h/db", "***" },
		{ "nats://u:hunter@a,nats://u:hunter@b", "nats://***" },
		{ "sqlserver://h;password=hunter", "sqlserver://***" },
		{ "sqlite:postgres://u:hunter@h", "sqlite:***" },
		{ "Host=db;Username=u;Password=hunter", "***" },
		{ "password=my hunter host=db", "***" },
		{ "password=my hunter=2 host=db", "***" },
		{ "password='hunter host=db", "***" },
		{ "host=db hunter", "***" },
		{ "hunter2", "***" },
		{ "/run/hunter", "***" },
		/* Bytes that cannot be printed. */
		{ "https://u:hunter@h\n/x", "https://***" },
		{ "https://u:hunter@h\xff/x", "https://***" },
		{ "https://h/x%00hunter", "https://***" },
		{ "https://h/hunter%", "https://***" },
		{ "https://h/hunter%4", "https://***" },
		{ "https://u%:hunter@h/", "https://***" },
	};
	CHECK_ROWS(rows);
}

static void long_addresses(void) {
	char address[5000];
	char text[64];
	memset(address, 'a', sizeof address);
	memcpy(address, "https://h/", 10);
	address[4096] = '\0';
	postern__redact(address, text, sizeof text);
	CHECK_INT(strlen(text), sizeof text - 1);
	CHECK(memcmp(text, address, sizeof text - 1) == 0);
	address[4096] = 'a';
	address[4097] = '\0';
	postern__redact(address, text, sizeof text);
	CHECK_STR(text, "https://***");
}

static void cut(void) {
	char text[64];
	postern__redact("https://h/\xe2\x82\xac?token=hunter", text, 13);
	CHECK_STR(text, "https://h/");
	postern__redact("https://h/\xe2\x82\xac?token=hunter", text, 14);
	CHECK_STR(text, "https://h/\xe2\x82\xac");
	postern__redact("https://u:hunter@h/", text, 12);
	CHECK_STR(text, "https://u:*");
	postern__redact("https://u:hunter@h/", text, 1);
	CHECK_STR(text, "");
}

static void anywhere(void) {
	/*
	 * A password of any characters, put into an address unencoded. It begins
	 * with '!', which occurs nowhere else, and ends before the last '@'.
	 */
	struct dice dice = { 1 };
	static const char some[] = "a:/?#@&=;%' \\[],.";
	for (unsigned i = 0; i < 200000; i++) {
		char password[12] = "!Q";
		size_t len = dice_below(&dice, 8) + 2;
		for (size_t j = 2; j < len; j++) {
			password[j] = some[dice_below(&dice, sizeof some - 1)];
		}
		char address[64];
		char text[64];
		(void)snprintf(address, sizeof address, "postgres://u:%s@h/db?x=y",
				password);
		postern__redact(address, text, sizeof text);
		CHECK(!strchr(text, '!'));
		CHECK(!strchr(text, 'Q'));
		if (strcmp(text, "postgres://u:***@h/db?x=y") != 0) {
			CHECK_STR(text, "postgres://***");
		}
	}
}

static void any_bytes(void) {
	struct dice dice = { 2 };
	static const char some[] = "ab:/?#@&=;%' \\[],.1";
	for (unsigned i = 0; i < 100000; i++) {
		char address[40];
		char text[40];
		size_t len = dice_below(&dice, sizeof address);
		size_t size = dice_below(&dice, sizeof text) + 1;
		for (size_t j = 0; j < len; j++) {
			address[j] = dice_below(&dice, 20)
								 ? some[dice_below(&dice, sizeof some - 1)]
								 : (char)dice_below(&dice, 256);
		}
		address[len > 0 ? len - 1 : 0] = '\0';
		postern__redact(address, text, size);
		len = strnlen(text, size);
		CHECK(len < size);
		CHECK(postern__utf8_valid(text, len));
		CHECK(!postern__utf8_has_control(text, len));
	}
}

static void in_sentences(void) {
	static const struct {
		const char *text_in;
		const char *text_out;
	} samples[] = {
		{ "no store 'postgres://u:s3cret@h/db', only 'a'",
				"no store 'postgres://u:***@h/db', only 'a'" },
		{ "x://u:a@b:c@h and y://v:d@h", "x://u:***@h and y://v:*@h" },
		{ "cut: postgres://u:secr", "cut: postgres://u:***" },
		{ "x://u:p/q?r#s@h", "x://u:***@h" },
		{ "http://host:8080/a?b=c", "http://host:8080/a?b=c" },
		{ "http://host:8080", "http://host:8080" },
		{ "x://a:1,b:2/db", "x://a:1,b:2/db" },
		{ "http://[::1]:80/", "http://[::1]:80/" },
		{ "http://u@host/a", "http://u@host/a" },
		{ "nothing: a@b ://", "nothing: a@b ://" },
		{ "://:@", "://:@" },
		{ "no 'x://u:a b@h/db', only 'y'", "no 'x://u:***@h/db', only 'y'" },
		{ "no 'x://u:a'b@h/db', only 'y'", "no 'x://u:***@h/db', only 'y'" },
		{ "no 'x://u:a@b c@h', only d@e", "no 'x://u:***@h', only d@e" },
		{ "no 'x://u:abc@h', only d@e", "no 'x://u:***@h', only d@e" },
		{ "x://u:a b@h, y://v:abc@h", "x://u:***@h, y://v:***@h" },
		{ "x://[u:abc@h/db", "x://[u:***@h/db" },
		{ "no 'x://h/db?password=abc', only 'y'",
				"no 'x://h/db?password=***', only 'y'" },
		{ "x://h/?sslPassword=abc&b=c", "x://h/?sslPassword=***&b=c" },
		{ "'host=h password=abc' is too much",
				"'host=h password=***' is too much" },
		{ "'password='a b' host=h' is", "'password=*** host=h' is" },
		{ "password='a b", "password=***" },
		{ "password=a\\ b c", "password=*** c" },
		{ "my.token=abc; x=y", "my.token=***; x=y" },
		{ "password= and x=pass", "password= and x=pass" },
		{ "password=a'b c", "password=*** c" },
	};
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		char text[80];
		(void)snprintf(text, sizeof text, "%s", samples[i].text_in);
		postern__redact_within(text);
		CHECK_STR(text, samples[i].text_out);
		/* Errors redact their texts the same way. */
		struct postern_error error;
		(void)postern__fail(&error, POSTERN_E_INVALID, "%s",
				samples[i].text_in);
		CHECK_STR(error.text, samples[i].text_out);
	}
}

static const struct tap_case cases[] = {
	{ "a URL's password within a sentence is redacted", in_sentences },
	{ "an address without secrets stays as it is", nothing_secret },
	{ "the password of a URL is not shown", passwords },
	{ "parameters that look secret are not shown", parameters },
	{ "the password of a conninfo string is not shown", conninfo },
	{ "of an ambiguous address only the scheme is shown", ambiguous },
	{ "of an address over 4096 bytes only the scheme is shown",
			long_addresses },
	{ "a result that does not fit is truncated between characters", cut },
	{ "no password is shown, whatever characters it has", anywhere },
	{ "the result is one line of valid text for any bytes", any_bytes },
};

TAP_MAIN(cases)
