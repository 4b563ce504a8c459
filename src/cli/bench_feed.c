/* SPDX-License-Identifier: MIT */
/*
 * The messages of the job: random ids, bodies of one size, and some copies of
 * the last thousand messages, as a broker that redelivers would send. The body
 * contains the id, so a copy has the same body.
 */

#include "cli/bench.h"

#include <postern/sys/random.h>
#include <string.h>

/* Text around the id, so that the body is JSON. */
static const char before[] = "{\"id\":\"";
static const char between[] = "\",\"padding\":\"";
static const char after[] = "\"}";

/* A Weyl sequence and a mixer: good enough for ids that need not be secret, and
   fast enough not to affect the measurement. */
static uint64_t next_random(struct postern__bench_feed *feed) {
	uint64_t x = feed->random += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void put_hex(char *out, uint64_t value, size_t count) {
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < count; i++) {
		out[i] = digits[value & 15];
		value >>= 4;
	}
}

/* A UUID of version 4. */
static void make_id(struct postern__bench_feed *feed, char *out) {
	uint64_t high = next_random(feed);
	uint64_t low = next_random(feed);
	put_hex(out, high, 8);
	out[8] = '-';
	put_hex(out + 9, high >> 32, 4);
	out[13] = '-';
	put_hex(out + 14, high >> 48, 4);
	out[14] = '4';
	out[18] = '-';
	put_hex(out + 19, low, 4);
	out[19] = "89ab"[low & 3];
	out[23] = '-';
	put_hex(out + 24, low >> 16, 12);
	out[POSTERN__BENCH_ID_LEN] = '\0';
}

static void make_body(const char *id, char *out) {
	char *place = out;
	char *end = out + POSTERN__BENCH_BODY_LEN - strlen(after);
	memcpy(place, before, strlen(before));
	place += strlen(before);
	memcpy(place, id, POSTERN__BENCH_ID_LEN);
	place += POSTERN__BENCH_ID_LEN;
	memcpy(place, between, strlen(between));
	place += strlen(between);
	memset(place, 'x', (size_t)(end - place));
	memcpy(end, after, strlen(after));
}

void postern__bench_feed_init(struct postern__bench_feed *feed,
		uint32_t duplicates) {
	const struct postern_random *random = postern_random_system();
	memset(feed, 0, sizeof *feed);
	feed->random = random->next(random->context);
	feed->duplicates = duplicates;
}

/* Copies are spread evenly. The first message is never a copy, because at most
   90 % are. */
static bool is_copy(const struct postern__bench_feed *feed) {
	return (feed->sent + 1) * feed->duplicates / 100 >
		   feed->sent * feed->duplicates / 100;
}

void postern__bench_feed_next(struct postern__bench_feed *feed,
		struct postern__bench_letter *letter, struct postern_message *out) {
	if (is_copy(feed)) {
		uint64_t known = feed->made < POSTERN__BENCH_WINDOW
								 ? feed->made
								 : POSTERN__BENCH_WINDOW;
		memcpy(letter->id, feed->recent[next_random(feed) % known],
				sizeof letter->id);
	} else {
		make_id(feed, letter->id);
		memcpy(feed->recent[feed->made % POSTERN__BENCH_WINDOW], letter->id,
				sizeof letter->id);
		feed->made++;
	}
	feed->sent++;
	make_body(letter->id, letter->body);
	*out = (struct postern_message){
		.size = sizeof *out,
		.id = letter->id,
		.type = "bench",
		.content_type = "application/json",
		.body = letter->body,
		.body_len = sizeof letter->body,
	};
}
