/* SPDX-License-Identifier: MIT */
/*
 * Hides a password that was given on the command line. Other users can read it
 * for a short time, so a file is safer; but not for as long as a server runs.
 */

#include "cli/argv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/redact.h"
#include "cli/args.h"
#include "cli/command.h"
#include "server/config.h"

char **postern__argv_copy(char *const *words, size_t count) {
	char **copy = calloc(count + 1, sizeof *copy);
	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = strdup(words[i]);
		if (!copy[i]) {
			postern__argv_free(copy, count);
			return NULL;
		}
	}
	return copy;
}

void postern__argv_free(char **copy, size_t count) {
	for (size_t i = 0; copy && i < count; i++) {
		free(copy[i]);
	}
	free(copy);
}

static bool is_secret(const struct postern__flag *flag) {
	struct postern__config_option option;
	size_t index;
	return flag && postern__config_option_find(flag->name, &index, NULL) &&
		   postern__config_option_get(index, &option) && option.secret;
}

/*
 * Overwrite a secret with its redacted form. The text after it moves up, so
 * that the gap does not reveal the length of the secret; `end` is after the
 * zero byte of the last word.
 */
static void overwrite(char *value, char *end) {
	char shown[POSTERN__REDACT_TEXT_MAX];
	size_t len = strlen(value);
	postern__redact(value, shown, sizeof shown);
	if (strcmp(value, shown) == 0) {
		return;
	}
	size_t kept = strlen(shown) < len ? strlen(shown) : len;
	memcpy(value, shown, kept);
	memset(value + kept, '*', len - kept);
	char *rest = value + len;
	if (end) {
		memmove(value + kept, rest, (size_t)(end - rest));
		memset(end - (len - kept), '\0', len - kept);
	}
}

/* The end of the last word, if the words are adjacent, as the kernel stores
   them; otherwise NULL. */
static char *end_of(char *const *words, size_t count) {
	for (size_t i = 1; i < count; i++) {
		if (words[i] != words[i - 1] + strlen(words[i - 1]) + 1) {
			return NULL;
		}
	}
	return count > 0 ? words[count - 1] + strlen(words[count - 1]) + 1 : NULL;
}

/* The secret that this word is, or ends with (--store=URL); NULL: none. */
static const char *find_secret(const char *word,
		const struct postern__args *args) {
	const char *end = word + strlen(word);
	for (size_t i = 0; i < args->count; i++) {
		const struct postern__arg *arg = &args->items[i];
		if (is_secret(arg->flag) && arg->value >= word && arg->value <= end) {
			return arg->value;
		}
	}
	return NULL;
}

void postern__argv_hide(char *const *words, char *const *copy, size_t count,
		const struct postern__args *args) {
	char *end = end_of(words, count);
	/* Last word first: the words before it do not move. */
	for (size_t i = count; i-- > 0;) {
		const char *secret = find_secret(copy[i], args);
		if (secret) {
			overwrite(words[i] + (secret - copy[i]), end);
		}
	}
}
