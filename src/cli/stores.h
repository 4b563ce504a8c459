/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_STORES_H
#define POSTERN_CLI_STORES_H

/* Registers the stores that are in libraries of their own. */
void postern__cli_stores_register(void);

#endif
