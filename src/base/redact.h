/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_REDACT_H
#define POSTERN_BASE_REDACT_H

/*
 * Addresses without their secrets, for logs, errors, `check` and the API.
 *
 *   postgres://app:hunter2@db/shop?sslpassword=x
 *       -> postgres://app:***@db/shop?sslpassword=***
 *   host=db user=app password='hunter 2'
 *       -> host=db user=app password=***
 *   postgres:host=db user=app password='hunter 2'
 *       -> postgres:host=db user=app password=***
 */

#include <stddef.h>

/* Enough for any realistic address; longer ones are truncated. */
#define POSTERN__REDACT_TEXT_MAX 512

/*
 * Write address to out (size bytes, size > 0, ends in a zero byte) with the
 * password and the values of parameters whose names look like a secret as ***.
 * Supports URLs and libpq's `name=value` strings, from which superfluous blanks
 * are removed. If it is unclear which part is secret, everything except the
 * scheme becomes ***; text that is neither becomes `***`. The result is one
 * line of valid UTF-8, truncated if it does not fit.
 *
 * address  may be NULL: the result is empty.
 */
void postern__redact(const char *address, char *out, size_t size);

/*
 * A second line of defence: replaces, in place, the passwords of URLs and of
 * settings (password=…) that became part of a sentence with ***. Also finds
 * passwords that contain blanks or quotes, and URLs that are truncated after
 * the password; if in doubt, it hides more of the sentence. Applied to every
 * error.
 */
void postern__redact_within(char *text);

#endif
