/* SPDX-License-Identifier: MIT */
/*
 * libyaml's events, converted to a tree with limits.
 *
 * The events are handled one by one, so the first unsupported one ends the
 * parsing and no input costs more than its own length: depth, number of nodes
 * and entries are counted on the way. Two things are checked before libyaml
 * reads the text: invalid bytes (libyaml reports them by offset only), and
 * directives, for which libyaml needs time quadratic in their number.
 */

#include "server/yaml.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "server/config.h"

struct reader {
	const char *name;
	const char *text; /* valid UTF-8 */
	size_t len;
	struct postern__arena *arena;
	struct postern__mistakes *mistakes;
	yaml_parser_t parser;
	struct postern__yaml_node *root;
	/* The containers that are open, outermost first. */
	struct postern__yaml_node *open[POSTERN__YAML_DEPTH_MAX];
	size_t depth;
	/* A mapping's key that waits for its value. */
	const char *key;
	struct postern__yaml_place key_place;
	size_t node_count;
};

bool postern__yaml_empty(const struct postern__yaml_node *node) {
	return node->kind == POSTERN__YAML_SCALAR && node->plain &&
		   (strcmp(node->text, "") == 0 || strcmp(node->text, "~") == 0 ||
				   strcmp(node->text, "null") == 0);
}

const char *postern__yaml_kind_name(const struct postern__yaml_node *node) {
	switch (node->kind) {
	case POSTERN__YAML_SCALAR: return "text";
	case POSTERN__YAML_LIST: return "a list";
	case POSTERN__YAML_MAPPING: return "a mapping";
	}
	return "?";
}

static struct postern__yaml_place place_of(const struct reader *self,
		const yaml_mark_t *mark) {
	/* The text's length bounds both. */
	return (struct postern__yaml_place){
		.name = self->name,
		.line = (unsigned)mark->line + 1,
		.column = (unsigned)mark->column + 1,
	};
}

