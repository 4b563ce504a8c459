/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_DEMO_H
#define POSTERN_SERVER_DEMO_H

struct postern__buf;
struct postern__config_input;

/* Append what `postern serve --demo` serves, as YAML. Webhooks are in it if the
   input says where the server will be. */
void postern__demo_write(const struct postern__config_input *input,
		struct postern__buf *out);

#endif
