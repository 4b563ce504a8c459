/* SPDX-License-Identifier: MIT */
/*
 * The breaker of a handler. It opens when a run says that the handler itself is
 * at fault, or after `break_after` failures in a row of different messages.
 * While it is open the handler is held on this node:
 *
 *   closed --fault, or break_after failures--> open --success--> closed
 *                                              |  ^
 *                                              +--+ one delivery probes,
 *                                                   1 s, 2 s, … 10 s apart
 *
 * When it opens, the leases of runs that have not started are returned, so that
 * another node, where the handler may work, can run them. A delivery that
 * ended by a fault waits as long as the next probe does, without a failure
 * being counted; deliveries that are due before it are the next probes.
 *
 * A message can look like a fault of the handler (a violation of row security
 * looks like a missing right). So a delivery that ends by a fault again,
 * although a run of the handler that started later has succeeded, is charged.
 */

#include "core/breaker.h"

#include "core/reason.h"
#include "core/run.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_MS_MIN ((int64_t)1000)
#define PROBE_MS_MAX ((int64_t)10 * 1000)
/* Deliveries whose fault is remembered, of each handler, until they have ended.
   One that is forgotten is not charged when it ends by a fault again. */
#define FAULTED_MAX 4096

bool postern__breaker_is_open(const struct postern__handler_state *state) {
	return state->breaker && state->breaker->open;
}

int64_t postern__breaker_probe_at_ms(
		const struct postern__handler_state *state) {
	return postern__breaker_is_open(state) ? state->breaker->probe_at_ms : 0;
}

void postern__breaker_take_probe(const struct postern_box *box,
		struct postern__handler_state *state) {
	struct postern__breaker *breaker = state->breaker;
	if (postern__breaker_is_open(state)) {
		/* If the probe hangs, the next one follows nevertheless. */
		breaker->probe_at_ms = postern__box_after_ms(box, breaker->delay_ms);
		breaker->probe_taken = true;
	}
}

bool postern__breaker_admits(struct postern__handler_state *state) {
	struct postern__breaker *breaker = state->breaker;
	if (!postern__breaker_is_open(state)) {
		return true;
	}
	bool admits = breaker->probe_taken;
	breaker->probe_taken = false;
	return admits;
}

/* Most handlers never fail: the breaker is created when it is needed. NULL: out
   of memory, and then nothing is held. */
static struct postern__breaker *breaker_of(
		struct postern__handler_state *state) {
	if (!state->breaker) {
		state->breaker = calloc(1, sizeof(*state->breaker));
	}
	return state->breaker;
}

/* The handler may be tried again, by another delivery, after a delay. */
static void delay_probe(struct postern_run *run,
		struct postern__breaker *breaker) {
	struct postern_box *box = run->box;
	breaker->probe_at_ms = postern__box_after_ms(box, breaker->delay_ms);
	postern__claim_hint(box, run->handler, breaker->delay_ms);
	postern__claim_nudge(box);
}

static void open_breaker(struct postern_run *run,
		struct postern__breaker *breaker, const char *reason) {
	struct postern_box *box = run->box;
	struct postern__handler_state *state = run->handler->state;
	breaker->open = true;
	breaker->since_ms = box->clock.wall_ms(box->clock.context);
	breaker->opened_ms = postern__box_now_ms(box);
	breaker->delay_ms = PROBE_MS_MIN;
	breaker->probe_taken = false;
	reason = reason ? reason : "";
	(void)postern__utf8_clean(reason, strlen(reason), breaker->reason,
			sizeof(breaker->reason));
	run->breaker = POSTERN__BREAKER_OPENED;
	postern__list_each(link, &state->queue) {
		postern__run_return_lease(container_of(link, struct postern_run, link));
	}
	delay_probe(run, breaker);
}

/* The run failed while the breaker was open. Runs that started before it opened
   are not probes. */
static void note_probe(struct postern_run *run,
		struct postern__breaker *breaker) {
	if (run->started_ms > breaker->opened_ms) {
		int64_t next = breaker->delay_ms * 2;
		breaker->delay_ms = next < PROBE_MS_MAX ? next : PROBE_MS_MAX;
		delay_probe(run, breaker);
	}
}

static struct postern__faulted *find_faulted(struct postern__breaker *breaker,
		const struct postern_run *run) {
	for (size_t i = 0; i < breaker->faulted_count; i++) {
		if (breaker->faulted[i].seq == run->delivery.seq &&
				breaker->faulted[i].stored_handler == run->stored_handler) {
			return &breaker->faulted[i];
		}
	}
	return NULL;
}

