/* SPDX-License-Identifier: MIT */
/*
 * What this node runs, as other nodes and people see it. In a store that
 * several nodes share, a node writes with each renewal which of its runs take
 * longer than a second; short ones would only be history when they are read.
 */

#include "core/shown.h"

#include "base/fail.h"
#include "core/accept.h"
#include "core/run.h"

#include <stdlib.h>

/* The age from which a run is reported. */
#define REPORT_AGE_MS 1000

size_t postern__runs_copy(const struct postern_box *box, int64_t min_ms,
		struct postern_run_report *out, size_t max) {
	int64_t now = postern__box_now_ms(box);
	size_t count = 0;
	postern__list_each(link, &box->running) {
		const struct postern_run *run =
				container_of(link, struct postern_run, link);
		if (count == max || now - run->dequeued_ms < min_ms) {
			break; /* those that follow started later */
		}
		if (run->content->is_inline) {
			continue; /* of a message that the store does not have */
		}
		out[count++] = (struct postern_run_report){
			.seq = run->delivery.seq,
			.handler = run->stored_handler,
			.fence = run->delivery.fence,
			.age_ms = now - run->started_ms,
			.lease_ms = run->handler->policy.lease_ms,
		};
	}
	return count;
}

/* Whether two reports have the same runs: their ages always differ. */
static bool same_runs(const struct postern_run_report *a,
		const struct postern_run_report *b, size_t count) {
	for (size_t i = 0; i < count; i++) {
		if (a[i].seq != b[i].seq || a[i].handler != b[i].handler ||
				a[i].fence != b[i].fence) {
			return false;
		}
	}
	return true;
}

int postern__runs_report(struct postern_box *box, struct postern_error *error) {
	if (!box->store->ops->report_runs) {
		return POSTERN_OK;
	}
	struct postern_run_report *runs =
			calloc(POSTERN_REPORTED_RUNS_MAX, sizeof(*runs));
	if (!runs) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	size_t count = postern__runs_copy(box, REPORT_AGE_MS, runs,
			POSTERN_REPORTED_RUNS_MAX);
	(void)pthread_mutex_unlock(&box->mutex);
	/* A new node has reported nothing, which is the same as no runs. */
	size_t before = box->reported_node == node ? box->reported_count : 0;
	int r = POSTERN_OK;
	if (count != before || !same_runs(runs, box->reported, count)) {
		r = box->store->ops->report_runs(box->store, node, runs, count, error);
		/* If it failed, it may have been written nevertheless. */
		free(box->reported);
		box->reported = r ? NULL : runs;
		box->reported_count = r ? SIZE_MAX : count;
		box->reported_node = node;
		runs = r ? runs : NULL;
	}
	free(runs);
	return r;
}
