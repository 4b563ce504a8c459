/* SPDX-License-Identifier: MIT */

/*
 * Pauses and closed channels, on a store and on the model.
 */

#include "conformance/stand.h"
#include "model/match.h"
#include "model/model.h"

/* Usually a pause is over after some steps. */
#define PAUSE_MS_MAX 4000

static size_t choose_below(const struct match_choices *choices, size_t bound) {
	return choices->below(choices->context, bound);
}

static void edit(struct stand *stand, struct postern_edit *edit) {
	CHECK_OK(stand->ops->edit(stand->store, edit, &stand->error),
			&stand->error);
}

static void pause_or_resume(struct stand *stand, struct model *model,
		const struct match_choices *choices) {
	int handler = 1 + (int)choose_below(choices, MODEL_HANDLER_MAX - 1);
	const char key[] = { (char)('a' + handler - 1), '\0' };
	bool pause = choose_below(choices, 2) == 0;
	int64_t for_ms = 0;
	if (pause && choose_below(choices, 2) == 0) {
		for_ms = 1 + (int64_t)choose_below(choices, PAUSE_MS_MAX);
	}
	struct postern_edit change = {
		.kind = pause ? POSTERN_CHANGE_PAUSE : POSTERN_CHANGE_RESUME,
		.handler = key,
		.for_ms = for_ms,
	};
	edit(stand, &change);
	model_pause(model, handler, pause, for_ms);
	CHECK_INT(change.until_ms, for_ms > 0 ? model->now + for_ms : 0);
}

static void close_or_open(struct stand *stand, struct model *model,
		const struct match_choices *choices) {
	int channel = (int)choose_below(choices, MODEL_CHANNEL_MAX);
	bool close = !model->closed[channel] && choose_below(choices, 2) == 0;
	struct postern_edit change = {
		.kind = close ? POSTERN_CHANGE_CLOSE : POSTERN_CHANGE_OPEN,
		.channel = channel == 0 ? "orders" : "bills",
	};
	edit(stand, &change);
	CHECK_INT(change.count, model->closed[channel] != close);
	model->closed[channel] = close;
	CHECK_INT(stand_channel_stats(stand, change.channel).closed, close);
}

/* Whichever id a node uses, the state is that of the owner. */
static void compare_pauses(struct stand *stand, const struct model *model,
		const int64_t *ids) {
	struct postern_halt pauses[MODEL_HANDLER_MAX] = { 0 };
	size_t count = MODEL_HANDLER_MAX - 1;
	CHECK_OK(stand->ops->read_pauses(stand->store, ids + 1, count, NULL, pauses,
					 &stand->error),
			&stand->error);
	for (size_t i = 0; i < count; i++) {
		CHECK_INT(pauses[i].on, model_is_paused(model, (int)i + 1));
	}
}

void match_halt(struct stand *stand, struct model *model,
		const struct match_choices *choices, const int64_t *ids) {
	if (choose_below(choices, 3) == 0) {
		close_or_open(stand, model, choices);
	} else {
		pause_or_resume(stand, model, choices);
	}
	compare_pauses(stand, model, ids);
}
