/* SPDX-License-Identifier: MIT */

/*
 * Compares the groups of errors of a store with the model.
 */

#include "conformance/stand.h"
#include "core/error_group.h"
#include "model/model.h"

static size_t count_group(const struct model *model, uint64_t group) {
	size_t count = 0;
	for (size_t i = 0; i < model->count * MODEL_HANDLER_MAX; i++) {
		const struct model_delivery *d =
				&model->messages[i / MODEL_HANDLER_MAX]
						 .deliveries[i % MODEL_HANDLER_MAX];
		count +=
				d->error && (!group || postern__error_group(d->error) == group);
	}
	return count;
}

void model_compare_groups(const struct model *model, struct stand *stand,
		const char *text) {
	struct postern_filter filter = {
		.size = sizeof filter,
		.limit = POSTERN_LIST_LIMIT_MAX,
	};
	struct postern_group *groups = NULL;
	size_t count = 0;
	uint64_t counted = 0;
	CHECK_OK(stand->ops->groups(stand->store, &filter, stand->memory, &groups,
					 &count, &stand->error),
			&stand->error);
	for (size_t i = 0; i < count; i++) {
		counted += groups[i].count;
		CHECK(postern__error_group(groups[i].example) == groups[i].group);
	}
	CHECK_INT(counted, count_group(model, 0));
	filter.group = postern__error_group(text);
	filter.oldest = true;
	struct postern_page page = stand_list(stand, &filter);
	CHECK_INT(page.count, count_group(model, filter.group));
	for (size_t i = 1; i < page.count; i++) {
		CHECK(page.rows[i].seq >= page.rows[i - 1].seq);
	}
}
