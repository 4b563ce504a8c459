/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_TRACE_H
#define POSTERN_BASE_TRACE_H

/*
 * Trace context as W3C defines it: "00-TRACE-SPAN-FLAGS", in hexadecimal
 * digits. A message keeps what its sender gave; each attempt passes on the same
 * trace with a span of its own.
 */

#include <stdbool.h>
#include <stdint.h>

#define POSTERN__TRACE_LEN 55

/*
 * Replace the span. False: the text is not a trace context, and nothing is to
 * be passed on.
 *
 * random  any number; the span is never 0, which means none.
 */
bool postern__trace_continue(const char *traceparent, uint64_t random,
		char out[POSTERN__TRACE_LEN + 1]);

#endif
