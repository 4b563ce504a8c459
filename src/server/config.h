/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_H
#define POSTERN_SERVER_CONFIG_H

/*
 * The configuration: postern.yaml, the environment and the flags, read once and
 * validated as a whole.
 *
 * flag > environment > file > default
 *
 * decides an option's global value; a value set in a store, a channel or a
 * handler overrides it there ("the nearest wins"). The file is the one named by
 * -c, else $POSTERN_CONFIG, else ./postern.yaml, else
 * /etc/postern/postern.yaml; without a file the defaults apply.
 *
 * Errors have the form "file:line:col: what is wrong, and what would be right",
 * or begin with "--lease" or "$POSTERN_LEASE" if the value came from there.
 * Every failure of the functions that read is an error of the configuration:
 * exit code 2.
 *
 * Relative paths in the file (sqlite:FILE, store_file) start at the directory
 * of the file, those of flags and variables at the current directory.
 *
 * Threads: a configuration never changes after it was loaded.
 */

#include <postern/box.h>
#include <postern/guard.h>
#include <postern/handler.h>
#include <postern/runner.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern__buf;
struct postern_store_options;
struct postern__auth;
struct postern__config;
struct postern__tls;
struct postern_source_kind;
struct postern__stores;
struct postern_source_setting;
struct postern_handler_kind;
struct postern_handler_setup;

#define POSTERN__CONFIG_BYTES_MAX ((size_t)1024 * 1024)

/* Receives a mistake or a warning. */
typedef void postern__config_remark(void *context, const char *text);

/* A flag of the command line: "lease" and "5m" for --lease 5m. The name may
   be written with '-' or '_', as postern__config_option.flag has it. */
struct postern__config_flag {
	const char *name;
	const char *value;
};

/* Zero the struct and set members. Borrowed for the call. */
struct postern__config_input {
	const char *path; /* -c; NULL: search */
	const struct postern__config_flag *flags;
	size_t flag_count;
	/* The built-in demonstration instead of a file (demo.h); not with `path`.
	 */
	bool demo;
	/* "NAME=VALUE", ended by NULL; NULL: the process's own. */
	char *const *environment;
	/* Files to look for, ended by NULL; NULL: the two named above. */
	const char *const *search;
	/* Called for each mistake, in the order of the file, then those of
	   variables and flags; may be NULL. */
	postern__config_remark *report;
	void *report_context;
};

/*
 * Find, read and validate the configuration. `error` is the first mistake.
 *
 * out  yours; end it with postern__config_destroy().
 */
int postern__config_load(const struct postern__config_input *input,
		struct postern__config **out, struct postern_error *error);

/*
 * The same for text that is in memory: `name` stands for the file in errors.
 * Of the input the flags and the environment are used; NULL: none at all.
 */
int postern__config_parse(const char *name, const char *text, size_t len,
		const struct postern__config_input *input, struct postern__config **out,
		struct postern_error *error);

/* NULL is fine. */
void postern__config_destroy(struct postern__config *config);

/* Where a value was set. */
enum postern__config_source {
	POSTERN__CONFIG_DEFAULT = 0,
	POSTERN__CONFIG_FILE,
	POSTERN__CONFIG_ENVIRONMENT,
	POSTERN__CONFIG_FLAG,
	POSTERN__CONFIG_KIND /* the default of the handler's kind */
};

struct postern__config_origin {
	enum postern__config_source source;
	unsigned level;  /* 0 global, 1 store, 2 channel, 3 handler */
	unsigned line;   /* from 1; 0 unless it is the file */
	unsigned column; /* from 1, in characters */
	bool is_file;    /* set as NAME_file */
	bool bad;        /* the value is a mistake; only while the file is read */
};

/* More than there are options. */
#define POSTERN__CONFIG_OPTION_COUNT_MAX 64

/*
 * A value for each option, one member per row of the table in
 * config_options.c: global ones, a store's, a channel's, or a handler's, each
 * with all that it inherits. Units and meanings as in the public options
 * structs.
 */
