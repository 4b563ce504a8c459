/* SPDX-License-Identifier: MIT */
/*
 * Operations of a plan, one function each. An operation that does not apply (no
 * such node, nothing to retry) does nothing.
 */

#include "sim/sim.h"

#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/tenure.h"

#include <postern/change.h>
#include <stdlib.h>
#include <string.h>

/* A calm time: so many polls, a second apart. */
#define CALM_ROUNDS 8
/* Far more than a backlog takes. */
#define CALM_TURNS_MAX 1000

struct async_send {
	struct sim_node *node;
	struct sim_parcel parcel;
};

static bool is_definite(int code) {
	return code == POSTERN_OK || code == POSTERN_E_DUPLICATE ||
		   code == POSTERN_E_CONFLICT;
}

static void record_receipt(struct sim_node *node,
		const struct sim_parcel *parcel, int code, int64_t seq) {
	sim_node_answered(node, parcel);
	if (node->dead) {
		code = POSTERN_E_UNAVAILABLE; /* the sender gets no receipt */
	}
	sim_history_receipt(node, parcel, code, seq);
	if (is_definite(code)) {
		sim_oracle_receipt(&node->sim->oracle, parcel->number, parcel->variant,
				code, seq);
	} else if (code == POSTERN_E_INVALID) {
		sim_oracle_broken(&node->sim->oracle, "rejected", "%s", parcel->id);
	}
}

/* One message in 16 has another body than the first with its number. */
static unsigned draw_variant(const struct sim_op *op) {
	return op->b % 16 == 0;
}

static void record_send(struct sim_node *node, struct sim_parcel *parcel) {
	parcel->generation = node->generation;
	sim_node_sent(node, parcel);
	sim_history_send(node, parcel);
}

static void step_send(struct sim_node *node, const struct sim_op *op) {
	struct sim_parcel parcel;
	sim_parcel_make(node->sim, op->a, draw_variant(op), &parcel);
	record_send(node, &parcel);
	int64_t seq = 0;
	int r = postern_box_accept(node->box, sim_channels[parcel.channel].name,
			&parcel.message, &seq, NULL);
	record_receipt(node, &parcel, r, seq);
}

static void step_send_batch(struct sim_node *node, const struct sim_op *op) {
	struct sim_parcel parcels[SIM_BATCH_MAX];
	struct postern_message messages[SIM_BATCH_MAX];
	struct postern_receipt receipts[SIM_BATCH_MAX] = { 0 };
	size_t count = 0;
	sim_parcel_make(node->sim, op->a, draw_variant(op), &parcels[0]);
	/* More messages of the same channel: new ones, and copies of the first. */
	for (unsigned i = 0; i < 4 * SIM_BATCH_MAX &&
						 count + 1 < 2 + (op->b >> 8) % (SIM_BATCH_MAX - 1);
			i++) {
		struct sim_parcel *next = &parcels[count + 1];
		unsigned number = SIM_MESSAGE_MAX + 4 * SIM_BATCH_MAX * op->a + i;
		bool again = (op->b >> (12 + i % 16) & 7) == 0;
		sim_parcel_make(node->sim, again ? op->a : number,
				i == 3 && again ? 1 : 0, next);
		count += next->channel == parcels[0].channel;
	}
	count++;
	for (size_t i = 0; i < count; i++) {
		messages[i] = parcels[i].message;
		record_send(node, &parcels[i]);
	}
	int r = postern_box_accept_batch(node->box,
			sim_channels[parcels[0].channel].name, messages, count, receipts,
			NULL);
	for (size_t i = 0; i < count; i++) {
		record_receipt(node, &parcels[i], r ? r : receipts[i].error.code,
				receipts[i].seq);
	}
}

static void record_async_receipt(void *context,
		const struct postern_receipt *receipt) {
	struct async_send *async_send = context;
	record_receipt(async_send->node, &async_send->parcel, receipt->error.code,
			receipt->seq);
	free(async_send);
}

static void step_send_async(struct sim_node *node, const struct sim_op *op) {
	struct async_send *async_send = calloc(1, sizeof(*async_send));
	if (!async_send) {
		abort();
	}
	async_send->node = node;
	sim_parcel_make(node->sim, op->a, draw_variant(op), &async_send->parcel);
	record_send(node, &async_send->parcel);
	int r = postern_box_accept_async(node->box,
			sim_channels[async_send->parcel.channel].name,
			&async_send->parcel.message, record_async_receipt, async_send,
			NULL);
	if (r) {
		record_receipt(node, &async_send->parcel, r, 0);
		free(async_send);
	}
}

static void step_commit(struct sim_node *node, const struct sim_op *op) {
	(void)op;
	(void)postern_box_commit(node->box, NULL, NULL);
}

