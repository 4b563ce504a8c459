/* SPDX-License-Identifier: MIT */

/*
 * The fixture of the tests that watch and change the PostgreSQL store's
 * database directly.
 */

#include "unit/postgres_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/postgres/postgres.h"

static const char *database(void) {
	const char *url = getenv("POSTERN_TEST_POSTGRES");
	return url ? url : "";
}

PGconn *scene_connect(void) {
	return PQconnectdb(database());
}

void scene_run(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

int64_t scene_number(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	int64_t value = -1;
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
		value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	}
	PQclear(result);
	return value;
}

void scene_enrol(struct scene *scene, uint64_t node, int64_t lease_ms) {
	struct postern_enrol_channel channel = {
		.name = "orders",
		.max_size = 1000, /* for tests that publish */
	};
	struct postern_enrol_handler handler = { .key = "a" };
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = lease_ms,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(scene->store->ops->enrol(scene->store, &enrolment, &scene->error),
			&scene->error);
	scene->channel = channel.id;
	scene->handler = handler.id;
}

struct postern_store *scene_open_store(struct scene *scene,
		int64_t timeout_ms) {
	const char *base = database();
	char url[1024];
	const struct postern_store_options options = {
		.size = sizeof options,
		.command_timeout_ms = timeout_ms,
	};
	struct postern_store *store = NULL;
	(void)snprintf(url, sizeof url, "%s%cschema=" SCHEMA, base,
			strchr(base, '?') ? '&' : '?');
	if (!CHECK_OK(postern_store_open(url, &options, &store, &scene->error),
				&scene->error)) {
		exit(1);
	}
	return store;
}

void scene_open_with(struct scene *scene, int64_t timeout_ms) {
	*scene = (struct scene){ .memory = postern_memory_create() };
	scene->link = scene_connect();
	/* Several test programs may share the database and use the same schema. */
	scene_run(scene->link, "SELECT pg_advisory_lock(hashtext('" SCHEMA "'))");
	scene_run(scene->link, "SET client_min_messages = error;"
						   " DROP SCHEMA IF EXISTS " SCHEMA " CASCADE");
	/* This creates the tables, which may take longer than `timeout_ms`. */
	postern_store_destroy(scene_open_store(scene, PATIENCE_MS));
	scene->store = scene_open_store(scene, timeout_ms);
	scene_enrol(scene, NODE, PATIENCE_MS);
}

void scene_open(struct scene *scene) {
	scene_open_with(scene, TIMEOUT_MS);
}

void scene_open_without_timeouts(struct scene *scene) {
	scene_open_with(scene, PATIENCE_MS);
	scene_disable_timeouts(scene);
}

void scene_disable_timeouts(struct scene *scene) {
	struct pg_store *store = postern__pg_from_base(scene->store);
	store->command_timeout_ms = PATIENCE_MS;
	store->lock_timeout_ms = PATIENCE_MS;
}

void scene_close(struct scene *scene) {
	postern_store_destroy(scene->store);
	scene_run(scene->link, "DROP SCHEMA " SCHEMA " CASCADE");
	PQfinish(scene->link);
	postern_memory_destroy(scene->memory);
}

int scene_accept_route(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept, struct postern_route *route) {
	struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.source = "shop",
		.type = "order.paid",
		.body = "body",
		.body_len = 4,
	};
	*accept = (struct postern_accept){
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = scene->channel,
		.routes = route,
		.route_count = 1,
	};
	struct postern_batch batch = {
		.node = node,
		.accepts = accept,
		.accept_count = 1,
	};
	int r = scene->store->ops->apply(scene->store, &batch, &scene->error);
	accept->routes = NULL;
	accept->message = NULL;
	return r;
}

int scene_accept(struct scene *scene, uint64_t node, const char *id, bool lease,
		struct postern_accept *accept, struct postern_route *route) {
	*route =
			(struct postern_route){ .handler = scene->handler, .lease = lease };
	return scene_accept_route(scene, node, id, accept, route);
}

int scene_accept_copy(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept, struct postern_route *route) {
	*route = (struct postern_route){
		.handler = scene->handler,
		.lease = true,
		.retry_poisoned = true,
	};
	return scene_accept_route(scene, node, id, accept, route);
}

