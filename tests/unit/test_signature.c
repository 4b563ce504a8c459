/* SPDX-License-Identifier: MIT */

/* Signatures of webhooks: vectors that others have published, and what is
   refused. */

#include "server/signature.h"

#include <postern/error.h>
#include <string.h>

#include "base/arena.h"
#include "tap.h"

enum { STANDARD = 1, STRIPE, GITHUB, HMAC, SVIX };

/* From the documentation of Standard Webhooks. */
#define STANDARD_SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define STANDARD_ID "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define STANDARD_TIME "1614265330"
#define STANDARD_NOW ((int64_t)1614265330000)
#define STANDARD_BODY "{\"test\": 2432232314}"
#define STANDARD_SIGNATURE "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

#define STRIPE_TIME "1700000000"
#define STRIPE_NOW ((int64_t)1700000000000)
#define STRIPE_BODY "{\"id\":\"evt_1\"}"
#define STRIPE_SIGNATURE \
	"c89214b5b5da833daed6f0b8c5bb6bd58cea9022bd80ccc78230f3942d632925"

/* From the documentation of GitHub. */
#define GITHUB_SECRET "It's a Secret to Everybody"
#define GITHUB_BODY "Hello, World!"
#define GITHUB_SIGNATURE \
	"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

struct scene {
	struct postern__arena arena;
	struct postern__verifier verifier;
	struct postern_error error;
};

static void add_secret(struct scene *scene, int encoding, const char *text) {
	struct postern__verifier *verifier = &scene->verifier;
	CHECK_OK(postern__secret_decode(verifier->scheme, encoding, text,
					 &scene->arena,
					 &verifier->secrets[verifier->secret_count++],
					 &scene->error),
			&scene->error);
}

static void scene_begin(struct scene *scene, int scheme, const char *secret) {
	*scene = (struct scene){ 0 };
	scene->verifier.scheme = postern__signature_scheme(scheme);
	scene->verifier.tolerance_ms = 300000;
	add_secret(scene, POSTERN__SECRET_BY_SCHEME, secret);
}

static void scene_end(struct scene *scene) {
	postern__arena_finish(&scene->arena);
}

/* Headers "name: value" in pairs, ended by NULL. */
static int verify(struct scene *scene, const char *const *pairs,
		const char *body, int64_t now_ms) {
	struct postern_header headers[8];
	size_t count = 0;
	for (; pairs[2 * count]; count++) {
		headers[count] = (struct postern_header){ pairs[2 * count],
			pairs[2 * count + 1] };
	}
	return postern__signature_verify(&scene->verifier, headers, count, body,
			strlen(body), now_ms, &scene->error);
}

#define HEADERS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int verify_standard(struct scene *scene, const char *time,
		const char *signature, int64_t now_ms) {
	return verify(scene,
			HEADERS("Webhook-Id", STANDARD_ID, "webhook-timestamp", time,
					"webhook-signature", signature),
			STANDARD_BODY, now_ms);
}

static int verify_stripe(struct scene *scene, const char *value,
		int64_t now_ms) {
	return verify(scene, HEADERS("stripe-signature", value), STRIPE_BODY,
			now_ms);
}

static void vectors(void) {
	struct scene scene;
	scene_begin(&scene, STANDARD, STANDARD_SECRET);
	CHECK_OK(verify_standard(&scene, STANDARD_TIME, "v1," STANDARD_SIGNATURE,
					 STANDARD_NOW),
			&scene.error);
	scene_end(&scene);

	/* The same, with other names. */
	scene_begin(&scene, SVIX, STANDARD_SECRET);
	CHECK_OK(verify(&scene,
					 HEADERS("svix-id", STANDARD_ID, "svix-timestamp",
							 STANDARD_TIME, "svix-signature",
							 "v1," STANDARD_SIGNATURE),
					 STANDARD_BODY, STANDARD_NOW),
			&scene.error);
	CHECK_INT(verify_standard(&scene, STANDARD_TIME, "v1," STANDARD_SIGNATURE,
					  STANDARD_NOW),
			POSTERN_E_INVALID);
	scene_end(&scene);

	scene_begin(&scene, STRIPE, "whsec_test");
	CHECK_OK(verify_stripe(&scene, "t=" STRIPE_TIME ",v1=" STRIPE_SIGNATURE,
					 STRIPE_NOW),
			&scene.error);
	scene_end(&scene);

	scene_begin(&scene, GITHUB, GITHUB_SECRET);
	CHECK_OK(verify(&scene,
					 HEADERS("X-Hub-Signature-256", "sha256=" GITHUB_SIGNATURE),
					 GITHUB_BODY, 0),
			&scene.error);
	scene_end(&scene);
}

