/* SPDX-License-Identifier: MIT */

/*
 * The registered kinds of stores that keep markers only, by URL scheme. Nothing
 * is ever removed, so a row that was found stays valid, and only the list needs
 * a mutex.
 */

#include "store/marker_kind.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "store/store.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Mutex held. The rows are on the heap and live as long as the process. */
static const struct postern_marker_kind *kinds[POSTERN_MARKER_KIND_COUNT_MAX];
static size_t kind_count;

const struct postern_marker_kind *postern__marker_kind_at(size_t index) {
	(void)pthread_mutex_lock(&mutex);
	const struct postern_marker_kind *kind =
			index < kind_count ? kinds[index] : NULL;
	(void)pthread_mutex_unlock(&mutex);
	return kind;
}

const struct postern_marker_kind *postern__marker_kind_of(const char *url) {
	const struct postern_marker_kind *kind;
	for (size_t i = 0; url && (kind = postern__marker_kind_at(i)); i++) {
		size_t len = strlen(kind->scheme);
		if (strncmp(url, kind->scheme, len) == 0 && url[len] == ':') {
			return kind;
		}
	}
	return NULL;
}

static bool is_name(const char *text) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
	size_t len = text ? strlen(text) : 0;
	return len > 0 && len <= POSTERN_MARKER_KIND_NAME_LEN_MAX &&
		   strspn(text, letters) == len;
}

static int check_row(const struct postern_marker_kind *kind,
		struct postern_error *error) {
	char url[POSTERN_MARKER_KIND_NAME_LEN_MAX + 2];
	if (!is_name(kind->name) || !is_name(kind->scheme)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the name and the scheme of a kind of markers must have 1 to "
				"%d lower-case letters",
				POSTERN_MARKER_KIND_NAME_LEN_MAX);
	}
	if (!kind->form || !kind->check || !kind->open || !kind->examine) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the kind of markers '%s' lacks a form or a function",
				kind->name);
	}
	size_t len = strlen(kind->scheme);
	memcpy(url, kind->scheme, len);
	memcpy(url + len, ":", 2);
	if (postern__store_kind_of(url, NULL)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s:' is the URL of a store", kind->scheme);
	}
	return POSTERN_OK;
}

/* Mutex held. Takes the row if *taken_out. */
static int add_kind(const struct postern_marker_kind *kind, bool *taken_out,
		struct postern_error *error) {
	for (size_t i = 0; i < kind_count; i++) {
		if (strcmp(kinds[i]->scheme, kind->scheme) != 0) {
			continue;
		}
		return kinds[i]->open == kind->open
					   ? POSTERN_OK
					   : postern__fail(error, POSTERN_E_INVALID,
								 "a kind of markers with the scheme '%s' is "
								 "already registered",
								 kind->scheme);
	}
	if (kind_count == POSTERN_MARKER_KIND_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"more than %d kinds of markers are registered",
				POSTERN_MARKER_KIND_COUNT_MAX);
	}
	kinds[kind_count++] = kind;
	*taken_out = true;
	return POSTERN_OK;
}

int postern_marker_kind_register(const struct postern_marker_kind *kind,
		struct postern_error *error) {
	bool taken = false;
	struct postern_marker_kind *row = calloc(1, sizeof *row);
	if (!row) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__sized_copy(row, sizeof *row, kind, "kind of markers",
			error);
	if (r == POSTERN_OK) {
		r = check_row(row, error);
	}
	if (r == POSTERN_OK) {
		(void)pthread_mutex_lock(&mutex);
		r = add_kind(row, &taken, error);
		(void)pthread_mutex_unlock(&mutex);
	}
	if (!taken) {
		free(row);
	}
	return r;
}

static int resolve(const struct postern_marker_kind *kind, const char *url,
		const struct postern_store_options *options,
		struct postern_store_options *options_out,
		struct postern_error *error) {
	int r = postern__store_options_complete(options, options_out, error);
	if (r == POSTERN_OK && (options_out->schema || options_out->listen_url)) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is a setting of stores in PostgreSQL only",
				options_out->schema ? "schema" : "listen_url");
	}
	return r == POSTERN_OK ? kind->check(url, error) : r;
}

int postern__markers_check(const char *url,
		const struct postern_store_options *options,
		struct postern_error *error) {
	struct postern_store_options full;
	return resolve(postern__marker_kind_of(url), url, options, &full, error);
}

int postern__markers_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error) {
	const struct postern_marker_kind *kind = postern__marker_kind_of(url);
	struct postern_store_options full;
	int r = resolve(kind, url, options, &full, error);
	return r == POSTERN_OK ? kind->open(url, &full, out, error) : r;
}
