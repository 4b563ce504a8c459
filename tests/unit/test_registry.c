/* SPDX-License-Identifier: MIT */

/*
 * Opening a store by its URL: the known kinds, and the errors for others.
 */

#include <postern/sys/clock.h>
#include <postern/sys/store_kind.h>

#include "store/store.h"
#include "store_urls.h"
#include "support/fake_clock.h"
#include "tap.h"

static void known(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	if (CHECK_OK(postern_store_open("memory:", NULL, &store, &error), &error)) {
		CHECK_STR(store->ops->name, "memory");
		CHECK_INT(store->ops->version, POSTERN_STORE_OPS_VERSION);
	}
	postern_store_destroy(store);
}

static void no_kind(void) {
	static const char *const urls[] = {
		"mysql:host",
		"Memory:",
		"memory",
		"mem",
		":",
		"",
		NULL,
	};
	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		struct postern_store *store = NULL;
		struct postern_error error = { 0 };
		CHECK_INT(postern_store_open(urls[i], NULL, &store, &error),
				POSTERN_E_INVALID);
		CHECK(!store);
		CHECK_CONTAINS(error.text, STORE_URLS);
	}
}

static void later_kinds(void) {
	static const char *const urls[] = {
#ifndef POSTERN_POSTGRES
		"postgres://user:secret@host/db",
		"postgresql://user:secret@host/db",
#endif
		"redis://:secret@host",
		"rediss://:secret@host",
	};
	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		struct postern_store *store = NULL;
		struct postern_error error = { 0 };
		CHECK_INT(postern_store_open(urls[i], NULL, &store, &error),
				POSTERN_E_UNSUPPORTED);
		CHECK(!store);
		CHECK_CONTAINS(error.text, strncmp(urls[i], "redis", 5) == 0
										   ? "needs libpostern-redis"
										   : "was not built in");
		CHECK(!strstr(error.text, "secret"));
	}
}

static void secrets(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	CHECK_INT(postern_store_open("mongo://u:secret@host", NULL, &store, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "mongo");
	CHECK(!strstr(error.text, "secret"));
}

static void rest_of_memory(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	CHECK_INT(postern_store_open("memory:x", NULL, &store, &error),
			POSTERN_E_INVALID);
	struct postern_store_options options = {
		.size = sizeof options,
		.read_only = true,
	};
	CHECK_INT(postern_store_open("memory:", &options, &store, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK(!store);
}

static void options_without_size(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	struct postern_store_options options = { 0 };
	CHECK_INT(postern_store_open("memory:", &options, &store, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "size");
}

/* The options of a program that was compiled when the struct ended before the
   member `clock`. */
static void older_options(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	struct postern_store_options options = {
		.size = offsetof(struct postern_store_options, clock),
	};
	memset((char *)&options + options.size, 0xff,
			sizeof options - options.size);
	CHECK_OK(postern_store_open("memory:", &options, &store, &error), &error);
	if (store) {
		struct postern_batch batch = { .node = 1 };
		CHECK_OK(store->ops->apply(store, &batch, &error), &error);
	}
	postern_store_destroy(store);
}

static void schemas(void) {
	const char *schema = NULL;
	struct postern_error error = { 0 };
	CHECK_OK(postern_store_schema("memory:", &schema, &error), &error);
	CHECK_STR(schema, "");
	CHECK_OK(postern_store_schema("sqlite:x.db", &schema, &error), &error);
	CHECK_CONTAINS(schema, "CREATE TABLE");
	CHECK_INT(postern_store_schema("redis:", &schema, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_INT(postern_store_schema("x:", &schema, &error), POSTERN_E_INVALID);
}

static void capabilities(void) {
	const struct postern_store_kind *kind;
	size_t count = 0;
	for (; (kind = postern__store_kind_at(count)); count++) {
		char url[64];
		(void)snprintf(url, sizeof url, "%s:", kind->scheme);
		CHECK(postern__store_kind_of(url, NULL) == kind);
		/* The scheme may differ, nothing else. */
		const struct postern_store_kind *same =
				postern__store_kind_named(kind->name);
		CHECK(same && same->open == kind->open &&
				same->is_shared == kind->is_shared);
		CHECK(kind->form && kind->open && kind->schema && kind->check);
		CHECK((kind->schema_sql != NULL) == kind->has_schema);
		CHECK((kind->schema_name != NULL) == kind->has_schema);
		CHECK((kind->examine != NULL) == kind->is_shared);
		CHECK((kind->end_look != NULL) == kind->is_shared);
		CHECK((kind->library_version != NULL) == (kind->library != NULL));
		CHECK(!kind->library || *kind->library_version());
		/* Only a durable store can be found again by others. */
		CHECK(kind->is_durable || !(kind->is_file || kind->is_shared));
	}
	CHECK(count >= 2);
	CHECK(!postern__store_kind_of("memory", NULL));
	CHECK(!postern__store_kind_of("memoryx:", NULL));
	CHECK(!postern__store_kind_named("redis"));
}

static void options_of_other_kinds(void) {
	static const struct postern_store_options others[] = {
		{ .size = sizeof others[0], .schema = "a" },
		{ .size = sizeof others[0], .connections = 3 },
		{ .size = sizeof others[0], .listen_url = "postgres:" },
	};
	for (size_t i = 0; i < 3; i++) {
		struct postern_error error = { 0 };
		CHECK_INT(postern__store_check("memory:", &others[i], &error),
				POSTERN_E_UNSUPPORTED);
		CHECK_CONTAINS(error.text, others[i].connections
										   ? "stores on a server only"
										   : "stores in PostgreSQL only");
		CHECK_INT(postern__store_check("sqlite:a", &others[i], &error),
				POSTERN_E_UNSUPPORTED);
	}
}

static void places(void) {
	CHECK_STR(postern__store_same_place("sqlite:a.db", NULL, "sqlite:./a.db",
					  NULL),
			"file");
	CHECK(!postern__store_same_place("sqlite:a.db", NULL, "sqlite:b.db", NULL));
	CHECK(!postern__store_same_place("memory:", NULL, "memory:", NULL));
	CHECK(!postern__store_same_place("sqlite:a.db", NULL, "memory:", NULL));
	CHECK(!postern__store_same_place("x:", NULL, "x:", NULL));
}

static void destroy_null(void) {
	postern_store_destroy(NULL); /* a crash would fail the case */
}

static const struct tap_case cases[] = {
	{ "a store is opened by the scheme of its URL", known },
	{ "an unknown kind is invalid, and the known ones are named", no_kind },
	{ "a planned kind is refused as not in this version", later_kinds },
	{ "an error never quotes what follows the scheme", secrets },
	{ "a memory store has no name and cannot be opened for reading",
			rest_of_memory },
	{ "options without their size are refused", options_without_size },
	{ "missing options of an older program get their defaults", older_options },
	{ "the schema of a store is a text, empty if the store has none", schemas },
	{ "the row of a kind has the functions of its capabilities", capabilities },
	{ "an option that only other kinds have is refused",
			options_of_other_kinds },
	{ "two URLs of one file or schema are the same place", places },
	{ "destroying NULL does nothing", destroy_null },
};

TAP_MAIN(cases)
