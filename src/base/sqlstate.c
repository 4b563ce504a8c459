/* SPDX-License-Identifier: MIT */
/*
 * The causes of SQLSTATEs. Errors of one class have the same first two
 * characters; where a class is mixed, the longer prefix comes first.
 */

#include "base/sqlstate.h"

#include <stddef.h>
#include <string.h>

enum postern__cause postern__sqlstate_cause(const char *state, bool connected) {
	static const struct {
		const char *prefix;
		enum postern__cause cause;
	} rows[] = {
		{ "0A", POSTERN__CAUSE_MESSAGE_FOREVER }, /* feature not supported */
		{ "22", POSTERN__CAUSE_MESSAGE_FOREVER }, /* data exception */
		{ "25", POSTERN__CAUSE_MESSAGE_FOREVER }, /* transaction state */
		{ "2D", POSTERN__CAUSE_MESSAGE_FOREVER }, /* transaction end */
		{ "3B", POSTERN__CAUSE_MESSAGE_FOREVER }, /* savepoint */
		{ "3F", POSTERN__CAUSE_HANDLER },         /* no such schema */
		{ "40", POSTERN__CAUSE_COLLISION },       /* deadlock, serialization */
		/* A table, column, function or right is missing, or the syntax is
		   wrong. A violation of row security is reported as a missing right,
		   too. */
		{ "42", POSTERN__CAUSE_HANDLER },
		/* A limit that is set for statements: it would be exceeded again. */
		{ "53400", POSTERN__CAUSE_MESSAGE },
		{ "53", POSTERN__CAUSE_STORE }, /* disk, memory, connections */
		/* A missing file: functions name one that depends on the message. */
		{ "58P", POSTERN__CAUSE_MESSAGE },
		{ "58", POSTERN__CAUSE_STORE }, /* I/O */
		{ "F0", POSTERN__CAUSE_STORE }, /* configuration file */
		/* Corrupted data. Not XX000, which functions raise about their
		   arguments. */
		{ "XX001", POSTERN__CAUSE_STORE },
		{ "XX002", POSTERN__CAUSE_STORE },
		/* Errors of a connection: of another one if this one works, that of a
		   foreign table or of dblink, which the handler depends on. */
		{ "08", POSTERN__CAUSE_HANDLER },
		{ "57P", POSTERN__CAUSE_HANDLER },
	};
	/* Whatever the server reported last, the connection is lost. */
	if (!state || !connected) {
		return POSTERN__CAUSE_STORE;
	}
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (strncmp(state, rows[i].prefix, strlen(rows[i].prefix)) == 0) {
			return rows[i].cause;
		}
	}
	return POSTERN__CAUSE_MESSAGE;
}
