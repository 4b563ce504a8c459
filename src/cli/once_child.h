/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ONCE_CHILD_H
#define POSTERN_CLI_ONCE_CHILD_H

/*
 * The command that `postern once` runs: it has the standard streams, the
 * process group and the terminal of this process, so that it behaves as if the
 * shell had started it.
 */

#include <sys/types.h>

/*
 * Start a program by its name, as a shell does. Signals are blocked from now
 * on, in this thread and those that it creates, and are for
 * postern__once_wait().
 *
 * Returns 0, or the number of an error.
 */
int postern__once_start(char *const *argv, pid_t *out);

/*
 * Wait until the program has ended, and pass signals on to it. A signal that
 * the terminal sends (Ctrl-C) reaches the program without that.
 *
 * Returns its exit status as a shell has it: 128 + N if signal N ended it.
 */
int postern__once_wait(pid_t pid);

#endif
