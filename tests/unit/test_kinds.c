/* SPDX-License-Identifier: MIT */
/*
 * Handler kinds as rows: registering one, using it through its name, and the
 * defaults that a handler has from its kind.
 */

#include "tap.h"

#include "core/box.h"
#include "core/generation.h"
#include "handler/kinds.h"
#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <pthread.h>
#include <stdlib.h>

#define MINUTE ((int64_t)60 * 1000)

/* A kind that counts its runs. */
struct count_settings {
	atomic_int *runs;
	const char *text;
	int64_t pause_ms;
	uint32_t number;
};

struct count_handler {
	struct postern_handler base;
	atomic_int *runs;
};

static atomic_int destroyed;

static void count_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct count_handler *self = (struct count_handler *)handler;
	const struct postern_outcome outcome = { .kind = POSTERN_DONE };
	atomic_fetch_add(self->runs, 1);
	postern_run_finish(run, &outcome);
}

static void count_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	(void)handler;
	(void)run;
	(void)why;
}

static void count_destroy(struct postern_handler *handler) {
	atomic_fetch_add(&destroyed, 1);
	free(handler);
}

static const struct postern_handler_ops count_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = count_start,
	.cancel = count_cancel,
	.destroy = count_destroy,
};

static int count_validate(const struct postern_handler_setup *setup,
		struct postern_error *error) {
	const struct count_settings *settings = setup->settings;
	if (settings && settings->runs) {
		return POSTERN_OK;
	}
	error->code = POSTERN_E_INVALID;
	(void)snprintf(error->text, sizeof error->text, "runs is missing");
	return POSTERN_E_INVALID;
}

static int make(const struct postern_handler_setup *setup,
		const struct postern_handler_ops *ops, bool transactional,
		struct postern_handler **out) {
	const struct count_settings *settings = setup->settings;
	struct count_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return POSTERN_E_NOMEM;
	}
	self->base.ops = ops;
	self->base.transactional = transactional;
	self->runs = settings->runs;
	*out = &self->base;
	return POSTERN_OK;
}

static int count_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	(void)error;
	return make(setup, &count_ops, false, out);
}

static int create_transactional(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	(void)error;
	return make(setup, &count_ops, true, out);
}

static const int64_t count_backoff[] = { 100, 200 };

static struct postern_handler_kind row_named(const char *name) {
	return (struct postern_handler_kind){
		.size = sizeof(struct postern_handler_kind),
		.name = name,
		.settings_size = sizeof(struct count_settings),
		.validate = count_validate,
		.create = count_create,
	};
}

static bool register_row(const struct postern_handler_kind *row) {
	struct postern_error error;
	return CHECK_OK(postern_handler_kind_register(row, &error), &error);
}

static bool refuses(const struct postern_handler_kind *row, const char *text) {
	struct postern_error error = { 0 };
	return CHECK_INT(postern_handler_kind_register(row, &error),
				   POSTERN_E_INVALID) &&
		   CHECK_CONTAINS(error.text, text);
}

static struct postern_box *open_box(const char *url) {
	struct postern_box *box = NULL;
	struct postern_error error;
	CHECK_OK(postern_box_open(url, NULL, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "orders", NULL, &error), &error);
	return box;
}

static int add(struct postern_box *box, const char *kind, const void *settings,
		const struct postern_policy *policy, struct postern_error *error) {
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = "h",
		.kind = kind,
		.settings = settings,
		.policy = policy,
	};
	return postern_box_add_handler(box, "orders", &options, error);
}

