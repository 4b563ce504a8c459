/* SPDX-License-Identifier: MIT */

/* Keys in memory: how many, how long, and how large. */

#include "core/recent.h"

#include <postern/sys/random.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_clock.h"
#include "tap.h"
#include "unit/dice.h"

#define KEYS 300

static bool has(struct postern__recent *recent, uint64_t key, size_t max,
		int64_t keep_ms, int64_t now_ms) {
	const struct postern__recent_limits limits = { max, keep_ms };
	return postern__recent_has(recent, &key, sizeof key, &limits, now_ms);
}

static bool add(struct postern__recent *recent, uint64_t key, size_t max,
		int64_t keep_ms, int64_t now_ms) {
	const struct postern__recent_limits limits = { max, keep_ms };
	return postern__recent_add(recent, &key, sizeof key, &limits, now_ms);
}

static struct postern__recent *create(void) {
	struct postern__recent *recent =
			postern__recent_create(postern_random_system());
	CHECK(recent);
	return recent;
}

static void by_age(void) {
	struct postern__recent *recent = create();
	CHECK(!has(recent, 1, 10, 100, 0));
	CHECK(!add(recent, 1, 10, 100, 0));
	CHECK(!add(recent, 2, 10, 100, 50));
	CHECK(has(recent, 1, 10, 100, 99));
	CHECK(!has(recent, 1, 10, 100, 100));
	CHECK(has(recent, 2, 10, 100, 149));
	CHECK(!has(recent, 2, 10, 100, 150));
	CHECK_INT(postern__recent_count(recent), 0);
	postern__recent_destroy(recent);
}

static void by_count(void) {
	struct postern__recent *recent = create();
	CHECK(!add(recent, 1, 2, 100, 0));
	CHECK(!add(recent, 2, 2, 100, 0));
	/* Only the first loss is worth a report. */
	CHECK(add(recent, 3, 2, 100, 0));
	CHECK(!add(recent, 4, 2, 100, 0));
	CHECK(!has(recent, 1, 2, 100, 0));
	CHECK(!has(recent, 2, 2, 100, 0));
	CHECK(has(recent, 3, 2, 100, 0));
	CHECK(has(recent, 4, 2, 100, 0));
	/* Other limits hold from the next key on. */
	CHECK(!add(recent, 5, 1, 100, 0));
	CHECK_INT(postern__recent_count(recent), 1);
	postern__recent_destroy(recent);
}

/* What is remembered, and since when; -1: not. */
struct model {
	int64_t at_ms[KEYS];
	uint64_t order[KEYS];
	size_t count;
};

static void model_drop(struct model *model, size_t count) {
	for (size_t i = 0; i < count; i++) {
		model->at_ms[model->order[i]] = -1;
	}
	model->count -= count;
	memmove(model->order, model->order + count,
			model->count * sizeof model->order[0]);
}

static void as_model(void) {
	struct postern__recent *recent = create();
	struct model model = { .count = 0 };
	struct dice dice = { .state = 1 };
	int64_t now = 0;
	for (size_t i = 0; i < KEYS; i++) {
		model.at_ms[i] = -1;
	}
	for (int step = 0; step < 200000; step++) {
		uint64_t key = dice_below(&dice, KEYS);
		size_t max = step % 1000 < 500 ? 100 : 200;
		now += (int64_t)dice_below(&dice, 3);
		size_t old = 0;
		while (old < model.count && now - model.at_ms[model.order[old]] >= 90) {
			old++;
		}
		model_drop(&model, old);
		bool known = model.at_ms[key] >= 0;
		if (!CHECK_INT(has(recent, key, max, 90, now), known)) {
			break;
		}
		if (!known) {
			if (model.count >= max) {
				model_drop(&model, model.count - max + 1);
			}
			model.order[model.count++] = key;
			model.at_ms[key] = now;
			(void)add(recent, key, max, 90, now);
		}
		CHECK_INT(postern__recent_count(recent), model.count);
	}
	postern__recent_destroy(recent);
}

static void small(void) {
	struct postern__recent *recent = create();
	for (uint64_t i = 0; i < 300000; i++) {
		(void)add(recent, i, 1000000, 1000, 0);
		if (i > 1000 && i % 997 == 0) {
			CHECK(postern__recent_bytes(recent) <= (i + 1) * 100);
		}
	}
	CHECK(has(recent, 0, 1000000, 1000, 0));
	CHECK(has(recent, 299999, 1000000, 1000, 0));
	postern__recent_destroy(recent);
}

static const struct tap_case cases[] = {
	{ "a key in memory is forgotten when its time is over", by_age },
	{ "as many keys in memory as allowed: the oldest is forgotten", by_count },
	{ "random keys in memory are as in a list", as_model },
	{ "a key in memory takes at most 100 bytes", small },
};

TAP_MAIN(cases)
