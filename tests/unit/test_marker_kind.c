/* SPDX-License-Identifier: MIT */

/*
 * Kinds of stores that keep markers only: their registry, and a guard on one.
 * The registered kind forwards to the markers of a memory store.
 */

#include <postern/box.h>
#include <postern/guard.h>
#include <stdio.h>
#include <string.h>

#include "store/marker_kind.h"
#include "support/fake_clock.h"
#include "tap.h"

static int fake_check(const char *url, struct postern_error *error) {
	(void)error;
	return strstr(url, "bad") ? POSTERN_E_INVALID : POSTERN_OK;
}

static struct postern_store *memory;
static unsigned destroyed;

struct fake_markers {
	struct postern_markers base;
};

/* The next lease that is begun is answered so much later. */
static int64_t late_ms;
static struct fake_clock *late_clock;
/* Meanwhile another process begins. */
static bool late_rival;

static void be_late(const struct postern_mark *mark) {
	struct postern_mark_request rival = {
		.kind = POSTERN_MARK_BEGIN,
		.fence = 7,
		.lease_ms = 60000,
	};
	fake_clock_advance(late_clock, late_ms);
	late_ms = 0;
	if (late_rival) {
		CHECK_INT(memory->markers->ops->change(memory->markers, mark, &rival,
						  NULL),
				POSTERN_OK);
		CHECK_INT(rival.before, POSTERN_MARK_UNKNOWN);
	}
}

static int fake_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	(void)markers;
	int r = memory->markers->ops->change(memory->markers, mark, request, error);
	if (request->kind == POSTERN_MARK_BEGIN && late_ms > 0) {
		be_late(mark);
	}
	return r;
}

static int fake_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	(void)markers;
	return memory->markers->ops->expire(memory->markers, expiry, error);
}

static void fake_destroy(struct postern_markers *markers) {
	(void)markers;
	postern_store_destroy(memory);
	memory = NULL;
	destroyed++;
}

static const struct postern_marker_ops fake_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "fake",
	.change = fake_change,
	.expire = fake_expire,
	.destroy = fake_destroy,
};

static struct fake_markers fake = { { &fake_ops } };

static int fake_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error) {
	(void)url;
	CHECK(options->clock && options->random);
	int r = postern_store_open("memory:", options, &memory, error);
	*out = &fake.base;
	return r;
}

static int fake_examine(struct postern_markers *markers,
		postern_store_find *find, void *context, struct postern_error *error) {
	(void)error;
	CHECK(markers == &fake.base);
	find(context, POSTERN_E_INVALID, "the first");
	find(context, POSTERN_E_INVALID, "the second");
	return POSTERN_OK;
}

static struct postern_marker_kind fake_row(void) {
	return (struct postern_marker_kind){
		.size = sizeof(struct postern_marker_kind),
		.name = "fake",
		.scheme = "fake",
		.form = "fake:",
		.check = fake_check,
		.open = fake_open,
		.examine = fake_examine,
	};
}

static void refused_rows(void) {
	struct postern_error error = { 0 };
	struct postern_marker_kind row = fake_row();
	row.name = "Fake";
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	row = fake_row();
	row.scheme = "much-too-long-scheme";
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	row = fake_row();
	row.examine = NULL;
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "lacks a form or a function");
	row = fake_row();
	row.scheme = "sqlite";
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "'sqlite:' is the URL of a store");
	row = fake_row();
	row.size = 0;
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	CHECK(!postern__marker_kind_of("fake:x"));
}

static int other_open(const char *url,
		const struct postern_store_options *options,
		struct postern_markers **out, struct postern_error *error) {
	return fake_open(url, options, out, error);
}

static void registered_once(void) {
	struct postern_error error = { 0 };
	struct postern_marker_kind row = fake_row();
	CHECK_OK(postern_marker_kind_register(&row, &error), &error);
	CHECK_OK(postern_marker_kind_register(&row, &error), &error);
	CHECK(postern__marker_kind_at(0) && !postern__marker_kind_at(1));
	row.open = other_open;
	CHECK_INT(postern_marker_kind_register(&row, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "already registered");
	CHECK(postern__marker_kind_of("fake:x"));
	CHECK(!postern__marker_kind_of("fakes:x"));
	CHECK(!postern__marker_kind_of("fake"));
	CHECK(!postern__marker_kind_of(NULL));
}

static void never_called(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
	CHECK(false);
}

static void count_call(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)outcome;
	CHECK(!call->transaction);
	(*(int *)context)++;
}

