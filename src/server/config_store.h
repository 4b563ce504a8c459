/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_STORE_H
#define POSTERN_SERVER_CONFIG_STORE_H

#include <postern/error.h>

/*
 * Whether this is the URL of a store that is in this version: "memory:" or
 * "sqlite:FILE". The file itself is not looked at. Errors show the URL
 * without its secrets.
 */
int postern__config_store_check(const char *url, struct postern_error *error);

#endif
