/* SPDX-License-Identifier: MIT */
/*
 * URLs of stores that a person wrote: errors that help to correct them, and
 * whether two of them mean the same store. Both follow from the rows of the
 * kinds.
 */

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/utf8.h"
#include "store/marker_kind.h"
#include "store/store.h"

/* Longer than any path of the system. */
#define URL_LEN_MAX 4096
_Static_assert(POSTERN__STORE_FILE_MAX > URL_LEN_MAX, "every valid URL fits");
/* More than there are kinds. */
#define SCHEME_COUNT_MAX 32
/* As many symbolic links as the kernel follows. */
#define LINK_COUNT_MAX 40

/* Whether a text that is not a URL may be shown in an error: only if no part of
   it could be a secret. */
static bool is_harmless(const char *url,
		const struct postern_store_kind *near) {
	return !strpbrk(url, "@?=") && !strstr(url, "://") &&
		   ((near && !near->is_shared) || !strchr(url, ':'));
}

/* The schemes of stores, then those of stores that keep markers only. */
static size_t list_schemes(const char *out[SCHEME_COUNT_MAX]) {
	const struct postern_store_kind *kind;
	const struct postern_marker_kind *markers;
	size_t count = 0;
	for (size_t i = 0; (kind = postern__store_kind_at(i)); i++) {
		out[count++] = kind->scheme;
	}
	for (size_t i = 0; (markers = postern__marker_kind_at(i)); i++) {
		out[count++] = markers->scheme;
	}
	return count;
}

/* The forms of stores, and of those that keep markers only. */
static void list_forms(char out[POSTERN__STORE_FORMS_MAX]) {
	const struct postern_marker_kind *kind;
	const char *before = "";
	postern__store_forms(out);
	size_t len = strlen(out);
	for (size_t i = 0; (kind = postern__marker_kind_at(i)) &&
					   len < POSTERN__STORE_FORMS_MAX;
			i++) {
		if (strcmp(kind->name, before) != 0) {
			len += (size_t)snprintf(out + len, POSTERN__STORE_FORMS_MAX - len,
					"; or for markers only %s", kind->form);
		}
		before = kind->name;
	}
}

/* Whether a text without a scheme is the name of a file, and short enough to be
   repeated in an error. */
static bool is_file_name(const char *url) {
	return !strchr(url, ':') && is_harmless(url, NULL) && strpbrk(url, "./") &&
		   strlen(url) <= 60;
}

/* The scheme of the stores that are files; NULL: there are none. */
static const char *file_scheme(void) {
	const struct postern_store_kind *kind;
	for (size_t i = 0; (kind = postern__store_kind_at(i)); i++) {
		if (kind->is_file) {
			return kind->scheme;
		}
	}
	return NULL;
}

static int fail_unknown(const char *url, struct postern_error *error) {
	const char *schemes[SCHEME_COUNT_MAX];
	const struct postern_store_kind *kind;
	char scheme[16] = "";
	char shown[POSTERN__REDACT_TEXT_MAX];
	char forms[POSTERN__STORE_FORMS_MAX];
	size_t count = list_schemes(schemes);
	size_t len = strcspn(url, ":");
	if (url[len] && len < sizeof scheme) {
		(void)snprintf(scheme, sizeof scheme, "%.*s", (int)len, url);
	}
	const char *near = postern__closest(scheme, schemes, count);
	kind = NULL;
	for (size_t i = 0; near && !kind && postern__store_kind_at(i); i++) {
		kind = schemes[i] == near ? postern__store_kind_at(i) : NULL;
	}
	if (is_harmless(url, kind)) {
		(void)snprintf(shown, sizeof shown, "%s", url);
	} else {
		postern__redact(url, shown, sizeof shown);
	}
	if (near) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.60s' is not a store; did you mean '%s:'?", shown, near);
	}
	const char *scheme_of_file = is_file_name(url) ? file_scheme() : NULL;
	if (scheme_of_file) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' is not a store; write %s:%s", url, scheme_of_file, url);
	}
	list_forms(forms);
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.60s' is not a store; write %s", shown, forms);
}

