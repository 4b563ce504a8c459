/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_METRICS_H
#define POSTERN_METRICS_H

/*
 * The metrics of a box in the text format of Prometheus, for a program's own
 * collector. docs/operations.md lists them.
 *
 * Counters and histograms are those of this box since it was opened; they cost
 * a few additions per message and need no subscriber. Handlers and channels
 * that another generation replaces keep their counts.
 *
 * postern_pending, postern_poisoned and postern_oldest_pending_age_seconds are
 * counted in the store, for all nodes. Counting may read all open deliveries,
 * so it is repeated at the earliest 5 s later, and after 20 times as long as it
 * took; in between the last count is returned. While the store fails these
 * metrics are left out.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero the struct and set `size`; a member that is zero has the default named
   here. */
struct postern_metrics_options {
	size_t size;
	const char *store; /* "default": the value of the label `store` */
};

/*
 * Write the metrics of a box, from any thread. May wait for the store, at most
 * as long as postern_box_stats().
 *
 * options  may be NULL.
 * out      a text that ends in a zero byte, yours; end it with
 *          postern_metrics_destroy(). Its media type is
 *          POSTERN_METRICS_MEDIA_TYPE.
 * len_out  its length without the zero byte; may be NULL.
 *
 * Returns POSTERN_OK, also while the store fails, or
 *   POSTERN_E_INVALID  an option is wrong
 *   POSTERN_E_NOMEM    out of memory
 */
POSTERN_EXPORT int postern_box_metrics(struct postern_box *box,
		const struct postern_metrics_options *options, char **out,
		size_t *len_out, struct postern_error *error);
/* NULL is fine. */
POSTERN_EXPORT void postern_metrics_destroy(char *text);

#define POSTERN_METRICS_MEDIA_TYPE "text/plain; version=0.0.4; charset=utf-8"

#ifdef __cplusplus
}
#endif

#endif