int scene_accept_leased(struct scene *scene, uint64_t node, const char *id,
		struct postern_accept *accept) {
	struct postern_route route;
	return scene_accept(scene, node, id, true, accept, &route);
}

int scene_try_claim(struct scene *scene, uint32_t max,
		struct postern_claims *out) {
	struct postern_want want = { .handler = scene->handler, .max = max };
	struct postern_claim claim = {
		.node = NODE,
		.wants = &want,
		.want_count = 1,
		.max = 10,
		.bytes_max = 1000000,
	};
	return scene->store->ops->claim(scene->store, &claim, scene->memory, out,
			&scene->error);
}

size_t scene_claim(struct scene *scene, uint32_t max,
		struct postern_claimed *first_out) {
	struct postern_claims claims = { 0 };
	CHECK_OK(scene_try_claim(scene, max, &claims), &scene->error);
	if (claims.count > 0 && first_out) {
		*first_out = claims.items[0];
	}
	return claims.count;
}

bool scene_wait_for(struct scene *scene, const char *sql, int64_t value) {
	for (int i = 0; i < PATIENCE_MS; i++) {
		if (scene_number(scene->link, sql) == value) {
			return true;
		}
		(void)usleep(1000);
	}
	return false;
}

void scene_cut_connections(const struct scene *scene) {
	for (int fd = 3; fd < 100; fd++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof peer;
		bool own = fd == PQsocket(scene->link) ||
				   (scene->second && fd == PQsocket(scene->second));
		if (!own && getpeername(fd, (struct sockaddr *)&peer, &len) == 0) {
			(void)shutdown(fd, SHUT_RDWR);
		}
	}
}

void scene_block_commit(struct scene *scene, const char *what,
		const char *table) {
	char sql[1000];
	(void)snprintf(sql, sizeof sql,
			"CREATE TABLE " SCHEMA ".go_%1$s (n integer);"
			"CREATE SEQUENCE " SCHEMA ".held_%1$s;"
			"CREATE FUNCTION " SCHEMA ".hold_%1$s() RETURNS trigger"
			" LANGUAGE plpgsql AS $$ BEGIN"
			" IF nextval('" SCHEMA ".held_%1$s') = 1 THEN"
			" WHILE NOT EXISTS (SELECT 1 FROM " SCHEMA ".go_%1$s) LOOP"
			" PERFORM pg_sleep(0.001); END LOOP;"
			" END IF; RETURN NULL; END $$;"
			"CREATE CONSTRAINT TRIGGER hold AFTER %2$s ON " SCHEMA ".%1$s"
			" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
			" EXECUTE FUNCTION " SCHEMA ".hold_%1$s()",
			table, what);
	scene_run(scene->link, sql);
}

bool scene_wait_commit_blocked(struct scene *scene, const char *table) {
	char sql[200];
	(void)snprintf(sql, sizeof sql,
			"SELECT last_value FROM " SCHEMA ".held_%s WHERE is_called", table);
	return scene_wait_for(scene, sql, 1);
}

void scene_unblock_commit(struct scene *scene, const char *table) {
	char sql[200];
	(void)snprintf(sql, sizeof sql, "INSERT INTO " SCHEMA ".go_%s VALUES (1)",
			table);
	scene_run(scene->link, sql);
}

static const char blocked_sql[] =
		"SELECT count(*) FROM pg_stat_activity"
		" WHERE wait_event_type = 'Lock'"
		" AND query LIKE '%" SCHEMA "%' AND query NOT LIKE '%hashtext%'";

bool scene_is_blocked(const struct scene *scene, int64_t count) {
	return scene_number(scene->link, blocked_sql) == count;
}

bool scene_wait_blocked(struct scene *scene, int64_t count) {
	return scene_wait_for(scene, blocked_sql, count);
}

int scene_renew_and_recover(struct scene *scene, uint64_t node,
		bool *alive_out) {
	struct postern_recovered recovered;
	const struct postern_recovery recovery = { .node = node, .max = 1000 };
	struct postern_store *store = scene->store;
	int r = store->ops->renew(store, node, 60000, alive_out, &scene->error);
	return r == POSTERN_OK ? store->ops->recover(store, &recovery, &recovered,
									 &scene->error)
						   : r;
}
