/* SPDX-License-Identifier: MIT */

/*
 * Output for a terminal: no control sequences, aligned columns.
 */

#include "cli/out.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/exit.h"
#include "cli/table.h"
#include "tap.h"

static void escapes(void) {
	static const struct {
		const char *text;
		const char *shown;
	} rows[] = {
		{ "plain text", "plain text" },
		{ "größe 漢字 🙂", "größe 漢字 🙂" },
		{ "C:\\dir", "C:\\dir" },
		{ "a\nb\tc\rd", "a\\nb\\tc\\rd" },
		{ "\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m" },
		{ "\033]0;title\007", "\\x1b]0;title\\x07" },
		{ "del\177", "del\\x7f" },
		{ "c1 \302\233 31m", "c1 \\u{9b} 31m" },
		{ "bad \377\300 utf", "bad \\xff\\xc0 utf" },
		{ "rtl \342\200\256 override", "rtl \\u{202e} override" },
		{ "line\342\200\250sep", "line\\u{2028}sep" },
		{ "", "" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__buf buf;
		postern__buf_init(&buf, 1000);
		postern__out_escape(&buf, rows[i].text, strlen(rows[i].text));
		CHECK_STR(postern__buf_text(&buf), rows[i].shown);
		postern__buf_finish(&buf);
	}
}

static void ago(void) {
	static const struct {
		int64_t at_ms;
		const char *text;
	} rows[] = {
		{ 1000000, "now" },
		{ 999500, "now" },
		{ 1000900, "now" },
		{ 999000, "1s ago" },
		{ 941000, "59s ago" },
		{ 940000, "1m ago" },
		{ 1005000, "in 5s" },
		{ 1000000 + INT64_C(7200000), "in 2h" },
		{ 1000000 + INT64_C(86400000) * 3, "in 3d" },
		{ INT64_MAX, "in 106751991167d" },
		{ -5, "now" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[POSTERN__AGO_TEXT_MAX];
		postern__out_ago(rows[i].at_ms, 1000000, text);
		CHECK_STR(text, rows[i].text);
	}
}

/* Redirects stdout to a file while a case prints. */
struct capture {
	FILE *file;
	int saved;
	char text[4096];
};

static bool capture_begin(struct capture *capture) {
	(void)fflush(stdout);
	capture->file = tmpfile();
	capture->saved = dup(STDOUT_FILENO);
	return CHECK(capture->file && capture->saved >= 0) &&
		   CHECK(dup2(fileno(capture->file), STDOUT_FILENO) >= 0);
}

static void capture_end(struct capture *capture) {
	(void)fflush(stdout);
	(void)dup2(capture->saved, STDOUT_FILENO);
	(void)close(capture->saved);
	rewind(capture->file);
	size_t len =
			fread(capture->text, 1, sizeof capture->text - 1, capture->file);
	capture->text[len] = '\0';
	(void)fclose(capture->file);
}

static void lines(void) {
	static const char text[] = "one\n\ttwo\033\n\nlast";
	struct capture capture;
	if (!capture_begin(&capture)) {
		return;
	}
	postern__out_lines(text, sizeof text - 1, "> ");
	capture_end(&capture);
	CHECK_STR(capture.text, "> one\n> \ttwo\\x1b\n> \n> last\n");
}

static void table(void) {
	static const struct postern__column columns[] = {
		{ "N", true },
		{ "NAME", false },
		{ "LAST", false },
	};
	struct postern__table rows;
	struct capture capture;
	postern__table_init(&rows, columns, 3);
	postern__table_count(&rows, 7);
	postern__table_text(&rows, "größer");
	postern__table_text(&rows, NULL);
	postern__table_count(&rows, 1234);
	postern__table_text(&rows, "\033");
	postern__table_coloured(&rows, "end", POSTERN__BAD);
	if (capture_begin(&capture)) {
		bool printed = postern__table_print(&rows);
		capture_end(&capture);
		CHECK(printed);
		CHECK_STR(capture.text, "   N  NAME    LAST\n"
								"   7  größer  -\n"
								"1234  \\x1b    end\n");
	}
	postern__table_finish(&rows);
}

static void empty_table(void) {
	static const struct postern__column columns[] = { { "N", true } };
	struct postern__table rows;
	struct capture capture;
	postern__table_init(&rows, columns, 1);
	if (capture_begin(&capture)) {
		bool printed = postern__table_print(&rows);
		capture_end(&capture);
		CHECK(printed);
		CHECK_STR(capture.text, "");
	}
	postern__table_finish(&rows);
}

static void no_colours(void) {
	CHECK_INT(setenv("TERM", "xterm", 1), 0);
	struct capture capture;
	if (capture_begin(&capture)) {
		bool coloured = postern__out_coloured(stdout);
		size_t count = postern__out_columns();
		capture_end(&capture);
		CHECK(!coloured);
		CHECK_INT(count, 0);
	}
}

static void full_disk(void) {
	FILE *full = fopen("/dev/full", "w");
	int saved = dup(STDOUT_FILENO);
	(void)fflush(stdout);
	if (!CHECK(full && saved >= 0)) {
		return;
	}
	(void)dup2(fileno(full), STDOUT_FILENO);
	(void)puts("lost");
	int status = postern__out_close(POSTERN__EXIT_OK);
	(void)dup2(saved, STDOUT_FILENO);
	clearerr(stdout);
	(void)close(saved);
	(void)fclose(full);
	CHECK_INT(status, POSTERN__EXIT_FAILED);
}

static const struct tap_case cases[] = {
	{ "characters that control a terminal are escaped", escapes },
	{ "a time is printed relative to now", ago },
	{ "lines keep their newlines and tabs, other control characters are "
	  "escaped",
			lines },
	{ "columns are as wide as their widest cell", table },
	{ "a table without rows prints nothing", empty_table },
	{ "output to a file has no colours and no width", no_colours },
	{ "a full disk behind stdout is a failure", full_disk },
};

TAP_MAIN(cases)
