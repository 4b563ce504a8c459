/* SPDX-License-Identifier: MIT */
/*
 * Latency of messages. A message has a slot by its number in the store. The
 * sender records when the message was sent, as soon as it knows the number; the
 * subscriber records when the handler started, which may happen earlier or
 * later. Numbers increase by one, so no two messages of a job share a slot.
 */

#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench.h"

bool postern__bench_samples_init(struct postern__bench_samples *samples,
		uint64_t messages) {
	samples->stride = messages / POSTERN__BENCH_SAMPLES_MAX + 1;
	samples->slots = calloc(POSTERN__BENCH_SAMPLES_MAX, sizeof *samples->slots);
	return samples->slots;
}

void postern__bench_samples_finish(struct postern__bench_samples *samples) {
	free(samples->slots);
	samples->slots = NULL;
}

static bool find_slot(const struct postern__bench_samples *samples, int64_t seq,
		size_t *out) {
	uint64_t number = (uint64_t)seq;
	*out = number / samples->stride % POSTERN__BENCH_SAMPLES_MAX;
	return number % samples->stride == 0;
}

void postern__bench_samples_sent(struct postern__bench_samples *samples,
		int64_t seq, int64_t ns) {
	size_t slot;
	if (find_slot(samples, seq, &slot)) {
		atomic_store_explicit(&samples->slots[slot].sent_ns, ns,
				memory_order_relaxed);
	}
}

void postern__bench_samples_started(struct postern__bench_samples *samples,
		int64_t seq) {
	size_t slot;
	if (find_slot(samples, seq, &slot)) {
		atomic_store_explicit(&samples->slots[slot].started_ns,
				postern__clock_ns(), memory_order_relaxed);
	}
}

static int compare(const void *a, const void *b) {
	const int64_t left = *(const int64_t *)a;
	const int64_t right = *(const int64_t *)b;
	return (left > right) - (left < right);
}

/* The smallest value that is at least as large as so many per cent. */
static int64_t percentile(const int64_t *values, size_t count, size_t percent) {
	size_t rank = (count * percent + 99) / 100;
	return values[rank > 0 ? rank - 1 : 0];
}

void postern__bench_samples_read(struct postern__bench_samples *samples,
		struct postern__bench_result *out) {
	out->p50_ns = -1;
	out->p99_ns = -1;
	out->max_ns = -1;
	out->sample_count = 0;
	int64_t *values = calloc(POSTERN__BENCH_SAMPLES_MAX, sizeof *values);
	size_t count = 0;
	for (size_t i = 0; values && i < POSTERN__BENCH_SAMPLES_MAX; i++) {
		int64_t sent = atomic_load(&samples->slots[i].sent_ns);
		int64_t started = atomic_load(&samples->slots[i].started_ns);
		if (sent > 0 && started > 0) {
			values[count++] = started > sent ? started - sent : 0;
		}
	}
	if (count > 0) {
		qsort(values, count, sizeof *values, compare);
		out->p50_ns = percentile(values, count, 50);
		out->p99_ns = percentile(values, count, 99);
		out->max_ns = values[count - 1];
		out->sample_count = count;
	}
	free(values);
}
