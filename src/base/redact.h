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

/* Enough for any address one would write; longer ones are cut. */
#define POSTERN__REDACT_TEXT_MAX 512

/*
 * Write address to out (size bytes, size > 0, ends in a zero byte) with the
 * password and the values of parameters whose names look like a secret as ***.
 * Understands URLs and libpq's `name=value` strings, of which the blanks that
 * are not needed go. Where it is unclear which part is secret, all but the
 * scheme is ***, so `***` alone for what is neither. The result is one line of
 * valid UTF-8, cut if it does not fit.
 *
 * address  may be NULL, which gives an empty text.
 */
void postern__redact(const char *address, char *out, size_t size);

/*
 * A net under the rest: passwords of URLs and of settings (password=…) that
 * somebody wrote where none belong, and that got into a sentence, as ***, in
 * place. What is cut off behind the password is understood, too, and blanks and
 * quotes in it; rather too much of a sentence is hidden than too little. Every
 * error goes through it.
 */
void postern__redact_within(char *text);

#endif
