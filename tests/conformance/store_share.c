/* SPDX-License-Identifier: MIT */

/*
 * Leases that go back to the store while another node is idle: what nodes tell
 * each other about that, and who gets the deliveries. For stores that several
 * processes can have open.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define TTL_MS 60000
#define OTHER(stand) ((stand)->node + 50)
/* A node leaves what it returned to others for so long. */
#define LEFT_MS 1000

/* Enrol another node with these handlers, a list that ends with NULL. */
static void enrol_node(struct stand *stand, uint64_t node, const char *first,
		const char *second) {
	struct postern_enrol_handler handlers[] = {
		{ .key = first },
		{ .key = second },
	};
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = TTL_MS,
		.handlers = handlers,
		.handler_count = second ? 2 : 1,
	};
	CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
			&stand->error);
}

static void tell(struct stand *stand, uint64_t node, int64_t handler,
		bool idle) {
	struct postern_share share = { .handler = handler, .idle = idle };
	CHECK_OK(stand->ops->share(stand->store, node, &share, 1, &stand->error),
			&stand->error);
	CHECK_INT(share.idle_nodes, 0); /* it has no surplus */
}

/* How many nodes are idle for the handler, as the stand's node learns it. */
static uint32_t ask(struct stand *stand, int64_t handler) {
	struct postern_share shares[] = {
		{ .handler = handler },
		{ .handler = handler, .surplus = true },
	};
	CHECK_OK(stand->ops->share(stand->store, stand->node, shares, 2,
					 &stand->error),
			&stand->error);
	CHECK_INT(shares[0].idle_nodes, 0);
	return shares[1].idle_nodes;
}

static struct postern_claims claim_as(struct stand *stand, uint64_t node,
		int64_t handler) {
	uint64_t own = stand->node;
	stand->node = node;
	struct postern_claims claims = stand_claim(stand, handler, 10);
	stand->node = own;
	return claims;
}

static void return_shared(struct stand *stand, int64_t seq, uint64_t fence) {
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand->handlers[0],
							  .fence = fence,
							  .to = POSTERN_SETTLE_RETURNED,
							  .shared = true,
							  .delay_ms = 5000, /* has no effect here */
							  .failures = 9,
							  .outcome = "returned",
					  }),
			POSTERN_OK);
}

static void idle_nodes_are_found(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t a = stand.handlers[0];
	enrol_node(&stand, OTHER(&stand), "a", "b");
	enrol_node(&stand, OTHER(&stand) + 1, "a", NULL);
	CHECK_INT(ask(&stand, a), 0);
	tell(&stand, OTHER(&stand), a, true);
	tell(&stand, OTHER(&stand), a, true);
	tell(&stand, stand.node, a, true); /* not itself */
	CHECK_INT(ask(&stand, a), 1);
	CHECK_INT(ask(&stand, stand.handlers[1]), 0);
	tell(&stand, OTHER(&stand) + 1, a, true);
	CHECK_INT(ask(&stand, a), 2);
	tell(&stand, OTHER(&stand), a, false);
	CHECK_INT(ask(&stand, a), 1);
	/* An enrolment begins with none. */
	enrol_node(&stand, OTHER(&stand) + 1, "a", NULL);
	CHECK_INT(ask(&stand, a), 0);
	stand_close(&stand);
}

static void a_node_that_is_gone_is_not_idle(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	enrol_node(&stand, OTHER(&stand), "a", NULL);
	enrol_node(&stand, OTHER(&stand) + 1, "a", NULL);
	tell(&stand, OTHER(&stand), a, true);
	tell(&stand, OTHER(&stand) + 1, a, true);
	CHECK_INT(ask(&stand, a), 2);
	bool alive;
	CHECK_OK(stand.ops->renew(stand.store, OTHER(&stand), 0, &alive,
					 &stand.error),
			&stand.error);
	CHECK_INT(ask(&stand, a), 1);
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(ask(&stand, a), 0);
	stand_close(&stand);
}

/* It claims again by itself when it has room. */
static void a_node_with_due_deliveries_is_awake(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	enrol_node(&stand, OTHER(&stand), "a", NULL);
	tell(&stand, OTHER(&stand), a, true);
	(void)stand_accept_many(&stand, 11, a);
	CHECK_INT(claim_as(&stand, OTHER(&stand), a).count, 10);
	CHECK_INT(ask(&stand, a), 0);
	CHECK_INT(claim_as(&stand, OTHER(&stand), a).count, 1);
	CHECK_INT(ask(&stand, a), 1);
	stand_close(&stand);
}

