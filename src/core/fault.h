/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_FAULT_H
#define POSTERN_CORE_FAULT_H

/*
 * The event about a message that its transport has given up.
 */

#include "core/box.h"

#define POSTERN__FAULT_ID_SIZE 40

struct postern__fault {
	char to[POSTERN_CHANNEL_NAME_LEN_MAX + 1]; /* "": nothing is published */
	/* Refers to what was given, and to the rest of this struct. */
	struct postern_message message;
	struct postern_header headers[POSTERN_HEADER_COUNT_MAX];
	char from[POSTERN_CHANNEL_NAME_LEN_MAX + 1];
	char attempts[16];
	char reason[POSTERN_REASON_LEN_MAX + 1];
	char id[POSTERN__FAULT_ID_SIZE];
};

/* POSTERN_E_NOTFOUND: no such channel. */
int postern__fault_init(struct postern__fault *fault, struct postern_box *box,
		const char *channel_name, const struct postern_message *given,
		uint32_t attempts, const char *reason, struct postern_error *error);

#endif