struct postern__config_values {
	/* Options of the process: global only. */
	const char *listen; /* addresses with commas between them; NULL: none */
	const char *ingest_listen;
	const char *listen_mode;   /* of sockets, in octal */
	const char *listen_group;  /* NULL: none */
	const char *hosts;         /* names with commas; NULL: none */
	const char *tls_cert_file; /* NULL: no TLS */
	const char *tls_key_file;
	int64_t shutdown_grace_ms;
	bool metrics;
	uint64_t memory_max;
	int64_t health_degraded_ms; /* 0: none */
	int64_t health_unhealthy_ms;

	/* Options of a store. */
	const char *store; /* its URL; may hold secrets: redact it */
	uint32_t workers;
	uint32_t max_workers;
	int64_t polling_interval_ms;
	int64_t restart_delay_ms;
	uint32_t batch_size;
	int64_t command_timeout_ms;
	uint32_t command_retries;
	const char *schema;
	uint32_t connections;
	const char *listen_url; /* NULL: none; may hold secrets: redact it */
	uint32_t run_queue_max;
	uint64_t run_queue_bytes_max;
	int require_inbox; /* enum postern_require_inbox */
	int orphans;       /* enum postern_orphans */
	int processing;    /* enum postern_processing */
	const char *lock_name;
	int64_t lock_acquire_timeout_ms;
	int64_t node_lease_ms;
	const char *cleanup_lock_name;
	int64_t cleanup_interval_ms;
	uint32_t cleanup_batch;

	/* Options of a delivery: a handler may have its own. */
	uint32_t max_attempts;
	uint32_t max_crashes;
	int64_t max_retry_delay_ms;
	const int64_t *backoff_ms; /* NULL: exponential */
	size_t backoff_count;
	int64_t timeout_ms; /* POSTERN_TIMEOUT_DEFAULT unless set */
	int64_t lease_ms;
	uint32_t concurrency; /* 0: none */
	uint32_t commit_batch;
	int on_poisoned_duplicate; /* enum postern_poisoned_duplicate */
	int on_broken;             /* enum postern_on_broken */
	uint32_t break_after;      /* 0: never */
	const char *rate;          /* NULL: none */
	uint32_t burst;            /* 0: none */

	/* Options of a channel. */
	uint64_t max_message_size;
	int64_t retention_payload_ms; /* 0: none */
	int64_t retention_dedupe_ms;
	int dedupe; /* enum postern_dedupe */
	uint32_t dedupe_max;
	int unrouted;    /* enum postern_unrouted */
	int on_conflict; /* enum postern_on_conflict */
	int missing_key; /* enum postern_missing_key */
	bool allow_without_inbox;
	int mode; /* enum postern_channel_mode */
	int64_t guard_wait_ms;
	const char *marker;        /* NULL: one for each handler */
	const char *fault_channel; /* NULL: none */

	/* In the order of the option table. */
	struct postern__config_origin origins[POSTERN__CONFIG_OPTION_COUNT_MAX];
};

/* Stores of one process: each has threads and memory of its own. */
#define POSTERN__STORE_COUNT_MAX 16
#define POSTERN__STORE_NAME_LEN_MAX 64

/* The name of the store that `store: URL` configures. */
#define POSTERN__STORE_DEFAULT "default"

struct postern__config_store {
	const char *name;
	unsigned line; /* 0: not in the file */
	unsigned column;
	struct postern__config_values values;
	/* The names of the values, with the store's name instead of "{store}". */
	const char *lock_name;
	const char *cleanup_lock_name;
};

/* An address to listen on: "unix:PATH", "systemd:NAME", or one of TCP. */
#define POSTERN__LISTEN_PREFIX "unix:"
/* Sockets that a service manager has passed: alone, or with ":NAME". */
#define POSTERN__LISTEN_PASSED "systemd"
#define POSTERN__LISTEN_COUNT_MAX 8
#define POSTERN__LISTEN_LEN_MAX 200
struct postern__config_listen {
	const char *text;
	bool ingest_only;
};

struct postern__config_handler {
	const char *key;
	unsigned line;
	unsigned column;
	const char *const *legacy_keys;
	size_t legacy_key_count;
	const char *const *types;
	size_t type_count;
	const struct postern_key_rule *key_rules;
	size_t key_rule_count;
	const struct postern_handler_kind *kind;
	const void *settings; /* the struct of the kind's options */
	struct postern__config_values values;
};

struct postern__config_channel_source {
	const char *name; /* unique in the configuration */
	unsigned line;
	const struct postern_source_kind *kind;
	const struct postern_source_setting *settings; /* as they are written */
	size_t setting_count;
	const struct postern__config_channel_source *next; /* the one read before */
};

