/* SPDX-License-Identifier: MIT */
/*
 * The right under which this process holds leases: node lease and lock.
 *
 * A node is live for node_lease after each renewal and renews well before that
 * ends. If another node has recorded it as expired, its deliveries may be
 * recovered: the process registers as a new node, with a new node id, and the
 * store refuses settlements of the old one as stale.
 *
 * With exclusive processing only the node that holds the processing lock
 * leases, claims and starts runs. A node id holds the lock at most once: a
 * process that lost or released the lock registers a new node before it
 * acquires it again. So leases from before belong to another node, and the next
 * owner, which may be this process, recovers them.
 *
 * The owner of the lock recovers what all other nodes have leased, so all nodes
 * that process a store must use the same lock, or all no lock. Each node asks
 * the store for that (engages) before it leases, and waits while another node
 * does it differently.
 *
 * From the moment that the node lease or the lock may have expired, no run
 * starts and those in progress are cancelled. That moment is computed with this
 * process's monotonic clock, from before the call that renewed. Safety does not
 * depend on it: every change names the lock's fence, and the store refuses a
 * stale one.
 */

#include "core/tenure.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/shown.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/text.h"

/* Renewals per lease, so that two may fail. */
#define RENEWALS 3
/* How often a node that waits for another one to end asks the store. */
#define AGAIN_MS 1000

static bool is_exclusive(const struct postern_box *box) {
	return box->options.processing == POSTERN_PROCESSING_EXCLUSIVE;
}

static bool has_node_lease(const struct postern_box *box) {
	return box->options.node_lease_ms > 0;
}

/* How long the lock is held after a renewal, also where nodes have no lease. */
static int64_t lock_lease_ms(const struct postern_box *box) {
	return has_node_lease(box) ? box->options.node_lease_ms
							   : POSTERN__NODE_LEASE_MS_DEFAULT;
}

/* With the mutex: from when on no run may start. */
static int64_t right_until_ms(const struct postern_box *box) {
	int64_t until = POSTERN__NEVER;
	if (has_node_lease(box)) {
		until = box->node_until_ms;
	}
	if (is_exclusive(box) && box->lock_until_ms < until) {
		until = box->lock_until_ms;
	}
	return until;
}

bool postern__may_process(const struct postern_box *box) {
	if (box->draining || !box->engaged) {
		return false;
	}
	int64_t until = right_until_ms(box);
	return until == POSTERN__NEVER || postern__box_now_ms(box) < until;
}

struct postern__right postern__right_of(const struct postern_box *box) {
	struct postern__right right = {
		.node = box->node,
		.lock = box->lock_held,
		.locked = is_exclusive(box),
	};
	return right;
}

const struct postern_lock *postern__right_lock(
		const struct postern__right *right) {
	return right->locked ? &right->lock : NULL;
}

static uint64_t read_node(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	(void)pthread_mutex_unlock(&box->mutex);
	return node;
}

static void emit_lock(struct postern_box *box, enum postern_event_kind kind,
		uint64_t fence) {
	postern__emit(box, &(struct postern_event){
							   .kind = kind,
							   .lock = box->lock_name,
							   .node = read_node(box),
							   .fence = fence,
					   });
}

/* Return queued leases and cancel runs. The store refuses the settlements of
   those that this node has lost. */
static void stop_processing(struct postern_box *box) {
	postern__return_queued(box, false);
	postern__cancel_running(box, false);
}

int64_t postern__right_watch(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	int64_t until = right_until_ms(box);
	bool over = postern__box_now_ms(box) >= until;
	bool report = over && !box->right_expired;
	box->right_expired = over;
	(void)pthread_mutex_unlock(&box->mutex);
	if (report) {
		stop_processing(box);
	}
	return over ? POSTERN__NEVER : until;
}

/* With the mutex: the node could not process and may be able to now; `until`
   is when its right ends. */
static void resume_processing(struct postern_box *box, int64_t until) {
	box->freed_ms = postern__box_now_ms(box);
	postern__claim_hint_all(box);
	(void)pthread_cond_broadcast(&box->work);
	/* The watchdog must run when the right ends. */
	if (until < box->watch_at_ms) {
		box->watch_at_ms = until;
		(void)pthread_cond_signal(&box->watch);
	}
}

/* With the mutex: the node lease or the lock, *until, now ends at `to`. */
static void extend_right(struct postern_box *box, int64_t *until, int64_t to) {
	bool was_over = !postern__may_process(box);
	*until = to;
	box->right_expired = false;
	if (was_over) {
		resume_processing(box, to);
	}
}

static bool is_engaged(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	bool engaged = box->engaged;
	(void)pthread_mutex_unlock(&box->mutex);
	return engaged;
}

