/* SPDX-License-Identifier: MIT */

/*
 * The sources and publishers in libraries of their own: RabbitMQ.
 */

#include <postern/rabbitmq.h>
#include <stddef.h>

#include "cli/brokers.h"
#include "rabbitmq/rabbitmq.h"

void postern__cli_brokers_register(void) {
	/* If memory is exhausted, the kind is refused as an unknown one. */
	(void)postern_rabbitmq_register(NULL);
}

const char *postern__cli_brokers_version(void) {
	return amqp_version();
}
