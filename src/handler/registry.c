/* SPDX-License-Identifier: MIT */
/*
 * The handler kinds of this process, by name: those of this library, and those
 * that were registered. Nothing is ever removed, so a row that was found stays
 * valid, and only the list needs a mutex.
 *
 * A row comes from outside, and everything that reads it later (the
 * configuration, the core) relies on what is checked here.
 */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option.h"
#include "base/sized.h"
#include "handler/kinds.h"

static const struct postern_handler_kind *const own_kinds[] = {
	&postern__callback_kind,
	&postern__sql_kind,
	&postern__exec_kind,
	&postern__pull_kind,
};
#define OWN_COUNT (sizeof own_kinds / sizeof own_kinds[0])
_Static_assert(POSTERN_HANDLER_KIND_NAME_LEN_MAX ==
					   POSTERN__OPTION_NAME_LEN_MAX,
		"a kind's name is one of an option, too");

static const struct postern__sql_engine *const sql_engines[] = {
	&postern__sql_engine_sqlite,
#ifdef POSTERN_POSTGRES
	&postern__sql_engine_postgres,
#endif
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Mutex held. The rows are on the heap and live as long as the process. */
static const struct postern_handler_kind
		*added_kinds[POSTERN_HANDLER_KIND_COUNT_MAX];
static size_t added_count;

const struct postern__sql_engine *postern__sql_engine_find(
		enum postern_sql_dialect dialect) {
	for (size_t i = 0; i < sizeof sql_engines / sizeof sql_engines[0]; i++) {
		if (sql_engines[i]->dialect == dialect) {
			return sql_engines[i];
		}
	}
	return NULL;
}

/* Mutex held. */
static const struct postern_handler_kind *kind_at(size_t index) {
	if (index < OWN_COUNT) {
		return own_kinds[index];
	}
	index -= OWN_COUNT;
	return index < added_count ? added_kinds[index] : NULL;
}

/* Mutex held. */
static const struct postern_handler_kind *kind_named(const char *name) {
	const struct postern_handler_kind *kind;
	for (size_t i = 0; (kind = kind_at(i)); i++) {
		if (strcmp(kind->name, name) == 0) {
			return kind;
		}
	}
	return NULL;
}

const struct postern_handler_kind *postern__kind_at(size_t index) {
	(void)pthread_mutex_lock(&mutex);
	const struct postern_handler_kind *kind = kind_at(index);
	(void)pthread_mutex_unlock(&mutex);
	return kind;
}

const struct postern_handler_kind *postern__kind_find(const char *name) {
	(void)pthread_mutex_lock(&mutex);
	const struct postern_handler_kind *kind = kind_named(name);
	(void)pthread_mutex_unlock(&mutex);
	return kind;
}

static int fail_row(const struct postern_handler_kind *kind, const char *why,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_INVALID, "handler kind '%s': %s",
			kind->name, why);
}

static bool is_duration(int64_t ms) {
	return ms >= 0 && ms <= POSTERN_DURATION_MS_MAX;
}

/* The defaults must be valid in a policy. */
static const char *find_bad_default(const struct postern_handler_kind *kind) {
	if (!is_duration(kind->timeout_ms) &&
			kind->timeout_ms != POSTERN_TIMEOUT_DEFAULT) {
		return "timeout_ms is out of range";
	}
	if (kind->max_attempts > POSTERN_ATTEMPTS_MAX) {
		return "max_attempts is out of range";
	}
	if (kind->concurrency == POSTERN_CONCURRENCY_DEFAULT) {
		return "concurrency is out of range";
	}
	if (kind->backoff_count > POSTERN_BACKOFF_COUNT_MAX ||
			(kind->backoff_count > 0 && !kind->backoff_ms)) {
		return "backoff_ms is missing or has too many delays";
	}
	for (size_t i = 0; i < kind->backoff_count; i++) {
		if (!is_duration(kind->backoff_ms[i])) {
			return "backoff_ms has a delay out of range";
		}
	}
	return NULL;
}

