/* SPDX-License-Identifier: MIT */
/* A channel gets another name while nodes with the old one are running. */

#include "rename.h"

#include <libpq-fe.h>

#define SCHEMA "renamed"

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

static const struct postern_clock *scene_clock(void) {
	return NULL;
}

static bool publish(const char *url, const char *channel, const char *id) {
	char sql[200];
	PGconn *link = PQconnectdb(url);
	(void)snprintf(sql, sizeof(sql),
			"SELECT " SCHEMA ".publish('%s', '', 'x', '%s')", channel, id);
	PGresult *result = PQexec(link, sql);
	bool done = PQresultStatus(result) == PGRES_TUPLES_OK;
	PQclear(result);
	PQfinish(link);
	return done;
}

static void two_nodes(void) {
	const char *url = scene_url();
	struct postern_error error;
	struct postern_stats *stats = NULL;
	int old_runs = 0;
	int new_runs = 0;
	struct postern_box *old = start_box(url, "orders", NULL, 0, &old_runs);
	CHECK_INT(send_to(old, "orders", "raw", NULL), POSTERN_OK);
	struct postern_box *renamed =
			start_box(url, "sales", "orders", 0, &new_runs);
	CHECK_INT(send_to(renamed, "sales", "raw", NULL), POSTERN_E_DUPLICATE);
	/* What one of them accepts is a copy for the other. */
	CHECK_INT(send_to(renamed, "sales", "new", NULL), POSTERN_OK);
	CHECK_INT(send_to(old, "orders", "new", NULL), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(old, "orders", "old", NULL), POSTERN_OK);
	CHECK_INT(send_to(renamed, "orders", "old", NULL), POSTERN_E_DUPLICATE);
	/* The old node runs what the new one accepted. */
	CHECK_INT(process(old), 3);
	CHECK_INT(process(renamed), 0);
	CHECK_INT(old_runs, 3);
	/* A node with the old name that starts now does not rename it back. */
	postern_box_destroy(old);
	old = start_box(url, "orders", NULL, 0, &old_runs);
	CHECK_OK(postern_box_stats(old, &stats, &error), &error);
	CHECK_INT(stats->channel_count, 1);
	CHECK_STR(stats->channels[0].name, "sales");
	postern_stats_destroy(stats);
	postern_box_destroy(renamed);
	postern_box_destroy(old);
}

static void publishing(void) {
	const char *url = scene_url();
	int runs = 0;
	struct postern_box *box = start_box(url, "orders", NULL, 0, &runs);
	CHECK(publish(url, "orders", "one"));
	CHECK(!publish(url, "sales", "two"));
	postern_box_destroy(box);
	box = start_box(url, "sales", "orders", 0, &runs);
	CHECK(publish(url, "orders", "two"));
	CHECK(publish(url, "sales", "three"));
	CHECK_INT(process(box), 3);
	/* They are the messages that any other sender would send again. */
	CHECK_INT(send_to(box, "sales", "one", NULL), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, "sales", "two", NULL), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(box, "orders", "three", NULL), POSTERN_E_DUPLICATE);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	RENAME_CASES,
	{ "nodes with the old and the new name of a channel share it", two_nodes },
	{ "messages can be published to a former name", publishing },
};

TAP_MAIN(cases)
