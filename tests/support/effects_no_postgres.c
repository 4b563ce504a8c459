/* SPDX-License-Identifier: MIT */
/* Effects in a build without PostgreSQL: none there. */

#include <stddef.h>

#include "support/effects.h"

const struct effects_ops *const effects_postgres = NULL;
