/* SPDX-License-Identifier: MIT */

/*
 * Who is to blame for an error of PostgreSQL, class by class.
 */

#include "base/sqlstate.h"

#include "tap.h"

/* clang-format off */
static const struct {
	const char *state;
	enum postern__cause cause;
} rows[] = {
	/* The handler's own fault. */
	{ "3F000", POSTERN__CAUSE_HANDLER }, /* no such schema */
	{ "42P01", POSTERN__CAUSE_HANDLER }, /* no such table */
	{ "42703", POSTERN__CAUSE_HANDLER }, /* no such column */
	{ "42883", POSTERN__CAUSE_HANDLER }, /* no such function */
	{ "42601", POSTERN__CAUSE_HANDLER }, /* syntax error */
	{ "42501", POSTERN__CAUSE_HANDLER }, /* a right is missing */
	{ "42804", POSTERN__CAUSE_HANDLER }, /* type of a column */
	{ "08001", POSTERN__CAUSE_HANDLER }, /* a foreign server refuses */
	{ "08006", POSTERN__CAUSE_HANDLER },
	{ "57P01", POSTERN__CAUSE_HANDLER }, /* a foreign server is stopped */
	{ "57P03", POSTERN__CAUSE_HANDLER }, /* a foreign server starts */
	/* The message's. */
	{ "22P02", POSTERN__CAUSE_MESSAGE_FOREVER }, /* not a number */
	{ "22001", POSTERN__CAUSE_MESSAGE_FOREVER }, /* too long */
	{ "0A000", POSTERN__CAUSE_MESSAGE_FOREVER },
	{ "25006", POSTERN__CAUSE_MESSAGE_FOREVER },
	{ "2D000", POSTERN__CAUSE_MESSAGE_FOREVER },
	{ "3B001", POSTERN__CAUSE_MESSAGE_FOREVER },
	{ "23505", POSTERN__CAUSE_MESSAGE }, /* duplicate key */
	{ "23503", POSTERN__CAUSE_MESSAGE }, /* foreign key */
	{ "P0001", POSTERN__CAUSE_MESSAGE }, /* RAISE */
	{ "21000", POSTERN__CAUSE_MESSAGE },
	{ "38000", POSTERN__CAUSE_MESSAGE },
	{ "53400", POSTERN__CAUSE_MESSAGE }, /* a limit of the statement */
	{ "55P03", POSTERN__CAUSE_MESSAGE }, /* lock_timeout */
	{ "57014", POSTERN__CAUSE_MESSAGE }, /* cancelled */
	{ "58P01", POSTERN__CAUSE_MESSAGE }, /* no such file */
	{ "XX000", POSTERN__CAUSE_MESSAGE }, /* also raised about arguments */
	/* The server's or the machine's. */
	{ "53000", POSTERN__CAUSE_STORE },
	{ "53100", POSTERN__CAUSE_STORE }, /* disk full */
	{ "53200", POSTERN__CAUSE_STORE }, /* out of memory */
	{ "53300", POSTERN__CAUSE_STORE }, /* too many connections */
	{ "58000", POSTERN__CAUSE_STORE },
	{ "58030", POSTERN__CAUSE_STORE }, /* I/O error */
	{ "F0000", POSTERN__CAUSE_STORE },
	{ "XX001", POSTERN__CAUSE_STORE }, /* corrupted data */
	{ "XX002", POSTERN__CAUSE_STORE }, /* corrupted index */
	/* Other transactions. */
	{ "40001", POSTERN__CAUSE_COLLISION }, /* serialization */
	{ "40P01", POSTERN__CAUSE_COLLISION }, /* deadlock */
};
/* clang-format on */

static void each_class(void) {
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		enum postern__cause cause =
				postern__sqlstate_cause(rows[i].state, true);
		if (cause != rows[i].cause) {
			FAIL("%s: %d, not %d", rows[i].state, (int)cause,
					(int)rows[i].cause);
		}
	}
}

static void lost_connection(void) {
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(postern__sqlstate_cause(rows[i].state, false),
				POSTERN__CAUSE_STORE);
	}
	CHECK_INT(postern__sqlstate_cause(NULL, false), POSTERN__CAUSE_STORE);
	CHECK_INT(postern__sqlstate_cause(NULL, true), POSTERN__CAUSE_STORE);
}

static const struct tap_case cases[] = {
	{ "each class of SQLSTATEs has one cause", each_class },
	{ "whatever the error is, a lost connection is the store's",
			lost_connection },
};

TAP_MAIN(cases)
