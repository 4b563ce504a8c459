/* SPDX-License-Identifier: MIT */

/*
 * The stores of this library by URL scheme, and the facade that opens them. The
 * list is an array, because a list built by the linker would be dropped from
 * the static library.
 */

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/sized.h"
#include "store/marker_kind.h"
#include "store/store.h"

/* How long a call waits for its turn to write, unless it is set. */
#define COMMAND_TIMEOUT_MS_DEFAULT 30000
/* How often a call is retried, unless it is set. */
#define COMMAND_RETRIES_DEFAULT 3

static const struct postern_store_kind *const kinds[] = {
	&postern__sqlite_kind,
	&postern__memory_kind,
#ifdef POSTERN_POSTGRES
	&postern__pg_kind,
	&postern__pg_kind_too,
#endif
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* Schemes that are planned, or not compiled in. */
static const struct missing {
	const char *scheme;
	const char *reason;
} missing_kinds[] = {
#ifndef POSTERN_POSTGRES
	{ "postgres", "was not built in: build Postern with libpq" },
	{ "postgresql", "was not built in: build Postern with libpq" },
#endif
	{ "redis", "needs libpostern-redis, which is not registered" },
	{ "rediss", "needs libpostern-redis, which is not registered" },
};
#define MISSING_COUNT (sizeof missing_kinds / sizeof missing_kinds[0])

const struct postern_store_kind *postern__store_kind_at(size_t index) {
	return index < KIND_COUNT ? kinds[index] : NULL;
}

static bool has_scheme(const char *url, const char *scheme) {
	size_t len = strlen(scheme);
	return strncmp(url, scheme, len) == 0 && url[len] == ':';
}

const struct postern_store_kind *postern__store_kind_of(const char *url,
		const char **rest_out) {
	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (has_scheme(url, kinds[i]->scheme)) {
			if (rest_out) {
				*rest_out = url + strlen(kinds[i]->scheme) + 1;
			}
			return kinds[i];
		}
	}
	return NULL;
}

const struct postern_store_kind *postern__store_kind_named(const char *name) {
	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (strcmp(kinds[i]->name, name) == 0) {
			return kinds[i];
		}
	}
	return NULL;
}

void postern__store_forms(char out[POSTERN__STORE_FORMS_MAX]) {
	size_t last = KIND_COUNT - 1;
	size_t len = 0;
	/* Kinds that differ only in their scheme have the same form. */
	while (last > 0 && kinds[last]->form == kinds[last - 1]->form) {
		last--;
	}
	out[0] = '\0';
	for (size_t i = 0; i <= last && len < POSTERN__STORE_FORMS_MAX; i++) {
		len += (size_t)snprintf(out + len, POSTERN__STORE_FORMS_MAX - len,
				"%s%s",
				i == 0      ? ""
				: i == last ? " or "
							: ", ",
				kinds[i]->form);
	}
}

static int fail_missing(const char *url, struct postern_error *error) {
	const struct postern_marker_kind *kind = postern__marker_kind_of(url);
	if (kind) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the store '%s:' keeps markers only, for guarded functions, "
				"and "
				"no messages",
				kind->scheme);
	}
	for (size_t i = 0; i < MISSING_COUNT; i++) {
		if (has_scheme(url, missing_kinds[i].scheme)) {
			return postern__fail(error, POSTERN_E_UNSUPPORTED,
					"the store '%s:' %s", missing_kinds[i].scheme,
					missing_kinds[i].reason);
		}
	}
	return POSTERN_OK;
}

/* Errors never quote what follows the scheme: it may be a password. */
static int find_kind(const char *url, const struct postern_store_kind **out,
		const char **rest_out, struct postern_error *error) {
	char forms[POSTERN__STORE_FORMS_MAX];
	postern__store_forms(forms);
	if (!url) {
		return postern__fail(error, POSTERN_E_INVALID,
				"no store is configured: use %s", forms);
	}
	*out = postern__store_kind_of(url, rest_out);
	if (*out) {
		return POSTERN_OK;
	}
	int r = fail_missing(url, error);
	if (r != POSTERN_OK) {
		return r;
	}
	size_t len = strcspn(url, ":");
	return postern__fail(error, POSTERN_E_INVALID,
			url[len] ? "unknown kind of store '%.*s:': use %s"
					 : "the store's URL has no scheme%.*s: use %s",
			url[len] ? (int)(len < 40 ? len : 40) : 0, url, forms);
}

