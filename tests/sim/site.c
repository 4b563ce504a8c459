/* SPDX-License-Identifier: MIT */
/*
 * Sites: where a fault can be injected. Each operation counts the sites it
 * passes and has at most one fault, which is injected at the first suitable
 * site after that many.
 */

#include "sim/sim.h"

#include "base/fail.h"
#include "base/point.h"

static bool fault_fits_site(enum sim_fault fault, enum sim_site site) {
	bool store = site == SIM_SITE_BEFORE || site == SIM_SITE_AFTER;
	return fault == SIM_FAULT_ERROR ? store : fault != SIM_FAULT_NONE;
}

/* The other nodes continue while this one is paused. */
static void pause_node(struct sim_node *node, const char *name) {
	struct sim *sim = node->sim;
	sim_trace(sim, "  node %u is paused at %s", node->index, name);
	sim->counts.pauses++;
	if (node->op->code == POSTERN_E_UNAVAILABLE) {
		/* Long enough for the node to expire. */
		int64_t ms = 2 * SIM_NODE_LEASE_MS;
		sim_trace(sim, "  %lld ms pass", (long long)ms);
		sim_advance(sim, ms);
	}
	struct sim_node *current = sim->current;
	node->paused_at = name;
	for (unsigned i = 0; i < node->op->span && !sim->oracle.rule; i++) {
		if (!sim_step_next(sim)) {
			break;
		}
	}
	node->paused_at = NULL;
	sim->current = current;
	sim_trace(sim, "  node %u continues", node->index);
	if (sim->options.resumed && !node->dead) {
		sim->options.resumed(sim->options.resumed_context, node, name);
	}
}

static int inject_fault(struct sim_node *node, enum sim_site site,
		const char *name, struct postern_error *error) {
	const struct sim_op *op = node->op;
	struct sim *sim = node->sim;
	node->fault_done = true;
	switch (op->fault) {
	case SIM_FAULT_ERROR: {
		/* Only a lost connection or a timeout can hide that a call took
		   effect. */
		int code = op->code;
		if (site == SIM_SITE_AFTER && code != POSTERN_E_TIMEOUT) {
			code = POSTERN_E_UNAVAILABLE;
		}
		sim->counts.errors++;
		sim_trace(sim, "  node %u: %s fails with %d %s", node->index, name,
				code,
				site == SIM_SITE_AFTER ? "after taking effect"
									   : "without effect");
		return postern__fail(error, code, "injected by the simulation");
	}
	case SIM_FAULT_CRASH:
		sim_trace(sim, "  node %u is killed %s %s", node->index,
				site == SIM_SITE_AFTER ? "after" : "at", name);
		sim_node_kill(node);
		break;
	case SIM_FAULT_PAUSE: pause_node(node, name); break;
	case SIM_FAULT_NONE:
	default: break;
	}
	return POSTERN_OK;
}

int sim_site(struct sim_node *node, enum sim_site site, const char *name,
		struct postern_error *error) {
	struct sim *sim = node->sim;
	int r = POSTERN_OK;
	if (!node->dead && node->op && !sim->quiet) {
		node->sites++;
		if (!node->fault_done && node->sites > node->op->at &&
				fault_fits_site(node->op->fault, site)) {
			r = inject_fault(node, site, name, error);
		}
	}
	if (node->dead) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "the node is dead");
	}
	return r;
}

#ifdef POSTERN_POINTS

static void visit_point(void *context, const char *name) {
	struct sim *sim = context;
	/* No other node may use the store inside one of its operations. */
	if (!sim->current || sim->in_store) {
		return;
	}
	/* The nodes that run during a pause pass points too. */
	postern__point_watch(visit_point, sim);
	(void)sim_site(sim->current, SIM_SITE_POINT, name, NULL);
}

void sim_points_watch(struct sim *sim) {
	postern__point_watch(visit_point, sim);
}

void sim_points_end(void) {
	postern__point_watch(NULL, NULL);
}

#else

void sim_points_watch(struct sim *sim) {
	(void)sim;
}

void sim_points_end(void) {
}

#endif
