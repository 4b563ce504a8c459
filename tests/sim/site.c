/* SPDX-License-Identifier: MIT */
/*
 * Sites: where a node may be struck. Each operation counts the sites it
 * passes and has at most one blow, which falls on the first site after that
 * many that it fits.
 */

#include "sim/sim.h"

#include "base/fail.h"
#include "base/point.h"

static bool fits(enum sim_blow blow, enum sim_site site) {
	bool store = site == SIM_SITE_BEFORE || site == SIM_SITE_AFTER;
	return blow == SIM_BLOW_ERROR ? store : blow != SIM_BLOW_NONE;
}

/* Others go on while the node stands still. */
static void pause(struct sim_node *node, const char *name) {
	struct sim *sim = node->sim;
	sim_say(sim, "  node %u is paused at %s", node->index, name);
	sim->counts.pauses++;
	if (node->op->code == POSTERN_E_UNAVAILABLE) {
		/* Long enough that others take it for dead. */
		int64_t ms = 2 * SIM_NODE_LEASE_MS;
		sim_say(sim, "  %lld ms pass", (long long)ms);
		sim_advance(sim, ms);
	}
	struct sim_node *current = sim->current;
	for (unsigned i = 0; i < node->op->span && !sim->oracle.rule; i++) {
		if (!sim_step_next(sim)) {
			break;
		}
	}
	sim->current = current;
	sim_say(sim, "  node %u goes on", node->index);
	if (sim->options.resumed && !node->dead) {
		sim->options.resumed(sim->options.resumed_context, node, name);
	}
}

static int strike(struct sim_node *node, enum sim_site site, const char *name,
		struct postern_error *error) {
	const struct sim_op *op = node->op;
	struct sim *sim = node->sim;
	node->struck = true;
	switch (op->blow) {
	case SIM_BLOW_ERROR: {
		/* What took effect can be in doubt only where the store was lost. */
		int code = op->code;
		if (site == SIM_SITE_AFTER && code != POSTERN_E_TIMEOUT) {
			code = POSTERN_E_UNAVAILABLE;
		}
		sim->counts.errors++;
		sim_say(sim, "  node %u: %s answers %d %s", node->index, name, code,
				site == SIM_SITE_AFTER ? "though it was done"
									   : "and did nothing");
		return postern__fail(error, code, "the simulation says no");
	}
	case SIM_BLOW_CRASH:
		sim_say(sim, "  node %u is killed %s %s", node->index,
				site == SIM_SITE_AFTER ? "after" : "at", name);
		sim_node_die(node);
		break;
	case SIM_BLOW_PAUSE: pause(node, name); break;
	case SIM_BLOW_NONE:
	default: break;
	}
	return POSTERN_OK;
}

int sim_site(struct sim_node *node, enum sim_site site, const char *name,
		struct postern_error *error) {
	struct sim *sim = node->sim;
	int r = POSTERN_OK;
	if (!node->dead && node->op && !sim->calm) {
		node->sites++;
		if (!node->struck && node->sites > node->op->at &&
				fits(node->op->blow, site)) {
			r = strike(node, site, name, error);
		}
	}
	if (node->dead) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "the node is dead");
	}
	return r;
}

#ifdef POSTERN_POINTS

static void pass_point(void *context, const char *name) {
	struct sim *sim = context;
	/* Inside the store's own operation nobody else may use it. */
	if (!sim->current || sim->in_store) {
		return;
	}
	/* Those who go on meanwhile pass points too. */
	postern__point_watch(pass_point, sim);
	(void)sim_site(sim->current, SIM_SITE_POINT, name, NULL);
}

void sim_points_watch(struct sim *sim) {
	postern__point_watch(pass_point, sim);
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
