/* SPDX-License-Identifier: MIT */

/*
 * The texts of the error codes, from the table in error.h.
 */

#include <postern/error.h>

const char *postern_error_text(int code) {
	switch (code) {
	case POSTERN_OK: return "no error";
#define CODE_TEXT(name, value, transient, text) \
	case (value): return text;
		POSTERN_ERROR_MAP(CODE_TEXT)
#undef CODE_TEXT
	default: return "unknown error";
	}
}

bool postern_error_transient(int code) {
	switch (code) {
#define CODE_TRANSIENT(name, value, transient, text) \
	case (value): return transient;
		POSTERN_ERROR_MAP(CODE_TRANSIENT)
#undef CODE_TRANSIENT
	default: return false;
	}
}
