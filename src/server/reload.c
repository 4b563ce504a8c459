/* SPDX-License-Identifier: MIT */
/*
 * First everything is prepared that can fail by itself: the file is read and
 * checked, and a generation made for each store. Then the generations are put
 * in place, one store after the other. If a store cannot be written, those
 * before it get their former channels and handlers back.
 */

#include "server/reload.h"

#include <postern/box.h>
#include <postern/source.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/option.h"
#include "server/api.h"
#include "server/auth.h"
#include "server/config_options.h"
#include "server/config_section.h"
#include "server/http.h"
#include "server/listening.h"
#include "server/stores.h"
#include "server/tls.h"

/* A configuration that was put in place, and what requests need of it. */
struct postern__site {
	struct postern__site *former;
	struct postern__config *config;
	struct postern__api api;
	struct postern__auth auth;
	struct postern__http_site http;
};

const struct postern__config *postern__reloader_config(
		const struct postern__reloader *self) {
	return self->current ? self->current->config : self->first;
}

static void destroy_site(struct postern__site *site) {
	postern__config_destroy(site->config);
	free(site);
}

static bool is_same_text(const char *a, const char *b) {
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same(const struct postern_option *option, const void *a,
		const void *b) {
	struct postern__buf texts[2];
	if (option->type == POSTERN_OPTION_TEXT) {
		/* Formatted, a password would not be seen. */
		return is_same_text(*(const char *const *)((const char *)a +
												   option->offset),
				*(const char *const *)((const char *)b + option->offset));
	}
	for (size_t i = 0; i < 2; i++) {
		postern__buf_init(&texts[i], 4096);
		postern__option_format(option, i == 0 ? a : b, &texts[i]);
	}
	bool same = strcmp(postern__buf_text(&texts[0]),
						postern__buf_text(&texts[1])) == 0;
	postern__buf_finish(&texts[0]);
	postern__buf_finish(&texts[1]);
	return same;
}

/* Refuse a changed option that needs a restart, of the process or a store. */
static int check_values(const struct postern__config *next, unsigned places,
		const struct postern__config_values *a,
		const struct postern__config_values *b, struct postern_error *error) {
	const struct postern_option *option;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (!(option->places & places) ||
				postern__option_is_reloadable(option) ||
				(option->flags & POSTERN_OPTION_LATER) ||
				is_same(option, a, b)) {
			continue;
		}
		(void)postern__fail(error, POSTERN_E_INVALID,
				"%s: a change needs a restart of the server", option->name);
		return postern__config_fail_at(next, b, option->name, error);
	}
	return POSTERN_OK;
}

static int check_stores(const struct postern__config *config,
		const struct postern__config *next, struct postern_error *error) {
	const size_t count = postern__config_store_count(config);
	if (count != postern__config_store_count(next)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"stores: a change needs a restart of the server");
	}
	for (size_t i = 0; i < count; i++) {
		const struct postern__config_store *a =
				postern__config_store(config, i);
		const struct postern__config_store *b = postern__config_store(next, i);
		if (strcmp(a->name, b->name) != 0 ||
				postern__config_store_has_box(config, a) !=
						postern__config_store_has_box(next, b)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"the store '%.60s': a change needs a restart of the server",
					b->name);
		}
		int r = check_values(next, POSTERN__IN_STORE, &a->values, &b->values,
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

static bool is_same_source(const struct postern__config_channel_source *a,
		const struct postern__config_channel_source *b) {
	bool same = strcmp(a->name, b->name) == 0 && a->kind == b->kind &&
				a->setting_count == b->setting_count;
	for (size_t i = 0; same && i < a->setting_count; i++) {
		same = is_same_text(a->settings[i].name, b->settings[i].name) &&
			   is_same_text(a->settings[i].value, b->settings[i].value);
	}
	return same;
}

static size_t count_sources(const struct postern__config *config) {
	const struct postern__config_channel *channel;
	size_t count = 0;
	for (size_t i = 0; (channel = postern__config_channel(config, i)); i++) {
		count += channel->source_count;
	}
	return count;
}

/* Sources belong to runners, which go on. */
static int check_sources(const struct postern__config *config,
		const struct postern__config *next, struct postern_error *error) {
	const struct postern__config_channel *channel;
	const char *changed =
			count_sources(config) == count_sources(next) ? NULL : "";
	for (size_t i = 0;
			!changed && (channel = postern__config_channel(config, i)); i++) {
		const struct postern__config_channel *other =
				channel->source_count > 0
						? postern__config_channel_named(next, channel->name)
						: NULL;
		bool same = channel->source_count == 0 ||
					(other && other->source_count == channel->source_count &&
							strcmp(other->name, channel->name) == 0);
		for (size_t n = 0; same && n < channel->source_count; n++) {
			same = is_same_source(&channel->sources[n], &other->sources[n]);
		}
		changed = same ? NULL : channel->name;
	}
	return changed ? postern__fail(error, POSTERN_E_INVALID,
							 "sources: a change%s%.60s needs a restart of the "
							 "server",
							 *changed ? " in the channel " : "", changed)
				   : POSTERN_OK;
}

/* Another certificate is fine, TLS instead of none is not. */
static int check_tls(const struct postern__config *config,
		const struct postern__config *next, struct postern_error *error) {
	return !postern__config_global(config)->tls_cert_file ==
						   !postern__config_global(next)->tls_cert_file
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "tls: to begin or end it needs a restart of the "
							 "server");
}