static void remember_faulted(struct postern_run *run,
		struct postern__breaker *breaker) {
	if (!breaker->faulted) {
		breaker->faulted = calloc(FAULTED_MAX, sizeof(*breaker->faulted));
	}
	if (!breaker->faulted) {
		return;
	}
	breaker->faulted[breaker->faulted_next] = (struct postern__faulted){
		.seq = run->delivery.seq,
		.stored_handler = run->stored_handler,
		.at_ms = postern__box_now_ms(run->box),
	};
	breaker->faulted_next = (breaker->faulted_next + 1) % FAULTED_MAX;
	if (breaker->faulted_count < FAULTED_MAX) {
		breaker->faulted_count++;
	}
}

void postern__breaker_forget(const struct postern_run *run) {
	struct postern__breaker *breaker = run->handler->state->breaker;
	struct postern__faulted *faulted =
			breaker ? find_faulted(breaker, run) : NULL;
	if (faulted) {
		/* The order only says which one a full ring forgets first. */
		*faulted = breaker->faulted[--breaker->faulted_count];
		breaker->faulted_next = breaker->faulted_count;
	}
}

int64_t postern__breaker_fault(struct postern_run *run, const char *reason) {
	struct postern__breaker *breaker = breaker_of(run->handler->state);
	if (run->handler->policy.on_broken == POSTERN_ON_BROKEN_COUNT) {
		return -1;
	}
	if (!breaker) {
		return PROBE_MS_MIN;
	}
	/* An inline run has no number: whether it came before is unknown. */
	bool known = run->delivery.seq > 0;
	const struct postern__faulted *before =
			known ? find_faulted(breaker, run) : NULL;
	if (before && breaker->success_ms > before->at_ms) {
		return -1;
	}
	if (!before && known) {
		remember_faulted(run, breaker);
	}
	if (!breaker->open) {
		open_breaker(run, breaker, reason);
	} else {
		note_probe(run, breaker);
	}
	return breaker->delay_ms;
}

/* Add a message to those that failed since the last success. */
static void add_failed(struct postern__breaker *breaker, int64_t seq,
		size_t most) {
	for (size_t i = 0; i < breaker->failed_count; i++) {
		if (breaker->failed[i] == seq) {
			return;
		}
	}
	if (breaker->failed_max < most) {
		int64_t *grown =
				realloc(breaker->failed, most * sizeof(*breaker->failed));
		if (!grown) {
			return;
		}
		breaker->failed = grown;
		breaker->failed_max = most;
	}
	if (breaker->failed_count < most) {
		breaker->failed[breaker->failed_count++] = seq;
	}
}

void postern__breaker_failure(struct postern_run *run, const char *reason) {
	/* Of inline runs the sender decides when there were too many. */
	size_t most = run->delivery.seq > 0 ? run->handler->policy.break_after : 0;
	struct postern__handler_state *state = run->handler->state;
	struct postern__breaker *breaker =
			most > 0 ? breaker_of(state) : state->breaker;
	if (!breaker) {
		return;
	}
	if (most > 0) {
		add_failed(breaker, run->delivery.seq, most);
	}
	if (breaker->open) {
		note_probe(run, breaker);
	} else if (most > 0 && breaker->failed_count >= most) {
		char text[POSTERN_REASON_LEN_MAX + 1];
		(void)snprintf(text, sizeof(text), "%zu messages in a row failed: %s",
				breaker->failed_count, reason ? reason : "");
		open_breaker(run, breaker, text);
	}
}

void postern__breaker_success(struct postern_run *run) {
	struct postern__breaker *breaker = run->handler->state->breaker;
	if (!breaker) {
		return;
	}
	postern__breaker_forget(run);
	breaker->failed_count = 0;
	if (run->started_ms > breaker->success_ms) {
		breaker->success_ms = run->started_ms;
	}
	if (breaker->open) {
		breaker->open = false;
		run->breaker = POSTERN__BREAKER_CLOSED;
		postern__claim_hint(run->box, run->handler, 0);
		postern__claim_nudge(run->box);
	}
}

void postern__breaker_close(struct postern__handler_state *state) {
	if (state->breaker) {
		state->breaker->open = false;
		state->breaker->failed_count = 0;
		/* Successes of the former definition prove nothing about this one. */
		state->breaker->faulted_count = 0;
		state->breaker->faulted_next = 0;
	}
}

void postern__breaker_destroy(struct postern__breaker *breaker) {
	if (breaker) {
		free(breaker->failed);
		free(breaker->faulted);
		free(breaker);
	}
}
