/* SPDX-License-Identifier: MIT */

/*
 * The first byte chooses: the value of a Retry-After; the lines of an answer;
 * the URL of a handler, filled with the values of a message behind a line's
 * end; a block of addresses; a secret.
 */

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fuzz.h"
#include "webhook/webhook.h"

static void read_retry_after(const char *text) {
	int64_t ms = postern__webhook_retry_after_ms(text, 1700000000000);
	MUST(ms >= 0 && ms <= WEBHOOK_RETRY_AFTER_MS_MAX);
}

static void read_answer(const char *text, size_t len) {
	static struct postern__webhook_answer answer;
	struct postern__webhook_verdict verdict;
	memset(&answer, 0, sizeof answer);
	for (size_t at = 0; at < len;) {
		size_t line = strcspn(text + at, "\n") + 1;
		line = line < len - at ? line : len - at;
		if (!postern__webhook_answer_header(&answer, text + at, line)) {
			break;
		}
		(void)postern__webhook_answer_body(&answer, text + at, line);
		at += line;
	}
	MUST(answer.excerpt_len <= WEBHOOK_EXCERPT_LEN_MAX);
	postern__webhook_answer_judge(&answer, 429, 0, &verdict);
	MUST(verdict.outcome.kind == POSTERN_RETRY);
	MUST(verdict.hold_ms >= 0);
	MUST(strpbrk(verdict.outcome.reason, "\r\n\x1b") == NULL);
}

/* A value never makes another host, nor another part of the path. */
static void fill_url(char *url) {
	char *value = strchr(url, '\n');
	struct postern__buf filled;
	char before[400];
	char after[400];
	if (!value) {
		return;
	}
	*value++ = '\0';
	const struct postern_message message = {
		.size = sizeof message,
		.id = value,
		.type = value,
		.subject = value,
	};
	bool plain = postern__webhook_url_check(url, false, NULL) == POSTERN_OK;
	if (!plain && postern__webhook_url_check(url, true, NULL) != POSTERN_OK) {
		return;
	}
	postern__buf_init(&filled, WEBHOOK_URL_FILLED_LEN_MAX);
	if (postern__webhook_url_fill(url, &message, &filled, NULL) == POSTERN_OK) {
		const char *text = postern__buf_text(&filled);
		MUST(strpbrk(text, "\r\n #\\") == NULL);
		postern__webhook_url_shown(url, before, sizeof before);
		postern__webhook_url_shown(text, after, sizeof after);
		MUST(!plain || strcmp(before, after) == 0);
	}
	postern__buf_finish(&filled);
}

static void parse_block(const char *text) {
	struct postern__webhook_block block;
	if (postern__webhook_block_parse(text, &block, NULL) == POSTERN_OK) {
		const struct postern__webhook_guard guard = { true, &block, 1 };
		MUST(block.bits <= 128);
		MUST(postern__webhook_host_refuse(&guard, "169.254.169.254"));
	}
}

static void parse_secret(const char *text) {
	struct postern__webhook_secret secret = { { 0 }, 0 };
	if (postern__webhook_secret_parse(text, &secret, NULL) == POSTERN_OK) {
		MUST(secret.len >= WEBHOOK_SECRET_LEN_MIN &&
				secret.len <= WEBHOOK_SECRET_LEN_MAX);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size == 0 || size > 131072) {
		return 0;
	}
	char *text = malloc(size);
	if (!text) {
		return 0;
	}
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 'r': read_retry_after(text); break;
	case 'a': read_answer(text, size - 1); break;
	case 'u': fill_url(text); break;
	case 'b': parse_block(text); break;
	default: parse_secret(text); break;
	}
	free(text);
	return 0;
}
