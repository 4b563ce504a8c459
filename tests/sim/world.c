/* SPDX-License-Identifier: MIT */
/*
 * The store that everything turns around, and time.
 */

#include "sim/sim.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_LEN 300

static const char *const parts[] = { "", "-wal", "-shm", ".lock" };

static void file_name(const struct sim *sim, unsigned file, const char *part,
		char *out) {
	(void)snprintf(out, PATH_MAX_LEN, "%s/sim-%ld-%u.db%s",
			sim->options.directory ? sim->options.directory : "/tmp",
			(long)getpid(), file, part);
}

static void remove_file(const struct sim *sim, unsigned file) {
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char path[PATH_MAX_LEN];
		file_name(sim, file, parts[i], path);
		(void)unlink(path);
	}
}

static bool copy_file(const char *from, const char *to) {
	FILE *in = fopen(from, "rb");
	if (!in) {
		return false;
	}
	FILE *out = fopen(to, "wb");
	bool good = out != NULL;
	char bytes[16384];
	size_t len;
	while (good && (len = fread(bytes, 1, sizeof(bytes), in)) > 0) {
		good = fwrite(bytes, 1, len, out) == len;
	}
	(void)fclose(in);
	return out && fclose(out) == 0 && good;
}

int sim_world_open(struct sim *sim) {
	char path[PATH_MAX_LEN];
	char url[PATH_MAX_LEN + 16] = "memory:";
	if (sim->plan->sqlite) {
		file_name(sim, sim->file, "", path);
		(void)snprintf(url, sizeof(url), "sqlite:%s", path);
	}
	struct postern_store_options options = {
		.size = sizeof(options),
		.command_timeout_ms = 1000,
		.clock = &sim->clock.base,
		.random = &sim->random.base,
	};
	struct postern_error error;
	int r = postern_store_open(url, &options, &sim->store, &error);
	if (r) {
		sim_oracle_broken(&sim->oracle, "open", "%s", error.text);
	}
	return r;
}

void sim_world_close(struct sim *sim) {
	postern_store_destroy(sim->store);
	sim->store = NULL;
	remove_file(sim, sim->file);
}

void sim_world_reopen(struct sim *sim) {
	/* What another process would find if this one were killed now. */
	for (size_t i = 0; i < 2; i++) {
		char from[PATH_MAX_LEN];
		char to[PATH_MAX_LEN];
		file_name(sim, sim->file, parts[i], from);
		file_name(sim, sim->file + 1, parts[i], to);
		if (!copy_file(from, to)) {
			sim_oracle_broken(&sim->oracle, "open", "cannot copy %s", from);
		}
	}
	sim_world_close(sim);
	sim->file++;
	sim_oracle_reopened(&sim->oracle);
	(void)sim_world_open(sim);
}

static int take_effect(void *context, int count, char **values, char **names) {
	struct sim *sim = context;
	(void)count;
	(void)names;
	int64_t seq = strtoll(values[0], NULL, 10);
	uint64_t fence = strtoull(values[2], NULL, 10);
	sim_oracle_effect(&sim->oracle, seq, values[1], fence);
	sim_dump_effect(sim, seq, values[1], fence);
	return 0;
}

void sim_world_effects(struct sim *sim) {
	if (!sim->plan->sqlite) {
		return;
	}
	char path[PATH_MAX_LEN];
	file_name(sim, sim->file, "", path);
	sqlite3 *db = NULL;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
		/* No table, no effects. */
		(void)sqlite3_exec(db, "select seq, handler, fence from effect",
				take_effect, sim, NULL);
	}
	(void)sqlite3_close(db);
	sim_oracle_effects_end(&sim->oracle);
}

void sim_advance(struct sim *sim, int64_t ms) {
	fake_clock_advance(&sim->clock, ms);
	sim_history_clock(sim, ms);
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		fake_clock_advance(&sim->nodes[i].clock, ms);
	}
}
