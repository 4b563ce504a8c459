/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_WEBHOOK_SETTINGS_H
#define POSTERN_SERVER_WEBHOOK_SETTINGS_H

/* The options of a source `webhook`, and what is made of them. */

#include <postern/sys/option.h>
#include <stddef.h>

#include "core/key_rule.h"
#include "server/signature.h"

struct postern__arena;
struct postern_error;

/* The longest difference between the time of a signature and now, if unset. */
#define POSTERN__SIGNATURE_TOLERANCE_MS (5 * 60 * 1000)

/* The rows, and the size of the struct that their offsets are in. */
extern const struct postern_option postern__webhook_options[];
extern const size_t postern__webhook_option_count;
extern const size_t postern__webhook_settings_size;

/* A rule for one attribute; NULL in `text`: there is none. */
struct postern__webhook_rule {
	const char *text;
	struct postern__key_rule parsed;
};

/* What a source was created with. Never changes. */
struct postern__webhook_settings {
	struct postern__arena *arena; /* has the texts and the secrets */
	const char *name;
	const char *source; /* of its messages; NULL: as they say */
	/* The scheme is NULL for `none`. */
	struct postern__verifier verifier;
	struct postern__webhook_rule id;
	struct postern__webhook_rule type;
	struct postern__webhook_rule subject;
};

/*
 * Validate what was written, which is that struct, and read the files of
 * secrets. POSTERN_E_INVALID names the webhook and what is wrong.
 *
 * arena  must live as long as *self.
 */
int postern__webhook_settings_read(const void *written,
		struct postern__arena *arena, struct postern__webhook_settings *self,
		struct postern_error *error);

#endif