static void guarded_without_store(void) {
	struct postern_error error = { 0 };
	struct postern_guard *guard = NULL;
	int calls = 0;
	struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "mail",
		.key = "k",
	};
	if (!CHECK_OK(postern_guard_open("fake:x", NULL, &guard, &error), &error)) {
		return;
	}
	CHECK_OK(postern_guard_run(guard, &guarded, count_call, &calls, NULL,
					 &error),
			&error);
	CHECK_INT(postern_guard_run(guard, &guarded, count_call, &calls, NULL,
					  &error),
			POSTERN_E_DUPLICATE);
	CHECK_INT(calls, 1);
	guarded.transactional = true;
	guarded.key = "l";
	CHECK_INT(postern_guard_run(guard, &guarded, never_called, NULL, NULL,
					  &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_STR(error.text,
			"'mail' is transactional, which a fake store does not support");
	char warning[64];
	CHECK_OK(postern_guard_check(guard, warning, sizeof warning, &error),
			&error);
	CHECK_STR(warning, "the first; the second");
	CHECK_OK(postern_guard_check(guard, warning, 12, &error), &error);
	CHECK_STR(warning, "the first; ");
	postern_guard_destroy(guard);
	CHECK_INT(destroyed, 1);
}

/* The answer to a lease comes when the lease has ended: another process may
   have begun. */
static void late_answer(bool rival) {
	struct postern_error error = { 0 };
	struct postern_guard *guard = NULL;
	struct fake_clock clock;
	int calls = 0;
	fake_clock_init(&clock);
	const struct postern_guard_options options = {
		.size = sizeof options,
		.clock = &clock.base,
	};
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "mail",
		.key = "k",
	};
	late_clock = &clock;
	late_ms = 40000;
	late_rival = rival;
	if (!CHECK_OK(postern_guard_open("fake:x", &options, &guard, &error),
				&error)) {
		return;
	}
	CHECK_INT(postern_guard_run(guard, &guarded, count_call, &calls, NULL,
					  &error),
			rival ? POSTERN_E_BUSY : POSTERN_OK);
	CHECK_INT(calls, !rival);
	postern_guard_destroy(guard);
}

static void late_lease(void) {
	late_answer(false);
	late_answer(true);
}

static void no_messages(void) {
	struct postern_error error = { 0 };
	struct postern_store *store = NULL;
	CHECK_INT(postern_store_open("fake:x", NULL, &store, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_STR(error.text,
			"the store 'fake:' keeps markers only, for guarded functions, and "
			"no messages");
}

static void refused_urls(void) {
	struct postern_error error = { 0 };
	struct postern_guard *guard = NULL;
	const struct postern_guard_options schema = {
		.size = sizeof schema,
		.schema = "postern",
	};
	CHECK_INT(postern_guard_open("fake:bad", NULL, &guard, &error),
			POSTERN_E_INVALID);
	CHECK_INT(postern_guard_open("fake:x", &schema, &guard, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK(!guard);
	/* The markers are destroyed with a guard that cannot be made. */
	const struct postern_guard_options lease = {
		.size = sizeof lease,
		.lease_ms = 1,
	};
	destroyed = 0;
	CHECK_INT(postern_guard_open("fake:x", &lease, &guard, &error),
			POSTERN_E_INVALID);
	CHECK_INT(destroyed, 1);
}

static void stores_have_no_warning(void) {
	struct postern_error error = { 0 };
	struct postern_guard *guard = NULL;
	char warning[8] = "x";
	CHECK_OK(postern_guard_open("memory:", NULL, &guard, &error), &error);
	CHECK_OK(postern_guard_check(guard, warning, sizeof warning, &error),
			&error);
	CHECK_STR(warning, "");
	postern_guard_destroy(guard);
}

static const struct tap_case cases[] = {
	{ "a row that breaks a rule is refused", refused_rows },
	{ "a scheme has one kind, which may be registered again", registered_once },
	{ "a guard without a store runs a function once", guarded_without_store },
	{ "a lease that ended before it was answered is begun again", late_lease },
	{ "a store of markers is refused where messages are kept", no_messages },
	{ "a URL or an option that the kind does not have is refused",
			refused_urls },
	{ "a store of messages has no warning", stores_have_no_warning },
};

TAP_MAIN(cases)
