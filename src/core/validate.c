/* SPDX-License-Identifier: MIT */
/*
 * Validation against the limits of message.h and handler.h, each with an error
 * that names the attribute. Input is never trimmed, folded or corrected.
 */

#include "core/box.h"

#include "base/fail.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/time.h"
#include "base/utf8.h"

#include <string.h>

static int check_text(const char *name, const char *text, size_t len_max,
		struct postern_error *error) {
	size_t len = strnlen(text, len_max + 1);
	if (len > len_max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s is longer than %zu bytes", name, len_max);
	}
	if (!postern__utf8_valid(text, len)) {
		return postern__fail(error, POSTERN_E_INVALID, "%s is not valid UTF-8",
				name);
	}
	if (postern__utf8_has_control(text, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s contains a control character", name);
	}
	return POSTERN_OK;
}

int postern__change_text_check(const char *what, const char *text,
		size_t len_max, struct postern_error *error) {
	return text ? check_text(what, text, len_max, error) : POSTERN_OK;
}

static int check_id(const char *id, struct postern_error *error) {
	if (!id || id[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID, "the id is empty");
	}
	int r = check_text("the id", id, POSTERN_ID_LEN_MAX, error);
	if (r) {
		return r;
	}
	size_t characters = postern__utf8_count(id, strlen(id));
	if (characters > POSTERN_ID_CHARACTERS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the id has %zu characters, the limit is %d", characters,
				POSTERN_ID_CHARACTERS_MAX);
	}
	return POSTERN_OK;
}

static int check_time(const char *time, struct postern_error *error) {
	int r = check_text("the time", time, POSTERN_TIME_LEN_MAX, error);
	if (r) {
		return r;
	}
	int64_t ms;
	if (postern__time_parse(time, strlen(time), &ms, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the time '%s' is not an RFC 3339 timestamp", time);
	}
	return POSTERN_OK;
}

static int check_attributes(const struct postern_message *message,
		struct postern_error *error) {
	const struct {
		const char *name;
		const char *text;
		size_t len_max;
		bool required;
	} attributes[] = {
		{ "the source", message->source, POSTERN_ATTRIBUTE_LEN_MAX, true },
		{ "the type", message->type, POSTERN_ATTRIBUTE_LEN_MAX, false },
		{ "the subject", message->subject, POSTERN_ATTRIBUTE_LEN_MAX, false },
		{ "the content type", message->content_type, POSTERN_ATTRIBUTE_LEN_MAX,
				false },
		{ "the correlation id", message->correlation_id,
				POSTERN_ATTRIBUTE_LEN_MAX, false },
		{ "the traceparent", message->traceparent, POSTERN_TRACEPARENT_LEN_MAX,
				false },
		{ "the transport", message->transport, POSTERN_KEY_LEN_MAX, false },
	};
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		if (!attributes[i].text) {
			continue;
		}
		int r = check_text(attributes[i].name, attributes[i].text,
				attributes[i].len_max, error);
		if (r) {
			return r;
		}
		if (attributes[i].required && attributes[i].text[0] == '\0') {
			return postern__fail(error, POSTERN_E_INVALID, "%s is empty",
					attributes[i].name);
		}
	}
	return POSTERN_OK;
}

static int check_headers(const struct postern_message *message,
		struct postern_error *error) {
	if (message->header_count > POSTERN_HEADER_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%zu headers, the limit is %d", message->header_count,
				POSTERN_HEADER_COUNT_MAX);
	}
	if (message->header_count > 0 && !message->headers) {
		return postern__fail(error, POSTERN_E_INVALID,
				"header_count is %zu, but headers is NULL",
				message->header_count);
	}
	size_t total = 0;
	for (size_t i = 0; i < message->header_count; i++) {
		const struct postern_header *header = &message->headers[i];
		if (!header->name || header->name[0] == '\0' || !header->value) {
			return postern__fail(error, POSTERN_E_INVALID,
					"header %zu has no name or no value", i + 1);
		}
		int r = check_text("a header's name", header->name,
				POSTERN_HEADER_NAME_LEN_MAX, error);
		if (!r) {
			r = check_text("a header's value", header->value,
					POSTERN_HEADER_VALUE_LEN_MAX, error);
		}
		if (r) {
			return r;
		}
		total += strlen(header->name) + strlen(header->value);
	}
	if (total > POSTERN_HEADERS_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the headers have %zu bytes, the limit is %d", total,
				POSTERN_HEADERS_LEN_MAX);
	}
	return POSTERN_OK;
}

int postern__message_check(const struct postern_message *message,
		struct postern_error *error) {
	int r = check_id(message->id, error);
	if (!r && message->time) {
		r = check_time(message->time, error);
	}
	if (!r) {
		r = check_attributes(message, error);
	}
	if (!r) {
		r = check_headers(message, error);
	}
	if (r) {
		return r;
	}
	if (message->body_len > 0 && !message->body) {
		return postern__fail(error, POSTERN_E_INVALID,
				"body_len is %zu, but body is NULL", message->body_len);
	}
	return POSTERN_OK;
}