struct postern__config_channel {
	const char *name;
	unsigned line;
	unsigned column;
	const char *const *former_names;
	size_t former_name_count;
	const struct postern_key_rule *key_rules;
	size_t key_rule_count;
	/* Of the mode `guard`: what is guarded; neither: everything. */
	const char *const *guarded_types;
	size_t guarded_type_count;
	const char *const *guarded_handlers;
	size_t guarded_handler_count;
	const struct postern__config_store *store;
	struct postern__config_handler *handlers;
	size_t handler_count;
	const struct postern__config_channel_source *sources;
	size_t source_count;
	bool staged; /* `sources` has the entry "staged" */
	struct postern__config_values values;
};

/* The results live as long as the configuration. */
const struct postern__config_values *postern__config_global(
		const struct postern__config *config);
/* The addresses to listen on: those of `listen`, then those of
   `ingest_listen`. NULL past the last. */
size_t postern__config_listen_count(const struct postern__config *config);
const struct postern__config_listen *
postern__config_listen(const struct postern__config *config, size_t index);
/* The tokens and the hosts. */
void postern__config_auth(const struct postern__config *config,
		struct postern__auth *out);
/*
 * Load the certificate and the key, as they are now.
 *
 * out  yours, to be released; NULL: the server speaks no TLS.
 */
int postern__config_tls(const struct postern__config *config,
		struct postern__tls **out, struct postern_error *error);
/* The path of "unix:PATH"; NULL: it is an address of TCP. */
const char *postern__listen_path(const char *address);
/* The name of "systemd:NAME", "" of "systemd"; NULL: it is another address. */
const char *postern__listen_passed(const char *address);
/* There is at least one; NULL past the last. */
size_t postern__config_store_count(const struct postern__config *config);
const struct postern__config_store *
postern__config_store(const struct postern__config *config, size_t index);
/* Whether the store has a box: it keeps messages, or has channels, which then
   store none. */
bool postern__config_store_has_box(const struct postern__config *config,
		const struct postern__config_store *store);
/* The store with this name; NULL if there is none. Then *near_out (may be NULL)
   is the closest name, or NULL. */
const struct postern__config_store *
postern__config_store_named(const struct postern__config *config,
		const char *name, const char **near_out);
size_t postern__config_channel_count(const struct postern__config *config);
const struct postern__config_channel *
postern__config_channel(const struct postern__config *config, size_t index);
/* The channel with this name or former name; NULL if there is none. */
bool postern__config_channel_has_name(const struct postern__config_channel
											  *channel,
		const char *name);
const struct postern__config_channel *
postern__config_channel_named(const struct postern__config *config,
		const char *name);
/* Where handlers find the open stores of this process; before they are created.
   NULL, as at first: this is no server. */
void postern__config_set_opened(struct postern__config *config,
		const struct postern__stores *stores);
/* Whether require_inbox concerns the channel. */
bool postern__config_lacks_inbox(const struct postern__config_channel *channel);
/* How long the handler's own keys are remembered; 0: as the channel says, whose
   retention is not inherited as the handler's own. */
int64_t postern__config_dedupe_ms(
		const struct postern__config_handler *handler);
/* The handler with this key or legacy key; NULL if there is none. */
const struct postern__config_handler *
postern__config_handler_named(const struct postern__config *config,
		const char *key);
/* A handler, for the functions of its kind. A caller of check() adds the file
   or the connection of the store. */
void postern__config_handler_setup(const struct postern__config_handler
										   *handler,
		struct postern_handler_setup *out);
/* The file that was read; NULL if only defaults apply; "(demo)". */
const char *postern__config_name(const struct postern__config *config);
/* Whether no file was found, and no store was named in another way: perhaps a
   command was started in the wrong directory. */
bool postern__config_is_missing(const struct postern__config *config);
#define POSTERN__CONFIG_MISSING_TEXT \
	"no configuration was found (./postern.yaml, /etc/postern/postern.yaml)"

/* Warnings: settings that are valid but probably a mistake, as sentences. At
   most POSTERN__CONFIG_WARNING_COUNT_MAX are kept. NULL past the last. */
#define POSTERN__CONFIG_WARNING_COUNT_MAX 8
const char *postern__config_warning(const struct postern__config *config,
		size_t index);

