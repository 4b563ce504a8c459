/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_POSTGRES_OWN_LINK_H
#define POSTERN_STORE_POSTGRES_OWN_LINK_H

/* Connections that belong to the program, not to a store. */

#include <libpq-fe.h>
#include <postern/error.h>

/* marker_take.c: fails unless the connection has an open transaction in which a
   statement can be run. */
int postern__pg_check_own_link(PGconn *link, struct postern_error *error);

#endif
