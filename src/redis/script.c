/* SPDX-License-Identifier: MIT */

/*
 * The script that decides about a marker: the rules of postern/sys/marker.h, as
 * store/marker.c has them for the other stores.
 *
 * A marker has one key for each name of its handler,
 *
 *   <key_prefix>{<hash of the value>}:<handler>
 *
 * and the braces put all of them into one slot. The value may be any bytes, so
 * its SHA-256 is in the key, the first 128 bits of it.
 * The text of a key is "<fence> <written at> <end of the lease, 0: done>".
 *
 * The key of a lease outlives the lease by an hour: a lease that has ended may
 * still be finished while nobody else has begun.
 *
 * The first begin of a key with one name needs no read: SET NX writes the key
 * only if it does not exist.
 *
 * A call that writes nothing else deletes a key that does not exist. That
 * changes nothing, but a replica refuses it: so a replica cannot answer that
 * something was not done. It comes last, because after the first write of a
 * script Redis does not check its memory any more.
 */

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "redis/redis.h"

/* 128 bits of the hash of a value, in hexadecimal. */
#define VALUE_HASH_LEN 16
#define HANDLER_LEN_MAX 200
#define KEY_SIZE (65 + 2 + 2 * VALUE_HASH_LEN + 2 + HANDLER_LEN_MAX + 1)
#define FIXED_WORD_COUNT 8
#define WORD_MAX (FIXED_WORD_COUNT + POSTERN_MARK_NAME_COUNT_MAX)
#define NUMBER_SIZE 24
/* The key of a lease outlives the lease by so much. */
#define LEASE_KEPT_MS 3600000LL

const char postern__redis_script[] =
		"local kind, fence = ARGV[1], ARGV[2]\n"
		"local now = tonumber(ARGV[5])\n"
		"if now < 0 then\n"
		"  local time = redis.call('TIME')\n"
		"  now = time[1] * 1000 + math.floor(time[2] / 1000)\n"
		"end\n"
		"local till, keep = 0, ARGV[4]\n"
		"if ARGV[3] ~= '0' then till = now + ARGV[3] end\n"
		"local new = string.format('%s %d %d', fence, now, till)\n"
		"if kind == 'begin' and #KEYS == 1 then\n"
		"  local reply = redis.pcall('SET', KEYS[1], new, 'NX', 'PX', keep)\n"
		"  if reply and reply.ok then return {0, 0, 0} end\n"
		"end\n"
		"local state, left, rows, mine, rival = 0, 0, 0, true, false\n"
		"for _, key in ipairs(KEYS) do\n"
		"  local row = redis.pcall('GET', key)\n"
		"  if type(row) == 'table' then return row end\n"
		"  if row then\n"
		"    local f, at, till = string.match(row, '^(%d+) (%d+) (%d+)$')\n"
		"    if not f then return redis.error_reply('WRONGTYPE row') end\n"
		"    at, till = tonumber(at), tonumber(till)\n"
		"    rows, mine = rows + 1, mine and f == fence\n"
		"    if till == 0 then\n"
		"      state = 2\n"
		"    elseif now < till and now >= at - (till - at) then\n"
		"      state, left = math.max(state, 1), math.max(left, till - now)\n"
		"      rival = rival or f ~= fence\n"
		"    end\n"
		"  end\n"
		"end\n"
		"local open = rows > 0 and state < 2 and mine\n"
		"local put, gone, stale = false, false, 0\n"
		"if kind == 'begin' then\n"
		"  if state == 1 and not rival then state = 0 end\n"
		"  put = state == 0\n"
		"elseif kind == 'extend' then\n"
		"  put = open and state == 1\n"
		"  if not put then stale = 1 end\n"
		"elseif kind == 'finish' then\n"
		"  put = open\n"
		"  if not open and (state < 2 or not mine) then stale = 1 end\n"
		"elseif kind == 'release' then\n"
		"  gone = open\n"
		"  if not open then stale = 1 end\n"
		"elseif kind == 'try' or kind == 'record' then\n"
		"  put = state == 0 or (state == 1 and kind == 'record')\n"
		"  if state == 2 and mine then state = 0 end\n"
		"elseif kind == 'forget' then\n"
		"  gone = true\n"
		"end\n"
		"if put then\n"
		"  for _, key in ipairs(KEYS) do\n"
		"    local reply = redis.pcall('SET', key, new, 'PX', keep)\n"
		"    if reply.err then return reply end\n"
		"  end\n"
		"elseif gone then\n"
		"  for _, key in ipairs(KEYS) do redis.call('DEL', key) end\n"
		"else\n"
		"  local reply = redis.pcall('DEL', KEYS[1] .. '!')\n"
		"  if type(reply) == 'table' then return reply end\n"
		"end\n"
		"if state ~= 1 then left = 0 end\n"
		"return {stale, state, left}\n";

