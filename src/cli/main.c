/* SPDX-License-Identifier: MIT */
/*
 * The program. Everything else is also linked into tests.
 */

#include "cli/command.h"
#include "store/store.h"

int main(int argc, char **argv) {
	postern__sqlite_own_process();
	return postern__cli_main(argc, argv);
}
