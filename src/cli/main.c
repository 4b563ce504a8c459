/* SPDX-License-Identifier: MIT */
/*
 * The program. Everything else is also linked into tests.
 */

#include "cli/command.h"

int main(int argc, char **argv) {
	return postern__cli_main(argc, argv);
}
