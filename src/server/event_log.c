/* SPDX-License-Identifier: MIT */

/*
 * Log lines about a store. Those that may be frequent share one rate limit: a
 * failing handler and the reason matter, and a thousand lines add nothing to
 * twenty. The next line reports how many were suppressed.
 */

#include "server/event_log.h"

#include <inttypes.h>
#include <postern/inspect.h>
#include <postern/sys/clock.h>
#include <stdio.h>

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
		postern__log(self->log, POSTERN__LOG_SUPPRESSED, NULL,
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

/* How a field of an event is stored. */
enum form { TEXT, SIGNED, UNSIGNED, SMALL };

#define FORM_OF(member) \
	_Generic(((const struct postern_event *)0)->member, \
			const char *: TEXT, \
			int64_t: SIGNED, \
			uint64_t: UNSIGNED, \
			default: SMALL)

/* clang-format off */
static const struct field {
	const char *name;
	uint32_t bit;
	enum form form;
	size_t offset;
} event_fields[] = {
#define ROW(name, member, bit) \
	{ #member, POSTERN_FIELD_##name, FORM_OF(member), \
			offsetof(struct postern_event, member) },
	POSTERN_EVENT_FIELD_MAP(ROW)
#undef ROW
};
/* clang-format on */

#define FIELD_COUNT (sizeof event_fields / sizeof event_fields[0])

/* The longest text of a field that is not a text in the event. */
#define WORD_LEN_MAX 24

/* Convert a field. False: it has no value, and is left out. */
static bool convert(const struct field *field,
		const struct postern_event *event, char word[WORD_LEN_MAX],
		struct postern__log_field *out) {
	const void *at = (const char *)event + field->offset;
	*out = (struct postern__log_field){ .name = field->name };
	switch (field->form) {
	case TEXT: out->text = *(const char *const *)at; return out->text;
	case SIGNED: out->number = *(const int64_t *)at; break;
	case UNSIGNED: out->number = (int64_t) * (const uint64_t *)at; break;
	case SMALL:
	default: out->number = *(const uint32_t *)at; break;
	}
	if (field->bit == POSTERN_FIELD_STATE) {
		out->text = postern_state_name(event->state);
	} else if (field->bit == POSTERN_FIELD_NODE) {
		/* As the API and 'postern stats' show it. */
		(void)snprintf(word, WORD_LEN_MAX, "%016" PRIx64, event->node);
		out->text = word;
	}
	/* These two have no value if they are 0. */
	return (field->bit != POSTERN_FIELD_SEQ &&
				   field->bit != POSTERN_FIELD_UNTIL_MS) ||
		   out->number > 0;
}

/* Whether there may be many events of the kind: each message or handler can
   cause one. The others are rare, and each of them is logged. */
static bool is_limited(const struct postern_event_info *info) {
	return info->level > POSTERN_LEVEL_DEBUG &&
		   (info->object == POSTERN_OBJECT_MESSAGE ||
				   info->object == POSTERN_OBJECT_DELIVERY ||
				   info->object == POSTERN_OBJECT_HANDLER ||
				   info->object == POSTERN_OBJECT_STAGED ||
				   info->object == POSTERN_OBJECT_SOURCE);
}

void postern__event_log_event(void *context,
		const struct postern_event *event) {
	struct postern__event_log *self = context;
	const struct postern_event_info *info = postern_event_info(event->kind);
	if (info->level < self->log->level ||
			(is_limited(info) && !may_write(self))) {
		return;
	}
	struct postern__log_field fields[FIELD_COUNT + 2] = { 0 };
	char word[WORD_LEN_MAX];
	size_t count = 0;
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		if ((info->fields & event_fields[i].bit) &&
				convert(&event_fields[i], event, word, &fields[count])) {
			count++;
		}
	}
	fields[count++] = store_field(self);
	fields[count] = (struct postern__log_field){ 0 };
	postern__log_write(self->log,
			(struct postern__log_head){ info->level, info->name,
					postern_event_text(event) },
			fields);
}

void postern__event_log_line(struct postern__event_log *self,
		enum postern__log_line line, const char *message) {
	postern__log(self->log, line, message, store_field(self));
}
