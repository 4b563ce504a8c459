/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_OUT_H
#define POSTERN_CLI_OUT_H

/*
 * What the command says: results on stdout, everything else on stderr.
 *
 * Messages come from strangers, and a terminal obeys what it is sent; so all
 * text that did not come from this program passes postern__out_text(), which
 * lets nothing through that a terminal would act upon.
 *
 * Nothing here fails: what could not be written is found out once, by
 * postern__out_close().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct postern__buf;

/* Names for the colours: what is good, needs a look, is bad, or matters less.
   Plain is the end of any of them. */
enum postern__colour {
	POSTERN__PLAIN,
	POSTERN__GOOD,
	POSTERN__WARM,
	POSTERN__BAD,
	POSTERN__FAINT,
	POSTERN__BOLD
};

/* Whether this stream is a terminal that wants colours. */
bool postern__out_coloured(FILE *file);

/* How many columns the terminal has; 0 if stdout is none. */
size_t postern__out_columns(void);

/* The bytes that switch to a colour, "" on what is no coloured terminal. */
const char *postern__out_colour(FILE *file, enum postern__colour colour);

/*
 * Append text so that it is safe to show: control characters, what is
 * malformed, and characters that turn the direction of the line around come
 * out as \n, \t, \xNN or \u{NNNN}. A backslash stays as it is: this is to be
 * read by people, and --json is exact.
 */
void postern__out_escape(struct postern__buf *buf, const char *text,
		size_t len);

/* Write text to stdout, safe as above. NULL is nothing. */
void postern__out_text(const char *text);

/* The same for text of several lines: line ends and tabs stay, and each line
   begins with `indent`. Ends with a line end. */
void postern__out_lines(const char *text, size_t len, const char *indent);

/*
 * Say a sentence on stderr, "postern: " in front. The text is made safe.
 *
 * What went wrong is said, what is only worth knowing is noted: with --json the
 * one is {"error":"…"}, the other {"note":"…"}, as is what begins with "note:
 * ".
 */
void postern__say(const char *format, ...)
		__attribute__((format(printf, 1, 2)));
void postern__note(const char *format, ...)
		__attribute__((format(printf, 1, 2)));

/* Whether that is JSON from now on. */
void postern__say_json(bool json);
/* One more of those, for programs: {"name":"text"}. */
void postern__say_pair(const char *name, const char *text);

/* The columns a text takes, one per character. */
size_t postern__out_width(const char *text, size_t len);

/* "5s ago", "in 2m", "now": how far `at_ms` is from `now_ms`, roughly. */
#define POSTERN__AGO_TEXT_MAX 32
void postern__out_ago(int64_t at_ms, int64_t now_ms,
		char out[POSTERN__AGO_TEXT_MAX]);

/*
 * Flush stdout and return the exit status: `status`, or POSTERN__EXIT_FAILED
 * if something was not written. A reader that went away has seen enough: that
 * is no failure.
 */
int postern__out_close(int status);

#endif
