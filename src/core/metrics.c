/* SPDX-License-Identifier: MIT */
/*
 * Metrics in the text format of Prometheus. A metric is one row of the table
 * below: its name, its type, its help, and the function that writes its values
 * from the figures of a box.
 *
 * Labels are channels, handlers, stores, sources and locks: names of the
 * configuration. What a message carries (id, subject, type) never becomes one.
 *
 * Numbers are written without floating point, whose decimal point depends on
 * the locale of the program.
 */

#include "core/metrics.h"

#include "base/buf.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "core/reason.h"

#include <inttypes.h>
#include <postern/inspect.h>
#include <postern/metrics.h>
#include <postern/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above 1,000 handlers with all their metrics. */
#define TEXT_LEN_MAX ((size_t)64 * 1024 * 1024)

enum type { COUNTER, GAUGE, HISTOGRAM };

struct page;

struct metric {
	const char *name;
	enum type type;
	const char *help;
	void (*write)(struct page *page, const struct postern__figures *figures);
	size_t offset; /* of the value, where several metrics share a function */
};

/* The text while it is written. */
struct page {
	struct postern__buf *buf;
	const struct metric *metric;
	bool begun; /* the metric has its head */
};

static const char *const ended_names[POSTERN__ENDED_COUNT] = {
	[POSTERN__ENDED_DONE] = "done",
	[POSTERN__ENDED_RETRY] = "retry",
	[POSTERN__ENDED_RETRY_AFTER] = "retry_after",
	[POSTERN__ENDED_SNOOZE] = "snooze",
	[POSTERN__ENDED_POISON] = "poison",
	[POSTERN__ENDED_DISCARD] = "discard",
	[POSTERN__ENDED_HOLD] = "hold",
	[POSTERN__ENDED_CANCELLED] = "cancelled",
	[POSTERN__ENDED_FENCED] = "fenced",
};

/* The words for them are those of reason.c. */
static const enum postern__reason held_reasons[POSTERN__HELD_COUNT] = {
	[POSTERN__HELD_PAUSED] = POSTERN__REASON_PAUSED,
	[POSTERN__HELD_RETRY_AFTER] = POSTERN__REASON_RETRY_AFTER,
	[POSTERN__HELD_BROKEN] = POSTERN__REASON_BROKEN,
};

struct label {
	const char *name;
	const char *value; /* any text: it is escaped */
};

/* Malformed bytes become U+FFFD: a text that is not UTF-8 is refused as a
   whole. */
static void write_label(struct postern__buf *buf, const struct label *label) {
	postern__buf_printf(buf, "%s=\"", label->name);
	for (const char *c = label->value; *c;) {
		size_t len = postern__utf8_decode(c, strlen(c), NULL);
		if (len == 0) {
			postern__buf_append_text(buf, "\xef\xbf\xbd");
			c++;
			continue;
		}
		if (*c == '\n') {
			postern__buf_append_text(buf, "\\n");
		} else {
			if (*c == '\\' || *c == '"') {
				postern__buf_append_char(buf, '\\');
			}
			postern__buf_append(buf, c, len);
		}
		c += len;
	}
	postern__buf_append_char(buf, '"');
}

/* A metric without values has no head. */
static void write_head(struct page *page) {
	static const char *const types[] = { "counter", "gauge", "histogram" };
	const struct metric *metric = page->metric;
	if (!page->begun) {
		page->begun = true;
		postern__buf_printf(page->buf, "# HELP %s %s\n# TYPE %s %s\n",
				metric->name, metric->help, metric->name, types[metric->type]);
	}
}

/* Name and labels; the caller writes the value. */
static void write_series(struct page *page, const char *suffix,
		const struct label *labels, size_t count) {
	write_head(page);
	postern__buf_printf(page->buf, "%s%s", page->metric->name, suffix);
	for (size_t i = 0; i < count; i++) {
		postern__buf_append_char(page->buf, i == 0 ? '{' : ',');
		write_label(page->buf, &labels[i]);
	}
	postern__buf_append_text(page->buf, count > 0 ? "} " : " ");
}

