/* SPDX-License-Identifier: MIT */
/*
 * Validates the URL of a store without opening it, so that a mistake is
 * reported with its line.
 */

#include "server/config_store.h"

#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/utf8.h"
#include "store/store.h"

/* Longer than any path of the system. */
#define URL_LEN_MAX 4096

struct kind {
	const char *scheme;
	/* `rest` is the URL after "scheme:". */
	int (*check)(const char *url, const char *rest,
			struct postern_error *error);
};

static int check_memory(const char *url, const char *rest,
		struct postern_error *error) {
	(void)url;
	if (*rest) {
		return postern__fail(error, POSTERN_E_INVALID,
				"unexpected text after 'memory:'");
	}
	return POSTERN_OK;
}

static int check_sqlite(const char *url, const char *rest,
		struct postern_error *error) {
	(void)url;
	const char *query = strchr(rest, '?');
	if (*rest == '\0' || query == rest) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the file is missing; write sqlite:FILE");
	}
	if (!query) {
		return POSTERN_OK;
	}
	if (strcmp(query, "?shared=yes") == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'?shared=yes' is not in this version");
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"unknown parameter '%.60s' of sqlite:", query + 1);
}

static int check_postgres(const char *url, const char *rest,
		struct postern_error *error) {
#ifdef POSTERN_POSTGRES
	if (*rest == '\0') {
		return postern__fail(error, POSTERN_E_INVALID,
				"the database is missing; write postgres://USER@HOST/DATABASE");
	}
	return postern__store_check(url, NULL, error);
#else
	(void)url;
	(void)rest;
	return postern__fail(error, POSTERN_E_INVALID,
			"this postern was built without PostgreSQL: build it with libpq");
#endif
}

static int check_later(const char *url, const char *rest,
		struct postern_error *error) {
	(void)url;
	(void)rest;
	return postern__fail(error, POSTERN_E_INVALID,
			"this kind of store is not in this version; "
			"write " POSTERN__STORE_URLS);
}

static const struct kind kinds[] = {
	{ "sqlite", check_sqlite },
	{ "memory", check_memory },
	{ "postgres", check_postgres },
	{ "postgresql", check_postgres },
	{ "redis", check_later },
	{ "rediss", check_later },
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* Whether a text that is not a URL may be shown in an error: only if no part of
   it could be a secret. */
static bool is_harmless(const char *url, const char *near) {
	bool local = near &&
				 (strcmp(near, "sqlite") == 0 || strcmp(near, "memory") == 0);
	return !strpbrk(url, "@?=") && !strstr(url, "://") &&
		   (local || !strchr(url, ':'));
}

static int fail_unknown(const char *url, const char *scheme,
		struct postern_error *error) {
	const char *names[KIND_COUNT];
	char shown[POSTERN__REDACT_TEXT_MAX];

	for (size_t i = 0; i < KIND_COUNT; i++) {
		names[i] = kinds[i].scheme;
	}
	const char *near = postern__closest(scheme, names, KIND_COUNT);
	if (is_harmless(url, near)) {
		(void)snprintf(shown, sizeof shown, "%s", url);
	} else {
		postern__redact(url, shown, sizeof shown);
	}
	if (near) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.60s' is not a store; did you mean '%s:'?", shown, near);
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.60s' is not a store; write " POSTERN__STORE_URLS, shown);
}

int postern__config_store_check(const char *url, struct postern_error *error) {
	char scheme[16];
	size_t len = strlen(url);
	size_t scheme_len = strcspn(url, ":");

	if (len > URL_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "longer than %d bytes",
				URL_LEN_MAX);
	}
	if (!postern__utf8_valid(url, len) || postern__utf8_has_control(url, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"not valid UTF-8, or with a control character");
	}
	if (scheme_len == len || scheme_len >= sizeof scheme) {
		return fail_unknown(url, "", error);
	}
	memcpy(scheme, url, scheme_len);
	scheme[scheme_len] = '\0';
	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (strcmp(kinds[i].scheme, scheme) == 0) {
			return kinds[i].check(url, url + scheme_len + 1, error);
		}
	}
	return fail_unknown(url, scheme, error);
}
