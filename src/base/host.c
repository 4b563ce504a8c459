/* SPDX-License-Identifier: MIT */

/*
 * The host name. It may contain any bytes, so it is cleaned.
 */

#include "base/host.h"

#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

void postern__host_name(char out[POSTERN__HOST_LEN_MAX + 1]) {
	char name[POSTERN__HOST_LEN_MAX + 1] = "";
	/* A name that does not fit is truncated, perhaps without a zero byte. */
	(void)gethostname(name, sizeof name - 1);
	(void)postern__utf8_clean(name, strlen(name), out,
			POSTERN__HOST_LEN_MAX + 1);
}
