/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_HOST_H
#define POSTERN_BASE_HOST_H

/* Where this process is, for people who look for it. */

/* As long as a name in the DNS. */
#define POSTERN__HOST_LEN_MAX 255

/* The name of this machine, as it can be stored and shown; "" if it has
   none. */
void postern__host_name(char out[POSTERN__HOST_LEN_MAX + 1]);

#endif