static void write_value(struct page *page, const struct label *labels,
		size_t count, uint64_t value) {
	write_series(page, "", labels, count);
	postern__buf_printf(page->buf, "%" PRIu64 "\n", value);
}

/* Milliseconds as seconds: "0.25", "60". */
#define SECONDS_TEXT_MAX 32

static void format_seconds(uint64_t ms, char out[SECONDS_TEXT_MAX]) {
	int len = snprintf(out, SECONDS_TEXT_MAX, "%" PRIu64 ".%03u", ms / 1000,
			(unsigned)(ms % 1000));
	while (out[len - 1] == '0') {
		out[--len] = '\0';
	}
	if (out[len - 1] == '.') {
		out[--len] = '\0';
	}
}

static void write_seconds(struct page *page, const struct label *labels,
		size_t count, uint64_t ms) {
	char text[SECONDS_TEXT_MAX];
	format_seconds(ms, text);
	write_series(page, "", labels, count);
	postern__buf_printf(page->buf, "%s\n", text);
}

/* A histogram with one label; `seconds`: its values are milliseconds. */
static void write_histogram(struct page *page, const struct label *label,
		const struct postern__histogram *histogram, const int64_t *bounds,
		bool seconds) {
	char text[SECONDS_TEXT_MAX] = "+Inf";
	uint64_t total = 0;
	for (size_t i = 0; i <= POSTERN__BUCKET_COUNT; i++) {
		if (i == POSTERN__BUCKET_COUNT) {
			(void)snprintf(text, sizeof(text), "+Inf");
		} else {
			uint64_t bound = (uint64_t)bounds[i];
			format_seconds(seconds ? bound : bound * 1000, text);
		}
		const struct label labels[] = { *label, { "le", text } };
		total += histogram->counts[i];
		write_series(page, "_bucket", labels, 2);
		postern__buf_printf(page->buf, "%" PRIu64 "\n", total);
	}
	format_seconds(seconds ? histogram->sum : histogram->sum * 1000, text);
	write_series(page, "_sum", label, 1);
	postern__buf_printf(page->buf, "%s\n", text);
	write_series(page, "_count", label, 1);
	postern__buf_printf(page->buf, "%" PRIu64 "\n", total);
}

/* What the current metric shows of a struct. */
static const void *member_of(const struct page *page, const void *object) {
	return (const char *)object + page->metric->offset;
}

static void write_channels(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->channel_count; i++) {
		const struct postern__channel_figures *channel = &figures->channels[i];
		const struct label label = { "channel", channel->name };
		const uint64_t *value = member_of(page, &channel->meter);
		write_value(page, &label, 1, *value);
	}
}

static void write_ended(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->handler_count; i++) {
		const struct postern__handler_figures *handler = &figures->handlers[i];
		for (size_t n = 0; n < POSTERN__ENDED_COUNT; n++) {
			const struct label labels[] = {
				{ "handler", handler->key },
				{ "outcome", ended_names[n] },
			};
			write_value(page, labels, 2, handler->meter.ended[n]);
		}
	}
}

static void write_durations(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->handler_count; i++) {
		const struct postern__handler_figures *handler = &figures->handlers[i];
		const struct label label = { "handler", handler->key };
		write_histogram(page, &label, member_of(page, &handler->meter),
				postern__duration_bounds, true);
	}
}

static void write_running(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->handler_count; i++) {
		const struct label label = { "handler", figures->handlers[i].key };
		write_value(page, &label, 1, figures->handlers[i].running);
	}
}

static void write_held(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->handler_count; i++) {
		const struct postern__handler_figures *handler = &figures->handlers[i];
		for (size_t n = 0; n < POSTERN__HELD_COUNT; n++) {
			const struct label labels[] = {
				{ "handler", handler->key },
				{ "reason", postern__reason_name(held_reasons[n]) },
			};
			write_value(page, labels, 2, handler->held[n]);
		}
	}
}

