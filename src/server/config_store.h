/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_STORE_H
#define POSTERN_SERVER_CONFIG_STORE_H

#include <postern/error.h>

/* The valid forms of a URL, for errors. */
#ifdef POSTERN_POSTGRES
#define POSTERN__STORE_URLS \
	"sqlite:FILE, memory: or postgres://USER@HOST/DATABASE"
#else
#define POSTERN__STORE_URLS "sqlite:FILE or memory:"
#endif

/*
 * Whether this is the URL of a store that is in this version: "memory:",
 * "sqlite:FILE", "postgres:…". Nothing is opened. Errors show the URL redacted.
 */
int postern__config_store_check(const char *url, struct postern_error *error);

#endif
