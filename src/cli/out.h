/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_OUT_H
#define POSTERN_CLI_OUT_H

/*
 * Output of the command: results on stdout, everything else on stderr.
 *
 * Messages come from untrusted senders, and a terminal obeys control
 * characters; so all text that did not come from this program passes
 * postern__out_text(), which escapes everything that a terminal would act upon.
 *
 * Nothing here fails: postern__out_close() reports a write error.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct postern__buf;

/* Names for the colours: good, needs attention, bad, or less important. Plain
   ends any of them. */
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

/* The columns of the terminal; 0 if stdout is not one. */
size_t postern__out_columns(void);

/* The bytes that switch to a colour; "" if the stream is not a coloured
   terminal. */
const char *postern__out_colour(FILE *file, enum postern__colour colour);

/*
 * Append text so that it is safe to show: control characters, malformed UTF-8,
 * and characters that change the direction of the line become \n, \t, \xNN or
 * \u{NNNN}. A backslash stays as it is: this output is for people, and --json
 * is exact.
 */
void postern__out_escape(struct postern__buf *buf, const char *text,
		size_t len);

/* Write text to stdout, safe as above. NULL is nothing. */
void postern__out_text(const char *text);

/* The same for text of several lines: line ends and tabs stay, and each line
   begins with `indent`. Ends with a line end. */
void postern__out_lines(const char *text, size_t len, const char *indent);

/*
 * Print a sentence on stderr, after "postern: ". The text is made safe.
 *
 * Errors are printed with say, notes with note: with --json the former is
 * {"error":"…"}, the latter {"note":"…"}, as is a sentence that begins with
 * "note: ".
 */
void postern__err_print(const char *format, ...)
		__attribute__((format(printf, 1, 2)));
void postern__note_print(const char *format, ...)
		__attribute__((format(printf, 1, 2)));

/* Whether stderr is JSON from now on. */
void postern__err_set_json(bool json);
/* Print one more such object, for programs: {"name":"text"}. */
void postern__err_pair(const char *name, const char *text);

/* The columns a text takes, one per character. */
size_t postern__out_width(const char *text, size_t len);

/* "5s ago", "in 2m", "now": how far `at_ms` is from `now_ms`, roughly. */
#define POSTERN__AGO_TEXT_MAX 32
void postern__out_ago(int64_t at_ms, int64_t now_ms,
		char out[POSTERN__AGO_TEXT_MAX]);

/*
 * Flush stdout and return the exit status: `status`, or POSTERN__EXIT_FAILED if
 * a write failed. A closed pipe is not a failure: the reader has seen enough.
 */
int postern__out_close(int status);

#define POSTERN__COUNT_TEXT_MAX 28

/* A number with commas between thousands. */
void postern__out_count(uint64_t count, char out[POSTERN__COUNT_TEXT_MAX]);

#endif