/* Handlers of the store, also those of other nodes, and orphans. Two stores may
   have the same key, of a channel that was moved, so the store is a label. */
static void write_stored(struct page *page,
		const struct postern__figures *figures) {
	const struct postern_stats *stats =
			figures->reading ? figures->reading->stats : NULL;
	for (size_t i = 0; stats && i < stats->handler_count; i++) {
		const struct label labels[] = {
			{ "store", figures->store },
			{ "handler", stats->handlers[i].key },
		};
		const uint64_t *value = member_of(page, &stats->handlers[i]);
		write_value(page, labels, 2, *value);
	}
}

static void write_oldest(struct page *page,
		const struct postern__figures *figures) {
	const struct postern_stats *stats =
			figures->reading ? figures->reading->stats : NULL;
	for (size_t i = 0; stats && i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		const struct label labels[] = {
			{ "store", figures->store },
			{ "handler", handler->key },
		};
		const int64_t *member = member_of(page, handler);
		int64_t at = *member;
		int64_t age = at > 0 ? stats->now_ms - at + figures->reading_age_ms : 0;
		write_seconds(page, labels, 2, age > 0 ? (uint64_t)age : 0);
	}
}

static void write_commits(struct page *page,
		const struct postern__figures *figures) {
	const struct label label = { "store", figures->store };
	write_histogram(page, &label, &figures->meter.commit_duration,
			postern__duration_bounds, true);
}

static void write_batches(struct page *page,
		const struct postern__figures *figures) {
	const struct label label = { "store", figures->store };
	write_histogram(page, &label, &figures->meter.batch_size,
			postern__batch_bounds, false);
}

static void write_lock_lost(struct page *page,
		const struct postern__figures *figures) {
	if (figures->lock) {
		const struct label label = { "lock", figures->lock };
		write_value(page, &label, 1, figures->meter.lock_lost);
	}
}

/* Sources of two stores may have the same name. */
static void write_connected(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->source_count; i++) {
		const struct label labels[] = {
			{ "store", figures->store },
			{ "source", figures->sources[i].name },
		};
		write_value(page, labels, 2, figures->sources[i].connected);
	}
}

static void write_dead_letters(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->source_count; i++) {
		const struct label labels[] = {
			{ "store", figures->store },
			{ "source", figures->sources[i].name },
		};
		int64_t count = figures->sources[i].dead_letters;
		if (count >= 0) {
			write_value(page, labels, 2, (uint64_t)count);
		}
	}
}

static void write_source_lag(struct page *page,
		const struct postern__figures *figures) {
	for (size_t i = 0; i < figures->source_count; i++) {
		const struct label labels[] = {
			{ "store", figures->store },
			{ "source", figures->sources[i].name },
		};
		if (figures->sources[i].lag >= 0) {
			write_value(page, labels, 2, (uint64_t)figures->sources[i].lag);
		}
	}
}

static void write_build(struct page *page,
		const struct postern__figures *figures) {
	const struct label label = { "version", postern_version() };
	(void)figures;
	if (!page->begun) { /* once, for all boxes */
		write_value(page, &label, 1, 1);
	}
}

#define OF_CHANNEL(member) offsetof(struct postern__channel_meter, member)
#define OF_HANDLER(member) offsetof(struct postern__handler_meter, member)
#define STORED(member) offsetof(struct postern_handler_stats, member)

