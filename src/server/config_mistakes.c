/* SPDX-License-Identifier: MIT */
/*
 * The list of mistakes is sorted while it is made: it is short.
 */

#include "server/config_mistakes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"

/* Leaves most of an error's text to the sentence. */
#define NAME_SHOWN_LEN_MAX 90

struct postern__mistake {
	unsigned line; /* 0: not in the file */
	unsigned column;
	const char *text;
	struct postern__mistake *next;
};

static const char *shown_name(const char *name, char *out, size_t size) {
	size_t len = strlen(name);
	if (len <= NAME_SHOWN_LEN_MAX) {
		return name;
	}
	const char *tail = name + len - NAME_SHOWN_LEN_MAX;
	/* Not in the middle of a character. */
	while (((unsigned char)*tail & 0xc0) == 0x80) {
		tail++;
	}
	(void)snprintf(out, size, "...%s", tail);
	return out;
}

int postern__fail_at(struct postern_error *error, int code,
		const struct postern__yaml_place *place) {
	char room[NAME_SHOWN_LEN_MAX + 8];
	return error ? postern__fail(error, code, "%s:%u:%u: %s",
						   shown_name(place->name, room, sizeof room),
						   place->line, place->column, error->text)
				 : code;
}

static bool is_before(const struct postern__mistake *a,
		const struct postern__mistake *b) {
	if (a->line == 0 || b->line == 0) {
		return a->line != 0;
	}
	return a->line < b->line || (a->line == b->line && a->column < b->column);
}

static void add_text(struct postern__mistakes *self,
		const struct postern__yaml_place *place, struct postern_error *error) {
	if (place && place->name) {
		(void)postern__fail_at(error, POSTERN_E_INVALID, place);
	}
	for (const struct postern__mistake *at = self->first; at; at = at->next) {
		if (strcmp(at->text, error->text) == 0) {
			return;
		}
	}
	if (self->count++ >= POSTERN__MISTAKE_COUNT_MAX) {
		return;
	}
	struct postern__mistake *mistake =
			postern__arena_alloc(self->arena, sizeof *mistake);
	const char *text = postern__arena_strdup(self->arena, error->text);
	if (!mistake || !text) {
		self->no_memory = true;
		return;
	}
	*mistake = (struct postern__mistake){
		.line = place ? place->line : 0,
		.column = place ? place->column : 0,
		.text = text,
	};
	struct postern__mistake **link = &self->first;
	while (*link && !is_before(mistake, *link)) {
		link = &(*link)->next;
	}
	mistake->next = *link;
	*link = mistake;
}

void postern__mistakes_add(struct postern__mistakes *self,
		const struct postern__yaml_place *place, const char *format, ...) {
	struct postern_error error;
	char text[2 * POSTERN_ERROR_TEXT_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	(void)postern__fail(&error, POSTERN_E_INVALID, "%s", text);
	add_text(self, place, &error);
}

void postern__mistakes_add_error(struct postern__mistakes *self,
		const struct postern__yaml_place *place, const char *name,
		const struct postern_error *error) {
	struct postern_error copy = *error;
	if (error->code == POSTERN_E_NOMEM) {
		self->no_memory = true;
		return;
	}
	if (name) {
		(void)postern__fail(&copy, error->code, "%s: %s", name, error->text);
	}
	add_text(self, place, &copy);
}

int postern__mistakes_result(const struct postern__mistakes *self,
		postern__config_remark *report, void *context,
		struct postern_error *error) {
	if (self->no_memory) {
		if (report) {
			report(context, "out of memory");
		}
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (const struct postern__mistake *at = self->first; report && at;
			at = at->next) {
		report(context, at->text);
	}
	if (report && self->count > POSTERN__MISTAKE_COUNT_MAX) {
		char text[64];
		(void)snprintf(text, sizeof text, "%zu more mistakes are not shown",
				self->count - POSTERN__MISTAKE_COUNT_MAX);
		report(context, text);
	}
	return self->first ? postern__fail(error, POSTERN_E_INVALID, "%s",
								 self->first->text)
					   : POSTERN_OK;
}