/* Record the result of engage(). Returns whether to report a refusal. */
static bool record_engagement(struct postern_box *box, uint64_t node, int r,
		const struct postern_error *answer) {
	bool report = false;
	(void)pthread_mutex_lock(&box->mutex);
	if (r == POSTERN_OK && box->node == node) {
		box->engaged = true;
		box->rival_reported = false;
		resume_processing(box,
				has_node_lease(box) ? box->node_until_ms : POSTERN__NEVER);
	} else if (r == POSTERN_E_BUSY) {
		report = !box->rival_reported;
		box->rival_reported = true;
		box->rival = *answer;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return report;
}

int postern__engage(struct postern_box *box, struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	bool engaged = box->engaged;
	(void)pthread_mutex_unlock(&box->mutex);
	if (engaged) {
		return POSTERN_OK;
	}
	struct postern_error answer = { 0 };
	int r = box->store->ops->engage(box->store, node,
			is_exclusive(box) ? box->lock_name : NULL, &answer);
	if (record_engagement(box, node, r, &answer)) {
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_NODE_WAITING,
						.node = node,
						.error = answer.text,
				},
				"waiting to process: %s", answer.text);
	}
	if (r == POSTERN_E_BUSY || r == POSTERN_E_STALE) {
		return POSTERN_OK; /* the next renewal retries, or registers a new node
							*/
	}
	if (r && error) {
		*error = answer;
	}
	return r;
}

/*
 * Register this process as a new node and end the former one. If that fails,
 * the former node stays and the next renewal retries. The new node is
 * registered before the former one ends, so that this process's handlers are
 * never orphaned in between.
 */
static int register_new_node(struct postern_box *box,
		struct postern_error *error) {
	stop_processing(box);
	uint64_t node = 0;
	while (node == 0) {
		node = box->random.next(box->random.context) >> 1;
	}
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t former = box->node;
	box->node = node;
	(void)pthread_mutex_unlock(&box->mutex);
	int r = postern__enrol(box, false, error);
	(void)pthread_mutex_lock(&box->mutex);
	if (r) {
		box->node = former;
	} else {
		box->node_had_lock = false;
		box->node_expired = false;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("tenure.between-lives");
	if (!r) {
		bool alive;
		/* If this fails, the node expires by itself. */
		(void)box->store->ops->renew(box->store, former, 0, &alive, NULL);
	}
	return r;
}

static void mark_lock_lost(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t fence = box->lock_held.fence;
	box->meter.lock_lost++;
	box->lock_held.fence = 0;
	box->lock_until_ms = 0;
	box->lock_wanted_since_ms = postern__box_now_ms(box);
	box->lock_wait_reported = false;
	(void)pthread_mutex_unlock(&box->mutex);
	stop_processing(box);
	emit_lock(box, POSTERN_EVENT_LOCK_LOST, fence);
}

static int renew_node(struct postern_box *box, struct postern_error *error) {
	int64_t until = postern__box_after_ms(box, box->options.node_lease_ms);
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	bool alive = !box->node_expired;
	bool locked = box->lock_held.fence > 0;
	(void)pthread_mutex_unlock(&box->mutex);
	bool news = alive;
	int r = POSTERN_OK;
	if (alive) {
		r = box->store->ops->renew(box->store, node, box->options.node_lease_ms,
				&alive, error);
	}
	if (r) {
		return r;
	}
	if (!alive) {
		(void)pthread_mutex_lock(&box->mutex);
		box->node_expired = true;
		(void)pthread_mutex_unlock(&box->mutex);
		if (locked) {
			mark_lock_lost(box);
		}
		if (news) {
			postern__emit(box, &(struct postern_event){
									   .kind = POSTERN_EVENT_NODE_EXPIRED,
									   .node = node,
							   });
		}
		until = postern__box_after_ms(box, box->options.node_lease_ms);
		r = register_new_node(box, error);
	}
	if (!r) {
		(void)pthread_mutex_lock(&box->mutex);
		extend_right(box, &box->node_until_ms, until);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	return r;
}

/* The new owner recovers at once what the former one had leased. With a runner
   the maintenance thread does that: a recovery may take longer than a lease,
   and this is the thread that renews. */
static int mark_lock_acquired(struct postern_box *box, uint64_t fence,
		int64_t until, struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	box->lock_held = (struct postern_lock){ box->lock_name, fence };
	box->node_had_lock = true;
	extend_right(box, &box->lock_until_ms, until);
	bool runner = box->leasing;
	box->recovery_due = runner;
	(void)pthread_mutex_unlock(&box->mutex);
	emit_lock(box, POSTERN_EVENT_LOCKED, fence);
	return runner ? POSTERN_OK : postern__recover(box, NULL, error);
}

static void report_lock_wait(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	int64_t waited = postern__box_now_ms(box) - box->lock_wanted_since_ms;
	bool report = !box->lock_wait_reported &&
				  waited >= box->options.lock_acquire_timeout_ms;
	box->lock_wait_reported = box->lock_wait_reported || report;
	(void)pthread_mutex_unlock(&box->mutex);
	if (report) {
		char since[POSTERN__DURATION_TEXT_MAX];
		postern__duration_format(waited, since);
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_LOCK_WAITING,
						.lock = box->lock_name,
						.node = read_node(box),
						.duration_ms = waited,
				},
				"waiting for the lock '%s', which another node has held for "
				"%s; "
				"'postern stats' shows which",
				box->lock_name, since);
	}
}

