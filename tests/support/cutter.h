/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CUTTER_H
#define POSTERN_TESTS_CUTTER_H

/*
 * A line that can be cut after any byte: a TCP proxy on a thread of its own,
 * between a program and a server on 127.0.0.1. It does what proxy.py does, and
 * in so little time that every byte can have its turn.
 *
 *   struct cutter *cutter = cutter_create(5432);
 *   connect to port cutter_port(cutter)
 *   cutter_arm(cutter, CUTTER_TO_SERVER, 100, CUTTER_CLOSE);
 *   work, until the line is cut
 *   CHECK(cutter_wait(cutter));
 *   cutter_destroy(cutter);
 *
 * Exactly so many bytes more arrive in that direction, over all lines that
 * there are; then all of them end for both sides. Those that come later are
 * whole.
 */

#include <stdbool.h>
#include <stdint.h>

struct cutter;

enum cutter_way { CUTTER_TO_SERVER, CUTTER_TO_CLIENT };

/* How a line ends: as if the other side had closed it, or by a reset. */
enum cutter_end { CUTTER_CLOSE, CUTTER_RESET };

/* NULL: no socket, or no memory. */
struct cutter *cutter_create(int server_port);
/* NULL is fine. */
void cutter_destroy(struct cutter *cutter);

int cutter_port(const struct cutter *cutter);

/* How many bytes have passed. */
uint64_t cutter_count(struct cutter *cutter, enum cutter_way way);

/* Cut after so many bytes more; with 0 when the next one comes. */
void cutter_arm(struct cutter *cutter, enum cutter_way way, uint64_t after,
		enum cutter_end end);

/* Until all lines of that moment are cut; false if that does not come. */
bool cutter_wait(struct cutter *cutter);

#endif
