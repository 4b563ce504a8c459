/* SPDX-License-Identifier: MIT */
/* In a build without PostgreSQL. */

#include <stddef.h>

#include "support/effects.h"

const struct effects_ops *const effects_postgres = NULL;
