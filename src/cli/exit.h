/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_EXIT_H
#define POSTERN_CLI_EXIT_H

/* The exit status of the command; a promise to scripts. */
enum postern__exit {
	POSTERN__EXIT_OK = 0,
	POSTERN__EXIT_FAILED = 1, /* tried and refused; also: conflict */
	POSTERN__EXIT_USAGE = 2,  /* the arguments or the configuration */
	POSTERN__EXIT_NOTFOUND = 3,
	POSTERN__EXIT_UNREACHABLE = 4, /* the server or the store */
	POSTERN__EXIT_UNHEALTHY = 5
};

#endif
