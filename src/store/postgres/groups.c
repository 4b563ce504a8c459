/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors: how many deliveries have which. Both tables have a partial
 * index of the deliveries with a group, so that counting them does not read the
 * others.
 */

#include "store/common.h"
#include "store/postgres/listing.h"
#include "store/postgres/postgres.h"

struct work {
	struct postern_query query;
	struct postern__tally tally;
};

static int groups_read(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	size_t count = (size_t)postern__pg_rows(query);
	struct postern_memory *memory = work->tally.memory;
	struct postern_group *groups =
			postern_memory_alloc(memory, count * sizeof *groups);
	if (!groups) {
		return postern__pg_no_memory(error);
	}
	for (size_t i = 0; i < count; i++) {
		int row = (int)i;
		groups[i] = (struct postern_group){
			.group = (uint64_t)postern__pg_get(query, row, 0),
			.count = (uint64_t)postern__pg_get(query, row, 2),
			.first_at_ms = postern__pg_get(query, row, 3),
			.last_at_ms = postern__pg_get(query, row, 4),
		};
		if (!postern__pg_get_text(query, row, 1, memory, &groups[i].handler) ||
				!postern__pg_get_text(query, row, 5, memory,
						&groups[i].example)) {
			return postern__pg_no_memory(error);
		}
	}
	work->tally.groups = groups;
	work->tally.count = count;
	postern__tally_sort(&work->tally);
	return POSTERN_OK;
}

static int groups_count(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	const struct pg_listing listing = {
		.kind = PG_LISTING_GROUPS,
		.query = &work->query,
		.states = POSTERN__STATES_OPEN |
				  POSTERN__STATE_BIT(POSTERN_STATE_POISONED),
	};
	(void)again;
	struct pg_query query;
	int r = postern__pg_listing_run(&query, connection, &listing, error);
	if (r == POSTERN_OK) {
		r = groups_read(&query, work, error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_groups(struct postern_store *store,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error) {
	struct work work = {
		.query = { .filter = filter },
		.tally = { .memory = memory },
	};
	int r = postern__pg_do(postern__pg_from_base(store), groups_count, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.tally.groups;
		*count_out = work.tally.count;
	}
	return r;
}
