/* SPDX-License-Identifier: MIT */

/*
 * Answers: what is kept of one while it arrives, and what it means for the
 * message and for its handler. A redirect is never followed: who may answer for
 * the receiver is decided in the configuration.
 */

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "handler/kinds.h"
#include "webhook/webhook.h"

#define RETRY_AFTER "retry-after:"

static const struct rule {
	long status;
	enum postern_outcome_kind kind;
	const char *text;
} rules[] = {
	/* The message is refused, and would be again. */
	{ 400, POSTERN_POISON, "Bad Request" },
	{ 413, POSTERN_POISON, "Content Too Large" },
	{ 415, POSTERN_POISON, "Unsupported Media Type" },
	{ 422, POSTERN_POISON, "Unprocessable Content" },
	/* The receiver wants no more messages. */
	{ 410, POSTERN_SNOOZE, "Gone" },
	/* Texts only. */
	{ 401, POSTERN_RETRY, "Unauthorized" },
	{ 403, POSTERN_RETRY, "Forbidden" },
	{ 404, POSTERN_RETRY, "Not Found" },
	{ 408, POSTERN_RETRY, "Request Timeout" },
	{ 429, POSTERN_RETRY, "Too Many Requests" },
	{ 500, POSTERN_RETRY, "Internal Server Error" },
	{ 502, POSTERN_RETRY, "Bad Gateway" },
	{ 503, POSTERN_RETRY, "Service Unavailable" },
	{ 504, POSTERN_RETRY, "Gateway Timeout" },
};

static const struct rule *find_rule(long status) {
	static const struct rule other = { 0, POSTERN_RETRY, "" };
	static const struct rule redirect = { 0, POSTERN_RETRY,
		"(a redirect, which is not followed)" };
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		if (rules[i].status == status) {
			return &rules[i];
		}
	}
	return status >= 300 && status < 400 ? &redirect : &other;
}

bool postern__webhook_answer_header(struct postern__webhook_answer *answer,
		const char *line, size_t len) {
	size_t skipped = strlen(RETRY_AFTER);
	answer->headers_len += len;
	if (len > 5 && strncmp(line, "HTTP/", 5) == 0) {
		answer->retry_after[0] = '\0'; /* after a 1xx: another answer begins */
	}
	if (len > skipped && strncasecmp(line, RETRY_AFTER, skipped) == 0 &&
			!answer->retry_after[0]) {
		(void)postern__utf8_clean(line + skipped, len - skipped,
				answer->retry_after, sizeof answer->retry_after);
	}
	return answer->headers_len <= WEBHOOK_ANSWER_HEADERS_LEN_MAX;
}

bool postern__webhook_answer_body(struct postern__webhook_answer *answer,
		const char *bytes, size_t len) {
	size_t room = sizeof answer->excerpt - answer->excerpt_len;
	size_t kept = len < room ? len : room;
	memcpy(answer->excerpt + answer->excerpt_len, bytes, kept);
	answer->excerpt_len += kept;
	answer->body_len += len;
	answer->cut = answer->body_len > WEBHOOK_ANSWER_BODY_LEN_MAX;
	return !answer->cut;
}

int64_t postern__webhook_retry_after_ms(const char *value, int64_t now_ms) {
	int64_t ms = 0;
	value += strspn(value, " \t");
	size_t digits = strspn(value, "0123456789");
	if (digits > 0) {
		if (value[digits + strspn(value + digits, " \t\r\n")]) {
			return 0;
		}
		for (size_t i = 0; i < digits && ms < WEBHOOK_RETRY_AFTER_MS_MAX; i++) {
			ms = ms * 10 + (value[i] - '0') * INT64_C(1000);
		}
	} else {
		/* The three forms of an HTTP date begin with the day. */
		time_t at = strspn(value, "MTWFS") > 0 ? curl_getdate(value, NULL) : -1;
		ms = at < 0 ? 0 : (int64_t)at * 1000 - now_ms;
	}
	if (ms < 0) {
		return 0;
	}
	return ms < WEBHOOK_RETRY_AFTER_MS_MAX ? ms : WEBHOOK_RETRY_AFTER_MS_MAX;
}

void postern__webhook_answer_judge(const struct postern__webhook_answer *answer,
		long status, int64_t now_ms, struct postern__webhook_verdict *out) {
	const struct rule *rule = find_rule(status);
	bool busy = status == 429 || status == 503;
	char excerpt[POSTERN_REASON_LEN_MAX];
	*out = (struct postern__webhook_verdict){ 0 };
	if (status >= 200 && status < 300) {
		out->outcome.kind = POSTERN_DONE;
		return;
	}
	size_t len = postern__utf8_clean(answer->excerpt, answer->excerpt_len,
			excerpt, sizeof excerpt);
	while (len > 0 && excerpt[len - 1] == ' ') {
		excerpt[--len] = '\0';
	}
	out->pauses = status == 410;
	out->hold_ms =
			busy ? postern__webhook_retry_after_ms(answer->retry_after, now_ms)
				 : 0;
	postern__outcome_setf(&out->outcome, rule->kind, "answered %ld%s%s%s%s",
			status, rule->text[0] ? " " : "", rule->text,
			excerpt[0] ? ": " : "", excerpt);
}
