/* SPDX-License-Identifier: MIT */
/* Generations replaced in a box on PostgreSQL. */

#include "generations.h"

#include <libpq-fe.h>

#define SCHEMA "generations"

static const char *scene_url(void) {
	const char *url = getenv("POSTERN_TEST_POSTGRES");
	PGconn *link = PQconnectdb(url ? url : "");
	PQclear(PQexec(link, "SET client_min_messages = error;"
						 " DROP SCHEMA IF EXISTS " SCHEMA " CASCADE"));
	PQfinish(link);
	return url ? url : "";
}

static const char *scene_schema(void) {
	return SCHEMA;
}

static int scene_swaps(void) {
	return 100;
}

static const struct tap_case cases[] = { GENERATION_CASES };

TAP_MAIN(cases)