int postern__store_options_complete(const struct postern_store_options *options,
		struct postern_store_options *out, struct postern_error *error) {
	struct postern_store_options full = { 0 };
	if (options) {
		int r = postern__sized_copy(&full, sizeof full, options,
				"struct postern_store_options", error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	full.size = sizeof full;
	full.command_timeout_ms = full.command_timeout_ms > 0
									  ? full.command_timeout_ms
									  : COMMAND_TIMEOUT_MS_DEFAULT;
	full.command_retries = full.command_retries != 0 ? full.command_retries
													 : COMMAND_RETRIES_DEFAULT;
	full.clock = full.clock ? full.clock : postern_clock_system();
	full.random = full.random ? full.random : postern_random_system();
	*out = full;
	return POSTERN_OK;
}

/* Refuses options that the kind does not have. */
static int options_check(const struct postern_store_kind *kind,
		const struct postern_store_options *options,
		struct postern_error *error) {
	const char *name = options->schema && !kind->has_schema ? "schema"
					   : options->connections && !kind->has_connections
							   ? "connections"
					   : options->listen_url && !kind->listens ? "listen_url"
															   : NULL;
	return name ? postern__fail(error, POSTERN_E_UNSUPPORTED,
						  "'%s' is a setting of stores %s only", name,
						  strcmp(name, "connections") == 0 ? "on a server"
														   : "in PostgreSQL")
				: POSTERN_OK;
}

/* Finds the kind and the rest of the URL, completes the options, and validates
   both. */
static int kind_resolve(const char *url,
		const struct postern_store_options *options,
		const struct postern_store_kind **kind_out, const char **rest_out,
		struct postern_store_options *options_out,
		struct postern_error *error) {
	int r = find_kind(url, kind_out, rest_out, error);
	if (r == POSTERN_OK) {
		r = postern__store_options_complete(options, options_out, error);
	}
	if (r == POSTERN_OK) {
		r = options_check(*kind_out, options_out, error);
	}
	return r == POSTERN_OK ? (*kind_out)->check(*rest_out, options_out, error)
						   : r;
}

int postern__store_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error) {
	if (postern__marker_kind_of(url)) {
		return postern__markers_check(url, options, error);
	}
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	return kind_resolve(url, options, &kind, &rest, &full, error);
}

int postern_store_open(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	return r == POSTERN_OK ? kind->open(rest, &full, out, error) : r;
}

void postern_store_report(const struct postern_store *store,
		const struct postern_event *event) {
	if (store->listener) {
		store->listener(store->listener_context, event);
	}
}

int postern__store_examine(const char *url,
		const struct postern_store_options *options,
		const struct postern_store_examiner *examiner,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	return r == POSTERN_OK && kind->is_shared
				   ? kind->examine(rest, &full, examiner, error)
				   : r;
}

int postern__store_schema_write(const char *url,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	char *sql = NULL;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	if (r == POSTERN_OK && kind->has_schema) {
		r = kind->schema_sql(rest, &full, &sql, error);
	}
	if (r == POSTERN_OK) {
		postern__buf_append_text(out, sql ? sql : kind->schema());
	}
	free(sql);
	return r;
}

int postern__store_schema_name(const char *url,
		const struct postern_store_options *options,
		char out[POSTERN_SCHEMA_NAME_MAX], struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	if (r == POSTERN_OK && kind->has_schema) {
		return kind->schema_name(rest, &full, out, error);
	}
	if (r == POSTERN_OK) {
		out[0] = '\0';
	}
	return r;
}

int postern_store_schema(const char *url, const char **out,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	int r = find_kind(url, &kind, &rest, error);
	if (r == POSTERN_OK) {
		*out = kind->schema();
	}
	return r;
}

void postern_store_destroy(struct postern_store *store) {
	if (store) {
		store->ops->destroy(store);
	}
}
