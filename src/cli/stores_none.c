/* SPDX-License-Identifier: MIT */

/*
 * A build without stores in libraries of their own.
 */

#include "cli/stores.h"

void postern__cli_stores_register(void) {
}
