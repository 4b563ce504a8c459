/* SPDX-License-Identifier: MIT */
/*
 * The handlers. The outcome of a run depends on the message, the handler and
 * the fence alone, so that leaving out an operation elsewhere changes nothing
 * here. Some runs take time: they advance the clock, or stay unfinished until
 * an operation of the plan finishes them.
 *
 * Transactional handlers write an effect with every outcome except discard: a
 * run that is not done must leave no effect.
 */

#include "sim/handler.h"

#include "base/container.h"
#include "core/box.h"
#include "core/run.h"

#include <assert.h>
#include <stdlib.h>

/* The behaviour of a run, decided when it starts. */
struct script {
	enum postern_outcome_kind kind;
	int64_t delay_ms;
	int64_t takes_ms;
	bool holds; /* finished by a later operation */
};

static struct script draw_script(const struct sim_node *node, unsigned handler,
		int64_t seq, uint64_t fence) {
	const struct sim *sim = node->sim;
	uint64_t hash =
			sim_hash(sim->plan->seed, handler + 2, (uint64_t)seq, fence);
	unsigned percent = (unsigned)(hash % 100);
	struct script script = { .kind = POSTERN_DONE };
	if (percent < 15) {
		script.kind = POSTERN_RETRY;
	} else if (percent < 20) {
		script.kind = POSTERN_RETRY_AFTER;
		script.delay_ms = (int64_t)(hash >> 8 & 0xffff);
	} else if (percent < 28 && !sim->quiet) {
		script.kind = POSTERN_SNOOZE;
		script.delay_ms = (int64_t)(hash >> 8 & 0xffff);
	} else if (percent < 32) {
		script.kind = POSTERN_POISON;
	} else if (percent < 35) {
		script.kind = POSTERN_DISCARD;
	} else if (percent < 40 && sim->plan->holds && !sim->quiet) {
		script.kind = POSTERN_HOLD;
	}
	if (sim->plan->instant) {
		return script;
	}
	unsigned pace = (unsigned)(hash >> 32) % 100;
	if (pace < 5) {
		script.takes_ms = 100;
	} else if (pace < 8) {
		script.takes_ms = 10 * 1000;
	} else if (pace < 10) {
		script.takes_ms = 2 * SIM_LEASE_MS;
	}
	script.holds =
			pace >= 10 && pace < (sim->plan->calms ? 30 : 20) && !sim->quiet;
	return script;
}

static void write_effect(struct sim *sim,
		const struct postern_delivery *delivery, unsigned stored) {
	if (!effects_write(&sim->effects, delivery->transaction, delivery->seq,
				sim->oracle.stored[stored].key, delivery->fence)) {
		sim_oracle_broken(&sim->oracle, "effect", "cannot write");
	}
}

static void run_begin(const struct sim_role *role, unsigned stored,
		const struct postern_message *message,
		const struct postern_delivery *delivery) {
	struct sim *sim = role->node->sim;
	sim->counts.runs++;
	sim_history_run(role->node, delivery, message, stored);
	sim_oracle_run(&sim->oracle, role, stored, delivery, message);
}

static void run_end(struct sim_node *node, unsigned stored,
		const struct postern_delivery *delivery, const struct script *script,
		struct postern_outcome *outcome) {
	postern_outcome_set(outcome, script->kind, script->delay_ms, NULL);
	sim_history_ran(node, delivery, stored, script->kind);
	sim_oracle_ran(&node->sim->oracle, stored, delivery->seq, delivery->fence,
			script->kind);
	sim_oracle_note_trouble(&node->sim->oracle, node, stored, delivery,
			script->kind);
}

/* A complete run, on this stack. */
static void run_inline(const struct sim_role *role, unsigned stored,
		const struct postern_message *message,
		const struct postern_delivery *delivery, const struct script *script,
		struct postern_outcome *outcome) {
	struct sim_node *node = role->node;
	run_begin(role, stored, message, delivery);
	if (delivery->transaction) {
		if (script->kind != POSTERN_DISCARD) {
			write_effect(node->sim, delivery, stored);
		}
	} else {
		(void)sim_site(node, SIM_SITE_HANDLER, "a handler", NULL);
	}
	if (node->dead) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
		return;
	}
	if (script->takes_ms > 0) {
		sim_advance(node->sim, script->takes_ms);
	}
	run_end(node, stored, delivery, script, outcome);
}