static int renew_lock(struct postern_box *box, struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t former = box->lock_held.fence;
	bool spent = box->node_had_lock;
	(void)pthread_mutex_unlock(&box->mutex);
	if (former == 0 && spent) {
		int r = register_new_node(box, error);
		if (!r) {
			r = postern__engage(box, error);
		}
		if (r || !is_engaged(box)) {
			return r;
		}
	}
	int64_t until = postern__box_after_ms(box, lock_lease_ms(box));
	struct postern_lock lock = { .name = box->lock_name };
	bool held = false;
	postern__point("tenure.lock-wanted");
	int r = box->store->ops->lock(box->store, lock.name, box->node,
			lock_lease_ms(box), &held, &lock.fence, error);
	if (r) {
		return r;
	}
	postern__point("tenure.lock-taken");
	if (held && lock.fence == former) {
		(void)pthread_mutex_lock(&box->mutex);
		if (box->lock_held.fence == former) {
			/* Otherwise the lock was released meanwhile. */
			extend_right(box, &box->lock_until_ms, until);
		}
		(void)pthread_mutex_unlock(&box->mutex);
		return POSTERN_OK;
	}
	if (former > 0) {
		/* Another node held the lock meanwhile. If this node has it again,
		   release it: a node id holds the lock at most once. */
		mark_lock_lost(box);
		return held ? box->store->ops->unlock(box->store, &lock, box->node,
							  error)
					: POSTERN_OK;
	}
	if (held) {
		return mark_lock_acquired(box, lock.fence, until, error);
	}
	report_lock_wait(box);
	return POSTERN_OK;
}

bool postern__needs_renewal(const struct postern_box *box) {
	return has_node_lease(box) || is_exclusive(box);
}

int64_t postern__renewal_interval_ms(const struct postern_box *box) {
	return lock_lease_ms(box) / RENEWALS;
}

/* Called by one thread at a time. */
static int renew_all(struct postern_box *box, struct postern_error *error) {
	int r = POSTERN_OK;
	if (has_node_lease(box)) {
		r = renew_node(box, error);
	}
	if (!r) {
		r = postern__engage(box, error);
	}
	if (!r && is_exclusive(box) && is_engaged(box)) {
		r = renew_lock(box, error);
	}
	return r ? r : postern__runs_report(box, error);
}

int postern__renew(struct postern_box *box, int64_t *next_out,
		struct postern_error *error) {
	int64_t pause = postern__renewal_interval_ms(box);
	*next_out = postern__needs_renewal(box) ? postern__box_after_ms(box, pause)
											: POSTERN__NEVER;
	(void)pthread_mutex_lock(&box->mutex);
	bool busy = box->renewing;
	box->renewing = true;
	(void)pthread_mutex_unlock(&box->mutex);
	if (busy) {
		return POSTERN_OK; /* another thread is renewing */
	}
	int r = renew_all(box, error);
	if (!is_engaged(box)) {
		*next_out =
				postern__box_after_ms(box, pause < AGAIN_MS ? pause : AGAIN_MS);
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->renewing = false;
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

void postern__lock_invalidate(struct postern_box *box, uint64_t fence) {
	(void)pthread_mutex_lock(&box->mutex);
	if (box->lock_held.fence == fence && fence > 0) {
		/* The lock may be lost: the next renewal finds out. */
		box->lock_until_ms = 0;
		box->watch_at_ms = 0;
		(void)pthread_cond_signal(&box->watch);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern__lock_release(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern_lock lock = box->lock_held;
	uint64_t node = box->node;
	/* A runner or another postern_box_process() still uses the lock, and runs
	   in progress are settled under it. */
	bool used = box->leasing || box->draining || box->processors > 0 ||
				box->running_count > 0;
	if (!used) {
		box->lock_held.fence = 0;
		box->lock_until_ms = 0;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (!used && lock.fence > 0) {
		/* If this fails, the lock expires by itself. */
		postern__point("tenure.ending");
		(void)box->store->ops->unlock(box->store, &lock, node, NULL);
		postern__point("tenure.ended");
	}
}