static void used_by_name(void) {
	struct postern_handler_kind row = row_named("count");
	atomic_int runs = 0;
	struct postern_error error;
	size_t count = 0;
	if (!register_row(&row)) {
		return;
	}
	/* The row was copied. */
	row.create = NULL;
	struct postern_box *box = open_box("memory:");
	struct count_settings settings = { 0 };
	CHECK_INT(add(box, "count", &settings, NULL, &error), POSTERN_E_INVALID);
	CHECK_STR(error.text, "runs is missing");
	CHECK_INT(add(box, "count", NULL, NULL, &error), POSTERN_E_INVALID);
	CHECK_INT(add(box, "counts", NULL, NULL, &error), POSTERN_E_NOTFOUND);
	CHECK_STR(error.text,
			"handler 'h': no handler kind 'counts' is registered");
	settings.runs = &runs;
	CHECK_OK(add(box, "count", &settings, NULL, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	const struct postern_message message = { .size = sizeof message,
		.id = "1" };
	CHECK_OK(postern_box_accept(box, "orders", &message, NULL, &error), &error);
	CHECK_OK(postern_box_process(box, 0, &count, &error), &error);
	CHECK_INT(atomic_load(&runs), 1);
	int before = atomic_load(&destroyed);
	postern_box_destroy(box);
	CHECK_INT(atomic_load(&destroyed), before + 1);
}

static void exactly_one_kind(void) {
	static const char *const argv[] = { "/bin/true" };
	struct postern_box *box = open_box("memory:");
	struct postern_error error;
	struct postern_handler_options options = {
		.size = sizeof options,
		.key = "h",
	};
	CHECK_INT(postern_box_add_handler(box, "orders", &options, &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text,
			"handler 'h' needs exactly one of callback, sql, exec and kind");
	options.exec = argv;
	options.exec_count = 1;
	options.kind = "exec";
	CHECK_INT(postern_box_add_handler(box, "orders", &options, &error),
			POSTERN_E_INVALID);
	postern_box_destroy(box);
}

/* The policy of a handler of the kind `defaults`, or of exec. */
static struct postern_policy policy_of(const char *kind,
		const struct postern_policy *given) {
	static const char *const argv[] = { "/bin/true" };
	atomic_int runs = 0;
	const struct count_settings settings = { .runs = &runs };
	const struct postern__exec_settings exec = { .argv = argv, .argc = 1 };
	struct postern_policy policy = { 0 };
	struct postern_error error;
	struct postern_box *box = open_box("memory:");
	bool is_exec = strcmp(kind, "exec") == 0;
	if (CHECK_OK(add(box, kind,
						 is_exec ? (const void *)&exec
								 : (const void *)&settings,
						 given, &error),
				&error)) {
		policy = box->generation->handlers[0]->policy;
		policy.backoff_ms = NULL; /* ends with the box */
	}
	postern_box_destroy(box);
	return policy;
}

static void defaults_apply(void) {
	struct postern_handler_kind row = row_named("defaults");
	row.timeout_ms = 7 * 1000;
	row.max_attempts = 10;
	row.concurrency = 3;
	row.backoff_ms = count_backoff;
	row.backoff_count = 2;
	if (!register_row(&row)) {
		return;
	}
	struct postern_policy policy = policy_of("defaults", NULL);
	CHECK_INT(policy.timeout_ms, 7000);
	CHECK_INT(policy.max_attempts, 10);
	CHECK_INT(policy.concurrency, 3);
	CHECK_INT(policy.backoff_count, 2);

	struct postern_policy own;
	postern_policy_init(&own);
	own.timeout_ms = 0;
	own.max_attempts = 0;
	own.concurrency = 0;
	own.backoff_count = 0;
	policy = policy_of("defaults", &own);
	CHECK_INT(policy.timeout_ms, 0);
	CHECK_INT(policy.max_attempts, 0);
	CHECK_INT(policy.concurrency, 0);
	CHECK_INT(policy.backoff_count, 0);

	policy = policy_of("exec", NULL);
	CHECK_INT(policy.timeout_ms, 0);
	CHECK_INT(policy.max_attempts, 5);
	CHECK_INT(policy.concurrency, 16);
	CHECK_INT(policy.backoff_count, 0);
}

static void default_timeout_and_lease(void) {
	struct postern_handler_kind row = row_named("slow");
	atomic_int runs = 0;
	const struct count_settings settings = { .runs = &runs };
	struct postern_error error;
	row.timeout_ms = 10 * MINUTE;
	if (!register_row(&row)) {
		return;
	}
	struct postern_box *box = open_box("memory:");
	CHECK_INT(add(box, "slow", &settings, NULL, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "timeout (10m) must be less than lease (5m)");
	postern_box_destroy(box);
}

static void asynchronous_is_limited(void) {
	struct postern_handler_kind row = row_named("async");
	struct postern_policy own;
	row.asynchronous = true;
	CHECK(refuses(&row, "'async': asynchronous needs a default for"));
	row.concurrency = 64;
	row.transactional = true;
	CHECK(refuses(&row, "asynchronous and transactional exclude each other"));
	row.transactional = false;
	if (!register_row(&row)) {
		return;
	}
	postern_policy_init(&own);
	own.concurrency = 0;
	CHECK_INT(policy_of("async", &own).concurrency, 64);
	own.concurrency = 1000;
	CHECK_INT(policy_of("async", &own).concurrency, 1000);
}

static void transactional_needs_a_store(void) {
	struct postern_handler_kind row = row_named("writes");
	atomic_int runs = 0;
	const struct count_settings settings = { .runs = &runs };
	struct postern_error error;
	struct postern_box *box = open_box("memory:");
	/* The handler says so, and then the whole kind. */
	row.create = create_transactional;
	CHECK(register_row(&row));
	int before = atomic_load(&destroyed);
	CHECK_INT(add(box, "writes", &settings, NULL, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_CONTAINS(error.text, "which a memory store does not support");
	CHECK_INT(atomic_load(&destroyed), before + 1);
	row.name = "always_writes";
	row.transactional = true;
	CHECK(register_row(&row));
	CHECK_INT(add(box, "always_writes", &settings, NULL, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_INT(atomic_load(&destroyed), before + 1);
	postern_box_destroy(box);
}

static void keep(struct postern_handler *handler) {
	(void)handler;
}

static int create_incomplete(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error) {
	static struct postern_handler handler;
	static struct postern_handler_ops ops;
	const struct count_settings *settings = setup->settings;
	(void)error;
	ops = count_ops;
	ops.destroy = keep; /* it is static */
	switch (settings->number) {
	case 0: ops.version = 0; break;
	case 1: ops.version = POSTERN_HANDLER_OPS_VERSION + 1; break;
	case 2: ops.start = NULL; break;
	case 3: ops.cancel = NULL; break;
	case 4: ops.destroy = NULL; break;
	default: break;
	}
	handler.ops = settings->number == 5 ? NULL : &ops;
	*out = &handler;
	return POSTERN_OK;
}

static void handlers_are_checked(void) {
	struct postern_handler_kind row = row_named("incomplete");
	atomic_int runs = 0;
	struct postern_error error;
	struct postern_box *box = open_box("memory:");
	row.create = create_incomplete;
	CHECK(register_row(&row));
	for (uint32_t i = 0; i < 6; i++) {
		const struct count_settings settings = { .runs = &runs, .number = i };
		CHECK_INT(add(box, "incomplete", &settings, NULL, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, "'incomplete': the ops are not complete");
	}
	postern_box_destroy(box);
	/* What the row promises must be true of the handler. */
	struct postern_handler *handler = NULL;
	const struct count_settings settings = { .runs = &runs };
	row = row_named("promise");
	row.transactional = true;
	struct postern_handler_setup setup = {
		.size = sizeof setup,
		.kind = &row,
		.settings = &settings,
	};
	int before = atomic_load(&destroyed);
	CHECK_INT(postern__kind_create(&setup, &handler, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "that is not transactional");
	row.transactional = false;
	row.asynchronous = true;
	row.create = create_transactional;
	CHECK_INT(postern__kind_create(&setup, &handler, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "of an asynchronous kind");
	CHECK_INT(atomic_load(&destroyed), before + 2);
	CHECK(!handler);
}

static void bad_rows(void) {
	static const char *const names[] = { NULL, "", "Big", "1st", "with space",
		"a-b", "_a", "thirty_three_bytes_are_one_too_man" };
	static const int64_t bad_backoff[] = { 100, -1 };
	struct postern_handler_kind row;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		row = row_named(names[i]);
		CHECK(refuses(&row, "the name of a handler kind must have 1 to 32"));
	}
	row = row_named("bad");
	row.size = 0;
	CHECK(refuses(&row, "the size member of the handler kind is not set"));
	row = row_named("bad");
	row.create = NULL;
	CHECK(refuses(&row, "handler kind 'bad': create is missing"));
	row = row_named("bad");
	row.timeout_ms = -2;
	CHECK(refuses(&row, "timeout_ms is out of range"));
	row = row_named("bad");
	row.max_attempts = POSTERN_ATTEMPTS_MAX + 1;
	CHECK(refuses(&row, "max_attempts is out of range"));
	row = row_named("bad");
	row.concurrency = POSTERN_CONCURRENCY_DEFAULT;
	CHECK(refuses(&row, "concurrency is out of range"));
	row = row_named("bad");
	row.backoff_count = 1;
	CHECK(refuses(&row, "backoff_ms is missing"));
	row.backoff_ms = bad_backoff;
	row.backoff_count = 2;
	CHECK(refuses(&row, "backoff_ms has a delay out of range"));
	row.backoff_count = POSTERN_BACKOFF_COUNT_MAX + 1;
	CHECK(refuses(&row, "too many delays"));
	row = row_named("bad");
	row.option_count = 1;
	CHECK(refuses(&row, "options is missing"));
	CHECK(!postern__kind_find("bad"));
}

static void newer_row(void) {
	struct {
		struct postern_handler_kind row;
		const char *unknown;
	} newer = { .row = row_named("newer"), .unknown = "x" };
	struct postern_error error;
	newer.row.size = sizeof newer;
	CHECK_INT(postern_handler_kind_register(&newer.row, &error),
			POSTERN_E_UNSUPPORTED);
	newer.unknown = NULL;
	CHECK(register_row(&newer.row));
	const struct postern_handler_kind *kind = postern__kind_find("newer");
	CHECK(kind && kind->size == sizeof *kind && kind->create == count_create);
}

static void two_of_a_name(void) {
	static const char *const names[] = { "twice", "exec", "sql", "callback" };
	struct postern_handler_kind row = row_named("twice");
	CHECK(register_row(&row));
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		row = row_named(names[i]);
		CHECK(refuses(&row, "a kind of this name is already registered"));
	}
}

static bool refuses_option(struct postern_option option, const char *text) {
	struct postern_handler_kind row = row_named("optional");
	row.options = &option;
	row.option_count = 1;
	return refuses(&row, text);
}

static void bad_options(void) {
	const struct postern_option good = {
		.name = "pause",
		.type = POSTERN_OPTION_DURATION,
		.offset = offsetof(struct count_settings, pause_ms),
		.max = 1000,
		.fallback = "1s",
	};
	struct postern_option bad = good;
	bad.name = "with.dot";
	CHECK(refuses_option(bad, "the name of an option must have"));
	bad = good;
	bad.type = (enum postern_option_type)99;
	CHECK(refuses_option(bad, "option 'pause': unknown type 99"));
	bad = good;
	bad.offset = sizeof(struct count_settings) - 4;
	CHECK(refuses_option(bad, "not inside the struct"));
	bad = good;
	bad.offset = (size_t)-8;
	CHECK(refuses_option(bad, "not inside the struct"));
	bad = good;
	bad.fallback = "1h";
	CHECK(refuses_option(bad, "option 'pause': '1h' is out of range"));
	bad = good;
	bad.flags = POSTERN_OPTION_REQUIRED;
	CHECK(refuses_option(bad, "cannot have a fallback"));
	bad = good;
	bad.min = 2000;
	CHECK(refuses_option(bad, "max is not set, or less than min"));
	bad = good;
	bad.type = POSTERN_OPTION_CHOICE;
	CHECK(refuses_option(bad, "choices must be 1 to 8 words"));
	bad.choices = "a|b|c|d|e|f|g|h|i";
	CHECK(refuses_option(bad, "choices must be 1 to 8 words"));
	bad = good;
	bad.fallback = NULL;
	bad.flags = POSTERN_OPTION_LATER;
	CHECK(refuses_option(bad, "needs a fallback"));

	const struct postern_option two[] = { good, good };
	struct postern_handler_kind row = row_named("optional");
	row.options = two;
	row.option_count = 2;
	CHECK(refuses(&row, "option 'pause': there are two"));
	row.option_count = POSTERN_HANDLER_KIND_OPTION_COUNT_MAX + 1;
	CHECK(refuses(&row, "too many rows"));
	row.option_count = 1;
	CHECK(register_row(&row));
}

#define THREAD_COUNT 4
#define EACH_COUNT 40

static char thread_names[EACH_COUNT][16];
static atomic_int registered;

static void *register_all(void *context) {
	(void)context;
	for (size_t i = 0; i < EACH_COUNT; i++) {
		const struct postern_handler_kind row = row_named(thread_names[i]);
		if (postern_handler_kind_register(&row, NULL) == POSTERN_OK) {
			atomic_fetch_add(&registered, 1);
		}
		CHECK(postern__kind_find(thread_names[i]));
	}
	return NULL;
}

static void from_many_threads(void) {
	pthread_t threads[THREAD_COUNT];
	for (size_t i = 0; i < EACH_COUNT; i++) {
		(void)snprintf(thread_names[i], sizeof thread_names[i], "thread_%zu",
				i);
	}
	for (size_t i = 0; i < THREAD_COUNT; i++) {
		CHECK_INT(pthread_create(&threads[i], NULL, register_all, NULL), 0);
	}
	for (size_t i = 0; i < THREAD_COUNT; i++) {
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	}
	CHECK_INT(atomic_load(&registered), EACH_COUNT);
}

/* The last case: afterwards there is no room. */
static void too_many(void) {
	static char names[POSTERN_HANDLER_KIND_COUNT_MAX + 1][16];
	struct postern_error error = { 0 };
	int r = POSTERN_OK;
	size_t i = 0;
	for (; r == POSTERN_OK && i < POSTERN_HANDLER_KIND_COUNT_MAX + 1; i++) {
		(void)snprintf(names[i], sizeof names[i], "many_%zu", i);
		const struct postern_handler_kind row = row_named(names[i]);
		r = postern_handler_kind_register(&row, &error);
	}
	CHECK_INT(r, POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "more than 64 handler kinds");
	size_t count = 0;
	while (postern__kind_at(count)) {
		count++;
	}
	CHECK_INT(count, POSTERN_HANDLER_KIND_COUNT_MAX + 4);
}

static const struct tap_case cases[] = {
	{ "a registered kind is used by its name", used_by_name },
	{ "a handler has exactly one kind", exactly_one_kind },
	{ "a handler has the defaults of its kind, unless it sets its own",
			defaults_apply },
	{ "a default timeout must be less than the lease, too",
			default_timeout_and_lease },
	{ "the runs of an asynchronous kind are always limited",
			asynchronous_is_limited },
	{ "a transactional handler needs a store with transactions",
			transactional_needs_a_store },
	{ "a handler with incomplete ops, or unlike its row, is refused",
			handlers_are_checked },
	{ "a bad row is refused, and the member named", bad_rows },
	{ "a row of a newer version is taken if what is unknown is zero",
			newer_row },
	{ "a second kind of the same name is refused", two_of_a_name },
	{ "a bad option is refused, and its name named", bad_options },
	{ "threads may register kinds at the same time", from_many_threads },
	{ "the number of kinds is limited", too_many },
};

TAP_MAIN(cases)
