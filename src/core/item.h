/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_ITEM_H
#define POSTERN_CORE_ITEM_H

/*
 * What the commit queue consists of.
 */

#include "base/list.h"

#include <stddef.h>

enum postern__item_kind { POSTERN__ITEM_ACCEPT, POSTERN__ITEM_SETTLE };

/* An accept or a settlement that waits for the next commit. */
struct postern__item {
	struct postern__list link;
	enum postern__item_kind kind;
	size_t bytes;
};

#endif
