/* SPDX-License-Identifier: MIT */
/*
 * The names of the global options on the command line and in the environment,
 * made from the table once: max_attempts is --max-attempts and
 * $POSTERN_MAX_ATTEMPTS, and store, a secret, is also --store-file.
 */

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "server/config.h"
#include "server/config_options.h"

#define NAME_SIZE 40
#define PREFIX "POSTERN_"
#define PREFIX_LEN (sizeof PREFIX - 1)

/* A row of the help; its texts are made once, before they are read. */
static struct row {
	char name[NAME_SIZE];
	char flag[NAME_SIZE];
	char environment[PREFIX_LEN + NAME_SIZE];
	const struct postern_option *option;
	bool is_file;
} rows[POSTERN__CONFIG_OPTION_COUNT_MAX];
static size_t row_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add_row(const struct postern_option *option, bool is_file) {
	assert(row_count < POSTERN__CONFIG_OPTION_COUNT_MAX);
	struct row *row = &rows[row_count++];
	int len = snprintf(row->name, sizeof row->name, "%s%s", option->name,
			is_file ? "_file" : "");
	assert(len < NAME_SIZE);
	memcpy(row->environment, PREFIX, PREFIX_LEN);
	for (size_t i = 0; i <= (size_t)len; i++) {
		char c = row->name[i];
		bool separates = c == '_' || c == '.';
		row->flag[i] = separates ? '-' : c;
		row->environment[PREFIX_LEN + i] = separates ? '_' : (char)toupper(c);
	}
	row->option = option;
	row->is_file = is_file;
}

static void make_rows(void) {
	const struct postern_option *option;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (option->places & POSTERN__IN_GLOBAL) {
			add_row(option, false);
			if (option->flags & POSTERN_OPTION_SECRET) {
				add_row(option, true);
			}
		}
	}
}

const struct postern_option *postern__option_global(size_t index,
		bool *is_file_out) {
	int r = pthread_once(&once, make_rows);
	assert(r == 0);
	(void)r;
	if (index >= row_count) {
		return NULL;
	}
	*is_file_out = rows[index].is_file;
	return rows[index].option;
}

bool postern__config_option_get(size_t index,
		struct postern__config_option *out) {
	bool is_file;
	const struct postern_option *option =
			postern__option_global(index, &is_file);
	if (!option) {
		return false;
	}
	*out = (struct postern__config_option){
		.name = rows[index].name,
		.flag = rows[index].flag,
		.environment = rows[index].environment,
		.value_name = is_file ? "FILE" : postern__option_form(option),
		.fallback = is_file ? "" : option->fallback,
		.help = is_file ? "the same, read from a file" : option->help,
		.later = (option->flags & POSTERN_OPTION_LATER) != 0,
		.secret = (option->flags & POSTERN_OPTION_SECRET) && !is_file,
	};
	return true;
}

void postern__option_names(const struct postern_option *option, bool is_file,
		struct postern__config_option *out) {
	size_t i = 0;
	while (postern__config_option_get(i, out) &&
			(rows[i].option != option || rows[i].is_file != is_file)) {
		i++;
	}
	assert(i < row_count); /* a global option */
}

/* '-' and '_' are the same in a flag. */
static bool is_flag(const char *flag, const char *name) {
	for (; *flag && (*flag == *name || (*flag == '-' && *name == '_'));
			flag++) {
		name++;
	}
	return *flag == '\0' && *name == '\0';
}

bool postern__config_option_find(const char *flag, size_t *index_out,
		const char **near_out) {
	const char *flags[POSTERN__CONFIG_OPTION_COUNT_MAX];
	struct postern__config_option option;
	size_t count = 0;
	for (; postern__config_option_get(count, &option); count++) {
		if (is_flag(option.flag, flag)) {
			*index_out = count;
			return true;
		}
		flags[count] = option.flag;
	}
	if (near_out) {
		*near_out = postern__closest(flag, flags, count);
	}
	return false;
}
