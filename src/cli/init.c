/* SPDX-License-Identifier: MIT */
/*
 * `postern init`: a configuration to start from, and its store.
 */

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/redact.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/own_store.h"
#include "cli/reply.h"
#include "cli/sample.h"
#include "server/config.h"
#include "server/config_path.h"
#include "server/store_open.h"
#include "store/store.h"

#define FILE_DEFAULT "postern.yaml"

/* Not readable by other users: people will write secrets into it. */
#define FILE_MODE 0600

static bool write_all(int fd, const char *text, size_t len) {
	while (len > 0) {
		ssize_t done = write(fd, text, len);
		if (done < 0 && errno != EINTR) {
			return false;
		}
		if (done > 0) {
			text += done;
			len -= (size_t)done;
		}
	}
	return fsync(fd) == 0;
}

/* Write the file unless it exists. An incomplete file is removed. */
static int write_file(const char *path, const struct postern__buf *text,
		bool *written_out) {
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
	if (fd < 0 && errno == EEXIST) {
		*written_out = false;
		return POSTERN__EXIT_OK;
	}
	bool good = fd >= 0 && write_all(fd, postern__buf_text(text), text->len);
	int reason = errno;
	if (fd >= 0) {
		good = close(fd) == 0 && good;
	}
	if (!good) {
		if (fd >= 0) {
			(void)unlink(path); /* created above, and incomplete */
		}
		postern__err_print("init: cannot write '%s': %s", path,
				strerror(reason));
		return POSTERN__EXIT_FAILED;
	}
	*written_out = true;
	return POSTERN__EXIT_OK;
}

/* Paths of flags are relative to the working directory, paths in the file to
   the file's directory. */
static int resolve_paths(const char *path, struct postern__arena *arena,
		struct postern__sample_wishes *wishes, struct postern_error *error) {
	const char *base;
	int r = postern__config_path_base(path, arena, &base, error);
	const char *file =
			wishes->store ? postern__store_file_at(wishes->store) : NULL;
	if (r == POSTERN_OK && file) {
		r = postern__config_path_resolve(base, POSTERN__CONFIG_FLAG,
				(size_t)(file - wishes->store), arena, &wishes->store, error);
	}
	if (r == POSTERN_OK && wishes->store_file) {
		r = postern__config_path_resolve(base, POSTERN__CONFIG_FLAG, 0, arena,
				&wishes->store_file, error);
	}
	return r;
}

/* The flags about the store are written into the file. A store in memory is
   refused later. */
static int make_text(const struct postern__cli *cli, const char *path,
		struct postern__buf *out) {
	struct postern__sample_wishes wishes = {
		.store = postern__args_value(&cli->args, "store"),
		.store_file = postern__args_value(&cli->args, "store-file"),
		.schema = postern__args_value(&cli->args, "schema"),
		.connections = postern__args_value(&cli->args, "connections"),
	};
	struct postern_error error;
	struct postern__arena arena;
	postern__arena_init(&arena);
	int r = wishes.store ? postern__store_url_check(wishes.store, &error)
						 : POSTERN_OK;
	if (r == POSTERN_OK) {
		r = resolve_paths(path, &arena, &wishes, &error);
	}
	if (r == POSTERN_OK) {
		r = postern__sample_write(&wishes, out, &error);
	}
	postern__arena_finish(&arena);
	return r == POSTERN_OK ? POSTERN__EXIT_OK
						   : postern__cli_usage(cli, "--store: %s", error.text);
}

/* How to encode the password that the file reads from the environment; NULL:
   there is none. */
static const char *find_secret(const char *text) {
	if (!strstr(text, "${POSTERN_PASSWORD")) {
		return NULL;
	}
	return strstr(text, "='${POSTERN_PASSWORD")
				   ? "with a \\ in front of each ' and \\"
				   : "as in a URL, with % as %25, @ as %40, / as %2F and ? as "
					 "%3F";
}

static void print_result(const struct postern__cli *cli, const char *path,
		bool written, const char *secret) {
	char store[POSTERN__OWN_LABEL_MAX];
	if (cli->json) {
		char schema[POSTERN_SCHEMA_NAME_MAX];
		postern__redact(cli->stores[0]->values.store, store, sizeof store);
		postern__config_schema_name(cli->stores[0], schema, sizeof schema);
		json_t *json = json_pack("{s:s, s:b, s:s, s:s*}", "config", path,
				"written", (int)written, "store", store, "schema",
				*schema ? schema : NULL);
		postern__reply_print(json);
		json_decref(json);
		return;
	}
	(void)printf("%s ", written ? "wrote" : "kept");
	postern__out_text(path);
	(void)putchar('\n');
	for (size_t i = 0; i < cli->store_count; i++) {
		postern__own_store_label(cli->stores[i], store);
		(void)fputs("store ", stdout);
		postern__out_text(store);
		(void)fputs(" is ready\n", stdout);
	}
	if (written && secret) {
		postern__note_print("the password is not in %s: set POSTERN_PASSWORD, "
							"written %s, or use ~/.pgpass",
				path, secret);
	}
	if (written) {
		postern__note_print("next: postern check, postern serve");
	} else {
		postern__err_print("note: %s exists and was not changed; to create "
						   "only its "
						   "store, use 'postern migrate'",
				path);
	}
}

