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
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/config.h"
#include "server/config_options.h"

#define NAME_SIZE 40
#define PREFIX "POSTERN_"
#define PREFIX_LEN (sizeof PREFIX - 1)

static struct row {
	char name[NAME_SIZE];
	char flag[NAME_SIZE];
	char environment[PREFIX_LEN + NAME_SIZE];
	const struct postern_option *option;
	bool is_file;
} rows[POSTERN__CONFIG_OPTION_COUNT_MAX];
static size_t row_count;
/* Written once, before they are read. */
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

static size_t made_rows(void) {
	int r = pthread_once(&once, make_rows);
	assert(r == 0);
	(void)r;
	return row_count;
}

static void describe(const struct row *row,
		struct postern__config_option *out) {
	*out = (struct postern__config_option){
		.name = row->name,
		.flag = row->flag,
		.environment = row->environment,
		.value_name = row->is_file ? "FILE" : postern__option_form(row->option),
		.fallback = row->is_file ? "" : row->option->fallback,
		.help = row->is_file ? "the same, read from a file" : row->option->help,
		.later = (row->option->flags & POSTERN_OPTION_LATER) != 0,
		.secret = (row->option->flags & POSTERN_OPTION_SECRET) != 0 &&
				  !row->is_file,
	};
}

bool postern__config_option_get(size_t index,
		struct postern__config_option *out) {
	if (index >= made_rows()) {
		return false;
	}
	describe(&rows[index], out);
	return true;
}

const struct postern_option *postern__option_global(size_t index,
		bool *is_file_out) {
	if (index >= made_rows()) {
		return NULL;
	}
	*is_file_out = rows[index].is_file;
	return rows[index].option;
}

void postern__option_names(const struct postern_option *option, bool is_file,
		struct postern__config_option *out) {
	for (size_t i = 0; i < made_rows(); i++) {
		if (rows[i].option == option && rows[i].is_file == is_file) {
			describe(&rows[i], out);
			return;
		}
	}
	abort(); /* not a global option */
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
	size_t count = made_rows();

	for (size_t i = 0; i < count; i++) {
		if (is_flag(rows[i].flag, flag)) {
			*index_out = i;
			return true;
		}
		flags[i] = rows[i].flag;
	}
	if (near_out) {
		*near_out = postern__closest(flag, flags, count);
	}
	return false;
}
