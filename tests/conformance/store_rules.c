/* SPDX-License-Identifier: MIT */

/*
 * The key rules in force, which a store keeps so that a change is noticed.
 */

#include <postern/sys/memory.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

/* Keeps two rules of the channel "orders": its own, and that of the first
   handler; returns whether they are kept now. */
static bool keep(struct stand *stand, struct postern_kept_rule rules[2],
		const char *channel, const char *handler, bool confirmed) {
	rules[0] = (struct postern_kept_rule){
		.channel = stand->orders,
		.rule = channel,
		.confirmed = confirmed,
	};
	rules[1] = (struct postern_kept_rule){
		.channel = stand->orders,
		.handler = stand->handlers[0],
		.rule = handler,
		.confirmed = confirmed,
	};
	CHECK_OK(stand->ops->keep_rules(stand->store, rules, 2, stand->memory,
					 &stand->error),
			&stand->error);
	return confirmed || (!rules[0].changed && !rules[1].changed);
}

static void change_is_refused(void) {
	struct stand stand;
	struct postern_kept_rule rules[2];
	stand_open(&stand, "a", NULL);
	if (stand.ops->keep_rules) {
		CHECK(keep(&stand, rules, "id", "json:/a", false));
		CHECK(!rules[0].former);
		stand_accept(&stand, "1", stand.handlers[0]);
		CHECK(keep(&stand, rules, "id", "json:/a", false));
		CHECK(!keep(&stand, rules, "id", "json:/b", false));
		CHECK(!rules[0].changed);
		CHECK(rules[1].changed);
		CHECK_STR(rules[1].former, "json:/a");
		CHECK(!keep(&stand, rules, "json:/id", "json:/a", false));
		CHECK(rules[0].changed);
		CHECK_STR(rules[0].former, "id");
		/* Nothing was written, until it is confirmed. */
		CHECK(keep(&stand, rules, "id", "json:/a", false));
		CHECK(keep(&stand, rules, "json:/id", "", true));
		CHECK(rules[0].changed && rules[1].changed);
		CHECK(keep(&stand, rules, "json:/id", "", false));
		CHECK(!keep(&stand, rules, "id", "", false));
	}
	stand_close(&stand);
}

static void nothing_to_forget(void) {
	struct stand stand;
	struct postern_kept_rule rules[2];
	stand_open(&stand, "a", NULL);
	if (stand.ops->keep_rules) {
		/* Without a message, and from none, any rule may follow. */
		CHECK(keep(&stand, rules, "id", "", false));
		CHECK(keep(&stand, rules, "json:/id", "", false));
		stand_accept(&stand, "1", stand.handlers[0]);
		CHECK(keep(&stand, rules, "json:/id", "json:/a", false));
		CHECK(!keep(&stand, rules, "json:/id", "", false));
	}
	stand_close(&stand);
}

static void rules_outlive_process(void) {
	struct stand stand;
	struct postern_kept_rule rules[2];
	stand_open(&stand, "a", NULL);
	if (stand.ops->keep_rules) {
		CHECK(keep(&stand, rules, "id", "json:/a", false));
		stand_accept(&stand, "1", stand.handlers[0]);
		stand_crash(&stand);
		stand_enrol_one(&stand, "a", NULL);
		CHECK(!keep(&stand, rules, "id", "json:/b", false));
		CHECK(keep(&stand, rules, "id", "json:/a", false));
	}
	stand_close(&stand);
}

/* Record a marker, as a guard does for what has run. */
static void record(struct stand *stand) {
	const char *handler = "a";
	const struct postern_mark mark = {
		.handlers = &handler,
		.handler_count = 1,
		.value = "7",
		.value_len = 1,
	};
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_RECORD,
		.fence = 1,
	};
	struct postern_markers *markers = stand->store->markers;
	CHECK_OK(markers->ops->change(markers, &mark, &request, &stand->error),
			&stand->error);
}

static void guarded_change(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_kept_rule rule = {
		.channel = stand.orders,
		.handler = stand.handlers[0],
		.rule = "",
		.guarded = true,
	};
	if (stand.ops->keep_rules) {
		for (int marked = 0; marked < 2; marked++) {
			CHECK_OK(stand.ops->keep_rules(stand.store, &rule, 1, stand.memory,
							 &stand.error),
					&stand.error);
			CHECK_INT(rule.changed, marked);
			record(&stand);
			rule.rule = "json:/a";
		}
		/* What is not guarded has no markers. */
		rule.guarded = false;
		CHECK_OK(stand.ops->keep_rules(stand.store, &rule, 1, stand.memory,
						 &stand.error),
				&stand.error);
		CHECK(!rule.changed);
	}
	stand_close(&stand);
}

const struct tap_case rule_cases[] = {
	{ "a changed key rule is refused until it is confirmed",
			change_is_refused },
	{ "a key rule by which nothing is remembered may change",
			nothing_to_forget },
	{ "a key rule of markers is changed, also from none, if there are any",
			guarded_change },
	{ "the key rules in force are kept", rules_outlive_process },
	{ 0 },
};
