/* SPDX-License-Identifier: MIT */

/*
 * A build without sources and publishers in libraries of their own.
 */

#include "cli/brokers.h"

void postern__cli_brokers_register(void) {
}