static void step_claim(struct sim_node *node, const struct sim_op *op) {
	(void)postern_box_claim(node->box, 1 + op->a % 5, NULL, NULL);
}

static void step_run(struct sim_node *node, const struct sim_op *op) {
	(void)postern_box_run(node->box, 1 + op->a % 5, NULL, NULL);
}

static void step_pump(struct sim_node *node, const struct sim_op *op) {
	struct postern_box *box = node->box;
	int64_t next;
	if (op->b % 4 == 1) {
		(void)postern_box_sweep(box, NULL, NULL);
	} else if (op->b % 4) {
		(void)postern__renew(box, &next, NULL);
	}
	if (op->b & 4) { /* the node polls, or is woken */
		(void)postern__pauses_refresh(box, NULL);
		(void)pthread_mutex_lock(&box->mutex);
		postern__claim_hint_all(box);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	(void)pthread_mutex_lock(&box->mutex);
	bool ready = postern__claim_at_ms(box) <= postern__box_now_ms(box);
	(void)pthread_mutex_unlock(&box->mutex);
	if (ready) {
		size_t count;
		(void)postern__claim(box, box->options.batch_size, false, &count, NULL);
	}
	(void)postern_box_run(box, SIZE_MAX, NULL, NULL);
	(void)postern_box_commit(box, NULL, NULL);
}

/* Claim, run and commit until nothing is ready, as idle threads do. */
static void run_until_idle(struct postern_box *box) {
	for (unsigned i = 0; i < CALM_TURNS_MAX; i++) {
		size_t claimed;
		size_t ran = 0;
		(void)pthread_mutex_lock(&box->mutex);
		bool ready = postern__claim_at_ms(box) <= postern__box_now_ms(box);
		(void)pthread_mutex_unlock(&box->mutex);
		if (ready) {
			(void)postern__claim(box, box->options.batch_size, false, &claimed,
					NULL);
		}
		(void)postern_box_run(box, SIZE_MAX, &ran, NULL);
		(void)postern_box_commit(box, NULL, NULL);
		if (!ready && ran == 0) {
			return;
		}
	}
}

static void step_calm(struct sim_node *node, const struct sim_op *op) {
	struct postern_box *box = node->box;
	(void)op;
	if (!box->leasing) {
		return; /* a process without a runner */
	}
	uint64_t before = node->sim->counts.runs;
	node->sim->counts.calms++;
	sim_oracle_calm_begin(&node->sim->oracle);
	for (unsigned i = 0; i < CALM_ROUNDS; i++) {
		int64_t next;
		(void)postern_box_sweep(box, NULL, NULL);
		(void)postern__renew(box, &next, NULL);
		(void)postern__pauses_refresh(box, NULL);
		(void)pthread_mutex_lock(&box->mutex);
		postern__claim_hint_all(box);
		(void)pthread_mutex_unlock(&box->mutex);
		int64_t begun = postern__box_now_ms(box);
		run_until_idle(box);
		/* A slow run on this one thread may outlast the node's lease. */
		if (postern__box_now_ms(box) - begun < SIM_NODE_LEASE_MS / 3) {
			sim_oracle_calm(&node->sim->oracle, node);
		}
		sim_advance(node->sim, 1000);
	}
	node->sim->counts.calm_starts += node->sim->counts.runs - before;
}

static void step_process(struct sim_node *node, const struct sim_op *op) {
	(void)postern_box_process(node->box, op->a % 6, NULL, NULL);
}

static void step_sweep(struct sim_node *node, const struct sim_op *op) {
	(void)op;
	(void)postern_box_sweep(node->box, NULL, NULL);
}

static void step_finish(struct sim_node *node, const struct sim_op *op) {
	if (node->held_count > 0) {
		sim_node_finish(node, op->a % node->held_count);
	}
}

/* A delivery, and a key of its handler. */
static const char *pick_delivery(struct sim_node *node, const struct sim_op *op,
		int64_t *seq_out) {
	const struct sim_oracle *oracle = &node->sim->oracle;
	if (oracle->count == 0) {
		return NULL;
	}
	const struct sim_record *record = &oracle->records[op->a % oracle->count];
	*seq_out = record->seq;
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		unsigned stored = (op->b + i) % oracle->stored_count;
		if (record->deliveries[stored].exists) {
			return oracle->stored[stored].key;
		}
	}
	return ""; /* parked */
}

static void step_retry(struct sim_node *node, const struct sim_op *op) {
	int64_t seq;
	const char *key = pick_delivery(node, op, &seq);
	if (key) {
		sim_history_edit(node->sim, "retry", seq, key);
		(void)postern_box_retry(node->box, seq, key, NULL);
	}
}