int postern__store_url_check(const char *url, struct postern_error *error) {
	char forms[POSTERN__STORE_FORMS_MAX];
	const char *rest;
	size_t len = strlen(url);
	if (len > URL_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "longer than %d bytes",
				URL_LEN_MAX);
	}
	if (!postern__utf8_valid(url, len) || postern__utf8_has_control(url, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"not valid UTF-8, or with a control character");
	}
	if (postern__marker_kind_of(url)) {
		return postern__markers_check(url, NULL, error);
	}
	const struct postern_store_kind *kind = postern__store_kind_of(url, &rest);
	if (kind && (*rest == '\0' || *rest == '?') &&
			(kind->is_file || kind->is_shared)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the %s is missing; write %s",
				kind->is_file ? "file" : "database", kind->form);
	}
	int r = postern__store_check(url, NULL, error);
	if (r == POSTERN_E_UNSUPPORTED) {
		list_forms(forms);
		return postern__fail(error, POSTERN_E_INVALID, "%s; write %s",
				error ? error->text : "", forms);
	}
	return r == POSTERN_E_INVALID && !kind ? fail_unknown(url, error) : r;
}

const char *postern__store_file_at(const char *url) {
	const char *rest;
	const struct postern_store_kind *kind = postern__store_kind_of(url, &rest);
	return kind && kind->is_file ? rest : NULL;
}

bool postern__store_file(const char *url, char out[POSTERN__STORE_FILE_MAX]) {
	const char *rest = postern__store_file_at(url);
	if (!rest) {
		return false;
	}
	(void)snprintf(out, POSTERN__STORE_FILE_MAX, "%.*s",
			(int)strcspn(rest, "?"), rest);
	return true;
}

/* The directory of a file that need not exist; yours to free. */
static char *directory_of(const char *file) {
	char *copy = strdup(file);
	char *real = copy ? realpath(dirname(copy), NULL) : NULL;
	free(copy);
	return real;
}

/* A name in the directory of a file; yours to free. NULL: no directory. */
static char *beside(const char *file, const char *name) {
	char *path = NULL;
	char *directory = directory_of(file);
	if (directory && asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
	}
	free(directory);
	return path;
}

/* The target of a symbolic link, which need not exist; yours to free. NULL: it
   is not a link. */
static char *link_target(const char *file) {
	char target[PATH_MAX];
	ssize_t len = readlink(file, target, sizeof target - 1);
	if (len < 0) {
		return NULL;
	}
	target[len] = '\0';
	return target[0] == '/' ? strdup(target) : beside(file, target);
}

/* The path of a file that need not exist, with all links resolved; yours to
   free. NULL: its directory does not exist. */
static char *real_path(const char *file) {
	char *path = strdup(file);
	char *next;
	for (int i = 0; i < LINK_COUNT_MAX && path && (next = link_target(path));
			i++) {
		free(path);
		path = next;
	}
	const char *slash = path ? strrchr(path, '/') : NULL;
	char *real = path ? beside(path, slash ? slash + 1 : path) : NULL;
	free(path);
	return real;
}

static bool is_same_file(const char *a, const char *b) {
	struct stat of_a;
	struct stat of_b;
	if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0) {
		return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
	}
	char *real_a = real_path(a);
	char *real_b = real_path(b);
	bool same =
			real_a && real_b ? strcmp(real_a, real_b) == 0 : strcmp(a, b) == 0;
	free(real_a);
	free(real_b);
	return same;
}

const char *postern__store_same_place(const char *url,
		const struct postern_store_options *options, const char *other_url,
		const struct postern_store_options *other_options) {
	char file[POSTERN__STORE_FILE_MAX];
	char other_file[POSTERN__STORE_FILE_MAX];
	const char *rest;
	const char *other_rest;
	char schema[POSTERN_SCHEMA_NAME_MAX];
	char other_schema[POSTERN_SCHEMA_NAME_MAX];
	const struct postern_store_kind *kind = postern__store_kind_of(url, &rest);
	const struct postern_store_kind *other =
			postern__store_kind_of(other_url, &other_rest);
	if (!kind || !other || strcmp(kind->name, other->name) != 0) {
		return NULL;
	}
	if (kind->is_file) {
		return postern__store_file(url, file) &&
							   postern__store_file(other_url, other_file) &&
							   is_same_file(file, other_file)
					   ? "file"
					   : NULL;
	}
	return kind->has_schema && strcmp(rest, other_rest) == 0 &&
						   postern__store_schema_name(url, options, schema,
								   NULL) == POSTERN_OK &&
						   postern__store_schema_name(other_url, other_options,
								   other_schema, NULL) == POSTERN_OK &&
						   strcmp(schema, other_schema) == 0
				   ? "schema"
				   : NULL;
}
