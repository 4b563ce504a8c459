/* SPDX-License-Identifier: MIT */
/*
 * The kinds of sources of this process, by name. Nothing is ever removed, so a
 * row that was found stays valid, and only the list needs a mutex.
 */

#include "source/kinds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/option.h"
#include "base/sized.h"
#include "base/text.h"
#include "source/lines.h"

/* Options that are compared for "did you mean". */
#define SUGGESTED_MAX 32

static const struct postern_source_kind *const own_kinds[] = {
	&postern__lines_kind,
};
#define OWN_COUNT (sizeof own_kinds / sizeof own_kinds[0])

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* With the mutex. The rows live as long as the process. */
static struct postern_source_kind added_kinds[POSTERN_SOURCE_KIND_COUNT_MAX];
static size_t added_count;

/* With the mutex. */
static const struct postern_source_kind *kind_at(size_t index) {
	if (index < OWN_COUNT) {
		return own_kinds[index];
	}
	index -= OWN_COUNT;
	return index < added_count ? &added_kinds[index] : NULL;
}

const struct postern_source_kind *postern__source_kind_at(size_t index) {
	(void)pthread_mutex_lock(&mutex);
	const struct postern_source_kind *kind = kind_at(index);
	(void)pthread_mutex_unlock(&mutex);
	return kind;
}

/* With the mutex. */
static const struct postern_source_kind *kind_named(const char *name) {
	const struct postern_source_kind *kind;
	for (size_t i = 0; (kind = kind_at(i)); i++) {
		if (strcmp(kind->name, name) == 0) {
			return kind;
		}
	}
	return NULL;
}

const struct postern_source_kind *postern__source_kind_find(const char *name) {
	(void)pthread_mutex_lock(&mutex);
	const struct postern_source_kind *kind = kind_named(name);
	(void)pthread_mutex_unlock(&mutex);
	return kind;
}

/* What the configuration and postern__source_create() rely on. */
static int check_kind(const struct postern_source_kind *kind,
		struct postern_error *error) {
	struct postern_error why;
	/* In a configuration `name` is the name of a source. */
	if (!postern__option_is_name(kind->name) || !kind->create ||
			strcmp(kind->name, "name") == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a source kind needs create() and a name of lower-case "
				"letters, digits and '_', other than 'name'");
	}
	int r = kind->option_count == 0 || kind->options
					? postern__option_rows_check(kind->options,
							  kind->option_count, kind->settings_size, &why)
					: postern__fail(&why, POSTERN_E_INVALID,
							  "options is missing");
	return r ? postern__fail(error, r, "source kind '%s': %s", kind->name,
					   why.text)
			 : POSTERN_OK;
}

/* With the mutex. */
static int add_kind(const struct postern_source_kind *kind,
		struct postern_error *error) {
	if (kind_named(kind->name)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a source kind '%s' is already registered", kind->name);
	}
	if (added_count == POSTERN_SOURCE_KIND_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"more than %d source kinds are registered",
				POSTERN_SOURCE_KIND_COUNT_MAX);
	}
	added_kinds[added_count++] = *kind;
	return POSTERN_OK;
}

int postern_source_kind_register(const struct postern_source_kind *given,
		struct postern_error *error) {
	struct postern_source_kind kind = { 0 };
	int r = postern__sized_copy(&kind, sizeof(kind), given, "source kind",
			error);
	if (!r) {
		r = check_kind(&kind, error);
	}
	if (!r) {
		(void)pthread_mutex_lock(&mutex);
		r = add_kind(&kind, error);
		(void)pthread_mutex_unlock(&mutex);
	}
	return r;
}

const struct postern_option *
postern__source_option(const struct postern_source_kind *kind,
		const char *name) {
	for (size_t i = 0; i < kind->option_count; i++) {
		if (strcmp(kind->options[i].name, name) == 0) {
			return &kind->options[i];
		}
	}
	return NULL;
}