static int check_change(const struct postern__config *config,
		const struct postern__config *next, struct postern_error *error) {
	int r = check_values(next, POSTERN__IN_GLOBAL & ~POSTERN__IN_DEFAULTS,
			postern__config_global(config), postern__config_global(next),
			error);
	if (r == POSTERN_OK) {
		r = check_stores(config, next, error);
	}
	if (r == POSTERN_OK) {
		r = check_tls(config, next, error);
	}
	return r == POSTERN_OK ? check_sources(config, next, error) : r;
}

/* A generation for each store with a box; none stays if this fails. */
static int prepare(const struct postern__reloader *self,
		const struct postern__config *config,
		struct postern_generation *out[POSTERN__STORE_COUNT_MAX],
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; i < self->stores->count; i++) {
		out[i] = NULL;
	}
	for (size_t i = 0; r == POSTERN_OK && i < self->stores->count; i++) {
		struct postern_box *box = self->stores->items[i].box;
		if (box) {
			r = postern__config_generation(config,
					postern__config_store(config, i), box, &out[i], error);
		}
	}
	for (size_t i = 0; r != POSTERN_OK && i < self->stores->count; i++) {
		postern_generation_destroy(out[i]);
		out[i] = NULL;
	}
	return r;
}

/* Put the former channels and handlers back into the first `count` stores. */
static void restore(const struct postern__reloader *self, size_t count) {
	const struct postern__config *config = postern__reloader_config(self);
	struct postern_generation *former[POSTERN__STORE_COUNT_MAX];
	struct postern_error error;
	int r = prepare(self, config, former, &error);
	for (size_t i = 0; r == POSTERN_OK && i < self->stores->count; i++) {
		if (former[i] && i < count) {
			r = postern_box_replace_taking(self->stores->items[i].box,
					former[i], &error);
		} else {
			postern_generation_destroy(former[i]);
		}
	}
	if (r != POSTERN_OK && count > 0) {
		self->report(self->report_context, error.text);
	}
}

static int put_in_place(const struct postern__reloader *self,
		const struct postern__config *next, struct postern_error *error) {
	struct postern_generation *generations[POSTERN__STORE_COUNT_MAX];
	int r = prepare(self, next, generations, error);
	size_t done = 0;
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; i < self->stores->count; i++) {
		if (r != POSTERN_OK) {
			postern_generation_destroy(generations[i]);
		} else if (generations[i]) {
			r = postern_box_replace_taking(self->stores->items[i].box,
					generations[i], error);
		}
		done += r == POSTERN_OK;
	}
	if (r != POSTERN_OK) {
		restore(self, done);
	}
	return r;
}

static struct postern__site *create_site(const struct postern__reloader *self,
		struct postern__config *config) {
	struct postern__site *site = calloc(1, sizeof *site);
	if (site) {
		site->config = config;
		site->api = *self->api;
		site->api.config = config;
		site->api.body_len_max =
				(size_t)postern__config_global(config)->max_message_size;
		postern__config_auth(config, &site->auth);
		site->http.api = &site->api;
		site->http.auth = &site->auth;
	}
	return site;
}

int postern__reload(struct postern__reloader *self,
		const struct postern__config_input *input,
		struct postern_error *error) {
	struct postern__config *next = NULL;
	struct postern__site *site = NULL;
	struct postern__tls *tls = NULL;
	struct postern__config_input read = *input;
	read.report = self->report;
	read.report_context = self->report_context;
	int r = postern__config_load(&read, &next, error);
	if (r == POSTERN_OK) {
		r = postern__config_check(next, self->report, self->report_context,
				error);
	}
	if (r != POSTERN_OK) {
		postern__config_destroy(next);
		return postern__fail(error, r, "the configuration has mistakes");
	}
	r = check_change(postern__reloader_config(self), next, error);
	if (r == POSTERN_OK) {
		r = postern__listening_check(self->listening, next, error);
	}
	if (r != POSTERN_OK) {
		goto out;
	}
	r = postern__config_tls(next, &tls, error);
	if (r != POSTERN_OK) {
		goto out;
	}
	site = create_site(self, next);
	if (!site) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	postern__config_set_opened(next, self->stores);
	r = put_in_place(self, next, error);
	if (r != POSTERN_OK) {
		goto out;
	}
	next = NULL; /* the site's */
	site->former = self->current;
	self->current = site;
	postern__http_replace(self->http, &site->http);
	if (tls) {
		postern__http_replace_tls(self->http, tls);
	}
	site = NULL;
out:
	postern__tls_release(tls);
	free(site);
	postern__config_destroy(next);
	return r;
}

void postern__reloader_sweep(struct postern__reloader *self) {
	struct postern__site **at = self->current ? &self->current->former : NULL;
	while (at && *at) {
		struct postern__site *site = *at;
		if (postern__http_is_unused(self->http, &site->http)) {
			*at = site->former;
			destroy_site(site);
		} else {
			at = &site->former;
		}
	}
}

void postern__reloader_finish(struct postern__reloader *self) {
	while (self->current) {
		struct postern__site *site = self->current;
		self->current = site->former;
		destroy_site(site);
	}
}