/* clang-format off */
/* docs/operations.md has the same list; a test compares them. */
static const struct metric metrics[] = {
	{ "postern_messages_accepted_total", COUNTER, "Messages accepted and stored.", write_channels, OF_CHANNEL(accepted) },
	{ "postern_duplicates_total", COUNTER, "Messages that were accepted before.", write_channels, OF_CHANNEL(duplicates) },
	{ "postern_conflicts_total", COUNTER, "Messages with a known id and another body.", write_channels, OF_CHANNEL(conflicts) },
	{ "postern_missing_key_total", COUNTER, "Messages, and deliveries of handlers with a key rule, in which no key was found.", write_channels, OF_CHANNEL(missing_keys) },
	{ "postern_unrouted_total", COUNTER, "Messages whose type no handler wanted: parked, dropped or rejected.", write_channels, OF_CHANNEL(unrouted) },
	{ "postern_deliveries_total", COUNTER, "Runs that ended, by outcome; poison includes last attempts that failed.", write_ended, 0 },
	{ "postern_delivery_duration_seconds", HISTOGRAM, "Duration of runs.", write_durations, OF_HANDLER(duration) },
	{ "postern_delivery_lag_seconds", HISTOGRAM, "Time from accepting a message to the start of its run; retries are not included.", write_durations, OF_HANDLER(lag) },
	{ "postern_running", GAUGE, "Runs in progress on this node.", write_running, 0 },
	{ "postern_handler_held", GAUGE, "1 while the handler starts no runs on this node, for this reason.", write_held, 0 },
	{ "postern_pending", GAUGE, "Pending deliveries in the store.", write_stored, STORED(pending) },
	{ "postern_leased", GAUGE, "Leased deliveries in the store: queued on a node, or running.", write_stored, STORED(leased) },
	{ "postern_poisoned", GAUGE, "Poisoned deliveries in the store.", write_stored, STORED(poisoned) },
	{ "postern_oldest_pending_age_seconds", GAUGE, "Age of the oldest message with a pending delivery; 0 without one.", write_oldest, STORED(oldest_pending_at_ms) },
	{ "postern_oldest_open_age_seconds", GAUGE, "Age of the oldest message with a pending or leased delivery; 0 without one.", write_oldest, STORED(oldest_open_at_ms) },
	{ "postern_commit_duration_seconds", HISTOGRAM, "Duration of group commits.", write_commits, 0 },
	{ "postern_batch_size", HISTOGRAM, "Messages and results in a group commit.", write_batches, 0 },
	{ "postern_lock_lost_total", COUNTER, "How often this node lost the processing lock.", write_lock_lost, 0 },
	{ "postern_source_connected", GAUGE, "1 while the source is connected to its transport.", write_connected, 0 },
	{ "postern_source_lag", GAUGE, "What the source has not read yet, in its own unit: bytes of a file, messages.", write_source_lag, 0 },
	{ "postern_source_dead_letters", GAUGE, "Messages in the queue of what the source has rejected.", write_dead_letters, 0 },
	{ "postern_build_info", GAUGE, "Always 1; the version is a label.", write_build, 0 },
};
/* clang-format on */

void postern__metrics_write(struct postern__buf *buf,
		const struct postern__figures *figures, size_t count) {
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		struct page page = { .buf = buf, .metric = &metrics[i] };
		for (size_t n = 0; n < count; n++) {
			metrics[i].write(&page, &figures[n]);
		}
	}
}

int postern_box_metrics(struct postern_box *box,
		const struct postern_metrics_options *given, char **out,
		size_t *len_out, struct postern_error *error) {
	struct postern_metrics_options options = { .size = sizeof(options) };
	struct postern__figures figures;
	int r = given ? postern__sized_copy(&options, sizeof(options), given,
							"struct postern_metrics_options", error)
				  : POSTERN_OK;
	if (!r) {
		r = postern__figures_read(box,
				options.store ? options.store : "default", &figures, error);
	}
	if (r) {
		return r;
	}
	struct postern__buf buf;
	size_t len = 0;
	char *text = NULL;
	postern__buf_init(&buf, TEXT_LEN_MAX);
	postern__metrics_write(&buf, &figures, 1);
	r = postern__buf_check(&buf, "the text of the metrics", error);
	if (!r) {
		text = postern__buf_detach(&buf, &len);
	}
	postern__buf_finish(&buf);
	postern__figures_finish(&figures);
	if (r) {
		return r;
	}
	*out = text;
	if (len_out) {
		*len_out = len;
	}
	return POSTERN_OK;
}

void postern_metrics_destroy(char *text) {
	free(text);
}
