/* SPDX-License-Identifier: MIT */

/*
 * What a store knows of the states that people are shown: the node that has a
 * lease, what nodes report to run, and counts of what waits.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define TTL_MS 1000

/* False: the store keeps no reports, because only one process has it open. */
static bool keeps_reports(const struct stand *stand) {
	bool keeps = stand->ops->report_runs;
	CHECK(keeps != stand->ops->exclusive);
	CHECK(keeps == (stand->ops->read_runs != NULL));
	return keeps;
}

static struct postern_reports read_reports(struct stand *stand) {
	struct postern_reports reports = { 0 };
	CHECK_OK(stand->ops->read_runs(stand->store, stand->memory, &reports,
					 &stand->error),
			&stand->error);
	CHECK_INT(reports.now_ms, stand_now(stand));
	return reports;
}

static void report(struct stand *stand, uint64_t node,
		const struct postern_run_report *runs, size_t count) {
	CHECK_OK(stand->ops->report_runs(stand->store, node, runs, count,
					 &stand->error),
			&stand->error);
}

static void enrol_leased(struct stand *stand, uint64_t node) {
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = TTL_MS,
	};
	CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
			&stand->error);
}

static void node_of_lease(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.node, stand.node);
	CHECK_INT(row.handler_id, stand.handlers[0]);
	const struct postern_filter all = { .limit = 10 };
	struct postern_page page = stand_list(&stand, &all);
	if (CHECK_INT(page.count, 1)) {
		CHECK_INT(page.rows[0].node, stand.node);
		CHECK_INT(page.rows[0].handler_id, stand.handlers[0]);
	}
	CHECK_OK(stand_settle_to(&stand, seq, stand.handlers[0], row.fence,
					 POSTERN_SETTLE_PENDING),
			&stand.error);
	CHECK_INT(stand_row(&stand, seq, "a").node, 0);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	CHECK_INT(stand_row(&stand, seq, "a").node, 0);
	int64_t parked = stand_park(&stand, "2");
	CHECK_INT(stand_row(&stand, parked, "").handler_id, 0);
	stand_close(&stand);
}

static void alias_has_its_own_id(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	(void)stand_enrol_one(&stand, "b", "a");
	struct postern_row row = stand_row(&stand, seq, "b");
	CHECK_INT(row.handler_id, stand.handlers[0]);
	stand_close(&stand);
}

static void a_report_replaces_the_last(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	if (keeps_reports(&stand)) {
		enrol_leased(&stand, stand.node);
		const struct postern_run_report runs[] = {
			{ 7, stand.handlers[0], 3, 1500, 60000, NULL },
			{ 9, stand.handlers[0], 1, 1200, 60000, NULL },
		};
		CHECK_INT(read_reports(&stand).nodes[0].run_count, 0);
		report(&stand, stand.node, runs, 2);
		fake_clock_advance(&stand.clock, 400);
		struct postern_reports reports = read_reports(&stand);
		CHECK_INT(reports.node_count, 1);
		const struct postern_node_report *node = &reports.nodes[0];
		CHECK_INT(node->node, stand.node);
		CHECK(node->host && node->pid > 0);
		CHECK_INT(node->reported_at_ms, stand_now(&stand) - 400);
		if (CHECK_INT(node->run_count, 2)) {
			CHECK_INT(node->runs[0].seq, 7);
			CHECK_INT(node->runs[0].handler, stand.handlers[0]);
			CHECK_INT(node->runs[0].fence, 3);
			CHECK_INT(node->runs[0].age_ms, 1900);
			CHECK_INT(node->runs[0].lease_ms, 60000);
			CHECK_STR(node->runs[0].key, "a");
			CHECK_INT(node->runs[1].age_ms, 1600);
		}
		report(&stand, stand.node, runs + 1, 1);
		CHECK_INT(read_reports(&stand).nodes[0].run_count, 1);
		report(&stand, stand.node, NULL, 0);
		CHECK_INT(read_reports(&stand).nodes[0].run_count, 0);
	}
	stand_close(&stand);
}

static void an_ended_node_reports_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	if (keeps_reports(&stand)) {
		const struct postern_run_report run = { 7, stand.handlers[0], 1, 1,
			60000, NULL };
		bool alive;
		report(&stand, stand.node, &run, 1);
		CHECK_OK(stand.ops->renew(stand.store, stand.node, 0, &alive,
						 &stand.error),
				&stand.error);
		CHECK_INT(read_reports(&stand).node_count, 0);
		/* Late, from a thread that does not know it yet. */
		report(&stand, stand.node, &run, 1);
		CHECK_INT(read_reports(&stand).node_count, 0);
	}
	stand_close(&stand);
}