static int check_row(const struct postern_handler_kind *kind,
		struct postern_error *error) {
	if (!postern__option_is_name(kind->name)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the name of a handler kind must have 1 to %d lower-case "
				"letters, digits and '_', the first a letter",
				POSTERN_HANDLER_KIND_NAME_LEN_MAX);
	}
	if (!kind->create) {
		return fail_row(kind, "create is missing", error);
	}
	if (kind->asynchronous && kind->transactional) {
		return fail_row(kind,
				"asynchronous and transactional exclude each other", error);
	}
	if (kind->pull &&
			(kind->asynchronous || kind->transactional || kind->in_process)) {
		return fail_row(kind,
				"pull excludes asynchronous, transactional and in_process",
				error);
	}
	if (kind->asynchronous && kind->concurrency == 0) {
		return fail_row(kind,
				"asynchronous needs a default for concurrency, because nothing "
				"else limits the runs",
				error);
	}
	if (kind->option_count > POSTERN_HANDLER_KIND_OPTION_COUNT_MAX ||
			(kind->option_count > 0 && !kind->options)) {
		return fail_row(kind, "options is missing or has too many rows", error);
	}
	const char *bad = find_bad_default(kind);
	return bad ? fail_row(kind, bad, error) : POSTERN_OK;
}

static int check_kind(const struct postern_handler_kind *kind,
		struct postern_error *error) {
	struct postern_error why;
	int r = check_row(kind, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__option_rows_check(kind->options, kind->option_count,
			kind->settings_size, &why);
	return r == POSTERN_E_INVALID ? fail_row(kind, why.text, error)
		   : r != POSTERN_OK      ? postern__fail(error, r, "%s", why.text)
								  : POSTERN_OK;
}

/* Mutex held. */
static int add_kind(const struct postern_handler_kind *kind,
		struct postern_error *error) {
	if (kind_named(kind->name)) {
		return fail_row(kind, "a kind of this name is already registered",
				error);
	}
	if (added_count == POSTERN_HANDLER_KIND_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"more than %d handler kinds are registered",
				POSTERN_HANDLER_KIND_COUNT_MAX);
	}
	added_kinds[added_count++] = kind;
	return POSTERN_OK;
}

int postern_handler_kind_register(const struct postern_handler_kind *kind,
		struct postern_error *error) {
	struct postern_handler_kind *row = calloc(1, sizeof *row);
	if (!row) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__sized_copy(row, sizeof *row, kind, "handler kind", error);
	if (r == POSTERN_OK) {
		r = check_kind(row, error);
	}
	if (r == POSTERN_OK) {
		(void)pthread_mutex_lock(&mutex);
		r = add_kind(row, error);
		(void)pthread_mutex_unlock(&mutex);
	}
	if (r != POSTERN_OK) {
		free(row);
	}
	return r;
}

bool postern__kind_has_mapping(const struct postern_handler_kind *kind) {
	size_t count = 0;
	for (size_t i = 0; i < kind->option_count; i++) {
		count += !(kind->options[i].flags & POSTERN_OPTION_BESIDE);
	}
	return count > 1;
}

int postern__kind_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	return setup->kind->validate ? setup->kind->validate(setup, error)
								 : POSTERN_OK;
}

/* The functions of a kind that another library or program implements. */
static bool is_complete(const struct postern_handler *handler) {
	const struct postern_handler_ops *ops = handler->ops;
	return ops && ops->version >= 1 &&
		   ops->version <= POSTERN_HANDLER_OPS_VERSION && ops->start &&
		   ops->cancel && ops->destroy;
}

int postern__kind_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	struct postern_handler *handler = NULL;
	int r = postern__kind_validate(setup, error);
	if (r == POSTERN_OK) {
		r = setup->kind->create(setup, &handler, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	const char *why = NULL;
	if (!is_complete(handler)) {
		why = "the ops are not complete, or of a newer version";
	} else if (setup->kind->transactional && !handler->transactional) {
		why = "create() made a handler that is not transactional";
	} else if (setup->kind->asynchronous && handler->transactional) {
		why = "create() made a transactional handler of an asynchronous kind";
	}
	if (why) {
		/* Without complete ops the handler cannot be destroyed. */
		if (is_complete(handler)) {
			handler->ops->destroy(handler);
		}
		return fail_row(setup->kind, why, error);
	}
	handler->kind = setup->kind;
	*out = handler;
	return POSTERN_OK;
}

int postern__kind_check(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	return setup->kind->check ? setup->kind->check(setup, error) : POSTERN_OK;
}