void sim_handler_call(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct sim_role *role = context;
	struct sim_node *node = role->node;
	if (node->dead) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
		return;
	}
	struct script script =
			draw_script(node, role->handler, delivery->seq, delivery->fence);
	/* No handler with a callback was ever renamed. */
	unsigned stored = sim_stored_of(&node->sim->oracle, role->handler,
			role->generation->number);
	run_inline(role, stored, message, delivery, &script, outcome);
}

/* A kind of handler for what the library's callback cannot do. */
struct sim_kind_handler {
	struct postern_handler base;
	const struct sim_role *role;
};

static struct sim_kind_handler *from_base(struct postern_handler *handler) {
	return container_of(handler, struct sim_kind_handler, base);
}

/* Only the box knows under which handler id it claimed a delivery. */
static unsigned stored_of(const struct sim_node *node,
		const struct postern_run *run) {
	unsigned stored = sim_stored_find(&node->sim->oracle, run->stored_handler);
	if (stored == SIM_STORED_MAX) {
		abort();
	}
	return stored;
}

static void sim_handler_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct sim_kind_handler *self = from_base(handler);
	struct sim_node *node = self->role->node;
	const struct postern_delivery *delivery = postern_run_delivery(run);
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, POSTERN_RETRY, 0, NULL);
	if (!node->dead) {
		struct script script = draw_script(node, self->role->handler,
				delivery->seq, delivery->fence);
		if (script.holds && !delivery->transaction &&
				node->held_count < SIM_HELD_MAX) {
			run_begin(self->role, stored_of(node, run),
					postern_run_message(run), delivery);
			node->held[node->held_count++] = (struct sim_held){ run, self->role,
				sim_oracle_suspect_until_ms(&node->sim->oracle,
						stored_of(node, run), delivery->seq) };
			return;
		}
		run_inline(self->role, stored_of(node, run), postern_run_message(run),
				delivery, &script, &outcome);
	}
	postern_run_finish(run, &outcome);
}

void sim_node_finish(struct sim_node *node, size_t index) {
	struct sim_held held = node->held[index];
	node->held[index] = node->held[--node->held_count];
	const struct postern_delivery *delivery = postern_run_delivery(held.run);
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, POSTERN_RETRY, 0, NULL);
	if (!node->dead) {
		struct script script = draw_script(node, held.role->handler,
				delivery->seq, delivery->fence);
		run_end(node, stored_of(node, held.run), delivery, &script, &outcome);
	}
	postern_run_finish(held.run, &outcome);
}

static void sim_handler_cancel(struct postern_handler *handler,
		struct postern_run *run, enum postern_cancel why) {
	/* The run ignores the cancellation. */
	(void)handler;
	(void)run;
	(void)why;
}

static void sim_handler_destroy(struct postern_handler *handler) {
	free(from_base(handler));
}

static const struct postern_handler_kind inside_kind = {
	.name = "sim_inside",
	.in_process = true,
	.timeout_ms = POSTERN_TIMEOUT_DEFAULT,
};

static const struct postern_handler_kind outside_kind = {
	.name = "sim_outside",
	.timeout_ms = POSTERN_TIMEOUT_DEFAULT,
};

static const struct postern_handler_ops sim_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = true,
	.start = sim_handler_start,
	.cancel = sim_handler_cancel,
	.destroy = sim_handler_destroy,
};

struct postern_handler *sim_handler_create(const struct sim_role *role,
		bool transactional) {
	struct sim_kind_handler *self = calloc(1, sizeof(*self));
	if (!self) {
		abort();
	}
	self->base.ops = &sim_ops;
	self->base.kind = sim_handlers[role->handler].in_process ? &inside_kind
															 : &outside_kind;
	self->base.transactional = transactional;
	self->role = role;
	return &self->base;
}
