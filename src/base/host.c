/* SPDX-License-Identifier: MIT */

/*
 * The name of the machine is whatever somebody set it to.
 */

#include "base/host.h"

#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

void postern__host_name(char out[POSTERN__HOST_LEN_MAX + 1]) {
	char name[POSTERN__HOST_LEN_MAX + 1] = "";
	/* One that does not fit is cut, perhaps without a zero byte. */
	(void)gethostname(name, sizeof name - 1);
	(void)postern__utf8_clean(name, strlen(name), out,
			POSTERN__HOST_LEN_MAX + 1);
}