static void an_alias_is_its_owner(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	tell(&stand, stand.node, stand.handlers[1], true);
	struct postern_enrol_handler handler = {
		.key = "new",
		.legacy_keys = (const char *[]){ "old" },
		.legacy_key_count = 1,
	};
	struct postern_enrolment enrolment = {
		.node = OTHER(&stand),
		.node_lease_ms = TTL_MS,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(stand.ops->enrol(stand.store, &enrolment, &stand.error),
			&stand.error);
	stand.node = OTHER(&stand);
	CHECK_INT(ask(&stand, stand.handlers[0]), 1);
	stand_close(&stand);
}

static void others_get_it_first(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	enrol_node(&stand, OTHER(&stand), "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", a);
	int64_t later = stand_accept_leased(&stand, "2", a);
	fake_clock_advance(&stand.clock, 100);
	return_shared(&stand, seq, 1);
	return_shared(&stand, later, 1);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.returns, 1);
	CHECK_INT(row.starts, 0);
	CHECK_INT(row.failures, 0);
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(stand_delivery(&stand, seq, "a")->attempt_count, 0);

	/* Others are not delayed by it, nor is what this node did not return. */
	int64_t third = stand_accept(&stand, "3", a);
	struct postern_claims claims = stand_claim(&stand, a, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, third);
		CHECK_INT(claims.items[0].returns, 0);
		CHECK_INT(claims.next_due_ms, LEFT_MS);
	}
	fake_clock_advance(&stand.clock, LEFT_MS - 1);
	claims = stand_claim(&stand, a, 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 1);
	claims = claim_as(&stand, OTHER(&stand), a);
	if (CHECK_INT(claims.count, 2)) {
		CHECK_INT(claims.items[0].seq, seq);
		CHECK_INT(claims.items[0].fence, 2);
		CHECK_INT(claims.items[0].returns, 1);
	}
	stand_close(&stand);
}

static void it_is_left_for_a_second(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	int64_t seq = stand_accept_leased(&stand, "1", a);
	return_shared(&stand, seq, 1);
	CHECK_INT(stand_claim(&stand, a, 10).count, 0);
	fake_clock_advance(&stand.clock, LEFT_MS);
	struct postern_claims claims = stand_claim(&stand, a, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].returns, 1);
		CHECK_INT(claims.next_due_ms, -1);
	}
	/* A plain return is not left to others, and not counted here. */
	CHECK_INT(stand_settle_to(&stand, seq, a, 2, POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
	claims = stand_claim(&stand, a, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].returns, 1);
	}
	return_shared(&stand, seq, 3);
	CHECK_INT(stand_row(&stand, seq, "a").returns, 2);
	CHECK_INT(stand_handler_stats(&stand, "a").returned, 2);
	/* The counter stays when the delivery has ended. */
	fake_clock_advance(&stand.clock, LEFT_MS);
	stand_finish(&stand, seq, a, POSTERN_SETTLE_DONE);
	CHECK_INT(stand_row(&stand, seq, "a").returns, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").returned, 2);
	CHECK_INT(stand_handler_stats(&stand, "a").done, 1);
	stand_close(&stand);
}

/* The node must not wait in vain for a second if more is due. */
static void what_others_returned_is_claimed(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	enrol_node(&stand, OTHER(&stand), "a", NULL);
	int64_t seq = stand_accept(&stand, "1", a);
	CHECK_INT(claim_as(&stand, OTHER(&stand), a).count, 1);
	int64_t own = stand_accept_leased(&stand, "2", a);
	return_shared(&stand, own, 1);
	uint64_t node = stand.node;
	stand.node = OTHER(&stand);
	return_shared(&stand, seq, 1);
	stand.node = node;
	struct postern_claims claims = stand_claim(&stand, a, 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].seq, seq);
		CHECK_INT(claims.next_due_ms, LEFT_MS);
	}
	stand_close(&stand);
}

static void a_repeated_return_counts_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t a = stand.handlers[0];
	int64_t seq = stand_accept_leased(&stand, "1", a);
	return_shared(&stand, seq, 1);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = a,
							  .fence = 1,
							  .to = POSTERN_SETTLE_RETURNED,
							  .shared = true,
							  .outcome = "returned",
							  .again = true,
					  }),
			POSTERN_OK);
	CHECK_INT(stand_row(&stand, seq, "a").returns, 1);
	CHECK_INT(stand_handler_stats(&stand, "a").returned, 1);
	stand_close(&stand);
}

const struct tap_case share_cases[] = {
	{ "a node learns how many others are idle for a handler",
			idle_nodes_are_found },
	{ "a node that has ended or expired is idle for no handler",
			a_node_that_is_gone_is_not_idle },
	{ "a node that left due deliveries in the store is not idle",
			a_node_with_due_deliveries_is_awake },
	{ "a node that registers an alias is idle for its owner",
			an_alias_is_its_owner },
	{ "what a node returns to idle nodes is due at once for others only",
			others_get_it_first },
	{ "a node claims what it returned after a second, and returns are counted",
			it_is_left_for_a_second },
	{ "a node claims at once what another node returned",
			what_others_returned_is_claimed },
	{ "a return that is repeated is counted once",
			a_repeated_return_counts_once },
	{ 0 },
};
