/* SPDX-License-Identifier: MIT */
/*
 * The shared store, and time.
 */

#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_LEN 300
/* Far more than a server takes, even on a busy machine. */
#define SERVER_PATIENCE_MS 60000

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

/* Set the URL of the store; in a database it has a schema of its own. */
static void name_store(struct sim *sim) {
	char path[PATH_MAX_LEN];
	const char *server = getenv("POSTERN_TEST_POSTGRES");
	switch (sim->plan->store) {
	case SIM_SQLITE:
		file_name(sim, sim->file, "", path);
		(void)snprintf(sim->url, sizeof(sim->url), "sqlite:%s", path);
		break;
	case SIM_POSTGRES:
		(void)snprintf(sim->url, sizeof(sim->url), "%s?schema=sim_%ld",
				server ? server : "postgres://", (long)getpid());
		break;
	case SIM_MEMORY:
	default: (void)snprintf(sim->url, sizeof(sim->url), "memory:"); break;
	}
	effects_init(&sim->effects, sim->url);
}

int sim_world_open(struct sim *sim) {
	name_store(sim);
	struct postern_store_options options = {
		.size = sizeof(options),
		.command_timeout_ms = 1000,
		.clock = &sim->clock.base,
		.random = &sim->random.base,
	};
	if (sim->plan->store == SIM_POSTGRES) {
		options.command_timeout_ms = SERVER_PATIENCE_MS;
	}
	struct postern_error error = { 0 };
	int r = postern_store_open(sim->url, &options, &sim->store, &error);
	if (!r && !effects_prepare(&sim->effects)) {
		r = POSTERN_E_UNAVAILABLE;
	}
	if (r) {
		sim_oracle_broken(&sim->oracle, "open", "%s", error.text);
	}
	return r;
}

void sim_world_close(struct sim *sim) {
	postern_store_destroy(sim->store);
	sim->store = NULL;
	effects_remove(&sim->effects);
	remove_file(sim, sim->file);
}

/* Copy the files as another process would find them if this one died now. */
static void move_file(struct sim *sim) {
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
}

void sim_world_reopen(struct sim *sim) {
	if (sim->plan->store == SIM_SQLITE) {
		move_file(sim);
	} else {
		/* The server keeps running when its client dies. */
		postern_store_destroy(sim->store);
		sim->store = NULL;
	}
	(void)sim_world_open(sim);
}

static void record_effect(void *context, int64_t seq, const char *handler,
		uint64_t fence) {
	struct sim *sim = context;
	sim_oracle_effect(&sim->oracle, seq, handler, fence);
	sim_dump_effect(sim, seq, handler, fence);
}

void sim_world_effects(struct sim *sim) {
	if (sim->plan->store == SIM_MEMORY) {
		return;
	}
	if (!effects_read(&sim->effects, record_effect, sim)) {
		sim_oracle_broken(&sim->oracle, "open", "cannot read the effects");
	}
	sim_oracle_effects_end(&sim->oracle);
}

void sim_advance(struct sim *sim, int64_t ms) {
	fake_clock_advance(&sim->clock, ms);
	sim_history_clock(sim, ms);
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		fake_clock_advance(&sim->nodes[i].clock, ms);
	}
}