/* Whether two stores are the same, apart from the password. */
static bool is_same(const struct postern__config_store *a,
		const struct postern__config_store *b) {
	char url[2][POSTERN__REDACT_TEXT_MAX];
	char schema[2][POSTERN_SCHEMA_NAME_MAX];
	postern__redact(a->values.store, url[0], sizeof url[0]);
	postern__redact(b->values.store, url[1], sizeof url[1]);
	postern__config_schema_name(a, schema[0], sizeof schema[0]);
	postern__config_schema_name(b, schema[1], sizeof schema[1]);
	return strcmp(url[0], url[1]) == 0 && strcmp(schema[0], schema[1]) == 0;
}

/* Flags about the store that an existing file does not have would apply to this
   command only, and the store that it creates would not be used again. */
static int check_kept(const struct postern__cli *cli, const char *path) {
	const struct postern__config_input input = { .path = path };
	struct postern__config *kept = NULL;
	struct postern_error error;
	char means[POSTERN__OWN_LABEL_MAX];
	char meant[POSTERN__OWN_LABEL_MAX];
	const char *count = postern__args_value(&cli->args, "connections");
	if (postern__config_load(&input, &kept, &error)) {
		postern__err_print("%s", error.text);
		return POSTERN__EXIT_USAGE;
	}
	const struct postern__config_store *before = postern__config_store(kept, 0);
	const struct postern__config_store *now =
			postern__config_store(cli->config, 0);
	int r = POSTERN__EXIT_OK;
	if (!is_same(before, now)) {
		postern__own_store_label(before, means);
		postern__own_store_label(now, meant);
		r = postern__cli_usage(cli,
				"%s exists, was not changed, and sets the store %s, not %s: "
				"change it in the file, or choose another file with -c; "
				"nothing was created",
				path, means, meant);
	} else if (count && before->values.connections != now->values.connections) {
		r = postern__cli_usage(cli,
				"%s exists, was not changed, and does not set 'connections: "
				"%s': add that to the file, or choose another file with -c",
				path, count);
	}
	postern__config_destroy(kept);
	return r;
}

static int create_store(const struct postern__cli *cli,
		const struct postern__config_store *store) {
	struct postern_box_options options;
	struct postern_box *box = NULL;
	postern__own_store_options(store, &options);
	int r = postern__own_store_open(cli, store, &options, &box);
	postern_box_destroy(box);
	return r;
}

/* An invalid file is not written. */
static int check_text(const struct postern__cli *cli, const char *path,
		const struct postern__buf *text) {
	struct postern__config_flag flags[POSTERN__ARGS_MAX];
	struct postern__config_input input;
	struct postern__config *config = NULL;
	struct postern_error error;
	postern__cli_input(cli, flags, &input);
	if (postern__config_parse(path, postern__buf_text(text), text->len, &input,
				&config, &error)) {
		postern__err_print("%s", error.text);
		return POSTERN__EXIT_USAGE;
	}
	postern__config_destroy(config);
	return POSTERN__EXIT_OK;
}

int postern__command_init(struct postern__cli *cli) {
	const char *path = postern__args_value(&cli->args, "config");
	struct postern__buf text;
	bool written = false;
	const char *secret = NULL;
	if (!path) {
		path = FILE_DEFAULT;
	}
	postern__buf_init(&text, POSTERN__CONFIG_BYTES_MAX);
	int r = make_text(cli, path, &text);
	if (r == POSTERN__EXIT_OK && access(path, F_OK) != 0) {
		r = check_text(cli, path, &text);
	}
	if (r == POSTERN__EXIT_OK) {
		secret = find_secret(postern__buf_text(&text));
		r = write_file(path, &text, &written);
	}
	postern__buf_finish(&text);
	if (r) {
		return r;
	}
	/* Load the file that was written or existed, and no other. */
	r = postern__cli_configure_from(cli, path);
	if (r == POSTERN__EXIT_OK && !written) {
		r = check_kept(cli, path);
	}
	if (r == POSTERN__EXIT_OK) {
		r = postern__cli_need_kept(cli);
	}
	for (size_t i = 0; r == POSTERN__EXIT_OK && i < cli->store_count; i++) {
		r = create_store(cli, cli->stores[i]);
	}
	if (r && written) {
		/* It could name another store than the one that was meant, and then
		   the next init would be refused. */
		(void)unlink(path);
		postern__note_print("init: %s was not written", path);
	}
	if (r == POSTERN__EXIT_OK) {
		print_result(cli, path, written, secret);
	}
	return r;
}