/*
 * Zero the options, set `size` and all that the configuration has for a store.
 * Other members (read_only, must_exist, listener, clock, …) are left zero for
 * the caller to set.
 */
void postern__config_box_options(const struct postern__config_store *store,
		struct postern_box_options *out);
void postern__config_runner_options(const struct postern__config_store *store,
		struct postern_runner_options *out);
/* For the markers of a store that keeps nothing else. */
void postern__config_guard_options(const struct postern__config_store *store,
		struct postern_guard_options *out);

/* The options of the box that concern its store, for functions that need no
   box. */
void postern__config_store_options(const struct postern__config_store *store,
		struct postern_store_options *out);

/* The schema of a store, from the URL or the setting; "" if it has none. */
void postern__config_schema_name(const struct postern__config_store *store,
		char *out, size_t size);

/*
 * Add every channel of a store and its handlers to its box, which is open and
 * not started. An error of the box is returned with the file:line:col of its
 * channel or handler in front.
 */
int postern__config_apply(const struct postern__config *config,
		const struct postern__config_store *store, struct postern_box *box,
		struct postern_error *error);

/* The same as a new generation of a box that has been started.
   out  yours, for postern_box_replace_taking(). */
int postern__config_generation(const struct postern__config *config,
		const struct postern__config_store *store, struct postern_box *box,
		struct postern_generation **out, struct postern_error *error);

/* Put "store 'NAME': " in front of the text in `error` (may be NULL), if there
   are several stores. Returns `code`. */
int postern__config_store_fail(const struct postern__config *config,
		const struct postern__config_store *store, int code,
		struct postern_error *error);

/*
 * Whether the handlers could be added to boxes on the configured stores,
 * without opening them: called before a store is created. What depends on the
 * file alone was validated when it was read; this checks the programs as they
 * are now, and the stores: one of them must have a file, which a server needs.
 * A missing program is valid, because it may be installed later.
 *
 * report  called for each mistake; may be NULL.
 * error   the first mistake; may be NULL.
 *
 * `serve` starts, and `check` accepts, only what loads and passes this.
 */
int postern__config_check(const struct postern__config *config,
		postern__config_remark *report, void *context,
		struct postern_error *error);

/*
 * Report the warnings that a server would log at its start and that need no
 * store: ids that are forgotten too soon.
 */
void postern__config_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context);

/* Report sources whose settings are valid and may lose messages. */
void postern__config_source_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context);

/* Report a certificate that is not valid, or not for much longer. */
void postern__config_tls_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context);

/* Report key rules that are valid and probably not what was meant. */
void postern__config_key_notes(const struct postern__config *config,
		postern__config_remark *note, void *context);

/*
 * Append the effective configuration: each option's value, and where it was
 * set; for channels and handlers their own values. Secrets are redacted. As one
 * JSON object (no newline after it), or for people, as lines that can be pasted
 * into a file, with comments for what is not shown. Errors are the buffer's; 8
 * MiB are enough for any configuration.
 */
void postern__config_print(const struct postern__config *config, bool json,
		struct postern__buf *out);

/*
 * One global option, for --help and for parsing the command line. Each has one
 * value. Options with a secret are listed twice: `store` and `store_file`.
 */
struct postern__config_option {
	const char *name;        /* "max_attempts" */
	const char *flag;        /* "max-attempts", without the dashes */
	const char *environment; /* "POSTERN_MAX_ATTEMPTS" */
	const char *value_name;  /* "COUNT", "DURATION", "none|warn|fail", … */
	const char *fallback;    /* "5"; "" if there is none */
	const char *help;        /* a few words, no full stop */
	/* Known, but only its default is in this version: not in the help. */
	bool later;
	bool secret; /* its value may contain a secret */
};

/* False past the last one; otherwise *out is filled with static strings. */
bool postern__config_option_get(size_t index,
		struct postern__config_option *out);

/* The index of the option of a flag, without the dashes; false if there is
   none. Then *near_out (may be NULL) is the closest flag, or NULL. */
bool postern__config_option_find(const char *flag, size_t *index_out,
		const char **near_out);

/* What `postern serve --demo` serves is called so in errors. */
#define POSTERN__CONFIG_DEMO_NAME "(demo)"

#endif
