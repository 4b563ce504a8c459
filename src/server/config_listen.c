/* SPDX-License-Identifier: MIT */
/*
 * The addresses of `listen` and `ingest_listen`. Each option is one text with
 * commas between its addresses, however it was written: so a flag and a
 * variable can have several, too.
 */

#include "server/config_section.h"

#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/text.h"
#include "server/config_options.h"
#include "server/config_path.h"
#include "server/socket.h"
#include "server/tcp.h"

#define ADDRESSES_LEN_MAX ((size_t)4096)

static int check_one(const char *text, struct postern_error *error) {
	struct postern__tcp tcp;
	const char *path = postern__listen_path(text);
	if (postern__listen_passed(text)) {
		return POSTERN_OK;
	}
	return path ? postern__socket_path_check(path, error)
				: postern__tcp_parse(text, &tcp, error);
}

const char *postern__listen_path(const char *address) {
	const size_t len = strlen(POSTERN__LISTEN_PREFIX);
	return strncmp(address, POSTERN__LISTEN_PREFIX, len) == 0 ? address + len
															  : NULL;
}

const char *postern__listen_passed(const char *address) {
	const size_t len = strlen(POSTERN__LISTEN_PASSED ":");
	if (strcmp(address, POSTERN__LISTEN_PASSED) == 0) {
		return "";
	}
	return strncmp(address, POSTERN__LISTEN_PASSED ":", len) == 0
				   ? address + len
				   : NULL;
}

/* The next address of a list, copied into `out`; NULL: there is none, or it is
   too long and left as "". */
static const char *next_address(const char **rest,
		char out[POSTERN__LISTEN_LEN_MAX + 1]) {
	if (!*rest) {
		return NULL;
	}
	const char *text = *rest + strspn(*rest, " ");
	size_t len = strcspn(text, ",");
	*rest = text[len] ? text + len + 1 : NULL;
	while (len > 0 && text[len - 1] == ' ') {
		len--;
	}
	if (len > POSTERN__LISTEN_LEN_MAX) {
		len = 0;
	}
	memcpy(out, text, len);
	out[len] = '\0';
	return out;
}

int postern__listen_check(const char *text, struct postern_error *error) {
	char address[POSTERN__LISTEN_LEN_MAX + 1];
	size_t count = 0;
	int r = POSTERN_OK;
	for (const char *rest = text; r == POSTERN_OK && rest;) {
		r = check_one(next_address(&rest, address), error);
		if (r == POSTERN_OK && ++count > POSTERN__LISTEN_COUNT_MAX) {
			r = postern__fail(error, POSTERN_E_INVALID,
					"more than %d addresses", POSTERN__LISTEN_COUNT_MAX);
		}
	}
	return r;
}

int postern__listen_resolve(struct postern__config *config,
		enum postern__config_source source, const char **text,
		struct postern_error *error) {
	char address[POSTERN__LISTEN_LEN_MAX + 1];
	struct postern__buf joined;
	int r = POSTERN_OK;
	postern__buf_init(&joined, ADDRESSES_LEN_MAX);
	for (const char *rest = *text; r == POSTERN_OK && rest;) {
		const char *one = next_address(&rest, address);
		if (postern__listen_path(one)) {
			r = postern__config_path_resolve(config->base, source,
					strlen(POSTERN__LISTEN_PREFIX), &config->arena, &one,
					error);
		}
		postern__buf_append_text(&joined, joined.len > 0 ? "," : "");
		postern__buf_append_text(&joined, one);
	}
	if (r == POSTERN_OK) {
		r = postern__buf_check(&joined, "the list of addresses", error);
	}
	if (r == POSTERN_OK) {
		*text = postern__arena_strdup(&config->arena,
				postern__buf_text(&joined));
		r = *text ? r : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__buf_finish(&joined);
	return r;
}

bool postern__listen_join(struct postern__config *config,
		const struct postern__yaml_node *node, const char **out) {
	const char *const *texts;
	struct postern__buf joined;
	size_t count;
	if (!postern__config_list_read(config, node, POSTERN__LISTEN_COUNT_MAX,
				&texts, &count)) {
		return false;
	}
	postern__buf_init(&joined, ADDRESSES_LEN_MAX);
	for (size_t i = 0; i < count; i++) {
		postern__buf_append_text(&joined, i > 0 ? "," : "");
		postern__buf_append_text(&joined, texts[i]);
	}
	*out = postern__buf_check(&joined, "the list", NULL) == POSTERN_OK
				   ? postern__arena_strdup(&config->arena,
							 postern__buf_text(&joined))
				   : NULL;
	config->mistakes.no_memory = config->mistakes.no_memory || !*out;
	postern__buf_finish(&joined);
	return *out != NULL;
}

/* Two addresses of any port are two addresses. */
static bool is_twice(const struct postern__config *config, const char *text) {
	const size_t len = strlen(text);
	bool twice = false;
	if (len > 2 && strcmp(text + len - 2, ":0") == 0) {
		return false;
	}
	for (size_t i = 0; !twice && i < config->listen_count; i++) {
		twice = strcmp(config->listens[i].text, text) == 0;
	}
	return twice;
}

/* Whether other machines can reach the address. */
static bool is_public(const char *text) {
	struct postern__tcp tcp;
	return !postern__listen_path(text) && !postern__listen_passed(text) &&
		   postern__tcp_parse(text, &tcp, NULL) == POSTERN_OK &&
		   !postern__tcp_is_loopback(&tcp);
}

static void add_addresses(struct postern__config *config, const char *name,
		const char *text, bool ingest_only) {
	char address[POSTERN__LISTEN_LEN_MAX + 1];
	if (postern__config_origin_of(&config->values, name)->bad) {
		return;
	}
	for (const char *rest = text; rest;) {
		const char *one = next_address(&rest, address);
		if (is_twice(config, one)) {
			postern__config_mistake(config, &config->values, name,
					"%s: the address '%.80s' is given twice", name, one);
			return;
		}
		if (is_public(one) && config->token_count == 0) {
			postern__config_mistake(config, &config->values, name,
					"%s: other machines can reach '%.80s', which needs tokens: "
					"add 'auth', or listen on 127.0.0.1",
					name, one);
			return;
		}
		struct postern__config_listen *listen =
				&config->listens[config->listen_count];
		listen->ingest_only = ingest_only;
		listen->text = postern__arena_strdup(&config->arena, one);
		if (!listen->text) {
			config->mistakes.no_memory = true;
			return;
		}
		config->listen_count++;
	}
}

void postern__config_listens_read(struct postern__config *config) {
	add_addresses(config, "listen", config->values.listen, false);
	add_addresses(config, "ingest_listen", config->values.ingest_listen, true);
}

size_t postern__config_listen_count(const struct postern__config *config) {
	return config->listen_count;
}

const struct postern__config_listen *
postern__config_listen(const struct postern__config *config, size_t index) {
	return index < config->listen_count ? &config->listens[index] : NULL;
}