static void what_waits_is_counted(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t handler = stand.handlers[0];
	int64_t start = stand_now(&stand);
	CHECK_INT(stand_handler_stats(&stand, "a").oldest_open_at_ms, 0);
	int64_t seq = stand_accept_leased(&stand, "1", handler);
	fake_clock_advance(&stand.clock, 100);
	(void)stand_accept(&stand, "2", handler);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.waiting, 0);
	CHECK_INT(stats.oldest_open_at_ms, start);
	CHECK_INT(stats.oldest_pending_at_ms, start + 100);
	const struct postern_settlement later = {
		.seq = seq,
		.handler = handler,
		.fence = 1,
		.to = POSTERN_SETTLE_PENDING,
		.delay_ms = 500,
		.outcome = "snooze",
	};
	CHECK_OK(stand_settle(&stand, later), &stand.error);
	stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.pending, 2);
	CHECK_INT(stats.waiting, 1);
	CHECK_INT(stats.oldest_open_at_ms, start);
	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(stand_handler_stats(&stand, "a").waiting, 0);
	stand_close(&stand);
}

static size_t cancel_count(struct stand *stand, uint64_t node,
		struct postern_cancel_request **out) {
	size_t count = 0;
	CHECK_OK(stand->ops->read_cancels(stand->store, node, stand->memory, out,
					 &count, &stand->error),
			&stand->error);
	return count;
}

static bool request(struct stand *stand,
		const struct postern_cancel_request *request, bool withdraw) {
	bool leased = false;
	CHECK_OK(stand->ops->request_cancel(stand->store, request, withdraw,
					 &leased, &stand->error),
			&stand->error);
	return leased;
}

static void a_request_is_of_one_lease(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	bool keeps = stand.ops->request_cancel;
	CHECK(keeps != stand.ops->exclusive);
	if (keeps) {
		int64_t handler = stand.handlers[0];
		struct postern_cancel_request *found;
		int64_t seq = stand_accept(&stand, "1", handler);
		struct postern_cancel_request wanted = { .seq = seq,
			.handler = handler,
			.reason = "why" };
		CHECK(!request(&stand, &wanted, false)); /* pending */
		CHECK_INT(stand_claim(&stand, handler, 1).count, 1);
		CHECK(!request(&stand, &wanted, false)); /* another fence */
		wanted.fence = 1;
		CHECK(request(&stand, &wanted, false));
		if (CHECK_INT(cancel_count(&stand, stand.node, &found), 1)) {
			CHECK_INT(found[0].seq, seq);
			CHECK_INT(found[0].handler, handler);
			CHECK_INT(found[0].fence, 1);
			CHECK(!found[0].uncounted);
			CHECK_STR(found[0].reason, "why");
		}
		CHECK_INT(cancel_count(&stand, stand.node + 50, &found), 0);
		/* The last request counts. */
		wanted.uncounted = true;
		CHECK(request(&stand, &wanted, false));
		CHECK_INT(cancel_count(&stand, stand.node, &found), 1);
		CHECK(found[0].uncounted);
		/* The lease can still be settled. */
		CHECK_OK(stand_settle_to(&stand, seq, handler, 1,
						 POSTERN_SETTLE_RETURNED),
				&stand.error);
		CHECK_INT(cancel_count(&stand, stand.node, &found), 0);
		CHECK_INT(stand_claim(&stand, handler, 1).count, 1);
		CHECK_INT(cancel_count(&stand, stand.node, &found), 0);
		CHECK(!request(&stand, &wanted, false));

		wanted.fence = 2;
		CHECK(request(&stand, &wanted, false));
		CHECK(request(&stand, &wanted, true));
		CHECK_INT(cancel_count(&stand, stand.node, &found), 0);
	}
	stand_close(&stand);
}

const struct tap_case shown_cases[] = {
	{ "a leased row names its node, and no other row does", node_of_lease },
	{ "a row has the handler id that it is stored under",
			alias_has_its_own_id },
	{ "a node's report replaces its last one, and ages by the store's clock",
			a_report_replaces_the_last },
	{ "a node that has ended reports nothing", an_ended_node_reports_nothing },
	{ "deliveries that are due later are counted, and the oldest open one",
			what_waits_is_counted },
	{ "a request to cancel a run is part of one lease",
			a_request_is_of_one_lease },
	{ 0 },
};