static const char *const kind_names[] = {
	[POSTERN_MARK_BEGIN] = "begin",
	[POSTERN_MARK_EXTEND] = "extend",
	[POSTERN_MARK_FINISH] = "finish",
	[POSTERN_MARK_RELEASE] = "release",
	[POSTERN_MARK_TRY] = "try",
	[POSTERN_MARK_RECORD] = "record",
	[POSTERN_MARK_READ] = "read",
	[POSTERN_MARK_FORGET] = "forget",
};

static void put_hex(const unsigned char *bytes, size_t len, char *out) {
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * len] = '\0';
}

static int digest(const EVP_MD *method, const void *bytes, size_t len,
		unsigned char out[EVP_MAX_MD_SIZE], struct postern_error *error) {
	return EVP_Digest(bytes, len, out, NULL, method, NULL) == 1
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM,
							 "OpenSSL cannot compute a digest");
}

int postern__redis_script_digest(char out[REDIS_DIGEST_SIZE],
		struct postern_error *error) {
	unsigned char bytes[EVP_MAX_MD_SIZE];
	int r = digest(EVP_sha1(), postern__redis_script,
			strlen(postern__redis_script), bytes, error);
	if (!r) {
		put_hex(bytes, (REDIS_DIGEST_SIZE - 1) / 2, out);
	}
	return r;
}

/* The words of a call of the script. */
struct words {
	const char *items[WORD_MAX];
	size_t lens[WORD_MAX];
	int count;
};

static void add(struct words *words, const char *text) {
	words->items[words->count] = text;
	words->lens[words->count] = strlen(text);
	words->count++;
}

static int format_words(const struct words *words, char **out, size_t *len_out,
		struct postern_error *error) {
	char *command = NULL;
	const char *items[WORD_MAX];
	memcpy(items, words->items, sizeof items);
	int len =
			redisFormatCommandArgv(&command, words->count, items, words->lens);
	if (len < 0) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = command;
	*len_out = (size_t)len;
	return POSTERN_OK;
}

int postern__redis_script_format(const struct postern__redis_address *address,
		const char *script_digest, const struct postern_mark *mark,
		const struct postern_mark_request *request, int64_t now_ms, char **out,
		size_t *len_out, struct postern_error *error) {
	char keys[POSTERN_MARK_NAME_COUNT_MAX][KEY_SIZE];
	char numbers[5][NUMBER_SIZE];
	char hex[2 * VALUE_HASH_LEN + 1];
	unsigned char hash[EVP_MAX_MD_SIZE];
	struct words words = { .count = 0 };
	int r = digest(EVP_sha256(), mark->value, mark->value_len, hash, error);
	if (r) {
		return r;
	}
	put_hex(hash, VALUE_HASH_LEN, hex);
	add(&words, script_digest ? "EVALSHA" : "EVAL");
	add(&words, script_digest ? script_digest : postern__redis_script);
	(void)snprintf(numbers[0], NUMBER_SIZE, "%zu", mark->handler_count);
	add(&words, numbers[0]);
	for (size_t i = 0; i < mark->handler_count; i++) {
		(void)snprintf(keys[i], KEY_SIZE, "%s{%s}:%s", address->key_prefix, hex,
				mark->handlers[i]);
		add(&words, keys[i]);
	}
	add(&words, kind_names[request->kind]);
	(void)snprintf(numbers[1], NUMBER_SIZE, "%llu",
			(unsigned long long)request->fence);
	/* Only a lease has an end, and its key is there for longer. */
	bool leases = request->kind == POSTERN_MARK_BEGIN ||
				  request->kind == POSTERN_MARK_EXTEND;
	(void)snprintf(numbers[2], NUMBER_SIZE, "%lld",
			leases ? (long long)request->lease_ms : 0);
	(void)snprintf(numbers[3], NUMBER_SIZE, "%lld",
			leases ? (long long)request->lease_ms + LEASE_KEPT_MS
				   : (long long)address->ttl_ms);
	(void)snprintf(numbers[4], NUMBER_SIZE, "%lld", (long long)now_ms);
	for (size_t i = 1; i < 5; i++) {
		add(&words, numbers[i]);
	}
	return format_words(&words, out, len_out, error);
}