static void tolerance(void) {
	struct scene scene;
	const char *signature = "v1," STANDARD_SIGNATURE;
	scene_begin(&scene, STANDARD, STANDARD_SECRET);
	for (int sign = -1; sign <= 1; sign += 2) {
		CHECK_INT(verify_standard(&scene, STANDARD_TIME, signature,
						  STANDARD_NOW + sign * 300000),
				POSTERN_OK);
		CHECK_INT(verify_standard(&scene, STANDARD_TIME, signature,
						  STANDARD_NOW + sign * 300001),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, sign > 0 ? "old" : "in the future");
	}
	scene_end(&scene);
	scene_begin(&scene, STRIPE, "whsec_test");
	const char *value = "t=" STRIPE_TIME ",v1=" STRIPE_SIGNATURE;
	CHECK_INT(verify_stripe(&scene, value, STRIPE_NOW + 300001),
			POSTERN_E_INVALID);
	CHECK_INT(verify_stripe(&scene, value, STRIPE_NOW - 300001),
			POSTERN_E_INVALID);
	scene_end(&scene);
}

static void several_signatures(void) {
	struct scene scene;
	scene_begin(&scene, STANDARD, STANDARD_SECRET);
	CHECK_INT(verify_standard(&scene, STANDARD_TIME,
					  "v1a,xx v2," STANDARD_SIGNATURE " v1,bad "
					  "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
					  " v1," STANDARD_SIGNATURE,
					  STANDARD_NOW),
			POSTERN_OK);
	/* The same text under another version is none. */
	CHECK_INT(verify_standard(&scene, STANDARD_TIME,
					  "v2," STANDARD_SIGNATURE " " STANDARD_SIGNATURE,
					  STANDARD_NOW),
			POSTERN_E_INVALID);
	scene_end(&scene);

	scene_begin(&scene, STRIPE, "whsec_test");
	CHECK_INT(verify_stripe(&scene,
					  "v0=00,v1=bad,t=" STRIPE_TIME ",v1=" STRIPE_SIGNATURE,
					  STRIPE_NOW),
			POSTERN_OK);
	CHECK_INT(verify_stripe(&scene, "t=" STRIPE_TIME ",v0=" STRIPE_SIGNATURE,
					  STRIPE_NOW),
			POSTERN_E_INVALID);
	/* Which of two times was signed is a matter of the reader. */
	CHECK_INT(verify_stripe(&scene,
					  "t=1,t=" STRIPE_TIME ",v1=" STRIPE_SIGNATURE, STRIPE_NOW),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "twice");
	scene_end(&scene);
}

static void too_many_signatures(void) {
	struct scene scene;
	char list[2048] = "";
	scene_begin(&scene, STANDARD, STANDARD_SECRET);
	for (int i = 0; i <= POSTERN__SIGNATURE_COUNT_MAX; i++) {
		size_t len = strlen(list);
		(void)snprintf(list + len, sizeof list - len, "v1,%s ",
				STANDARD_SIGNATURE);
	}
	CHECK_INT(verify_standard(&scene, STANDARD_TIME, list, STANDARD_NOW),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "more than 16 signatures");
	list[strlen(list) - strlen(STANDARD_SIGNATURE) - 5] = '\0';
	CHECK_INT(verify_standard(&scene, STANDARD_TIME, list, STANDARD_NOW),
			POSTERN_OK);
	scene_end(&scene);
}

static void every_byte_counts(void) {
	struct scene scene;
	char signature[] = "sha256=" GITHUB_SIGNATURE;
	scene_begin(&scene, GITHUB, GITHUB_SECRET);
	for (size_t i = 0; signature[i]; i++) {
		char kept = signature[i];
		signature[i] = kept == '0' ? '1' : '0';
		CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", signature),
						  GITHUB_BODY, 0),
				POSTERN_E_INVALID);
		signature[i] = '\0';
		CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", signature),
						  GITHUB_BODY, 0),
				POSTERN_E_INVALID);
		signature[i] = kept;
	}
	char body[] = GITHUB_BODY;
	for (size_t i = 0; body[i]; i++) {
		body[i] ^= 1;
		CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", signature),
						  body, 0),
				POSTERN_E_INVALID);
		body[i] ^= 1;
	}
	CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", signature), body,
					  0),
			POSTERN_OK);
	scene_end(&scene);
}

