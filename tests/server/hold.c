/* SPDX-License-Identifier: MIT */

/*
 * A program that embeds the library: opens the store that its argument names,
 * prints "holding", and keeps it open until its standard input ends.
 */

#include <postern/postern.h>
#include <stdio.h>

int main(int argc, char **argv) {
	struct postern_box *box;
	struct postern_error error;
	if (argc != 2) {
		return 2;
	}
	if (postern_box_open(argv[1], NULL, &box, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)puts("holding");
	(void)fflush(stdout);
	while (getchar() != EOF) {
	}
	postern_box_destroy(box);
	return 0;
}
