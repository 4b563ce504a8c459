/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_KINDS_H
#define POSTERN_HANDLER_KINDS_H

/*
 * The handler kinds: a function of the program, an SQL text, a program of the
 * machine, and those that were registered. Everyone else finds a kind by its
 * name (registry.c) and uses its row; a handler is used through its ops
 * (sys/handler.h); end it with handler->ops->destroy(handler).
 *
 * An invalid definition fails at creation with POSTERN_E_INVALID; an error that
 * can only happen later becomes the outcome of a run.
 */

#include <postern/handler.h>
#include <postern/sys/handler.h>
#include <stdbool.h>
#include <stddef.h>

struct postern_error;

/* The kind of this name; NULL if there is none. */
const struct postern_handler_kind *postern__kind_find(const char *name);
/* The kinds in the order of their registration; NULL past the last. */
const struct postern_handler_kind *postern__kind_at(size_t index);

/* Whether a configuration writes the options as a mapping: there are several,
   without those beside it. */
bool postern__kind_has_mapping(const struct postern_handler_kind *kind);

/* The functions of a row, for a setup with its kind. validate() is called by
   create(), too, which also refuses ops that are not complete. */
int postern__kind_validate(const struct postern_handler_setup *setup,
		struct postern_error *error);
int postern__kind_create(const struct postern_handler_setup *setup,
		struct postern_handler **out, struct postern_error *error);
int postern__kind_check(const struct postern_handler_setup *setup,
		struct postern_error *error);

/* The rows of this library, and the settings of their handlers. */
extern const struct postern_handler_kind postern__callback_kind;
extern const struct postern_handler_kind postern__sql_kind;
extern const struct postern_handler_kind postern__exec_kind;
extern const struct postern_handler_kind postern__pull_kind;

/* A program without a configuration: there are no options. */
struct postern__callback_settings {
	postern_callback *function;
	void *context;
	bool transactional;
};

struct postern__sql_settings {
	const char *sql;
};

struct postern__pull_settings {
	int64_t lease_ms;
	uint32_t max;
};

struct postern__arena;
struct postern__process_user;

struct postern__exec_settings {
	const char *const *argv;
	size_t argc;
	const char *const *env; /* "NAME=value" */
	size_t env_count;
	const char *cwd;  /* NULL: "/" */
	const char *user; /* NULL: that of this process */
};

/* How the sql kind works in one dialect. */
struct postern__sql_engine {
	enum postern_sql_dialect dialect;
	int (*create)(const char *sql, struct postern_handler **out,
			struct postern_error *error);
	/* Whether the text could run on the store of the setup: codes as for the
	   check() of a kind. */
	int (*check)(const char *sql, const struct postern_handler_setup *setup,
			struct postern_error *error);
};

extern const struct postern__sql_engine postern__sql_engine_sqlite;
/* Only if libpq was found. */
extern const struct postern__sql_engine postern__sql_engine_postgres;
/* The engine of a dialect; NULL if there is none. */
const struct postern__sql_engine *postern__sql_engine_find(
		enum postern_sql_dialect dialect);

/* A program and its arguments. */
#define POSTERN__EXEC_ARG_COUNT_MAX 64
/* All arguments together, their zero bytes included. */
#define POSTERN__EXEC_ARGS_LEN_MAX 65536
/* The time from SIGTERM to SIGKILL. */
#define POSTERN__EXEC_GRACE_MS 1000

#define POSTERN__SQL_LEN_MAX 65536
#define POSTERN__SQL_STATEMENT_COUNT_MAX 32

/*
 * A function of the program. `context` is passed to it and stays the
 * caller's. It cannot be cancelled.
 */
int postern__callback_create(postern_callback *function, void *context,
		bool transactional, struct postern_handler **out,
		struct postern_error *error);

/*
 * SQL for SQLite, run inside the store's transaction: one or more statements,
 * with the message as named parameters, bound and never spliced.
 *
 *   :id :source :type :subject :time   text; NULL where absent
 *   :body        text: a body that is not UTF-8, or has a zero byte, is poison
 *   :body_json   the same text, and poison unless SQLite's json_valid() accepts
 *                it, to distinguish an invalid body from an invalid statement
 *   :body_bytes  blob, any bytes; x'' for an empty body
 *   :headers     text, a JSON object of texts; the values of a repeated name
 *                are joined with ", "
 *   :attempt     integer
 *
 * Rows are read and ignored. The outcome of a violated constraint is a retry,
 * because the data may change; that of a statement that cannot be prepared
 * (syntax, no such table) is hold; that of one that fails on this message (a
 * function that refuses its argument) is poison; that of an error of the store
 * is a snooze. Past the deadline a statement is interrupted and the
 * outcome is a retry; when the runner stops, no further statement starts and
 * the outcome is a snooze that is due at once.
 *
 * Refused here: empty SQL, over POSTERN__SQL_LEN_MAX bytes, over
 * POSTERN__SQL_STATEMENT_COUNT_MAX statements, unknown parameters, and
 * statements that end the transaction or outlive it (sql_params.h).
 *
 * Statements are prepared once per connection. The store finalizes all
 * statements of a connection before it closes it, so neither a new epoch nor
 * destroy() finalizes them. While its statements run, the handler uses the
 * connection's progress handler, and clears it afterwards.
 */
