/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_POSTGRES_SCENE_H
#define POSTERN_TESTS_POSTGRES_SCENE_H

/*
 * A PostgreSQL store with one channel and one handler, and a line of the
 * test's own to the same database: what happens between two statements of the
 * store is said on that.
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
/* What the store waits for an answer. */
#define TIMEOUT_MS 1000
/* Far more than anything takes. */
#define PATIENCE_MS 60000

struct scene {
	struct postern_store *store;
	PGconn *link;
	PGconn *second; /* another one of the test's own, or NULL */
	struct postern_memory *memory;
	struct postern_error error;
	int64_t channel;
	int64_t handler;
};

/* With NODE enrolled. */
void scene_open(struct scene *scene);
void scene_open_with(struct scene *scene, int64_t timeout_ms);
/* The same, and nobody gives up what he waits for. */
void scene_open_patient(struct scene *scene);
void scene_be_patient(struct scene *scene);
void scene_close(struct scene *scene);
void scene_enrol(struct scene *scene, uint64_t node, int64_t lease_ms);

/* Another line to the database; to be finished. */
PGconn *scene_connect(void);
void scene_run(PGconn *link, const char *sql);
/* The only number in the answer; -1 if there is none. */
int64_t scene_number(PGconn *link, const char *sql);
/* Wait until the database says so. */
bool scene_wait_for(struct scene *scene, const char *sql, int64_t value);

/* A message for the handler, leased by the node or pending. */
int scene_accept(struct scene *scene, uint64_t node, const char *id, bool lease,
		struct postern_accept *accept, struct postern_route *route);
int scene_accept_leased(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept);
/* A copy of it, which opens a poisoned delivery again. */
int scene_accept_again(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept, struct postern_route *route);
int scene_try_claim(struct scene *scene, uint32_t max,
		struct postern_claims *out);
size_t scene_claim(struct scene *scene, uint32_t max,
		struct postern_claimed *first_out);

/* Cut all lines of the store; the server does not hear of it. */
void scene_cut_lines(const struct scene *scene);
/* Whoever does this to the table is held up at its commit until it is let go;
   of several only the first. */
void scene_hold_up(struct scene *scene, const char *what, const char *table);
bool scene_wait_held_up(struct scene *scene, const char *table);
void scene_let_go(struct scene *scene, const char *table);
/* Whether so many wait for a lock right now. */
bool scene_is_blocked(const struct scene *scene, int64_t count);
/* Wait until so many wait for a lock. */
bool scene_wait_blocked(struct scene *scene, int64_t count);

/* What a node does now and then: it renews itself for a minute, and recovers,
   which also gives back what it may have leased without knowing. */
int scene_keep(struct scene *scene, uint64_t node, bool *alive_out);

#endif
