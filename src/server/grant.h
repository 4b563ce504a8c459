/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_GRANT_H
#define POSTERN_SERVER_GRANT_H

/*
 * What the sender of a request may do.
 *
 * Each route needs one permission (the table in api.c), or none. A grant is the
 * set of permissions that a token's role has, and the channels that it is
 * narrowed to.
 */

#include <stdbool.h>
#include <stddef.h>

enum postern__permission {
	POSTERN__PERMIT_NOTHING = 0, /* of a route: anyone may use it */
	POSTERN__PERMIT_SEND = 1,    /* messages and marks */
	POSTERN__PERMIT_READ = 2,    /* everything but bodies */
	POSTERN__PERMIT_BODIES = 4,  /* of messages */
	POSTERN__PERMIT_OPERATE = 8, /* deliveries, handlers, channels */
	POSTERN__PERMIT_ADMIN = 16,  /* what concerns a whole store */
	POSTERN__PERMIT_ALL = 31
};

struct postern__grant {
	const char *name;            /* of the token; NULL: there is none */
	const char *role;            /* its name; NULL: none */
	bool unknown;                /* there is a token, and it is not known */
	unsigned permissions;        /* POSTERN__PERMIT_… */
	size_t channel_count;        /* 0: all channels */
	const char *const *channels; /* by their present names */
};

struct postern__role {
	const char *name;
	unsigned permissions;
};

/* The role of this name; NULL: there is none. */
const struct postern__role *postern__role_named(const char *name);

/* Write the names of the roles that have a permission: "operate or admin". */
#define POSTERN__ROLES_TEXT_MAX 48
void postern__roles_with(unsigned permission,
		char out[POSTERN__ROLES_TEXT_MAX]);

/* "send, read, operate, admin" */
#define POSTERN__ROLE_NAMES "send, read, operate, admin"

#endif
