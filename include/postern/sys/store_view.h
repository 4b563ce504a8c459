/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_VIEW_H
#define POSTERN_SYS_STORE_VIEW_H

/*
 * What a store returns for people to see: listings, what the nodes run, and
 * what no node has. Part of sys/store.h.
 */

#include <postern/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_page {
	struct postern_row *rows;
	size_t count;
	bool more;
	/* Where the page ended, for after_seq and after_handler. */
	int64_t last_seq;
	int64_t last_handler;
};

struct postern_query {
	/* its limit is set; its cursor is decoded into the two members below; its
	   state is a stored one or POSTERN_STATE_RETRYING */
	const struct postern_filter *filter;
	int64_t after_seq; /* 0: from the newest */
	int64_t after_handler;
};

/* A run that a node reports, and that others read. */
struct postern_run_report {
	int64_t seq;
	int64_t handler; /* the id the delivery is stored under */
	uint64_t fence;
	int64_t age_ms;   /* how long it has been running */
	int64_t lease_ms; /* how long it may run before it is shown as stuck */
	const char *key;  /* read_runs: of the handler, as in a listing */
};

/* Most runs that a node reports. */
#define POSTERN_REPORTED_RUNS_MAX 1000

/* A request of an operator to end a run. */
struct postern_cancel_request {
	int64_t seq;
	int64_t handler; /* the id the delivery is stored under */
	uint64_t fence;
	bool uncounted;     /* the run counts as no failure */
	const char *reason; /* NULL: none */
};

/* A node, and what it runs. */
struct postern_node_report {
	uint64_t node;
	const char *host; /* and its process, for people */
	int64_t pid;
	int64_t reported_at_ms; /* when it was renewed last */
	const struct postern_run_report *runs;
	size_t run_count;
};

struct postern_reports {
	int64_t now_ms; /* the store's clock */
	const struct postern_node_report *nodes;
	size_t node_count;
};

struct postern_orphan {
	const char *key;
	uint64_t count; /* open deliveries, not leased by a live node */
};

/* Staged messages of a channel that no running node has. */
struct postern_stranded {
	int64_t channel;
	const char *name; /* the channel's */
	uint64_t count;
};

#ifdef __cplusplus
}
#endif

#endif
