/* SPDX-License-Identifier: MIT */
/*
 * Messages by number: every attribute of a message follows from its number, so
 * that a message which was read back can be compared.
 */

#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

void sim_parcel_make(const struct sim *sim, unsigned number, unsigned variant,
		struct sim_parcel *out) {
	uint64_t hash = sim_hash(sim->plan->seed, number, 1, 0);
	*out = (struct sim_parcel){
		.number = number,
		.variant = variant,
		.channel = (unsigned)(hash % SIM_CHANNEL_COUNT),
	};
	(void)snprintf(out->id, sizeof(out->id), "m%u", number);
	(void)snprintf(out->body, sizeof(out->body), "body %u of m%u", variant,
			number);
	out->message = (struct postern_message){
		.size = sizeof(out->message),
		.id = out->id,
		.source = (hash >> 8) % 2 ? "elsewhere" : NULL,
		.type = sim_types[(hash >> 16) % SIM_TYPE_COUNT],
		.body = out->body,
		.body_len = strlen(out->body),
	};
}

static bool is_same_message(const struct postern_message *left,
		const struct sim_parcel *parcel) {
	const struct postern_message *right = &parcel->message;
	const char *source =
			right->source ? right->source : sim_channels[parcel->channel].name;
	return strcmp(left->id, right->id) == 0 &&
		   left->body_len == right->body_len &&
		   memcmp(left->body, right->body, left->body_len) == 0 &&
		   strcmp(left->type, right->type) == 0 && left->source &&
		   strcmp(left->source, source) == 0;
}

void sim_parcel_read(const struct sim *sim,
		const struct postern_message *message, struct sim_parcel *out) {
	unsigned number = (unsigned)strtoul(message->id + 1, NULL, 10);
	for (unsigned variant = 0; variant < 2; variant++) {
		sim_parcel_make(sim, number, variant, out);
		if (is_same_message(message, out)) {
			return;
		}
	}
	out->number = UINT32_MAX; /* no such message was ever sent */
}
