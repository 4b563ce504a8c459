/* SPDX-License-Identifier: MIT */

/*
 * The cursor of a listing. The box has a few messages with two handlers each; a
 * text is either refused, or the listing continues exactly after the row it
 * names, whether that row exists or not.
 */

#include <postern/postern.h>

#include "fuzz.h"
#include "support/fake_clock.h"

#define MESSAGE_COUNT 3
#define ROW_COUNT (2 * MESSAGE_COUNT)

static struct fake_clock the_clock;
static struct postern_box *box;
/* The position of every row, newest first. */
static struct position {
	uint64_t seq;
	uint64_t handler;
	char key[8];
} positions[ROW_COUNT];

static void do_nothing(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

/* Parses "v1.SEQ.HANDLER": the only spelling of two numbers below 2^63. */
static bool parse_cursor_naively(const char *text, struct position *out) {
	char again[64];
	char *end;
	if (strlen(text) < 3 || strlen(text) > 60) {
		return false;
	}
	/* If the text is malformed, the numbers are printed differently below. */
	unsigned long long seq = strtoull(text + 3, &end, 10);
	unsigned long long handler = *end ? strtoull(end + 1, NULL, 10) : 0;
	(void)snprintf(again, sizeof again, "v1.%llu.%llu", seq, handler);
	out->seq = seq;
	out->handler = handler;
	return strcmp(text, again) == 0 && seq > 0 && seq <= INT64_MAX &&
		   handler <= INT64_MAX;
}

static struct postern_listing *list_after(const char *cursor, uint32_t limit) {
	struct postern_filter filter = { .size = sizeof filter,
		.limit = limit,
		.cursor = cursor };
	struct postern_error error = { 0 };
	struct postern_listing *listing = NULL;
	int r = postern_box_list(box, &filter, &listing, &error);
	MUST(r == POSTERN_OK || r == POSTERN_E_INVALID);
	MUST((r == POSTERN_OK) == (listing != NULL));
	MUST(listing || (error.text[0] && fuzz_is_clean(error.text)));
	return listing;
}

/*
 * List row by row to find the position of each row: it is in the cursor that
 * follows it. The last row has no cursor; its handler is that of another row.
 */
static void find_positions(void) {
	char cursor[POSTERN_CURSOR_LEN_MAX] = "";
	for (size_t i = 0; i < ROW_COUNT; i++) {
		struct postern_listing *listing =
				list_after(*cursor ? cursor : NULL, 1);
		MUST(listing && postern_listing_count(listing) == 1);
		const struct postern_row *row = postern_listing_get(listing, 0);
		const char *next = postern_listing_cursor(listing);
		MUST((next != NULL) == (i + 1 < ROW_COUNT));
		if (next) {
			(void)snprintf(cursor, sizeof cursor, "%s", next);
			MUST(parse_cursor_naively(cursor, &positions[i]));
			MUST(positions[i].seq == (uint64_t)row->seq);
		} else {
			positions[i] = positions[i - 2];
			positions[i].seq = (uint64_t)row->seq;
			MUST_EQUAL(positions[i].key, row->handler);
		}
		(void)snprintf(positions[i].key, sizeof positions[i].key, "%s",
				row->handler);
		postern_listing_destroy(listing);
	}
}

static void open_box(void) {
	struct postern_error error = { .text = "" };
	struct postern_box_options options = { .size = sizeof options,
		.clock = &the_clock.base };
	struct postern_channel_options channel = { .size = sizeof channel };
	fake_clock_init(&the_clock);
	MUST(postern_box_open("memory:", &options, &box, &error) == POSTERN_OK);
	MUST(postern_box_add_channel(box, "orders", &channel, &error) ==
			POSTERN_OK);
	for (int i = 0; i < 2; i++) {
		struct postern_handler_options handler = { .size = sizeof handler,
			.key = i == 0 ? "a" : "b",
			.callback = do_nothing };
		MUST(postern_box_add_handler(box, "orders", &handler, &error) ==
				POSTERN_OK);
	}
	MUST(postern_box_start(box, &error) == POSTERN_OK);
	for (int i = 0; i < MESSAGE_COUNT; i++) {
		char id[8];
		(void)snprintf(id, sizeof id, "id-%d", i);
		struct postern_message message = { .size = sizeof message,
			.id = id,
			.source = "shop",
			.type = "order.paid" };
		MUST(postern_box_accept(box, "orders", &message, NULL, &error) ==
				POSTERN_OK);
	}
	find_positions();
}

static bool is_after(const struct position *row,
		const struct position *cursor) {
	return row->seq < cursor->seq ||
		   (row->seq == cursor->seq && row->handler > cursor->handler);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (!box) {
		open_box();
	}
	char *text = fuzz_text(data, size);
	struct position position;
	struct postern_listing *listing = list_after(text, 100);
	MUST((listing != NULL) == parse_cursor_naively(text, &position));
	if (listing) {
		size_t first = 0;
		while (first < ROW_COUNT && !is_after(&positions[first], &position)) {
			first++;
		}
		MUST(postern_listing_count(listing) == ROW_COUNT - first);
		for (size_t i = first; i < ROW_COUNT; i++) {
			const struct postern_row *row =
					postern_listing_get(listing, i - first);
			MUST((uint64_t)row->seq == positions[i].seq);
			MUST_EQUAL(row->handler, positions[i].key);
		}
	}
	postern_listing_destroy(listing);
	free(text);
	return 0;
}
