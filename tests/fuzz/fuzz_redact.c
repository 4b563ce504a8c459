/* SPDX-License-Identifier: MIT */

/*
 * Redacted addresses. The input is used twice: as a complete address, for which
 * the result must be a clean line; and as the text around a secret that is
 * inserted where a password belongs, of which nothing may remain, whatever the
 * rest is.
 *
 * Input: a byte that chooses the form and the names, then pieces separated by
 * newlines.
 */

#include "base/redact.h"
#include "fuzz.h"

#define SECRET "Xyzzy7Plugh"

#define PIECE_COUNT 4
/* Longer addresses become *** completely, which tests nothing new. */
#define ADDRESS_MAX 5000

static const char *const schemes[] = { "postgres", "sqlite", "https", "amqp",
	"redis", "unknown+x", "Memory", "file" };
static const char *const names[] = { "password", "PASSWD", "access_token",
	"pass%77ord", "sslpassword", "api%4bey", "Sig", "client_secret" };

static void check_clean_line(const char *address) {
	static const size_t sizes[] = { 1, 2, 9, 30, POSTERN__REDACT_TEXT_MAX };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		char *out = malloc(sizes[i]);
		MUST(out);
		postern__redact(address, out, sizes[i]);
		MUST(strlen(out) < sizes[i]);
		MUST(fuzz_is_clean(out));
		free(out);
	}
}

static void check_hidden(const char *address) {
	char out[ADDRESS_MAX + 100];
	postern__redact(address, out, sizeof out);
	if (strstr(out, SECRET)) {
		(void)fprintf(stderr, "%s\n is shown as %s\n", address, out);
		abort();
	}
	MUST(fuzz_is_clean(out));
}

static void check_inserted_secret(uint8_t choice,
		char *const pieces[PIECE_COUNT]) {
	char address[ADDRESS_MAX];
	const char *scheme = schemes[choice >> 2 & 7];
	const char *name = names[choice >> 5];
	const char *a = pieces[0];
	const char *b = pieces[1];
	const char *c = pieces[2];
	const char *d = pieces[3];
	switch (choice & 3) {
	case 0:
		(void)snprintf(address, sizeof address, "%s://%s:%s" SECRET "%s@%s",
				scheme, a, b, c, d);
		break;
	case 1:
		(void)snprintf(address, sizeof address, "%s://%s?%s&%s=" SECRET "%s",
				scheme, a, b, name, c);
		break;
	case 2:
		(void)snprintf(address, sizeof address, "%s:%s?%s=" SECRET "%s&%s",
				scheme, a, name, b, c);
		break;
	default:
		/* libpq decodes no percent-encoding here. */
		(void)snprintf(address, sizeof address, "%s %s=" SECRET "%s %s", a,
				strchr(name, '%') ? "password" : name, b, c);
		break;
	}
	check_hidden(address);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct fuzz_input input = { data, size };
	uint8_t choice = fuzz_byte(&input);
	char *whole = fuzz_text(input.at, input.len);
	char *pieces[PIECE_COUNT];
	size_t len = 0;
	check_clean_line(whole);
	for (size_t i = 0; i < PIECE_COUNT; i++) {
		pieces[i] = fuzz_until(&input, '\n');
		len += strlen(pieces[i]);
	}
	/* The same text outside a password may be shown. */
	if (len + 100 < ADDRESS_MAX &&
			!memmem(data, size, SECRET, strlen(SECRET))) {
		check_inserted_secret(choice, pieces);
	}
	for (size_t i = 0; i < PIECE_COUNT; i++) {
		free(pieces[i]);
	}
	free(whole);
	return 0;
}