/* Add the mistake that ends the reading. */
static bool refuse(const struct reader *self,
		const struct postern__yaml_place *place, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

static bool refuse(const struct reader *self,
		const struct postern__yaml_place *place, const char *format, ...) {
	char text[2 * POSTERN_ERROR_TEXT_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	postern__mistakes_add(self->mistakes, place, "%s", text);
	return false;
}

static bool lack_memory(const struct reader *self) {
	self->mistakes->no_memory = true;
	return false;
}

/* Check for invalid bytes and directives; see the top. */
static bool check_text(const struct reader *self) {
	struct postern__yaml_place place = { self->name, 1, 1 };
	const char *text = self->text;
	size_t len = self->len;

	for (size_t i = 0; i < len;) {
		uint32_t c;
		size_t width = postern__utf8_decode(text + i, len - i, &c);
		if (width == 0) {
			return refuse(self, &place, "not valid UTF-8");
		}
		if (c == 0x7f || (c < 0x20 && c != '\t' && c != '\n' && c != '\r') ||
				(c >= 0x80 && c < 0xa0 && c != 0x85)) {
			return refuse(self, &place, "unexpected control character U+%04X",
					(unsigned)c);
		}
		if (c == '%' && place.column == 1) {
			return refuse(self, &place,
					"YAML directives ('%%…') are not supported");
		}
		i += width;
		place.column++;
		/* Line ends of YAML 1.1. */
		if (c == '\n' || c == 0x85 || c == 0x2028 || c == 0x2029 ||
				(c == '\r' && (i == len || text[i] != '\n'))) {
			place.line++;
			place.column = 1;
		}
	}
	return true;
}

/* The character at a mark, which counts characters; 0 behind the last. */
static uint32_t character_at(const struct reader *self,
		const yaml_mark_t *mark) {
	uint32_t c = 0;
	size_t i = 0;
	for (size_t n = 0; n <= mark->index; n++) {
		size_t width = i < self->len ? postern__utf8_decode(self->text + i,
											   self->len - i, &c)
									 : 0;
		if (width == 0) {
			return 0;
		}
		i += width;
	}
	return c;
}

/* A clearer text for an error of the parser, for people who do not know YAML
   well; NULL: the parser's text is clear. *mark_out is its place. */
static const char *explain(const struct reader *self,
		const yaml_mark_t **mark_out) {
	const yaml_parser_t *parser = &self->parser;
	const char *problem = parser->problem ? parser->problem : "";
	const char *context = parser->context ? parser->context : "";
	*mark_out = &parser->problem_mark;
	if (strstr(problem, "mapping values are not allowed")) {
		return "unexpected ':'; quote a text that has ':' at its end or before "
			   "a blank";
	}
	if (strstr(problem, "found a tab character")) {
		return "unexpected tab; indent with spaces only";
	}
	if (strstr(problem, "cannot start any token")) {
		switch (character_at(self, &parser->problem_mark)) {
		case '\t': return "unexpected tab; indent with spaces only";
		case '@': return "a text that begins with '@' must be in quotes";
		case '`': return "a text that begins with '`' must be in quotes";
		case '%': return "a text that begins with '%' must be in quotes";
		default: return NULL;
		}
	}
	if (strstr(context, "scanning an alias")) {
		*mark_out = &parser->context_mark;
		return "a text that begins with '*' must be in quotes: \"*\"";
	}
	if (strstr(context, "scanning an anchor")) {
		*mark_out = &parser->context_mark;
		return "a text that begins with '&' must be in quotes";
	}
	return NULL;
}

static bool fail_parser(const struct reader *self) {
	const yaml_parser_t *parser = &self->parser;
	const yaml_mark_t *mark;
	if (parser->error == YAML_MEMORY_ERROR) {
		return lack_memory(self);
	}
	const char *text = explain(self, &mark);
	struct postern__yaml_place place = place_of(self, mark);
	if (text) {
		return refuse(self, &place, "%s", text);
	}
	const char *problem = parser->problem ? parser->problem : "invalid YAML";
	if (parser->context) {
		return refuse(self, &place, "%s %s (line %zu)", problem,
				parser->context, parser->context_mark.line + 1);
	}
	return refuse(self, &place, "%s", problem);
}

/* Whether the mapping has the key already. */
static bool is_duplicate(const struct reader *self,
		const struct postern__yaml_node *parent) {
	for (const struct postern__yaml_node *other = parent->first; other;
			other = other->next) {
		if (strcmp(other->key, self->key) == 0) {
			postern__mistakes_add(self->mistakes, &self->key_place,
					"duplicate key '%s', first on line %u", self->key,
					other->key_place.line);
			return true;
		}
	}
	return false;
}

/* Add a node to the tree, in the innermost open container. */
static bool attach(struct reader *self, struct postern__yaml_node *node) {
	if (self->depth == 0) {
		self->root = node;
		return true;
	}
	struct postern__yaml_node *parent = self->open[self->depth - 1];
	if (parent->count == POSTERN__YAML_ENTRY_COUNT_MAX) {
		return refuse(self, &node->place, "more than %d entries in one place",
				POSTERN__YAML_ENTRY_COUNT_MAX);
	}
	if (parent->kind == POSTERN__YAML_MAPPING) {
		bool duplicate = is_duplicate(self, parent);
		node->key = self->key;
		node->key_place = self->key_place;
		self->key = NULL;
		if (duplicate) {
			return true; /* left out of the tree */
		}
	}
	if (parent->last) {
		parent->last->next = node;
	} else {
		parent->first = node;
	}
	parent->last = node;
	parent->count++;
	return true;
}

static bool waits_for_key(const struct reader *self) {
	return self->depth > 0 &&
		   self->open[self->depth - 1]->kind == POSTERN__YAML_MAPPING &&
		   !self->key;
}

/* NULL: refused, or out of memory. */
static struct postern__yaml_node *make_node(struct reader *self,
		enum postern__yaml_kind kind, struct postern__yaml_place place) {
	if (self->node_count++ == POSTERN__YAML_NODE_COUNT_MAX) {
		(void)refuse(self, &place, "more than %d values in one file",
				POSTERN__YAML_NODE_COUNT_MAX);
		return NULL;
	}
	struct postern__yaml_node *node =
			postern__arena_alloc(self->arena, sizeof *node);
	if (!node) {
		(void)lack_memory(self);
		return NULL;
	}
	node->kind = kind;
	node->place = place;
	return node;
}

static bool add_scalar(struct reader *self, const yaml_event_t *event) {
	struct postern__yaml_place place = place_of(self, &event->start_mark);
	const char *bytes = (const char *)event->data.scalar.value;
	size_t len = event->data.scalar.length;

	if (memchr(bytes, '\0', len)) {
		return refuse(self, &place, "a text contains a zero byte");
	}
	char *text = postern__arena_copy(self->arena, bytes, len);
	if (!text) {
		return lack_memory(self);
	}
	if (waits_for_key(self)) {
		self->key = text;
		self->key_place = place;
		return true;
	}
	struct postern__yaml_node *node =
			make_node(self, POSTERN__YAML_SCALAR, place);
	if (!node) {
		return false;
	}
	node->text = text;
	node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	return attach(self, node);
}

static bool open_container(struct reader *self, enum postern__yaml_kind kind,
		const yaml_event_t *event) {
	struct postern__yaml_place place = place_of(self, &event->start_mark);
	if (waits_for_key(self)) {
		return refuse(self, &place, "a key must be plain text");
	}
	if (self->depth == POSTERN__YAML_DEPTH_MAX) {
		return refuse(self, &place, "nested more than %d deep",
				POSTERN__YAML_DEPTH_MAX);
	}
	struct postern__yaml_node *node = make_node(self, kind, place);
	if (!node || !attach(self, node)) {
		return false;
	}
	self->open[self->depth++] = node;
	return true;
}

static bool check_decoration(const struct reader *self,
		const yaml_event_t *event, const yaml_char_t *anchor,
		const yaml_char_t *tag) {
	struct postern__yaml_place place = place_of(self, &event->start_mark);
	if (anchor) {
		return refuse(self, &place,
				"anchors ('&%s') are not supported: repeat the value", anchor);
	}
	if (tag) {
		return refuse(self, &place,
				"tags ('!…') are not supported: remove '%s'", tag);
	}
	return true;
}

static bool handle_event(struct reader *self, const yaml_event_t *event) {
	struct postern__yaml_place place = place_of(self, &event->start_mark);
	const yaml_char_t *anchor = NULL;
	const yaml_char_t *tag = NULL;

	switch (event->type) {
	case YAML_ALIAS_EVENT:
		return refuse(self, &place,
				"aliases ('*%s') are not supported: repeat the value, or quote "
				"a text that begins with '*'",
				event->data.alias.anchor);
	case YAML_DOCUMENT_START_EVENT:
		if (self->root) {
			return refuse(self, &place,
					"a second document ('---') is not supported");
		}
		return true;
	case YAML_SCALAR_EVENT:
		anchor = event->data.scalar.anchor;
		tag = event->data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = event->data.sequence_start.anchor;
		tag = event->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = event->data.mapping_start.anchor;
		tag = event->data.mapping_start.tag;
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT: self->depth--; return true;
	default: return true;
	}
	if (!check_decoration(self, event, anchor, tag)) {
		return false;
	}
	if (event->type == YAML_SCALAR_EVENT) {
		return add_scalar(self, event);
	}
	return open_container(self,
			event->type == YAML_MAPPING_START_EVENT ? POSTERN__YAML_MAPPING
													: POSTERN__YAML_LIST,
			event);
}

bool postern__yaml_read(const char *name, const char *text, size_t len,
		struct postern__mistakes *mistakes, struct postern__yaml_node **out) {
	struct reader self = {
		.name = name,
		.text = text,
		.len = len,
		.arena = mistakes->arena,
		.mistakes = mistakes,
	};
	bool ended = false;

	if (len > POSTERN__CONFIG_BYTES_MAX) {
		struct postern__yaml_place place = { name, 1, 1 };
		return refuse(&self, &place, "the file exceeds %zu bytes",
				POSTERN__CONFIG_BYTES_MAX);
	}
	if (!check_text(&self)) {
		return false;
	}
	if (!yaml_parser_initialize(&self.parser)) {
		return lack_memory(&self);
	}
	yaml_parser_set_encoding(&self.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&self.parser, (const unsigned char *)text,
			len);
	bool good = true;
	while (good && !ended) {
		yaml_event_t event;
		if (!yaml_parser_parse(&self.parser, &event)) {
			good = fail_parser(&self);
			break;
		}
		ended = event.type == YAML_STREAM_END_EVENT;
		good = handle_event(&self, &event);
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&self.parser);
	if (good) {
		*out = self.root;
	}
	return good;
}