static void step_discard(struct sim_node *node, const struct sim_op *op) {
	int64_t seq;
	const char *key = pick_delivery(node, op, &seq);
	if (key) {
		sim_history_edit(node->sim, "discard", seq, key);
		(void)postern_box_discard(node->box, seq, key, NULL);
	}
}

static void step_edit_all(struct sim_node *node, const struct sim_op *op) {
	struct postern_filter filter = {
		.size = sizeof(filter),
		.limit = 1 + op->b % 5,
		.handler = sim_handlers[op->a % SIM_HANDLER_COUNT].key,
		.state = POSTERN_STATE_POISONED,
	};
	uint64_t count;
	bool retry = op->kind == SIM_RETRY_ALL;
	sim_history_edit(node->sim, retry ? "retry" : "discard", 0, NULL);
	(void)(retry ? postern_box_retry_all : postern_box_discard_all)(node->box,
			&filter, false, &count, NULL);
}

static void step_pause(struct sim_node *node, const struct sim_op *op) {
	const struct sim_handler *cast = &sim_handlers[op->a % SIM_HANDLER_COUNT];
	const char *key = cast->old_key && op->b % 2 ? cast->old_key : cast->key;
	bool stops = op->kind == SIM_PAUSE;
	bool timed = stops && op->b / 2 % 2;
	/* Now and then the intake of a channel instead. */
	bool intake = op->b / 4 % 4 == 0;
	struct postern_change change = {
		.size = sizeof(change),
		.kind = intake  ? (stops ? POSTERN_CHANGE_CLOSE : POSTERN_CHANGE_OPEN)
				: stops ? POSTERN_CHANGE_PAUSE
						: POSTERN_CHANGE_RESUME,
		.handler = intake ? NULL : key,
		.channel = intake ? sim_channels[op->a % SIM_CHANNEL_COUNT].name : NULL,
		.for_ms = timed && !intake ? 1 + op->b % 60000 : 0,
	};
	sim_trace(node->sim, "  %s '%s' for %lld ms",
			intake ? "channel" : "handler",
			intake ? change.channel : change.handler, (long long)change.for_ms);
	(void)postern_box_change(node->box, &change, NULL);
}

static void step_compare(struct sim_node *node, const struct sim_op *op) {
	struct postern_stats *stats = NULL;
	(void)op;
	if (postern_box_stats(node->box, &stats, NULL) == POSTERN_OK) {
		postern_stats_destroy(stats);
	}
	sim_oracle_compare(&node->sim->oracle, SIM_CAUSE_NONE);
}

static void step_cleanup(struct sim_node *node, const struct sim_op *op) {
	(void)op;
	struct postern__cleanup state = { 0 };
	bool more = true;
	while (more) {
		if (postern__cleanup_step(node->box, &state, &more, NULL)) {
			break;
		}
	}
	postern__cleanup_end(node->box, &state);
}

static void step_replace(struct sim_node *node, const struct sim_op *op) {
	(void)sim_node_replace(node, op->a % SIM_REPLACED_COUNT);
}

static void step_stop(struct sim_node *node, const struct sim_op *op) {
	(void)op;
	sim_node_stop(node);
}

static void step_crash(struct sim_node *node, const struct sim_op *op) {
	(void)op;
	sim_node_kill(node);
}

/* The operations of a running node. */
static void (*const steps[SIM_KIND_COUNT])(struct sim_node *,
		const struct sim_op *) = {
	[SIM_SEND] = step_send,
	[SIM_SEND_BATCH] = step_send_batch,
	[SIM_SEND_ASYNC] = step_send_async,
	[SIM_COMMIT] = step_commit,
	[SIM_CLAIM] = step_claim,
	[SIM_RUN] = step_run,
	[SIM_PUMP] = step_pump,
	[SIM_PROCESS] = step_process,
	[SIM_SWEEP] = step_sweep,
	[SIM_FINISH] = step_finish,
	[SIM_RETRY] = step_retry,
	[SIM_DISCARD] = step_discard,
	[SIM_RETRY_ALL] = step_edit_all,
	[SIM_DISCARD_ALL] = step_edit_all,
	[SIM_PAUSE] = step_pause,
	[SIM_RESUME] = step_pause,
	[SIM_COMPARE] = step_compare,
	[SIM_STOP] = step_stop,
	[SIM_CLEANUP] = step_cleanup,
	[SIM_REPLACE] = step_replace,
	[SIM_CALM] = step_calm,
	[SIM_CRASH] = step_crash,
};

