/* SPDX-License-Identifier: MIT */

/*
 * Which items the confirms of a broker stand for: rabbitmq/confirms.c.
 */

#include "rabbitmq/confirms.h"
#include "tap.h"

/* Items are 'a', 'b', …; those that are confirmed are appended here. */
static char taken[64];
static char items[RABBITMQ_UNCONFIRMED_MAX + 1];
static struct postern__rabbitmq_confirms confirms;

static void take_item(void *context, void *item) {
	(void)context;
	size_t len = strlen(taken);
	if (len + 1 < sizeof taken) {
		taken[len] = *(const char *)item;
		taken[len + 1] = '\0';
	}
}

static void publish(size_t count) {
	taken[0] = '\0';
	postern__rabbitmq_confirms_reset(&confirms);
	for (size_t i = 0; i < count; i++) {
		items[i] = (char)('a' + (char)(i % 26));
		CHECK_INT(postern__rabbitmq_confirms_add(&confirms, &items[i]), i + 1);
	}
}

static bool take(uint64_t tag, bool multiple) {
	return postern__rabbitmq_confirms_take(&confirms, tag, multiple, take_item,
			NULL);
}

static void any_order(void) {
	publish(5);
	CHECK(take(4, false) && take(1, false) && take(3, false));
	CHECK_STR(taken, "dac");
	CHECK_INT(confirms.first, 2);
	CHECK(take(2, false));
	CHECK_INT(confirms.first, 5);
	CHECK(take(5, false));
	CHECK_STR(taken, "dacbe");
}

static void up_to_a_tag(void) {
	publish(6);
	CHECK(take(2, false) && take(4, true));
	CHECK_STR(taken, "bacd");
	CHECK(take(0, true));
	CHECK_STR(taken, "bacdef");
	CHECK_INT(confirms.first, 7);
}

static void taken_once(void) {
	publish(3);
	CHECK(take(2, false) && take(2, false) && take(3, true) && take(1, false));
	CHECK_STR(taken, "bac");
}

static void never_published(void) {
	publish(3);
	CHECK(!take(4, false));
	CHECK(!take(4, true));
	CHECK(!take(0, false));
	CHECK(!take(UINT64_MAX, true));
	CHECK_STR(taken, "");
	publish(0);
	CHECK(take(0, true));
	CHECK_STR(taken, "");
}

static void forgotten(void) {
	publish(3);
	struct postern__rabbitmq_unconfirmed *entry =
			postern__rabbitmq_confirms_at(&confirms, 2);
	if (!CHECK(entry != NULL)) {
		return;
	}
	entry->item = NULL;
	CHECK(take(3, true));
	CHECK_STR(taken, "ac");
	CHECK(postern__rabbitmq_confirms_at(&confirms, 2) == NULL);
	CHECK(postern__rabbitmq_confirms_at(&confirms, 0) == NULL);
	CHECK(postern__rabbitmq_confirms_at(&confirms, 4) == NULL);
}

static void full(void) {
	publish(RABBITMQ_UNCONFIRMED_MAX);
	CHECK(postern__rabbitmq_confirms_full(&confirms));
	CHECK(take(2, false));
	CHECK(postern__rabbitmq_confirms_full(&confirms));
	CHECK(take(1, false));
	CHECK(!postern__rabbitmq_confirms_full(&confirms));
	CHECK_STR(taken, "ba");
	CHECK_INT(postern__rabbitmq_confirms_add(&confirms, &items[25]),
			RABBITMQ_UNCONFIRMED_MAX + 1);
	CHECK(take(RABBITMQ_UNCONFIRMED_MAX + 1, false));
	CHECK_STR(taken, "baz");
}

static const struct tap_case cases[] = {
	{ "confirms come in any order, each for its own item", any_order },
	{ "a confirm of several is for all that is left up to its tag",
			up_to_a_tag },
	{ "an item is confirmed once", taken_once },
	{ "a tag that was never published is not taken", never_published },
	{ "an item that nobody waits for is not called back", forgotten },
	{ "no more are unconfirmed than there is room for", full },
};

TAP_MAIN(cases)
