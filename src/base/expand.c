/* SPDX-License-Identifier: MIT */
/*
 * Environment variables in texts. A text is expanded once: the result is not
 * expanded again. The configuration expands its values after YAML was parsed,
 * so a variable can never add keys or change the structure.
 */

#include "base/expand.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/utf8.h"

#define NAME_CHARACTERS          \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	"abcdefghijklmnopqrstuvwxyz" \
	"_0123456789"

const char *postern__environment_get(char *const *environment,
		const char *name) {
	size_t len = strlen(name);
	for (; environment && *environment; environment++) {
		if (strncmp(*environment, name, len) == 0 &&
				(*environment)[len] == '=') {
			return *environment + len + 1;
		}
	}
	return NULL;
}

/* `text` is after "${"; sets *end_out after the '}'. */
static int expand_one(const char *text, char *const *environment,
		struct postern__buf *out, const char **end_out,
		struct postern_error *error) {
	char name[128];
	size_t name_len = strspn(text, NAME_CHARACTERS);
	const char *fallback = NULL;
	const char *close = strchr(text, '}');

	if (!close) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'${' without '}'; to write the two characters, use '$${'");
	}
	if (strncmp(text + name_len, ":-", 2) == 0) {
		fallback = text + name_len + 2;
	}
	if (name_len == 0 || name_len >= sizeof name ||
			(text[0] >= '0' && text[0] <= '9') ||
			(!fallback && text[name_len] != '}')) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'${%.*s' is not ${NAME} or ${NAME:-TEXT}",
				(int)(close - text < 60 ? close - text + 1 : 60), text);
	}
	memcpy(name, text, name_len);
	name[name_len] = '\0';
	const char *value = postern__environment_get(environment, name);
	if (!value && !fallback) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the variable '%.60s' is not set; write ${%.60s:-TEXT} to give "
				"it a default",
				name, name);
	}
	if (fallback && (!value || !*value)) {
		postern__buf_append(out, fallback, (size_t)(close - fallback));
	} else {
		postern__buf_append_text(out, value);
		if (!postern__utf8_valid(value, strlen(value))) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the variable '%.80s' is not valid UTF-8", name);
		}
	}
	*end_out = close + 1;
	return POSTERN_OK;
}

int postern__expand(const char *text, char *const *environment,
		struct postern__arena *arena, const char **out,
		struct postern_error *error) {
	struct postern__buf buf;
	int r = POSTERN_OK;

	if (!strstr(text, "${")) {
		*out = text;
		return POSTERN_OK;
	}
	postern__buf_init(&buf, POSTERN__EXPAND_BYTES_MAX);
	while (r == POSTERN_OK && *text) {
		size_t len = strcspn(text, "$");
		postern__buf_append(&buf, text, len);
		text += len;
		if (strncmp(text, "$${", 3) == 0) {
			postern__buf_append_text(&buf, "${");
			text += 3;
		} else if (strncmp(text, "${", 2) == 0) {
			r = expand_one(text + 2, environment, &buf, &text, error);
		} else if (*text) {
			postern__buf_append_char(&buf, *text++);
		}
	}
	if (r == POSTERN_OK) {
		r = postern__buf_check(&buf, "the text with its variables", error);
	}
	if (r == POSTERN_OK) {
		char *copy =
				postern__arena_copy(arena, postern__buf_text(&buf), buf.len);
		*out = copy;
		r = copy ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__buf_finish(&buf);
	return r;
}
