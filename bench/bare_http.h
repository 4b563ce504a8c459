/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BENCH_BARE_HTTP_H
#define POSTERN_BENCH_BARE_HTTP_H

/*
 * What bare_http.c needs of a database: see bare_http_sqlite.c and
 * bare_http_postgres.c.
 */

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

/* A message to be written. */
struct arrival {
	int64_t seq;
	uint64_t key[3];
	uint64_t digest[2];
	size_t id_len;
	size_t body_len;
	char id[WIRE_ID_SIZE];
	char body[WIRE_BODY_LEN];
};

void bare_open(const char *url);

/* Writes all of them in one transaction; they are durable when this returns. It
   may change their order. */
void bare_write(struct arrival **arrivals, size_t count);

#endif