/* Other texts of the same JSON, and the same text with other ends. */
static void bytes_as_received(void) {
	static const char body[] = "{ \"n\": 1.0 }\n";
	static const char *const others[] = { "{ \"n\": 1.0 }", "{\"n\":1.0}",
		"{ \"n\": 1 }\n", "{ \"n\": 1.0 }\r\n", " { \"n\": 1.0 }\n",
		"{ \"n\": 1.0 } " };
	unsigned char digest[POSTERN__HMAC_LEN_MAX];
	char value[2 * POSTERN__HMAC_LEN_MAX + 8] = "sha256=";
	const struct postern__hmac_piece piece = { body, strlen(body) };
	struct scene scene;
	scene_begin(&scene, GITHUB, GITHUB_SECRET);
	size_t len = postern__hmac_sign(POSTERN__HMAC_SHA256, GITHUB_SECRET,
			strlen(GITHUB_SECRET), &piece, 1, digest);
	for (size_t i = 0; i < len; i++) {
		(void)snprintf(value + 7 + 2 * i, 3, "%02x", digest[i]);
	}
	CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", value), body, 0),
			POSTERN_OK);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", value),
						  others[i], 0),
				POSTERN_E_INVALID);
	}
	scene_end(&scene);
}

static void malformed_headers(void) {
	struct scene scene;
	static const char *const times[] = { "", " " STANDARD_TIME,
		"+" STANDARD_TIME, "0" STANDARD_TIME, STANDARD_TIME ".0",
		"-" STANDARD_TIME, STANDARD_TIME "000", "9999999999999",
		"99999999999999999999999999", "0x60378070", "now" };
	scene_begin(&scene, STANDARD, STANDARD_SECRET);
	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
		CHECK_INT(verify_standard(&scene, times[i], "v1," STANDARD_SIGNATURE,
						  STANDARD_NOW),
				POSTERN_E_INVALID);
	}
	static const char *const signatures[] = { "", " ", "v1", "v1,", ",",
		"v1,=", STANDARD_SIGNATURE, "v1, " STANDARD_SIGNATURE,
		"V1," STANDARD_SIGNATURE, "v1," STANDARD_SIGNATURE "=",
		"v1," STANDARD_SIGNATURE ",", "v1,\t" STANDARD_SIGNATURE,
		"v1=" STANDARD_SIGNATURE };
	for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
		CHECK_INT(verify_standard(&scene, STANDARD_TIME, signatures[i],
						  STANDARD_NOW),
				POSTERN_E_INVALID);
	}
	scene_end(&scene);
	static const char *const values[] = { "", ",",
		"t=", "t=,v1=", "v1=", "t=" STRIPE_TIME, "v1=" STRIPE_SIGNATURE,
		"t= " STRIPE_TIME ",v1=" STRIPE_SIGNATURE,
		"t=" STRIPE_TIME ", v1=" STRIPE_SIGNATURE,
		"t=" STRIPE_TIME ";v1=" STRIPE_SIGNATURE,
		"T=" STRIPE_TIME ",v1=" STRIPE_SIGNATURE };
	scene_begin(&scene, STRIPE, "whsec_test");
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		CHECK_INT(verify_stripe(&scene, values[i], STRIPE_NOW),
				POSTERN_E_INVALID);
	}
	scene_end(&scene);
}

static void twice(void) {
	struct scene scene;
	const char *value = "sha256=" GITHUB_SIGNATURE;
	scene_begin(&scene, GITHUB, GITHUB_SECRET);
	CHECK_INT(verify(&scene,
					  HEADERS("X-Hub-Signature-256", value,
							  "x-hub-signature-256", value),
					  GITHUB_BODY, 0),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "twice");
	CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature", value), GITHUB_BODY, 0),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "is missing");
	scene_end(&scene);
}

static void rotation(void) {
	struct scene scene;
	const char *value = "sha256=" GITHUB_SIGNATURE;
	scene_begin(&scene, GITHUB, "the next secret");
	CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", value), GITHUB_BODY,
					  0),
			POSTERN_E_INVALID);
	add_secret(&scene, POSTERN__SECRET_BY_SCHEME, GITHUB_SECRET);
	CHECK_INT(verify(&scene, HEADERS("X-Hub-Signature-256", value), GITHUB_BODY,
					  0),
			POSTERN_OK);
	scene_end(&scene);
}

