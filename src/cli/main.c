/* SPDX-License-Identifier: MIT */
/*
 * The program. Everything else is also linked into tests.
 */

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "cli/brokers.h"
#include "cli/command.h"
#include "cli/stores.h"
#include "server/publish_channel.h"
#include "server/webhook_source.h"
#include "store/store.h"
#include "webhook/webhook.h"

/* Another thread may have repaired the mapping already. After some SIGBUS
   without a repair the index may have been longer than is known; so many have
   another cause. */
#define FRUITLESS_GROW 8
#define FRUITLESS_MAX 1000

static atomic_int fruitless;

static void handle_fruitless(int number, int count) {
	if (count > FRUITLESS_MAX) {
		/* The next one ends the process. */
		(void)signal(number, SIG_DFL);
	} else if (count % FRUITLESS_GROW == 0) {
		postern__sqlite_grow_indexes();
	}
}

/* A mapped file was truncated. */
static void handle_bus(int number, siginfo_t *info, void *context) {
	(void)context;
	int saved = errno;
	bool fault = info->si_code > 0; /* not sent by kill() */
	if (fault && postern__sqlite_repair_indexes()) {
		atomic_store(&fruitless, 0);
	} else if (!fault) {
		(void)signal(number, SIG_DFL);
	} else {
		handle_fruitless(number, atomic_fetch_add(&fruitless, 1) + 1);
	}
	if (!fault) {
		(void)raise(number);
	}
	errno = saved;
}

int main(int argc, char **argv) {
	struct sigaction action = {
		.sa_sigaction = handle_bus,
		.sa_flags = SA_SIGINFO,
	};
	/* If this fails, a truncated file ends the process. */
	(void)sigaction(SIGBUS, &action, NULL);
	postern__sqlite_own_process();
	postern__cli_stores_register();
	postern__cli_brokers_register();
	postern__publish_channel_register();
	postern__webhook_source_register();
	/* If memory is exhausted, the kind is refused as an unknown one. */
	(void)postern__webhook_register(NULL);
	return postern__cli_main(argc, argv);
}
