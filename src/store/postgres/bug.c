/* SPDX-License-Identifier: MIT */

/*
 * Known bugs that would live in the SQL of the schema, for the bug bank: each
 * says what would stand there instead of what. Nothing of it is left in a
 * build without them.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "store/postgres/postgres.h"

#define CHANGE_MAX 4

struct change {
	const char *from;
	const char *to;
};

/* What is changed; it ends with the first that has no text. */
static void find_changes(struct change out[CHANGE_MAX]) {
	if (postern__bug("unfenced-settle")) {
		out[0] = (struct change){
			"AND o.fence = coalesce(p_fence[n], p_fence[1])"
			" AND o.node = p_node",
			""
		};
		out[1] = (struct change){ "AND o.fence = s.fence AND o.node = p_node",
			"" };
		out[2] = (struct change){ "AND o.fence = p_fence[1]"
								  " AND o.node = p_node",
			"" };
	} else if (postern__bug("lease-given-back-twice")) {
		out[0] = (struct change){ "WHERE s.kind < 3 AND o.ctid = k.place\n"
								  "\t\t\t\tAND o.fence = s.fence"
								  " AND o.node = p_node",
			"WHERE s.kind < 3 AND o.ctid = k.place" };
	} else if (postern__bug("claim-keeps-fence")) {
		out[0] = (struct change){ "fence = o.fence + 1, starts",
			"fence = o.fence, starts" };
	} else if (postern__bug("claimed-before-due")) {
		out[0] = (struct change){ "p.suspect = 0 AND p.due_at <= v_high",
			"p.suspect = 0" };
	} else if (postern__bug("conflict-told-as-duplicate")) {
		out[0] = (struct change){ "s.digest = a_digest[n] AS same",
			"true AS same" };
	} else if (postern__bug("legacy-key-runs-twice")) {
		out[0] = (struct change){ "ARRAY p_handler || p_aliases LOOP",
			"ARRAY ARRAY[p_handler] LOOP" };
	} else if (postern__bug("fence-restarts")) {
		out[0] = (struct change){ "(p_seq, v_row.fence, NULL,",
			"(p_seq, 0, NULL," };
	} else if (postern__bug("crash-not-counted")) {
		out[0] = (struct change){ "o.crashes + p.crashed::integer",
			"o.crashes" };
	} else if (postern__bug("innocents-blamed")) {
		out[0] = (struct change){ "guilty AND solo", "guilty" };
	} else if (postern__bug("unfenced-transaction")) {
		out[0] = (struct change){ "AND fence = p_fence AND node = p_node"
								  " RETURNING",
			"RETURNING" };
	} else if (postern__bug("lost-lock-kept")) {
		out[0] = (struct change){ "AND node = p_node AND fence = p_lock_fence",
			"" };
	}
}

/* Bugs that only a shared database can have. */
static void find_more_changes(struct change out[CHANGE_MAX]) {
	if (postern__bug("known-read-too-early")) {
		/* As if what is known were read by the statement that found it
		   taken, which may not see it. */
		out[0] = (struct change){ "\tWITH s AS (\n\t\tINSERT INTO @seen",
			"\tPERFORM set_config('postern.then', pg_current_snapshot()::text,"
			" true);\n\tWITH s AS (\n\t\tINSERT INTO @seen" };
		out[1] = (struct change){ "WHERE k.k0 = a_k0[n]",
			"WHERE (k.seq = ANY (a_seq) OR"
			" pg_visible_in_snapshot(k.xmin::text::xid8,"
			" current_setting('postern.then')::pg_snapshot))"
			" AND k.k0 = a_k0[n]" };
		out[2] = (struct change){ "RAISE 'a message was forgotten while it came"
								  " again'\n\t\t\tUSING ERRCODE ="
								  " 'serialization_failure'",
			"NULL" };
	} else if (postern__bug("claimed-by-two")) {
		out[0] = (struct change){ "FOR UPDATE SKIP LOCKED) AS o", ") AS o" };
		/* Whoever finds one that is free takes all, a little later. */
		out[1] = (struct change){ "WHERE o.ctid = u.place AND o.node IS NULL",
			"WHERE o.handler = ANY (w_handler)" };
		out[2] = (struct change){ "RETURN QUERY\n\t\tWITH leased",
			"PERFORM pg_sleep(0.05);\n\tRETURN QUERY\n\t\tWITH leased" };
	} else if (postern__bug("unfenced-recovery")) {
		out[0] = (struct change){ "o.node IS NOT NULL AND o.node <> p_node",
			"o.node IS NOT NULL" };
		out[1] = (struct change){ "OR o.node NOT IN (SELECT n.node"
								  " FROM @node n))\n\t\tORDER BY guilty",
			"OR true)\n\t\tORDER BY guilty" };
		out[2] = (struct change){ "IF NOT FOUND AND NOT p_all THEN",
			"IF false THEN" };
	} else if (postern__bug("living-taken-for-dead")) {
		out[0] = (struct change){ "WHERE lives_until <= v_now AND"
								  " node <> p_node",
			"WHERE node <> p_node" };
		out[1] = (struct change){ "ANY (v_late) AND lives_until <= v_now",
			"ANY (v_late)" };
	} else if (postern__bug("late-batch-begun")) {
		out[0] =
				(struct change){ "IF v_round > p_round THEN", "IF false THEN" };
	} else if (postern__bug("frozen-left-alone")) {
		out[0] = (struct change){ "PERFORM pg_terminate_backend(l.pid)",
			"PERFORM l.pid" };
	} else if (postern__bug("gone-finds-orphans")) {
		out[0] = (struct change){ "IF NOT @holds_1(p_node, NULL, NULL) THEN",
			"IF false THEN" };
	}
}

/* All of one text replaced in another. A bug that is not there any more must
   not look like one that was caught. */
static char *replace(const char *text, const struct change *change) {
	size_t from_len = strlen(change->from);
	size_t to_len = strlen(change->to);
	size_t count = 0;
	for (const char *at = text; (at = strstr(at, change->from));
			at += from_len) {
		count++;
	}
	assert(count > 0);
	char *out = malloc(strlen(text) + count * to_len + 1);
	assert(out);
	size_t len = 0;
	while (*text) {
		if (strncmp(text, change->from, from_len) == 0) {
			memcpy(out + len, change->to, to_len);
			len += to_len;
			text += from_len;
		} else {
			out[len++] = *text++;
		}
	}
	out[len] = '\0';
	return out;
}

char *postern__pg_schema_with_bug(const char *schema) {
	struct change changes[CHANGE_MAX] = { { NULL, NULL } };
	char *text = NULL;
	find_changes(changes);
	if (!changes[0].from) {
		find_more_changes(changes);
	}
	for (size_t i = 0; i < CHANGE_MAX && changes[i].from; i++) {
		char *changed = replace(text ? text : schema, &changes[i]);
		free(text);
		text = changed;
	}
	return text;
}
