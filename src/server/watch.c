/* SPDX-License-Identifier: MIT */

/*
 * Lines about a store. One limit holds for all of them together: what matters
 * is that a handler fails and why, and a thousand lines say that no better
 * than twenty. How many were left out is said with the next one.
 */

#include "server/watch.h"

#include <postern/sys/clock.h>
#include <string.h>

#include "core/trouble.h"

#define BURST 20
#define INTERVAL_MS 500

void postern__watch_init(struct postern__watch *watch, struct postern__log *log,
		const char *store) {
	*watch = (struct postern__watch){
		.log = log,
		.store = store,
		.limit = { .burst = BURST, .interval_ms = INTERVAL_MS },
	};
	(void)pthread_mutex_init(&watch->mutex, NULL);
}

void postern__watch_finish(struct postern__watch *watch) {
	(void)pthread_mutex_destroy(&watch->mutex);
}

/* Which store it is; comes last, because without one it ends the fields. */
static struct postern__log_field store_field(
		const struct postern__watch *watch) {
	return (struct postern__log_field){ watch->store ? "store" : NULL,
		watch->store, 0 };
}

static bool take(struct postern__watch *watch, uint64_t *suppressed_out) {
	const struct postern_clock *clock = postern_clock_system();
	return postern__log_limit_take(&watch->limit,
			clock->monotonic_ms(clock->context), suppressed_out);
}

static void say_suppressed(struct postern__watch *watch, uint64_t count) {
	if (count > 0) {
		postern__log(watch->log, POSTERN__LOG_WARN,
				"more of the like was not logged",
				postern__log_int("count", (int64_t)count), store_field(watch));
	}
}

/* Whether a line may be written now. */
static bool may_write(struct postern__watch *watch) {
	uint64_t suppressed = 0;
	(void)pthread_mutex_lock(&watch->mutex);
	bool may = take(watch, &suppressed);
	(void)pthread_mutex_unlock(&watch->mutex);
	say_suppressed(watch, suppressed);
	return may;
}

void postern__watch_flush(struct postern__watch *watch) {
	uint64_t suppressed = 0;
	(void)pthread_mutex_lock(&watch->mutex);
	if (watch->limit.suppressed_count > 0 && !take(watch, &suppressed)) {
		watch->limit.suppressed_count--; /* that was no line, only we */
	}
	(void)pthread_mutex_unlock(&watch->mutex);
	say_suppressed(watch, suppressed);
}

static void write_delivery(struct postern__watch *watch,
		enum postern__log_level level, const char *message,
		const struct postern_event *event) {
	postern__log(watch->log, level, message,
			postern__log_text("channel", event->channel),
			postern__log_text("handler", event->handler),
			postern__log_int("seq", event->seq),
			postern__log_int("attempt", event->attempt),
			postern__log_int("fence", (int64_t)event->fence),
			postern__log_text("outcome", event->outcome),
			postern__log_int("duration_ms", event->duration_ms),
			postern__log_text("error", event->error), store_field(watch));
}

/* Whether somebody should look at it. */
static bool is_trouble(const struct postern_event *event) {
	if (event->state == POSTERN_STATE_POISONED) {
		return true;
	}
	if (strcmp(event->outcome, "snooze") == 0) {
		/* That of the kinds that a server has is trouble of this machine or
		   of the store. */
		return event->error && event->error[0];
	}
	return event->state == POSTERN_STATE_PENDING &&
		   strcmp(event->outcome, "returned") != 0;
}

static void settled(struct postern__watch *watch,
		const struct postern_event *event) {
	if (!is_trouble(event)) {
		if (watch->log->level <= POSTERN__LOG_DEBUG) {
			write_delivery(watch, POSTERN__LOG_DEBUG, "delivery settled",
					event);
		}
		return;
	}
	if (!may_write(watch)) {
		return;
	}
	bool last = event->state == POSTERN_STATE_POISONED;
	bool waits = strcmp(event->outcome, "snooze") == 0;
	write_delivery(watch, last ? POSTERN__LOG_ERROR : POSTERN__LOG_WARN,
			last    ? "delivery poisoned"
			: waits ? "delivery put off"
					: "delivery failed",
			event);
}

void postern__watch_event(void *context, const struct postern_event *event) {
	struct postern__watch *watch = context;
	switch (event->kind) {
	case POSTERN_EVENT_SETTLED: settled(watch, event); break;
	case POSTERN_EVENT_FENCED:
		if (may_write(watch)) {
			write_delivery(watch, POSTERN__LOG_WARN,
					"a result came too late and was refused", event);
		}
		break;
	case POSTERN_EVENT_CONFLICT:
		if (may_write(watch)) {
			postern__log(watch->log, POSTERN__LOG_WARN,
					"a message came again with another body",
					postern__log_text("channel", event->channel),
					postern__log_int("seq", event->seq), store_field(watch));
		}
		break;
	case POSTERN_EVENT_LOCKED:
		postern__log(watch->log, POSTERN__LOG_INFO,
				"this process has the processing lock",
				postern__log_int("fence", (int64_t)event->fence),
				store_field(watch));
		break;
	case POSTERN_EVENT_LOCK_LOST:
		postern__log(watch->log, POSTERN__LOG_WARN,
				"this process has lost the processing lock",
				postern__log_int("fence", (int64_t)event->fence),
				store_field(watch));
		break;
	case POSTERN_EVENT_ACCEPTED:
	case POSTERN_EVENT_DUPLICATE:
	case POSTERN_EVENT_STARTED:
	default: break;
	}
}

void postern__watch_remark(void *context, const char *text) {
	struct postern__watch *watch = context;
	postern__log(watch->log, POSTERN__LOG_WARN, text, store_field(watch));
}

void postern__watch_trouble(void *context, const char *text) {
	struct postern__watch *watch = context;
	static const char *const beginnings[] = { POSTERN__TROUBLE_CLEANED,
		POSTERN__TROUBLE_TAKEN, POSTERN__TROUBLE_WAITING };
	if (strcmp(text, POSTERN__TROUBLE_LOCK_LOST) == 0) {
		return; /* the event says it */
	}
	bool over = strcmp(text, POSTERN__TROUBLE_OVER) == 0;
	bool good = over;
	for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
		good = good || strncmp(text, beginnings[i], strlen(beginnings[i])) == 0;
	}
	/* An end is told once for each beginning: it is never left out. */
	if (over || may_write(watch)) {
		postern__log(watch->log, good ? POSTERN__LOG_INFO : POSTERN__LOG_ERROR,
				text, store_field(watch));
	}
}
