/* SPDX-License-Identifier: MIT */

/*
 * A build without sources and publishers in libraries of their own.
 */

#include <stddef.h>

#include "cli/brokers.h"

void postern__cli_brokers_register(void) {
}

const char *postern__cli_brokers_version(void) {
	return NULL;
}
