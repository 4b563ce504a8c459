/* SPDX-License-Identifier: MIT */
/*
 * The roles. They are not levels: a program that sends reads nothing, and a
 * person who operates sends nothing.
 */

#include "server/grant.h"

#include <stdio.h>
#include <string.h>

static const struct postern__role roles[] = {
	{ "send", POSTERN__PERMIT_SEND },
	{ "read", POSTERN__PERMIT_READ },
	{ "operate", POSTERN__PERMIT_READ | POSTERN__PERMIT_OPERATE },
	{ "admin", POSTERN__PERMIT_ALL },
};

void postern__roles_with(unsigned permission,
		char out[POSTERN__ROLES_TEXT_MAX]) {
	size_t len = 0;
	out[0] = '\0';
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
		if (roles[i].permissions & permission) {
			len += (size_t)snprintf(out + len, POSTERN__ROLES_TEXT_MAX - len,
					"%s%s", len > 0 ? " or " : "", roles[i].name);
		}
	}
}

const struct postern__role *postern__role_named(const char *name) {
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
		if (strcmp(roles[i].name, name) == 0) {
			return &roles[i];
		}
	}
	return NULL;
}
