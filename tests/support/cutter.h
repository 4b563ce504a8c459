/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CUTTER_H
#define POSTERN_TESTS_CUTTER_H

/*
 * A TCP proxy whose connections can be cut after any byte: on a thread of its
 * own, between a program and a server on 127.0.0.1. It does what proxy.py does,
 * fast enough to cut after every single byte.
 *
 *   struct cutter *cutter = cutter_create(5432);
 *   connect to port cutter_port(cutter)
 *   cutter_arm(cutter, CUTTER_TO_SERVER, 100, CUTTER_CLOSE);
 *   work, until the line is cut
 *   CHECK(cutter_wait(cutter));
 *   cutter_destroy(cutter);
 *
 * Exactly that many more bytes arrive in that direction, over all connections;
 * then all of them end for both sides. Later connections are not affected.
 */

#include <stdbool.h>
#include <stdint.h>

struct cutter;

enum cutter_way { CUTTER_TO_SERVER, CUTTER_TO_CLIENT };

/* How a connection ends: as if the other side had closed it, or by a reset. */
enum cutter_end { CUTTER_CLOSE, CUTTER_RESET };

/* Returns NULL without a socket or memory. */
struct cutter *cutter_create(int server_port);
/* Accepts NULL. */
void cutter_destroy(struct cutter *cutter);

int cutter_port(const struct cutter *cutter);

/* How many bytes have passed. */
uint64_t cutter_count(struct cutter *cutter, enum cutter_way way);

/* Cut after that many more bytes; with 0 when the next one arrives. */
void cutter_arm(struct cutter *cutter, enum cutter_way way, uint64_t after,
		enum cutter_end end);

/* Wait until all connections of that moment are cut; false if that does not
   happen. */
bool cutter_wait(struct cutter *cutter);

#endif
