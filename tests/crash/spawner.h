/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_SPAWNER_H
#define POSTERN_TESTS_CRASH_SPAWNER_H

/*
 * Many runs of one program for the price of one start: a process that is
 * loaded once, and forks a child for each run. Loading the libraries takes as
 * long as a quarter of the scenario, with a sanitizer longer than all of it.
 *
 * A request on stdin is its length in bytes, as a decimal number and a line
 * feed, then words that end with a zero byte each:
 *
 *   the file that receives stderr
 *   NAME=VALUE     any number of variables for the environment of the child
 *   an empty word
 *   the arguments of the run, without the name of the program
 *
 * The answer on stdout, when the child has ended, is a line with its exit
 * code, or with the negative number of the signal that ended the child.
 */

/* Serve requests until stdin ends. `run` is called in the child, and what it
   returns is the exit code. Returns the exit code of the server. */
int spawner_serve(const char *program, int (*run)(int argc, char **argv));

#endif
