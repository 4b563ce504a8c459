/* SPDX-License-Identifier: MIT */
/*
 * Hiding a password that was given on the command line. It could be seen for a
 * moment before, which is why a file is the better place; but not for as long
 * as a server runs.
 */

#include "cli/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/redact.h"
#include "cli/args.h"
#include "cli/command.h"
#include "server/config.h"

char **postern__words_copy(char *const *words, size_t count) {
	char **copy = calloc(count + 1, sizeof *copy);
	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = strdup(words[i]);
		if (!copy[i]) {
			postern__words_free(copy, count);
			return NULL;
		}
	}
	return copy;
}

void postern__words_free(char **copy, size_t count) {
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
 * Write what may be seen over what may not. What is behind it moves up, so that
 * the room does not tell how long the secret was; `end` is behind the zero byte
 * of the last word.
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

/* Behind the last word, if they lie one behind the other as the system puts
   them; NULL if not. */
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

void postern__words_hide(char *const *words, char *const *copy, size_t count,
		const struct postern__args *args) {
	char *end = end_of(words, count);
	/* The last first: those before it stay where they are. */
	for (size_t i = count; i-- > 0;) {
		const char *secret = find_secret(copy[i], args);
		if (secret) {
			overwrite(words[i] + (secret - copy[i]), end);
		}
	}
}
