/* SPDX-License-Identifier: MIT */

/* To be written. */

#include "base/fail.h"
#include "store/postgres/postgres.h"

int postern__pg_get_detail(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	(void)store;
	(void)seq;
	(void)memory;
	(void)out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}

int postern__pg_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	(void)store;
	(void)id;
	(void)source;
	(void)channel;
	(void)seqs;
	(void)max;
	(void)count_out;
	return postern__fail(error, POSTERN_E_UNSUPPORTED, "not yet");
}
