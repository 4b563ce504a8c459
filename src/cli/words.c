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

/* Write what may be seen over what may not, in the same room. */
static void overwrite(char *value) {
	char shown[POSTERN__REDACT_TEXT_MAX];
	size_t len = strlen(value);
	postern__redact(value, shown, sizeof shown);
	if (strcmp(value, shown) == 0) {
		return;
	}
	size_t kept = strlen(shown) < len ? strlen(shown) : len;
	memcpy(value, shown, kept);
	memset(value + kept, '*', len - kept);
}

void postern__words_hide(char *const *words, char *const *copy, size_t count,
		const struct postern__args *args) {
	for (size_t i = 0; i < args->count; i++) {
		const struct postern__arg *arg = &args->items[i];
		for (size_t n = 0; is_secret(arg->flag) && n < count; n++) {
			/* It may be a word, or the end of one: --store=URL. */
			size_t len = strlen(copy[n]);
			if (arg->value >= copy[n] && arg->value <= copy[n] + len) {
				overwrite(words[n] + (arg->value - copy[n]));
			}
		}
	}
}