/* RFC 4231 and RFC 2202, second test case. */
static void algorithms(void) {
	static const struct {
		int algorithm;
		int encoding;
		const char *prefix;
		const char *value;
	} rows[] = {
		{ POSTERN__HMAC_SHA256, POSTERN__SIGNATURE_HEX, "v0=",
				"v0=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964"
				"ec3843" },
		{ POSTERN__HMAC_SHA256, POSTERN__SIGNATURE_HEX, NULL,
				"5BDCC146BF60754E6A042426089575C75A003F089D2739839DEC58B964EC38"
				"43" },
		{ POSTERN__HMAC_SHA256, POSTERN__SIGNATURE_BASE64, NULL,
				"W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM=" },
		{ POSTERN__HMAC_SHA1, POSTERN__SIGNATURE_HEX,
				"sha1=", "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79" },
		{ POSTERN__HMAC_SHA512, POSTERN__SIGNATURE_HEX, NULL,
				"164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505"
				"549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bc"
				"e737" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct scene scene;
		scene_begin(&scene, HMAC, "Jefe");
		scene.verifier.header = "X-Signature";
		scene.verifier.prefix = rows[i].prefix;
		scene.verifier.algorithm = rows[i].algorithm;
		scene.verifier.encoding = rows[i].encoding;
		CHECK_OK(verify(&scene, HEADERS("x-signature", rows[i].value),
						 "what do ya want for nothing?", 0),
				&scene.error);
		scene.verifier.encoding = !rows[i].encoding;
		CHECK_INT(verify(&scene, HEADERS("x-signature", rows[i].value),
						  "what do ya want for nothing?", 0),
				POSTERN_E_INVALID);
		scene_end(&scene);
	}
}

static void secrets(void) {
	static const struct {
		int scheme;
		int encoding;
		const char *text;
		const char *bytes; /* NULL: refused */
	} rows[] = {
		{ STANDARD, POSTERN__SECRET_BY_SCHEME, "whsec_SmVmZQ==", "Jefe" },
		{ STANDARD, POSTERN__SECRET_BY_SCHEME, "SmVmZQ==", "Jefe" },
		{ STANDARD, POSTERN__SECRET_RAW, "whsec_SmVmZQ==", "whsec_SmVmZQ==" },
		{ STRIPE, POSTERN__SECRET_BY_SCHEME, "whsec_abc", "whsec_abc" },
		{ GITHUB, POSTERN__SECRET_HEX, "4a656665", "Jefe" },
		{ HMAC, POSTERN__SECRET_BASE64, "SmVmZQ==", "Jefe" },
		{ STANDARD, POSTERN__SECRET_BY_SCHEME, "whsec_", NULL },
		{ STANDARD, POSTERN__SECRET_BY_SCHEME, "whsec_hunter2!", NULL },
		{ STANDARD, POSTERN__SECRET_BASE64, "whsec_SmVmZQ==", NULL },
		{ HMAC, POSTERN__SECRET_HEX, "hunter2!", NULL },
		{ HMAC, POSTERN__SECRET_HEX, "4a6", NULL },
		{ HMAC, POSTERN__SECRET_RAW, "", NULL },
	};
	struct postern__arena arena = { 0 };
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__secret secret = { 0 };
		struct postern_error error = { 0 };
		int r = postern__secret_decode(postern__signature_scheme(
											   rows[i].scheme),
				rows[i].encoding, rows[i].text, &arena, &secret, &error);
		CHECK_INT(r, rows[i].bytes ? POSTERN_OK : POSTERN_E_INVALID);
		if (rows[i].bytes) {
			CHECK_MEM(secret.bytes, secret.len, rows[i].bytes,
					strlen(rows[i].bytes));
		} else {
			CHECK(!strstr(error.text, "hunter2"));
		}
	}
	postern__arena_finish(&arena);
}

static const struct tap_case cases[] = {
	{ "published signatures of each scheme are valid", vectors },
	{ "a time is valid up to the tolerance, before and after now", tolerance },
	{ "one of several signatures of the right version suffices",
			several_signatures },
	{ "more signatures than the limit are refused", too_many_signatures },
	{ "a change or the end at any character makes a signature invalid",
			every_byte_counts },
	{ "a signature is of the body's bytes as they were received",
			bytes_as_received },
	{ "malformed times and lists of signatures are refused",
			malformed_headers },
	{ "a header that is missing, or there twice, is refused", twice },
	{ "while secrets are exchanged either is valid", rotation },
	{ "each algorithm has the results of its RFC, in hex and base64",
			algorithms },
	{ "a secret is decoded by its encoding, and no error shows it", secrets },
};

TAP_MAIN(cases)
