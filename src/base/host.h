/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_HOST_H
#define POSTERN_BASE_HOST_H

/* The host of this process, for people who look for it. */

/* The longest name in the DNS. */
#define POSTERN__HOST_LEN_MAX 255

/* The host name, cleaned so that it can be stored and displayed; "" if there
   is none. */
void postern__host_name(char out[POSTERN__HOST_LEN_MAX + 1]);

#endif
