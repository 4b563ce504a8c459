/* SPDX-License-Identifier: MIT */

/*
 * Log lines about a store. All of them share one rate limit: a failing handler
 * and the reason matter, and a thousand lines add nothing to twenty. The next
 * line reports how many were suppressed.
 */

#include "server/event_log.h"

#include <postern/sys/clock.h>
#include <string.h>

#include "core/trouble.h"

#define BURST 20
#define INTERVAL_MS 500

void postern__event_log_init(struct postern__event_log *self,
		struct postern__log *log, const char *store) {
	*self = (struct postern__event_log){
		.log = log,
		.store = store,
		.limit = { .burst = BURST, .interval_ms = INTERVAL_MS },
	};
	(void)pthread_mutex_init(&self->mutex, NULL);
}

void postern__event_log_finish(struct postern__event_log *self) {
	(void)pthread_mutex_destroy(&self->mutex);
}

/* The name of the store; last, because without a name it ends the fields. */
static struct postern__log_field store_field(
		const struct postern__event_log *self) {
	return (struct postern__log_field){ self->store ? "store" : NULL,
		self->store, 0 };
}

static bool limit_allows(struct postern__event_log *self,
		uint64_t *suppressed_out) {
	const struct postern_clock *clock = postern_clock_system();
	return postern__log_limit_take(&self->limit,
			clock->monotonic_ms(clock->context), suppressed_out);
}

static void log_suppressed(struct postern__event_log *self, uint64_t count) {
	if (count > 0) {
		postern__log(self->log, POSTERN__LOG_WARN, "log lines suppressed",
				postern__log_int("count", (int64_t)count), store_field(self));
	}
}

/* Whether a line may be written now. */
static bool may_write(struct postern__event_log *self) {
	uint64_t suppressed = 0;
	(void)pthread_mutex_lock(&self->mutex);
	bool may = limit_allows(self, &suppressed);
	(void)pthread_mutex_unlock(&self->mutex);
	log_suppressed(self, suppressed);
	return may;
}

void postern__event_log_flush(struct postern__event_log *self) {
	uint64_t suppressed = 0;
	(void)pthread_mutex_lock(&self->mutex);
	if (self->limit.suppressed_count > 0 && !limit_allows(self, &suppressed)) {
		self->limit.suppressed_count--; /* not a suppressed line, only this
											check */
	}
	(void)pthread_mutex_unlock(&self->mutex);
	log_suppressed(self, suppressed);
}

static void write_delivery(struct postern__event_log *self,
		enum postern__log_level level, const char *message,
		const struct postern_event *event) {
	postern__log(self->log, level, message,
			postern__log_text("channel", event->channel),
			postern__log_text("handler", event->handler),
			postern__log_int("seq", event->seq),
			postern__log_int("attempt", event->attempt),
			postern__log_int("fence", (int64_t)event->fence),
			postern__log_text("outcome", event->outcome),
			postern__log_int("duration_ms", event->duration_ms),
			postern__log_text("error", event->error), store_field(self));
}

/* Whether an operator should see the event. */
static bool needs_attention(const struct postern_event *event) {
	if (event->state == POSTERN_STATE_POISONED) {
		return true;
	}
	if (strcmp(event->outcome, "snooze") == 0) {
		/* A snooze by a handler kind of the server is an error of this machine
		   or of the store. */
		return event->error && event->error[0];
	}
	return event->state == POSTERN_STATE_PENDING &&
		   strcmp(event->outcome, "returned") != 0;
}

static void log_settled(struct postern__event_log *self,
		const struct postern_event *event) {
	if (!needs_attention(event)) {
		if (self->log->level <= POSTERN__LOG_DEBUG) {
			write_delivery(self, POSTERN__LOG_DEBUG, "delivery settled", event);
		}
		return;
	}
	if (!may_write(self)) {
		return;
	}
	bool last = event->state == POSTERN_STATE_POISONED;
	bool waits = strcmp(event->outcome, "snooze") == 0;
	bool held = strcmp(event->outcome, "hold") == 0;
	write_delivery(self, last ? POSTERN__LOG_ERROR : POSTERN__LOG_WARN,
			last    ? "delivery poisoned"
			: waits ? "delivery snoozed"
			: held  ? "delivery held: its handler is at fault"
					: "delivery failed",
			event);
}

void postern__event_log_event(void *context,
		const struct postern_event *event) {
	struct postern__event_log *self = context;
	switch (event->kind) {
	case POSTERN_EVENT_SETTLED: log_settled(self, event); break;
	case POSTERN_EVENT_FENCED:
		if (may_write(self)) {
			write_delivery(self, POSTERN__LOG_WARN,
					"settlement refused: stale fence", event);
		}
		break;
	case POSTERN_EVENT_CONFLICT:
		if (may_write(self)) {
			postern__log(self->log, POSTERN__LOG_WARN,
					"conflict: known id with another body",
					postern__log_text("channel", event->channel),
					postern__log_int("seq", event->seq), store_field(self));
		}
		break;
	case POSTERN_EVENT_LOCKED:
		postern__log(self->log, POSTERN__LOG_INFO, "processing lock acquired",
				postern__log_int("fence", (int64_t)event->fence),
				store_field(self));
		break;
	case POSTERN_EVENT_LOCK_LOST:
		postern__log(self->log, POSTERN__LOG_WARN, "processing lock lost",
				postern__log_int("fence", (int64_t)event->fence),
				store_field(self));
		break;
	case POSTERN_EVENT_ACCEPTED:
	case POSTERN_EVENT_DUPLICATE:
	case POSTERN_EVENT_STARTED:
	default: break;
	}
}

void postern__event_log_remark(void *context, const char *text) {
	struct postern__event_log *self = context;
	bool created = strncmp(text, POSTERN__REMARK_CREATED,
						   strlen(POSTERN__REMARK_CREATED)) == 0;
	postern__log(self->log, created ? POSTERN__LOG_INFO : POSTERN__LOG_WARN,
			text, store_field(self));
}

void postern__event_log_trouble(void *context, const char *text) {
	struct postern__event_log *self = context;
	static const char *const beginnings[] = { POSTERN__TROUBLE_CLEANED,
		POSTERN__TROUBLE_CONNECTED, POSTERN__TROUBLE_TAKEN,
		POSTERN__TROUBLE_WAITING };
	if (strcmp(text, POSTERN__TROUBLE_LOCK_LOST) == 0) {
		return; /* logged by the event */
	}
	bool over = strcmp(text, POSTERN__TROUBLE_OVER) == 0;
	bool good = over;
	for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
		good = good || strncmp(text, beginnings[i], strlen(beginnings[i])) == 0;
	}
	bool waits = strncmp(text, POSTERN__TROUBLE_STRANDED,
						 strlen(POSTERN__TROUBLE_STRANDED)) == 0;
	/* The end of an error is logged once for each error: it is never
	   suppressed. */
	if (over || may_write(self)) {
		postern__log(self->log,
				good    ? POSTERN__LOG_INFO
				: waits ? POSTERN__LOG_WARN
						: POSTERN__LOG_ERROR,
				text, store_field(self));
	}
}
