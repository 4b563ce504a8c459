/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_BROKERS_H
#define POSTERN_CLI_BROKERS_H

/* Registers the sources and publishers that are in libraries of their own. */
void postern__cli_brokers_register(void);
/* The version of rabbitmq-c; NULL: it is not built in. */
const char *postern__cli_brokers_version(void);

#endif
