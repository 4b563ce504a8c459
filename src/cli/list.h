/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_LIST_H
#define POSTERN_CLI_LIST_H

/*
 * `postern list`: its parts.
 */

struct postern__buf;
struct postern__cli;

/* Add the filters, --limit and --cursor to a query; returns an exit status. */
int postern__list_query(const struct postern__cli *cli,
		struct postern__buf *query);

/* `postern list --group-by error`. */
int postern__list_groups(struct postern__cli *cli);

#endif
