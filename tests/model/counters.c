/* SPDX-License-Identifier: MIT */

/*
 * Compares the counts of a store's handlers with the model.
 */

#include "conformance/stand.h"
#include "model/model.h"

void model_compare_counters(const struct model *model, struct stand *stand,
		const char *const keys[MODEL_HANDLER_MAX]) {
	for (int i = 1; i < MODEL_HANDLER_MAX; i++) {
		struct postern_handler_stats expected = { 0 };
		if (model->owner[i] != i) {
			continue;
		}
		for (size_t j = 0; j < model->count * MODEL_HANDLER_MAX; j++) {
			int handler = (int)(j % MODEL_HANDLER_MAX);
			const struct model_delivery *d =
					&model->messages[j / MODEL_HANDLER_MAX].deliveries[handler];
			if (handler == 0 || model->owner[handler] != i) {
				continue;
			}
			expected.pending += d->state == POSTERN_STATE_PENDING;
			expected.leased += d->state == POSTERN_STATE_LEASED;
			expected.poisoned += d->state == POSTERN_STATE_POISONED;
		}
		for (int j = 1; j < MODEL_HANDLER_MAX; j++) {
			expected.done += model->owner[j] == i ? model->done[j] : 0;
			expected.discarded +=
					model->owner[j] == i ? model->discarded[j] : 0;
		}
		struct postern_handler_stats actual =
				stand_handler_stats(stand, keys[i]);
		CHECK_INT(actual.pending, expected.pending);
		CHECK_INT(actual.leased, expected.leased);
		CHECK_INT(actual.poisoned, expected.poisoned);
		CHECK_INT(actual.done, expected.done);
		CHECK_INT(actual.discarded, expected.discarded);
		CHECK_INT(actual.paused, model_is_paused(model, i));
	}
}
