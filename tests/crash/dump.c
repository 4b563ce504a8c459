/* SPDX-License-Identifier: MIT */
/* Writes the dump as one JSON object. */

#include "crash/dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn)) static void exit_with_error(const char *what) {
	(void)fprintf(stderr, "scenario: dump: %s\n", what);
	exit(3);
}

static void write_messages(struct world *world, FILE *file,
		const struct postern_listing *listing) {
	int64_t last = 0;
	const char *comma = "";
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		int64_t seq = postern_listing_get(listing, i)->seq;
		struct postern_detail *detail;
		struct postern_error error;
		if (seq == last) {
			continue;
		}
		last = seq;
		if (postern_box_get(world->box, seq, &detail, &error)) {
			exit_with_error(error.text);
		}
		if (strcmp(detail->channel, "leavings") == 0) {
			postern_detail_destroy(detail);
			continue;
		}
		(void)fprintf(file,
				"%s\n{\"seq\":%lld,\"channel\":\"%s\",\"source\":\"%s\","
				"\"id\":\"%s\",\"body\":\"%.*s\"}",
				comma, (long long)seq, detail->channel, detail->message->source,
				detail->message->id, (int)detail->message->body_len,
				(const char *)detail->message->body);
		comma = ",";
		postern_detail_destroy(detail);
	}
}

static void write_deliveries(FILE *file,
		const struct postern_listing *listing) {
	const char *comma = "";
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		const struct postern_row *row = postern_listing_get(listing, i);
		if (row->handler[0] == '\0' || !world_is_recorded(row->handler)) {
			continue;
		}
		(void)fprintf(file,
				"%s\n{\"seq\":%lld,\"handler\":\"%s\",\"state\":\"%s\","
				"\"fence\":%llu,\"failures\":%u,\"starts\":%u}",
				comma, (long long)row->seq, row->handler,
				postern_state_name(row->state), (unsigned long long)row->fence,
				(unsigned)row->failures, (unsigned)row->starts);
		comma = ",";
	}
}

static void write_parked(FILE *file, const struct postern_listing *listing) {
	const char *comma = "";
	for (size_t i = 0; i < postern_listing_count(listing); i++) {
		const struct postern_row *row = postern_listing_get(listing, i);
		if (row->state == POSTERN_STATE_PARKED) {
			(void)fprintf(file, "%s%lld", comma, (long long)row->seq);
			comma = ",";
		}
	}
}

struct effects_file {
	FILE *file;
	const char *comma;
};

static void write_effect(void *context, int64_t seq, const char *handler,
		uint64_t fence) {
	struct effects_file *out = context;
	if (strcmp(handler, WORLD_JOB) == 0) {
		return;
	}
	(void)fprintf(out->file,
			"%s\n{\"seq\":%lld,\"handler\":\"%s\",\"fence\":%llu}", out->comma,
			(long long)seq, handler, (unsigned long long)fence);
	out->comma = ",";
}

static void write_effects(const struct world *world, FILE *file) {
	struct effects_file out = { .file = file, .comma = "" };
	if (!effects_read(&world->effects, write_effect, &out)) {
		exit_with_error("cannot read the effects");
	}
}

void dump_write(struct world *world, bool drained, const char *path) {
	struct postern_filter filter = { .size = sizeof filter, .limit = 10000 };
	struct postern_listing *listing;
	struct postern_error error;
	FILE *file = fopen(path, "w");
	if (!file) {
		exit_with_error("cannot write it");
	}
	if (postern_box_list(world->box, &filter, &listing, &error)) {
		exit_with_error(error.text);
	}
	(void)fprintf(file, "{\"messages\":[");
	write_messages(world, file, listing);
	(void)fprintf(file, "],\n\"deliveries\":[");
	write_deliveries(file, listing);
	(void)fprintf(file, "],\n\"parked\":[");
	write_parked(file, listing);
	postern_listing_destroy(listing);
	world_close(world);
	(void)fprintf(file, "],\n\"effects\":[");
	write_effects(world, file);
	(void)fprintf(file, "],\n\"drained\":%s}\n", drained ? "true" : "false");
	if (fclose(file)) {
		exit_with_error("cannot write it");
	}
}