static void step_wait(struct sim *sim, const struct sim_op *op) {
	static const int64_t spans[] = { 50, 1000, 5000, 20 * 1000, 70 * 1000,
		400 * 1000 };
	int64_t ms = spans[op->a % (sizeof(spans) / sizeof(spans[0]))];
	sim_trace(sim, "%lld ms pass", (long long)ms);
	sim_advance(sim, ms);
}

/* The clock of the store or of a node is set. */
static void step_jump(struct sim *sim, const struct sim_op *op) {
	static const int64_t hours[] = { 1, -1, 24, -24 };
	int64_t ms = hours[op->a % 4] * 3600 * 1000;
	unsigned whose = op->b % (sim->plan->nodes + 1);
	if (whose < sim->plan->nodes) {
		fake_clock_jump(&sim->nodes[whose].clock, ms);
		sim_trace(sim, "the clock of node %u jumps by %lld ms", whose,
				(long long)ms);
		return;
	}
	sim_trace(sim, "the store's clock jumps by %lld ms", (long long)ms);
	fake_clock_jump(&sim->clock, ms);
	sim->oracle.set_back = sim->oracle.set_back || ms < 0;
}

static void step_crash_all(struct sim *sim) {
	if (sim->plan->store == SIM_MEMORY || sim->depth > 0) {
		return; /* a store in memory would be lost */
	}
	sim_trace(sim, "the process is killed, and with it all nodes");
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		sim_node_kill(&sim->nodes[i]);
		sim_node_close_dead(&sim->nodes[i]);
	}
	sim_world_reopen(sim);
}

static bool is_unlocked(pthread_mutex_t *mutex) {
	bool unlocked = pthread_mutex_trylock(mutex) == 0;
	if (unlocked) {
		(void)pthread_mutex_unlock(mutex);
	}
	return unlocked;
}

/* Whether another thread of a paused node could replace its generation now,
   without waiting. At two points a run has started, but not its handler. */
static bool is_replaceable(const struct sim_node *node) {
	struct postern_box *box = node->box;
	enum sim_kind kind = node->op->kind;
	return node->paused_at && strcmp(node->paused_at, "run.before") != 0 &&
		   strcmp(node->paused_at, "transact.before") != 0 &&
		   kind != SIM_START && kind != SIM_STOP && kind != SIM_REPLACE &&
		   is_unlocked(&box->replacing) && is_unlocked(&box->pausing) &&
		   is_unlocked(&box->mutex);
}

/* The node is paused in another operation, which has its own thread. */
static void step_replace_busy(struct sim_node *node, const struct sim_op *op) {
	struct sim *sim = node->sim;
	struct sim_node *current = sim->current;
	sim_trace(sim, "node %u, while paused: replace", node->index);
	sim->current = node;
	sim->depth++;
	uint64_t before = sim->counts.replaced;
	step_replace(node, op);
	sim->counts.replaced_busy += sim->counts.replaced - before;
	sim->depth--;
	sim->current = current;
}

static void step_node(struct sim *sim, const struct sim_op *op) {
	struct sim_node *node = &sim->nodes[op->node];
	bool up = node->box && !node->dead;
	if (op->kind == SIM_CRASH && up) {
		sim_trace(sim, "node %u is killed", op->node);
		sim_node_kill(node); /* even while paused */
		if (!node->op) {
			sim_node_close_dead(node);
		}
		return;
	}
	if (op->kind == SIM_REPLACE && up && node->op && is_replaceable(node)) {
		step_replace_busy(node, op);
		return;
	}
	if (node->op || up == (op->kind == SIM_START) ||
			(op->kind != SIM_START && !steps[op->kind])) {
		return;
	}
	sim_trace(sim, "node %u: %s", op->node, sim_kind_name(op->kind));
	struct sim_node *current = sim->current;
	sim->current = node;
	node->op = op;
	node->sites = 0;
	node->fault_done = false;
	sim->depth++;
	if (op->kind == SIM_START) {
		sim_node_start(node, op->a % SIM_GENERATION_COUNT, op->b % 4 > 0);
	} else {
		steps[op->kind](node, op);
	}
	sim->depth--;
	node->op = NULL;
	sim_node_close_dead(node);
	sim->current = current;
}

void sim_step(struct sim *sim, const struct sim_op *op) {
	sim->counts.ops++;
	switch (op->kind) {
	case SIM_WAIT: step_wait(sim, op); break;
	case SIM_JUMP: step_jump(sim, op); break;
	case SIM_CRASH_ALL: step_crash_all(sim); break;
	default: step_node(sim, op); break;
	}
}

bool sim_step_next(struct sim *sim) {
	if (sim->cursor >= sim->plan->op_count) {
		return false;
	}
	sim_step(sim, &sim->plan->ops[sim->cursor++]);
	return true;
}
