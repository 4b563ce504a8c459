/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_POSTGRES_SCENE_H
#define POSTERN_TESTS_POSTGRES_SCENE_H

/*
 * A PostgreSQL store with one channel and one handler, and the test's own
 * connection to the same database, for what other sessions do between two
 * statements of the store.
 */

#include <libpq-fe.h>
#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stdint.h>

#include "tap.h"

#define SCHEMA "doubt"
#define NODE 42
#define FROZEN 43
/* How long the store waits for a reply of the server. */
#define TIMEOUT_MS 1000
/* Longer than any step takes; reached only if something is broken. */
#define PATIENCE_MS 60000

struct scene {
	struct postern_store *store;
	PGconn *link;
	PGconn *second; /* another connection of the test, or NULL */
	struct postern_memory *memory;
	struct postern_error error;
	int64_t channel;
	int64_t handler;
};

/* Opens the store and enrols NODE. */
void scene_open(struct scene *scene);
void scene_open_with(struct scene *scene, int64_t timeout_ms);
/* The same with timeouts that are never reached. */
void scene_open_without_timeouts(struct scene *scene);
/* Another store in the same database, as another process would have it; the
   caller destroys it. */
struct postern_store *scene_open_store(struct scene *scene, int64_t timeout_ms);
void scene_disable_timeouts(struct scene *scene);
void scene_close(struct scene *scene);
void scene_enrol(struct scene *scene, uint64_t node, int64_t lease_ms);

/* Another connection to the database; the caller finishes it. */
PGconn *scene_connect(void);
void scene_run(PGconn *link, const char *sql);
/* The number in the only row of the result; -1 if there is none. */
int64_t scene_number(PGconn *link, const char *sql);
/* Wait until the query returns `value`. */
bool scene_wait_for(struct scene *scene, const char *sql, int64_t value);

/* Accept a message with one route. */
int scene_accept_route(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept, struct postern_route *route);
/* Accept a message for the handler, leased by the node or pending. */
int scene_accept(struct scene *scene, uint64_t node, const char *id, bool lease,
		struct postern_accept *accept, struct postern_route *route);
int scene_accept_leased(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept);
/* Accept a copy that reopens a poisoned delivery. */
int scene_accept_copy(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept, struct postern_route *route);
int scene_try_claim(struct scene *scene, uint32_t max,
		struct postern_claims *out);
size_t scene_claim(struct scene *scene, uint32_t max,
		struct postern_claimed *first_out);

/* Shut down all sockets of the store. The server does not notice while it runs
   a statement. */
void scene_cut_connections(const struct scene *scene);
/* Block the commit of the first transaction that does `what` (INSERT, UPDATE)
   on the table, until scene_unblock_commit(). */
void scene_block_commit(struct scene *scene, const char *what,
		const char *table);
bool scene_wait_commit_blocked(struct scene *scene, const char *table);
void scene_unblock_commit(struct scene *scene, const char *table);
/* Whether exactly `count` sessions wait for a lock now. */
bool scene_is_blocked(const struct scene *scene, int64_t count);
/* Wait until exactly `count` sessions wait for a lock. */
bool scene_wait_blocked(struct scene *scene, int64_t count);

/* What a node does at intervals: it renews its lease for a minute and recovers,
   which also returns its uncertain leases. */
int scene_renew_and_recover(struct scene *scene, uint64_t node,
		bool *alive_out);

#endif
