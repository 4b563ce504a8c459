/* SPDX-License-Identifier: MIT */

/*
 * The stores of this library by URL scheme, and the facade that opens them. The
 * list is an array, because a list built by the linker would be dropped from
 * the static library.
 */

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "store/store.h"

/* How long a call waits for its turn to write, unless it is set. */
#define COMMAND_TIMEOUT_MS_DEFAULT 30000
/* How often a call is retried, unless it is set. */
#define COMMAND_RETRIES_DEFAULT 3

static const struct postern_store_kind *const kinds[] = {
	&postern__memory_kind,
	&postern__sqlite_kind,
#ifdef POSTERN_POSTGRES
	&postern__pg_kind,
	&postern__pg_kind_too,
#endif
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* The URL forms of this version, for error texts. */
#ifdef POSTERN_POSTGRES
#define KNOWN_URLS "'memory:', 'sqlite:FILE' or 'postgres://USER@HOST/DATABASE'"
#else
#define KNOWN_URLS "'memory:' or 'sqlite:FILE'"
#endif

/* Schemes that are planned, or not compiled in: the error says so. */
static const char *const later_schemes[] = {
#ifndef POSTERN_POSTGRES
	"postgres",
	"postgresql",
#endif
	"redis",
	"rediss",
};

static bool is_scheme(const char *url, size_t len, const char *scheme) {
	return len == strlen(scheme) && memcmp(url, scheme, len) == 0;
}

/* Errors never quote what follows the scheme: it may be a password. */
static int find_kind(const char *url, const struct postern_store_kind **out,
		const char **rest_out, struct postern_error *error) {
	if (!url) {
		return postern__fail(error, POSTERN_E_INVALID,
				"no store is configured: use " KNOWN_URLS);
	}
	const char *colon = strchr(url, ':');
	if (!colon) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the store's URL has no scheme: use " KNOWN_URLS);
	}
	size_t len = (size_t)(colon - url);
	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (is_scheme(url, len, kinds[i]->scheme)) {
			*out = kinds[i];
			*rest_out = colon + 1;
			return POSTERN_OK;
		}
	}
	for (size_t i = 0; i < sizeof later_schemes / sizeof later_schemes[0];
			i++) {
		if (is_scheme(url, len, later_schemes[i])) {
			return postern__fail(error, POSTERN_E_UNSUPPORTED,
					"stores of the kind '%s:' are not in this version",
					later_schemes[i]);
		}
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"unknown kind of store '%.*s:': use " KNOWN_URLS,
			(int)(len < 40 ? len : 40), url);
}

/* Copies the options and sets defaults for those that are not set. */
static int options_complete(const struct postern_store_options *options,
		struct postern_store_options *out, struct postern_error *error) {
	struct postern_store_options full = { 0 };
	if (options) {
		if (options->size == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the member 'size' of the store's options is not set");
		}
		/* A program compiled against an older header has a smaller struct. */
		memcpy(&full, options,
				options->size < sizeof full ? options->size : sizeof full);
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

/* Finds the kind and the rest of the URL, completes the options, and validates
   both with the kind's check(). */
static int kind_resolve(const char *url,
		const struct postern_store_options *options,
		const struct postern_store_kind **kind_out, const char **rest_out,
		struct postern_store_options *options_out,
		struct postern_error *error) {
	int r = find_kind(url, kind_out, rest_out, error);
	if (r == POSTERN_OK) {
		r = options_complete(options, options_out, error);
	}
	return r == POSTERN_OK ? (*kind_out)->check(*rest_out, options_out, error)
						   : r;
}

int postern__store_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error) {
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

#ifdef POSTERN_POSTGRES
static bool is_postgres(const struct postern_store_kind *kind) {
	return kind == &postern__pg_kind || kind == &postern__pg_kind_too;
}
#endif

int postern__store_examine(const char *url,
		const struct postern_store_options *options,
		const struct postern__store_examiner *examiner,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
#ifdef POSTERN_POSTGRES
	if (r == POSTERN_OK && is_postgres(kind)) {
		return postern__pg_examine(rest, &full, examiner, error);
	}
#endif
	(void)examiner;
	return r;
}

int postern__store_schema_write(const char *url,
		const struct postern_store_options *options, struct postern__buf *out,
		struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	if (r != POSTERN_OK) {
		return r;
	}
#ifdef POSTERN_POSTGRES
	if (is_postgres(kind)) {
		return postern__pg_schema_write(rest, &full, out, error);
	}
#endif
	postern__buf_append_text(out, kind->schema());
	return POSTERN_OK;
}

int postern__store_schema_name(const char *url,
		const struct postern_store_options *options,
		char out[POSTERN__SCHEMA_NAME_MAX], struct postern_error *error) {
	const struct postern_store_kind *kind = NULL;
	const char *rest = NULL;
	struct postern_store_options full;
	int r = kind_resolve(url, options, &kind, &rest, &full, error);
	if (r != POSTERN_OK) {
		return r;
	}
#ifdef POSTERN_POSTGRES
	if (is_postgres(kind)) {
		return postern__pg_schema_name(rest, &full, out, error);
	}
#endif
	out[0] = '\0';
	return POSTERN_OK;
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