static int fail_unknown(const struct postern_source_kind *kind,
		const char *name, struct postern_error *error) {
	const char *names[SUGGESTED_MAX];
	size_t count = 0;
	while (count < kind->option_count && count < SUGGESTED_MAX) {
		names[count] = kind->options[count].name;
		count++;
	}
	const char *near = postern__closest(name, names, count);
	return postern__fail(error, POSTERN_E_INVALID,
			"a source of kind '%s' has no option '%s'%s%s%s", kind->name, name,
			near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* The values of an option with several texts, each a setting of its own. */
static int set_texts(const struct postern_option *option,
		const struct postern_source_setting *settings, size_t count,
		void *object, struct postern__arena *arena,
		struct postern_error *error) {
	const char **texts = postern__arena_array(arena, count, sizeof *texts);
	size_t text_count = 0;
	for (size_t i = 0; texts && i < count; i++) {
		if (strcmp(settings[i].name, option->name) != 0) {
			continue;
		}
		texts[text_count] = postern__arena_strdup(arena, settings[i].value);
		if (!texts[text_count++]) {
			texts = NULL;
		}
	}
	return texts ? postern__option_set_list(option, texts, text_count, object,
						   arena, error)
				 : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

/* Set the option of one of some settings. */
static int set_option(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		size_t index, void *object, struct postern__arena *arena,
		struct postern_error *error) {
	const struct postern_source_setting *setting = &settings[index];
	const struct postern_option *option =
			postern__source_option(kind, setting->name);
	if (!option) {
		return fail_unknown(kind, setting->name, error);
	}
	struct postern_error why;
	int r = option->type == POSTERN_OPTION_TEXTS
					? set_texts(option, settings, count, object, arena, &why)
					: postern__option_set(option, setting->value, object, arena,
							  &why);
	return r ? postern__fail(error, r, "%s.%s: %s", kind->name, option->name,
					   why.text)
			 : POSTERN_OK;
}

int postern__source_setting_check(const struct postern_source_kind *kind,
		const struct postern_source_setting *setting,
		struct postern_error *error) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	void *object = postern__arena_alloc(&arena, kind->settings_size + 1);
	int r = object ? set_option(kind, setting, 1, 0, object, &arena, error)
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	postern__arena_finish(&arena);
	return r;
}

int postern__source_required_check(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern_error *error) {
	for (size_t i = 0; i < kind->option_count; i++) {
		bool given = !(kind->options[i].flags & POSTERN_OPTION_REQUIRED);
		for (size_t j = 0; j < count; j++) {
			given = given ||
					strcmp(settings[j].name, kind->options[i].name) == 0;
		}
		if (!given) {
			return postern__fail(error, POSTERN_E_INVALID,
					"a source of kind '%s' needs the option '%s'", kind->name,
					kind->options[i].name);
		}
	}
	return POSTERN_OK;
}

/* The struct of the settings, in the arena. */
static int read_settings(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern__arena *arena, void **out, struct postern_error *error) {
	void *object = postern__arena_alloc(arena, kind->settings_size + 1);
	int r = object ? postern__source_required_check(kind, settings, count,
							 error)
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (!r) {
		memset(object, 0, kind->settings_size);
		r = postern__option_set_fallbacks(kind->options, kind->option_count,
				object, arena, error);
	}
	for (size_t i = 0; !r && i < count; i++) {
		r = set_option(kind, settings, count, i, object, arena, error);
	}
	if (!r) {
		*out = object;
	}
	return r;
}

int postern__source_create(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count,
		struct postern_source **out, struct postern_error *error) {
	void *object;
	struct postern__arena arena;
	postern__arena_init(&arena);
	int r = read_settings(kind, settings, count, &arena, &object, error);
	if (!r) {
		r = kind->create(object, out, error);
	}
	postern__arena_finish(&arena);
	return r;
}

void postern__source_caution(const struct postern_source_kind *kind,
		const struct postern_source_setting *settings, size_t count, char *out,
		size_t size) {
	void *object;
	struct postern__arena arena;
	postern__arena_init(&arena);
	out[0] = '\0';
	if (kind->caution &&
			!read_settings(kind, settings, count, &arena, &object, NULL)) {
		kind->caution(object, out, size);
	}
	postern__arena_finish(&arena);
}
