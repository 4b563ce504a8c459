/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_TAP_H
#define POSTERN_TESTS_TAP_H

/*
 * All that a test program needs: checks, and a table of named cases.
 *
 *   static void second_accept(void) {
 *           struct postern_error error;
 *           ...
 *           if (!CHECK_OK(postern_box_open(...), &error)) {
 *                   return;
 *           }
 *           CHECK_INT(result, POSTERN_E_DUPLICATE);
 *           CHECK_STR(error.text, "message already accepted");
 *   }
 *
 *   static const struct tap_case cases[] = {
 *           { "second accept of same key is duplicate", second_accept },
 *   };
 *
 *   TAP_MAIN(cases)
 *
 * A check that fails says where and what on stderr, marks the running case as
 * failed and goes on; it is an expression that is true when it held, so a
 * case that cannot go on without it says `if (!CHECK(x)) { return; }`. Checks
 * may be made from any thread.
 *
 * The program prints TAP on stdout and exits with 1 if a case failed. Its
 * arguments are parts of names: only cases whose name contains one of them
 * are run. `-l` lists the names.
 */

#include <inttypes.h>
#include <postern/error.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct tap_case {
	const char *name; /* a sentence that states the rule */
	void (*run)(void);
};

/* Signed and unsigned integers of any width, compared as intmax_t. */
#define CHECK(condition) tap_check((condition), __FILE__, __LINE__, #condition)
#define CHECK_INT(actual, expected)                                   \
	tap_check_int((intmax_t)(actual), (intmax_t)(expected), __FILE__, \
			__LINE__, #actual)

/* Strings; NULL equals only NULL. */
#define CHECK_STR(actual, expected) \
	tap_check_str((actual), (expected), __FILE__, __LINE__, #actual)

/* That `needle` is somewhere in `haystack`. */
#define CHECK_CONTAINS(haystack, needle) \
	tap_check_contains((haystack), (needle), __FILE__, __LINE__, #haystack)

/* Bytes: pointer before length. */
#define CHECK_MEM(actual, actual_len, expected, expected_len)         \
	tap_check_mem((actual), (actual_len), (expected), (expected_len), \
			__FILE__, __LINE__, #actual)

/* That a call returned POSTERN_OK; `error` is what was passed to it. */
#define CHECK_OK(call, error) \
	tap_check_ok((call), (error), __FILE__, __LINE__, #call)

/* A failure with a sentence of its own; always false. */
#define FAIL(...) tap_fail(__FILE__, __LINE__, __VA_ARGS__)

/* Weak, so that the files of one program share it: a check in a helper marks
   the case that called it. */
__attribute__((weak)) atomic_uint tap_failures; /* of the running case */

__attribute__((format(printf, 3, 4), unused)) static bool
tap_fail(const char *file, int line, const char *format, ...) {
	char text[1024];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	/* One call, so that lines of several threads do not mix. */
	(void)fprintf(stderr, "%s:%d: %s\n", file, line, text);
	atomic_fetch_add(&tap_failures, 1);
	return false;
}

__attribute__((unused)) static bool tap_check(bool held, const char *file,
		int line, const char *text) {
	return held || tap_fail(file, line, "does not hold: %s", text);
}

__attribute__((unused)) static bool tap_check_int(intmax_t actual,
		intmax_t expected, const char *file, int line, const char *text) {
	return actual == expected ||
		   tap_fail(file, line, "%s is %" PRIdMAX ", not %" PRIdMAX, text,
				   actual, expected);
}

__attribute__((unused)) static bool tap_check_str(const char *actual,
		const char *expected, const char *file, int line, const char *text) {
	if (actual && expected ? strcmp(actual, expected) == 0
						   : actual == expected) {
		return true;
	}
	return tap_fail(file, line, "%s is \"%s\", not \"%s\"", text,
			actual ? actual : "(null)", expected ? expected : "(null)");
}

__attribute__((unused)) static bool tap_check_contains(const char *haystack,
		const char *needle, const char *file, int line, const char *text) {
	return (haystack && strstr(haystack, needle)) ||
		   tap_fail(file, line, "%s is \"%s\", without \"%s\"", text,
				   haystack ? haystack : "(null)", needle);
}

__attribute__((unused)) static bool tap_check_mem(const void *actual,
		size_t actual_len, const void *expected, size_t expected_len,
		const char *file, int line, const char *text) {
	if (actual_len != expected_len) {
		return tap_fail(file, line, "%s has %zu bytes, not %zu", text,
				actual_len, expected_len);
	}
	for (size_t i = 0; i < actual_len; i++) {
		unsigned a = ((const unsigned char *)actual)[i];
		unsigned e = ((const unsigned char *)expected)[i];
		if (a != e) {
			return tap_fail(file, line, "byte %zu of %s is 0x%02x, not 0x%02x",
					i, text, a, e);
		}
	}
	return true;
}

__attribute__((unused)) static bool tap_check_ok(int code,
		const struct postern_error *error, const char *file, int line,
		const char *text) {
	return code == POSTERN_OK ||
		   tap_fail(file, line, "%s returned %d: %s", text, code,
				   error ? error->text : "(no error struct given)");
}

static bool tap_is_wanted(int argc, char **argv, const char *name) {
	for (int i = 1; i < argc; i++) {
		if (strstr(name, argv[i])) {
			return true;
		}
	}
	return argc <= 1;
}

__attribute__((unused)) static int tap_main(int argc, char **argv,
		const struct tap_case *cases, size_t count) {
	unsigned run_count = 0;
	unsigned failed_count = 0;

	/* A crash must not take the lines before it along. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && strcmp(argv[1], "-l") == 0) {
		for (size_t i = 0; i < count; i++) {
			(void)puts(cases[i].name);
		}
		return 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (!tap_is_wanted(argc, argv, cases[i].name)) {
			continue;
		}
		atomic_store(&tap_failures, 0);
		cases[i].run();
		bool failed = atomic_load(&tap_failures) > 0;
		if (failed) {
			failed_count++;
			(void)fprintf(stderr, "failed: %s\n", cases[i].name);
		}
		(void)printf("%s %u - %s\n", failed ? "not ok" : "ok", ++run_count,
				cases[i].name);
	}
	(void)printf("1..%u\n", run_count);
	if (run_count == 0) {
		(void)fprintf(stderr, "no case has such a name\n");
		return 1;
	}
	return failed_count > 0;
}

#define TAP_MAIN(cases)                              \
	int main(int argc, char **argv) {                \
		return tap_main(argc, argv, cases,           \
				sizeof(cases) / sizeof((cases)[0])); \
	}

#endif