int postern__message_check_size(const struct postern__channel *channel,
		const struct postern_message *message, struct postern_error *error) {
	if (message->body_len > channel->max_message_size) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the body has %zu bytes, the limit of channel '%s' is %zu "
				"(max_message_size)",
				message->body_len, channel->name, channel->max_message_size);
	}
	return POSTERN_OK;
}

static bool is_word(char c, const char *extra) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		   (c >= '0' && c <= '9') || (c != '\0' && strchr(extra, c));
}

static int check_word(const char *what, const char *text, size_t len_max,
		const char *extra, struct postern_error *error) {
	if (!text || text[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID, "%s is empty", what);
	}
	if (strnlen(text, len_max + 1) > len_max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s is longer than %zu bytes", what, len_max);
	}
	for (const char *c = text; *c; c++) {
		if (!is_word(*c, extra)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"%s '%s' may only have letters, digits and %s", what, text,
					extra);
		}
	}
	return POSTERN_OK;
}

int postern__channel_name_check(const char *name, struct postern_error *error) {
	return check_word("the channel's name", name, POSTERN_CHANNEL_NAME_LEN_MAX,
			"-_.", error);
}

int postern__handler_key_check(const char *key, struct postern_error *error) {
	if (!key || key[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"a handler needs a stable key: it is stored with every "
				"delivery");
	}
	return check_word("the handler key", key, POSTERN_KEY_LEN_MAX, "-_.:/",
			error);
}

static bool is_duration(int64_t ms) {
	return ms >= 0 && ms <= POSTERN_DURATION_MS_MAX;
}

int postern__retention_check(const struct postern__channel *channel,
		const char *name, struct postern_error *error) {
	int64_t payload = channel->retention_payload_ms;
	int64_t dedupe = channel->retention_dedupe_ms;
	if (!is_duration(payload) || !is_duration(dedupe)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s': retention is out of range", name);
	}
	/* 0 means forever, which is longer than any duration. */
	if (dedupe > 0 && (payload == 0 || dedupe < payload)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s': retention.dedupe must not be shorter than "
				"retention.payload: an id is remembered as long as its message",
				name);
	}
	return POSTERN_OK;
}

static int check_backoff(const struct postern_policy *policy,
		const char *handler, struct postern_error *error) {
	if (policy->backoff_count == POSTERN_BACKOFF_DEFAULT) {
		return POSTERN_OK;
	}
	if (policy->backoff_count > POSTERN_BACKOFF_COUNT_MAX ||
			(policy->backoff_count > 0 && !policy->backoff_ms)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': backoff has at most %d delays", handler,
				POSTERN_BACKOFF_COUNT_MAX);
	}
	for (size_t i = 0; i < policy->backoff_count; i++) {
		if (!is_duration(policy->backoff_ms[i])) {
			return postern__fail(error, POSTERN_E_INVALID,
					"handler '%s': backoff has a delay out of range", handler);
		}
	}
	return POSTERN_OK;
}

int postern__policy_check(const struct postern_policy *policy,
		const char *handler, struct postern_error *error) {
	if ((policy->max_attempts > POSTERN_ATTEMPTS_MAX &&
				policy->max_attempts != POSTERN_ATTEMPTS_DEFAULT) ||
			policy->max_crashes > POSTERN_ATTEMPTS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': max_attempts and max_crashes are at most %d",
				handler, POSTERN_ATTEMPTS_MAX);
	}
	if (!is_duration(policy->max_retry_delay_ms) ||
			!is_duration(policy->lease_ms) || policy->lease_ms == 0 ||
			(policy->timeout_ms != POSTERN_TIMEOUT_DEFAULT &&
					!is_duration(policy->timeout_ms))) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': a duration is out of range", handler);
	}
	if (policy->timeout_ms >= policy->lease_ms) {
		char timeout[POSTERN__DURATION_TEXT_MAX];
		char lease[POSTERN__DURATION_TEXT_MAX];
		postern__duration_format(policy->timeout_ms, timeout);
		postern__duration_format(policy->lease_ms, lease);
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': timeout (%s) must be less than lease (%s)",
				handler, timeout, lease);
	}
	if (policy->commit_batch < 1 ||
			policy->commit_batch > POSTERN_COMMIT_BATCH_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': commit_batch is 1 to %d", handler,
				POSTERN_COMMIT_BATCH_MAX);
	}
	if (policy->rate_count > POSTERN_RATE_COUNT_MAX ||
			policy->rate_burst > POSTERN_RATE_COUNT_MAX ||
			(policy->rate_count > 0 &&
					(policy->rate_period_ms < 1 ||
							policy->rate_period_ms >
									POSTERN_RATE_PERIOD_MS_MAX))) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': a rate is at most %d in a period of 1 ms to 1 h",
				handler, POSTERN_RATE_COUNT_MAX);
	}
	if (policy->break_after > POSTERN_BREAK_AFTER_MAX ||
			policy->on_broken < POSTERN_ON_BROKEN_HOLD ||
			policy->on_broken > POSTERN_ON_BROKEN_COUNT) {
		return postern__fail(error, POSTERN_E_INVALID,
				"handler '%s': break_after is at most %d, and on_broken one of "
				"enum postern_on_broken",
				handler, POSTERN_BREAK_AFTER_MAX);
	}
	return check_backoff(policy, handler, error);
}
