/* SPDX-License-Identifier: MIT */

/*
 * The linked list, with items whose link is not the first member.
 */

#include "base/list.h"

#include "dice.h"
#include "tap.h"

struct item {
	char name;
	struct postern__list link;
};

/* The names in order, read forwards and compared backwards. */
static const char *names(const struct postern__list *list, char *out) {
	size_t count = 0;
	postern__list_each(link, list) {
		out[count++] = container_of(link, struct item, link)->name;
	}
	out[count] = '\0';
	for (struct postern__list *i = list->prev; i != list; i = i->prev) {
		count--;
		CHECK_INT(container_of(i, struct item, link)->name, out[count]);
	}
	CHECK_INT(count, 0);
	return out;
}

static void order(void) {
	struct postern__list list;
	struct item a = { .name = 'a' };
	struct item b = { .name = 'b' };
	struct item c = { .name = 'c' };
	char text[8];
	postern__list_init(&list);
	CHECK(postern__list_empty(&list));
	CHECK_STR(names(&list, text), "");
	postern__list_push_back(&list, &b.link);
	postern__list_push_back(&list, &c.link);
	postern__list_push_front(&list, &a.link);
	CHECK(!postern__list_empty(&list));
	CHECK_STR(names(&list, text), "abc");
	CHECK(postern__list_first(&list) == &a.link);
	CHECK(postern__list_last(&list) == &c.link);
}

static void removal(void) {
	struct postern__list list;
	struct item a = { .name = 'a' };
	struct item b = { .name = 'b' };
	char text[8];
	postern__list_init(&list);
	postern__list_remove(&a.link); /* zeroed: in no list */
	postern__list_push_back(&list, &a.link);
	postern__list_push_back(&list, &b.link);
	CHECK(postern__list_linked(&a.link));
	postern__list_remove(&a.link);
	CHECK(!postern__list_linked(&a.link));
	CHECK_STR(names(&list, text), "b");
	postern__list_remove(&a.link);
	CHECK_STR(names(&list, text), "b");
	postern__list_push_back(&list, &a.link);
	CHECK_STR(names(&list, text), "ba");
	postern__list_remove(&a.link);
	postern__list_remove(&b.link);
	CHECK(postern__list_empty(&list));
	CHECK(!postern__list_first(&list));
	CHECK(!postern__list_last(&list));
}

static void popping(void) {
	struct postern__list list;
	struct item a = { .name = 'a' };
	struct item b = { .name = 'b' };
	postern__list_init(&list);
	postern__list_push_back(&list, &a.link);
	postern__list_push_back(&list, &b.link);
	CHECK(postern__list_pop_front(&list) == &a.link);
	CHECK(!postern__list_linked(&a.link));
	CHECK(postern__list_pop_front(&list) == &b.link);
	CHECK(!postern__list_pop_front(&list));
}

static void removal_in_a_loop(void) {
	struct postern__list list;
	struct item items[6];
	char text[8];
	postern__list_init(&list);
	for (size_t i = 0; i < 6; i++) {
		items[i] = (struct item){ .name = (char)('a' + i) };
		postern__list_push_back(&list, &items[i].link);
	}
	postern__list_each(link, &list) {
		struct item *item = container_of(link, struct item, link);
		if (item->name % 2) {
			postern__list_remove(link);
			memset(item, 0xff, sizeof *item);
		}
	}
	CHECK_STR(names(&list, text), "bdf");
}

static void like_an_array(void) {
	struct dice dice = { 1 };
	struct postern__list list;
	struct item items[10];
	char model[11] = "";
	char text[11];
	postern__list_init(&list);
	for (size_t i = 0; i < 10; i++) {
		items[i] = (struct item){ .name = (char)('a' + i) };
	}
	for (unsigned step = 0; step < 5000; step++) {
		struct item *item = &items[dice_below(&dice, 10)];
		size_t len = strlen(model);
		char *place = strchr(model, item->name);
		if (place) {
			memmove(place, place + 1, strlen(place));
			postern__list_remove(&item->link);
		} else if (dice_below(&dice, 2)) {
			memmove(model + 1, model, len + 1);
			model[0] = item->name;
			postern__list_push_front(&list, &item->link);
		} else {
			model[len] = item->name;
			model[len + 1] = '\0';
			postern__list_push_back(&list, &item->link);
		}
		if (!CHECK_STR(names(&list, text), model)) {
			return;
		}
	}
}

static const struct tap_case cases[] = {
	{ "items keep the order they were pushed in", order },
	{ "a removed item is in no list and can be added again", removal },
	{ "popping removes the first item", popping },
	{ "an item can be removed and overwritten inside a loop",
			removal_in_a_loop },
	{ "any sequence of changes gives the same order as an array",
			like_an_array },
};

TAP_MAIN(cases)
