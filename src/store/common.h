/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_COMMON_H
#define POSTERN_STORE_COMMON_H

/*
 * What several stores do in the same way, whatever they keep things in.
 */

#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>

struct postern__buf;

/* That no two handlers have come to the same stored id. */
int postern__enrolment_check(const struct postern_enrolment *enrolment,
		struct postern_error *error);

/* Units before they are run: completions, until they are judged. */
void postern__units_reset(struct postern_unit *units, size_t count);
/* It is to be completed in the transaction. */
bool postern__unit_completes(const struct postern_unit *unit);
/* It is undone; a reason of NULL leaves what the unit says. */
void postern__unit_refuse(struct postern_unit *unit, int code,
		const char *reason);

/* Sets of states. */
#define POSTERN__STATE_BIT(state) (1u << (state))
#define POSTERN__STATES_OPEN                     \
	(POSTERN__STATE_BIT(POSTERN_STATE_PENDING) | \
			POSTERN__STATE_BIT(POSTERN_STATE_LEASED))
#define POSTERN__STATES_ENDED                            \
	(POSTERN__STATE_BIT(POSTERN_STATE_DONE) |            \
			POSTERN__STATE_BIT(POSTERN_STATE_POISONED) | \
			POSTERN__STATE_BIT(POSTERN_STATE_DISCARDED))

/* What a filter lets pass. */
unsigned postern__filter_states(const struct postern_filter *filter);
/* The same as conditions of SQL, for rows `d` of the open deliveries and of
   the ledger. */
void postern__sql_add_open_states(struct postern__buf *sql, unsigned states);
void postern__sql_add_ended_states(struct postern__buf *sql, unsigned states);

/*
 * A node cannot lease beside this one: POSTERN_E_BUSY.
 *
 * host       NULL: not known.
 * lock_name  under which the other one leases; NULL: without one.
 */
int postern__rival_fail(uint64_t node, const char *host, int64_t pid,
		const char *lock_name, struct postern_error *error);

#endif