int postern__sql_create(const char *sql, struct postern_handler **out,
		struct postern_error *error);

/*
 * Whether SQLite can parse an SQL text that postern__sql_create() accepts:
 * POSTERN_E_INVALID with the line if not. Tables, columns and functions are not
 * checked, and nothing is run.
 */
int postern__sql_syntax_check(const char *sql, struct postern_error *error);

/*
 * As postern__sql_create(), for PostgreSQL; only if libpq was found. :body_json
 * and :headers are jsonb, :body_bytes is bytea; the server infers the types of
 * the others.
 */
int postern__sql_postgres_create(const char *sql, struct postern_handler **out,
		struct postern_error *error);

/*
 * Check such a text on the server, without running it: syntax errors, missing
 * tables, columns or functions, missing rights of the connection's user. Only
 * if libpq was found.
 *
 * connection  a PGconn *, in a transaction, whose state is not changed.
 *
 * POSTERN_E_INVALID      it could not run; the error has the line and reason
 * POSTERN_E_UNAVAILABLE  the connection is lost
 */
int postern__sql_explain(const char *sql, void *connection,
		struct postern_error *error);

/*
 * A program and its arguments, copied; no shell. argv[0] is an absolute path.
 *
 * The body is on stdin; the last line of stderr is the reason of a failure, or
 * the beginning of stdout if there is none. Exit code 0 is done, 65 and 100 are
 * poison, 69 is hold, any other code and every signal is a retry. The
 * environment has only:
 *
 *   PATH LANG                   fixed values, unless the handler has others
 *   HOME USER LOGNAME           if the handler names a user
 *   CE_ID CE_SOURCE CE_TYPE CE_SUBJECT CE_TIME CE_DATACONTENTTYPE
 *   CE_CORRELATIONID TRACEPARENT
 *                               of the message, where present; the trace has
 *                               a span of its own
 *   CE_HEADER_NAME              its other headers
 *   POSTERN_HANDLER POSTERN_CHANNEL POSTERN_ATTEMPT POSTERN_FENCE
 *
 * It runs as the leader of a session of its own, in "/" or the handler's
 * directory, as this user or the handler's, with umask 077, no
 * other open file, default signals, no core dumps, no way to gain privileges
 * (set-uid and set-gid programs run without them), and does not outlive this
 * process. When it ends, so does its process group. At the deadline, or when
 * cancelled, the group gets SIGTERM and POSTERN__EXEC_GRACE_MS later SIGKILL.
 *
 * Refused here: no program, a relative path, over the limits above, and what
 * postern__exec_check() refuses with POSTERN_E_INVALID. A missing program is
 * not refused, because it may be installed later: until then, runs end as
 * hold.
 */
int postern__exec_create(const struct postern__exec_settings *settings,
		struct postern_handler **out, struct postern_error *error);

/*
 * Find a user and its groups.
 *
 * out       in the arena; NULL: it is the user of this process.
 * home_out  its home, in the arena.
 *
 * POSTERN_E_INVALID  there is no such user, or this process may not become it
 */
int postern__exec_user_find(const char *name, struct postern__arena *arena,
		const struct postern__process_user **out, const char **home_out,
		struct postern_error *error);

/*
 * Whether the program can be run now.
 *
 * POSTERN_E_NOTFOUND     it is missing, or not an executable file
 * POSTERN_E_INVALID      any user may write to it or replace it: the file, its
 *                        directory or the directory of its link target is
 *                        writable by others (sticky directories are allowed)
 * POSTERN_E_UNAVAILABLE  the machine failed: I/O, memory, open files
 */
int postern__exec_check(const char *program, struct postern_error *error);

/*
 * The interpreter that a script names in its first line.
 *
 * POSTERN_E_NOTFOUND  the program is not a script, or cannot be read
 */
int postern__exec_interpreter(const char *program, char *out, size_t size);

/*
 * The outcome of a run whose program could not be executed, by its errno:
 * POSTERN_HOLD if the program is missing or cannot be executed, POSTERN_SNOOZE
 * if the machine lacks something, POSTERN_RETRY if the message is too large for
 * an environment.
 */
enum postern_outcome_kind postern__exec_outcome_of(int number);

/* Set an outcome with a formatted reason, sanitized and truncated. */
void postern__outcome_setf(struct postern_outcome *outcome,
		enum postern_outcome_kind kind, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

/* An error of this machine or the store: a snooze of
   POSTERN_HINDERED_DELAY_MS. */
void postern__outcome_unavailable(struct postern_outcome *outcome,
		const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
