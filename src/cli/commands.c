/* SPDX-License-Identifier: MIT */
/*
 * The commands, one row each. The parser and the help know only these rows;
 * each command's function is in a file of its own.
 */

#include <postern/inspect.h>
#include <string.h>

#include "cli/args.h"
#include "cli/command.h"

/* clang-format off */

#define END { 0 }

#define IN \
	{ "in", 0, false, "STORE", "only the store with this name in the configuration" }

#define SERVER \
	{ "server", 0, false, "URL", "ask the server at http://HOST:PORT, https://HOST:PORT or unix:PATH, and read no configuration; $POSTERN_SERVER" }, \
	{ "token-file", 0, false, "FILE", "the file with the token for that server; $POSTERN_TOKEN_FILE" }, \
	{ "ca-file", 0, false, "FILE", "the certificates to trust for https, in place of the system's; $POSTERN_CA_FILE" }

#define FILTERS(states) \
	SERVER, IN, \
	{ "state", 0, false, "STATE", states ", or retrying: pending after a failure" }, \
	{ "channel", 0, false, "CHANNEL", "only this channel" }, \
	{ "handler", 0, false, "HANDLER", "only this handler, by its key or a legacy key" }, \
	{ "type", 0, false, "TYPE", "only this message type; '*' stands for anything" }, \
	{ "source", 0, false, "SOURCE", "only messages from this source" }, \
	{ "since", 0, false, "WHEN", "received since a time ago such as 15m or 7d, or since a time such as 2026-01-31T08:00:00Z" }, \
	{ "until", 0, false, "WHEN", "received before that time" }, \
	{ "older-than", 0, false, "AGE", "received longer ago than 15m, 7d, …; the same as --until" }, \
	{ "error", 0, false, "TEXT", "the last error contains this text, regardless of case" }, \
	{ "group", 0, false, "GROUP", "the last error is of this group; see 'postern list --group-by error'" }, \
	{ "oldest", 0, false, NULL, "the oldest message first" }

#define WORDS \
	{ "reason", 0, false, "TEXT", "why, up to 500 bytes: for the log and 'postern stats'" }, \
	{ "by", 0, false, "NAME", "who makes the change; user@host if left out" }

#define BULK \
	WORDS, \
	{ "id", 0, false, "ID", "the message with this id, even if it looks like a number: '#7'" }, \
	{ "seq", 0, false, "N", "the message with this number, instead of its id" }, \
	{ "limit", 0, false, "N", "the most deliveries to change; 1000 if left out" }, \
	{ "dry-run", 'n', false, NULL, "only print how many deliveries match" }, \
	{ "yes", 'y', false, NULL, "do not ask for confirmation; required without a terminal" }

static const struct postern__flag common_flags[] = {
	{ "config", 'c', false, "FILE", "the configuration file; if left out: $POSTERN_CONFIG, ./postern.yaml, /etc/postern/postern.yaml" },
	{ "json", 0, false, NULL, "print the result as JSON" },
	{ "help", 'h', false, NULL, "print the help of the command" },
	END
};

static const struct postern__flag no_flags[] = { END };

static const struct postern__flag in_flags[] = { SERVER, IN, END };

static const struct postern__flag pause_flags[] = {
	{ "for", 0, false, "DURATION", "resume by itself after this long, such as 90s, 15m, 2h or 7d" },
	SERVER, WORDS, IN, END
};

static const struct postern__flag halt_flags[] = { SERVER, WORDS, IN, END };

static const struct postern__flag serve_flags[] = {
	{ "demo", 0, false, NULL, "serve a built-in configuration and print commands to try" },
	{ "verbose", 'v', false, NULL, "log more" },
	END
};

static const struct postern__flag check_flags[] = {
	{ "print", 0, false, NULL, "print every option's value and where it was set" },
	{ "max-poisoned", 0, false, "N", "exit with 5 if more deliveries of a store are poisoned" },
	{ "max-age", 0, false, "DURATION", "exit with 5 if a message with a pending delivery is older, such as 5m" },
	IN,
	END
};

static const struct postern__flag migrate_flags[] = {
	{ "print", 0, false, NULL, "print the SQL of the schema and change nothing" },
	{ "accept-key-change", 0, false, "CHANNEL", "confirm that the keys of CHANNEL and its handlers are made by other rules now" },
	IN,
	END
};

static const struct postern__flag send_flags[] = {
	SERVER,
	{ "id", 0, false, "ID", "the id of the message; a random UUID if left out" },
	{ "type", 't', false, "TYPE", "the type of the message, by which handlers choose; 'message' if left out" },
	{ "source", 0, false, "SOURCE", "the source of the message; the channel's name if left out" },
	{ "subject", 0, false, "SUBJECT", "the subject of the message" },
	{ "time", 0, false, "TIME", "the time of the event, such as 2026-01-31T08:00:00Z" },
	{ "content-type", 0, false, "TYPE", "the media type of the body" },
	{ "correlation-id", 0, false, "ID", "the correlation id of the message" },
	{ "traceparent", 0, false, "TEXT", "the trace of the message, as in W3C Trace Context" },
	{ "header", 'H', true, "NAME=VALUE", "a header; may be given more than once" },
	{ "body", 'b', false, "TEXT", "the body, instead of FILE" },
	{ "lines", 0, false, "FILE", "send each line of FILE, a CloudEvent in JSON; '-' is standard input" },
	{ "in", 0, false, "STORE", NULL }, /* known, so that the error can explain why it is refused */
	END
};

static const struct postern__flag process_flags[] = {
	{ "max", 0, false, "N", "run at most N deliveries; no limit if left out" },
	{ "ignore-failures", 0, false, NULL, "exit with 0 although some failed" },
	IN,
	END
};

static const struct postern__flag list_flags[] = {
	FILTERS("pending (waiting, held), leased (queued, running, stuck), done, poisoned, discarded, parked"),
	{ "id", 0, false, "ID", "only messages with this id" },
	{ "limit", 0, false, "N", "the most deliveries to list, up to 10000; 100 if left out" },
	{ "cursor", 0, false, "CURSOR", "continue where the last listing ended" },
	{ "group-by", 0, false, "error", "count the deliveries that failed, by group of errors: texts that differ only in numbers, ids and quoted values" },
	END
};

static const struct postern__flag show_flags[] = {
	SERVER,
	{ "source", 0, false, "SOURCE", "choose by source if several messages have the id" },
	{ "channel", 0, false, "CHANNEL", "choose by channel if several messages have the id" },
	{ "id", 0, false, "ID", "the message with this id, even if it looks like a number: '#7'" },
	{ "seq", 0, false, "N", "the message with this number, instead of its id" },
	{ "body", 0, false, NULL, "print the body, byte for byte, and nothing else" },
	IN,
	END
};

static const struct postern__flag key_flags[] = {
	{ "raw", 0, false, NULL, "FILE is a body by itself, and its attributes are flags" },
	{ "id", 0, false, "ID", "with --raw: the id of the message" },
	{ "type", 't', false, "TYPE", "with --raw: the type of the message; 'message' if left out" },
	{ "source", 0, false, "SOURCE", "with --raw: the source of the message; the channel's name if left out" },
	{ "correlation-id", 0, false, "ID", "with --raw: the correlation id of the message" },
	{ "header", 'H', true, "NAME=VALUE", "with --raw: a header; may be given more than once" },
	END
};

static const struct postern__flag mark_flags[] = {
	SERVER,
	{ "duplicate-exit", 0, false, "N", "exit with N, 0 to 255, if try finds that it was done; 0 if left out" },
	{ "older-than", 0, false, "DURATION", "forget what was done longer ago, such as 7d; for expire" },
	IN,
	END
};

static const struct postern__flag once_flags[] = {
	{ "duplicate-exit", 0, false, "N", "exit with N, 0 to 255, if it was done before; 0 if left out" },
	{ "lease", 0, false, "DURATION", "how long the key stays taken if this command is killed; renewed while CMD runs; 30s if left out" },
	{ "wait", 0, false, "DURATION", "how long to wait if it is being done now; not at all if left out" },
	IN,
	END
};

static const struct postern__flag bench_flags[] = {
	{ "messages", 0, false, "N", "messages to send, copies included; 100000 if left out" },
	{ "batch", 0, false, "N", "messages per batch, up to 10000; 1000 if left out" },
	{ "senders", 0, false, "N", "threads that send at the same time, up to 256; 1 if left out" },
	{ "channels", 0, false, "N", "channels with a handler each, up to 1000; the messages go to one of them; 1 if left out" },
	{ "hung", 0, false, "N", "handlers that hang meanwhile, programs and functions, up to 200, and one that is slow" },
	{ "duplicates", 0, false, "PERCENT", "share of the messages that are copies of an earlier one; 10% if left out" },
	{ "handler", 0, false, "callback|sql|exec|none", "handler of the messages: a function that does nothing, one INSERT, the program /bin/true, or no handler; callback if left out" },
	{ "key", 0, false, "RULE", "the key rule of the messages, such as json:/id, their id as a member of the body; id if left out" },
	{ "rate", 0, false, "N", "messages per second, sent one by one, to measure latency" },
	{ "drain", 0, false, NULL, "accept all messages before the first is delivered" },
	{ "shared", 0, false, NULL, "accept a store that has been used, because other processes run the same benchmark on it; ends when no delivery is open" },
	END
};

static const struct postern__flag retry_flags[] = {
	FILTERS("pending, poisoned, discarded"), BULK, END
};

static const struct postern__flag discard_flags[] = {
	FILTERS("pending, poisoned, parked"), BULK, END
};

static const struct postern__flag cancel_flags[] = {
	SERVER, IN, WORDS,
	{ "handler", 0, false, "HANDLER", "only the run of this handler, by its key or a legacy key" },
	{ "channel", 0, false, "CHANNEL", "only a message of this channel" },
	{ "source", 0, false, "SOURCE", "only a message from this source" },
	{ "id", 0, false, "ID", "the message with this id, even if it looks like a number: '#7'" },
	{ "seq", 0, false, "N", "the message with this number, instead of its id" },
	{ "uncounted", 0, false, NULL, "count no failure; the next run waits its backoff nevertheless" },
	END
};

static const struct postern__command commands[] = {
	{
		.name = "serve", .operands = "", .flags = serve_flags,
		.options = POSTERN__OPTIONS_ALL,
		.help = "run the server",
		.about =
			"Runs the handlers of all stores. The server owns the files of its SQLite\n"
			"stores and answers the other commands through sockets beside them; it shares a\n"
			"database with other servers. At SIGTERM and SIGINT running handlers may finish\n"
			"(shutdown_grace), and all other leases are returned.\n"
			"Logs go to stderr, as JSON lines with --json or if stderr is not a terminal.",
		.examples =
			"postern serve --demo\n"
			"postern serve -c postern.yaml",
		.run = postern__command_serve,
	},
	{
		.name = "init", .operands = "", .flags = no_flags,
		.help = "write a commented postern.yaml and create the store",
		.about =
			"Writes the file that -c names, or ./postern.yaml, for the store that --store or\n"
			"--store-file names. A password in its URL is not written: put it into\n"
			"POSTERN_PASSWORD or ~/.pgpass. An existing file is not changed; its store is\n"
			"created if it is missing, and flags that name another store are refused. An\n"
			"existing store is not changed. Refused with exit status 4 while another process\n"
			"has the store's file open; a database is shared. With a configuration of your\n"
			"own use 'postern migrate'.",
		.examples =
			"postern init\n"
			"postern init -c /etc/postern/postern.yaml\n"
			"postern init --store postgres://orders@db.example/shop",
		.run = postern__command_init,
	},
	{
		.name = "check", .operands = "", .flags = check_flags,
		.help = "validate the configuration and check the store",
		.about =
			"Validates the configuration, refuses what serve would refuse, and checks the\n"
			"store, read-only, for problems: deliveries whose handler is no longer\n"
			"configured, ids that are forgotten before the last retry, programs that cannot\n"
			"be run, missing tables, a store whose settings do not guarantee durability, a\n"
			"server that is not healthy or was started with another configuration.\n"
			"Exits with 2 if the configuration is invalid, 1 if a problem was found, 4 if\n"
			"the store cannot be read, 5 if the running server is not healthy or a limit\n"
			"for monitoring (--max-poisoned, --max-age) is exceeded.",
		.examples =
			"postern check\n"
			"postern check --max-poisoned 0 --max-age 5m\n"
			"postern check -c new.yaml && cp new.yaml postern.yaml",
		.run = postern__command_check,
	},
	{
		.name = "migrate", .operands = "", .flags = migrate_flags,
		.help = "upgrade the store's schema, or print it",
		.about =
			"A missing store is created. Refused while another process has the store's file\n"
			"open; a database is shared. serve upgrades the schema automatically if its role\n"
			"has the right to. --print prints the whole schema without reading the store; the\n"
			"owner of a database can run that SQL instead of this command. In both cases run\n"
			"the GRANTs of docs/postgresql.md afterwards.",
		.examples =
			"postern migrate\n"
			"postern migrate --print | less\n"
			"postern migrate --print | psql -X -v ON_ERROR_STOP=1 postgres://owner@db.example/shop",
		.run = postern__command_migrate,
	},
	{
		.name = "send", .asks_server = true, .operands = "CHANNEL [FILE]", .operand_min = 1, .operand_max = 2, .flags = send_flags,
		.help = "accept a message",
		.about =
			"Prints 'accepted' once the message is durable in the store, 'duplicate' if it\n"
			"was accepted before (both exit with 0), or 'conflict' (exit status 1) if a\n"
			"message with the same channel, source and id has another body.\n"
			"If no handler wants the type and the channel has 'unrouted: drop', the message\n"
			"is accepted and dropped, and the command prints that.\n"
			"The body is read from FILE, or from standard input if FILE is '-' or left out.\n"
			"In a loop that reads standard input, add '< /dev/null' or use --body.\n"
			"With --lines a whole file is sent, one CloudEvent in JSON per line, and a summary\n"
			"is printed. A line that is rejected or in conflict is reported with its number;\n"
			"the others are sent, and the exit status is 1. Sending the file again is\n"
			"harmless: what was accepted before is a duplicate.",
		.examples =
			"postern send orders --id 42 --type order.placed order.json\n"
			"echo '{\"n\":1}' | postern send orders --type order.placed --content-type application/json\n"
			"postern send orders --id 43 --header tenant=acme --body hello\n"
			"postern send orders --lines events.jsonl",
		.run = postern__command_send,
	},
	{
		.name = "process", .operands = "", .flags = process_flags,
		.help = "run what is due and return",
		.about =
			"Runs the configured handlers on this thread until no delivery is due, in one\n"
			"store after the other; made for cron. Prints how many were run, and how they\n"
			"ended unless all are done. The exit code is 1 if one failed, was poisoned or\n"
			"held its handler. Refused while another process has the store's file open; a\n"
			"database is shared.",
		.examples =
			"postern process\n"
			"postern process --max 100",
		.run = postern__command_process,
	},
	{
		.name = "list", .asks_server = true, .operands = "", .flags = list_flags,
		.help = "list deliveries, newest first",
		.about =
			"A message has one delivery for each handler that wants it; a parked message,\n"
			"which no handler wants yet, has one row without a handler. Several stores are\n"
			"listed one after the other.",
		.examples =
			"postern list --state poisoned --since 7d\n"
			"postern list --group-by error\n"
			"postern list --error 'connection refused' --oldest\n"
			"postern list --json --limit 1000 | jq -r '.[].message_id'",
		.run = postern__command_list,
	},
	{
		.name = "show", .asks_server = true, .operands = "[ID]", .operand_max = 1, .flags = show_flags,
		.help = "show one message with its deliveries and attempts",
		.about =
			"The message is named by its id, or by its number as '#7' or --seq 7; use --id\n"
			"for an id that looks like a number. If several messages have the id, they are\n"
			"listed: choose one with --source, --channel or --seq. Each store has its own\n"
			"numbers: if several stores have the number, choose one with --in.",
		.examples =
			"postern show 42\n"
			"postern show '#7' --json\n"
			"postern show 42 --body > order.json",
		.run = postern__command_show,
	},
	{
		.name = "retry", .asks_server = true, .operands = "[ID...]", .operand_max = POSTERN_FILTER_ID_COUNT_MAX, .flags = retry_flags,
		.help = "run deliveries again, now",
		.about =
			"With IDs (or '#N'), retries the messages' deliveries that are pending or\n"
			"poisoned, or those to --handler, which may also be discarded. Without an ID,\n"
			"retries all that the filters match, after printing how many and asking for\n"
			"confirmation; scripts use --yes. Deliveries that are done are not run again.",
		.examples =
			"postern retry 42 --handler charge-card\n"
			"postern retry --state poisoned --since 1d --dry-run\n"
			"postern retry --state poisoned --handler mail --yes\n"
			"postern retry --error 'connection refused' --oldest --limit 100 --yes",
		.run = postern__command_retry,
	},
	{
		.name = "cancel", .asks_server = true, .operands = "[ID]", .operand_max = 1, .flags = cancel_flags,
		.help = "end runs in progress, on whatever node",
		.about =
			"With an ID (or '#N'), cancels the message's runs, or the one of --handler: a\n"
			"program is killed, SQL is interrupted, a callback is asked to return. It counts as\n"
			"a failure, and the last attempt poisons the delivery, unless --uncounted is given;\n"
			"the delivery waits its backoff either way. Exit status 0: cancelled; 1: it has\n"
			"ended already, or does not run.",
		.examples =
			"postern cancel 42 --handler report --reason 'hangs'\n"
			"postern cancel 42 --uncounted",
		.run = postern__command_cancel,
	},
	{
		.name = "discard", .asks_server = true, .operands = "[ID...]", .operand_max = POSTERN_FILTER_ID_COUNT_MAX, .flags = discard_flags,
		.help = "end deliveries without running them",
		.about =
			"With IDs (or '#N'), discards the messages' deliveries that are pending,\n"
			"poisoned or parked, or those to --handler. Without an ID, discards all that\n"
			"the filters match, after printing how many and asking for confirmation; scripts use\n"
			"--yes.",
		.examples =
			"postern discard 42 --handler mail\n"
			"postern discard --state poisoned --type 'test.*' --yes",
		.run = postern__command_discard,
	},
	{
		.name = "pause", .asks_server = true, .operands = "HANDLER", .operand_min = 1, .operand_max = 1, .flags = pause_flags,
		.help = "stop delivering to a handler",
		.about =
			"Running deliveries finish; others wait, on all nodes. The pause is durable: it\n"
			"ends with 'postern resume' or, with --for, by itself, not with a restart.\n"
			"Pausing again replaces reason and end. 'postern stats' shows both.",
		.examples =
			"postern pause charge-card\n"
			"postern pause mail --for 2h --reason 'smtp down'",
		.run = postern__command_pause,
	},
	{
		.name = "resume", .asks_server = true, .operands = "HANDLER", .operand_min = 1, .operand_max = 1, .flags = halt_flags,
		.help = "resume delivering to a handler",
		.about = "Ends a 'postern pause'.",
		.examples = "postern resume charge-card",
		.run = postern__command_resume,
	},
	{
		.name = "channel", .asks_server = true, .operands = "close|open CHANNEL", .operand_min = 2, .operand_max = 2, .flags = halt_flags,
		.help = "close or open the intake of a channel",
		.about =
			"A closed channel accepts no messages, on any node: a send fails as unavailable\n"
			"(HTTP 503, 'postern send' exits with 4), sources wait, and published messages\n"
			"stay staged. Its deliveries go on. It is durable until the channel is\n"
			"opened.",
		.examples =
			"postern channel close orders --reason 'moving the database'\n"
			"postern channel open orders",
		.run = postern__command_channel,
	},
	{
		.name = "cleanup", .asks_server = true, .operands = "", .flags = in_flags,
		.help = "remove what has expired, now",
		.about =
			"A server does this automatically every 'cleanup_interval'. The 'retention' of\n"
			"each channel decides what expires: complete messages, and remembered ids.\n"
			"Poisoned and parked messages stay, and so do the ids of open deliveries.",
		.examples =
			"postern cleanup\n"
			"postern cleanup --json | jq .messages",
		.run = postern__command_cleanup,
	},
	{
		.name = "stats", .asks_server = true, .operands = "", .flags = in_flags,
		.help = "count messages and deliveries",
		.about =
			"Counts the messages of each channel and the deliveries of each handler. PENDING\n"
			"includes RETRYING, the pending deliveries that have failed before. Then lists\n"
			"the nodes, that is, the processes that work the store: its LEASED deliveries,\n"
			"when it last RENEWED its lease and UNTIL when it counts as live, and whether it\n"
			"is the node that responds ('this'), holds the lock of exclusive processing\n"
			"('processor'), waits for work ('sleeping'), or has not renewed its lease in time\n"
			"('late').",
		.examples =
			"postern stats\n"
			"postern stats --json | jq '.handlers[] | select(.poisoned > 0)'",
		.run = postern__command_stats,
	},
	{
		.name = "once", .operands = "HANDLER KEY -- CMD...", .operand_min = 3, .operand_max = POSTERN__ARGS_MAX, .flags = once_flags,
		.takes_store_name = true,
		.help = "run a command once for each key",
		.about =
			"Runs CMD unless HANDLER has done KEY before, and remembers that it was done if\n"
			"CMD exits with 0. HANDLER is any name for who does it and need not be\n"
			"configured. The exit status is that of CMD, 128 + N if signal N ended it, 127 if\n"
			"it was not found, 126 if it cannot be run. Without running CMD: 0 (or\n"
			"--duplicate-exit) if it was done before, 4 if it is being done now or the store\n"
			"cannot be reached.\n"
			"While CMD runs, its key is leased, and the store is open only for moments. If\n"
			"this command is killed, CMD gets SIGTERM and the lease ends by itself. If the\n"
			"lease was lost while CMD ran (the machine was suspended, the store was away),\n"
			"another one may have run: that is reported, and the exit status is 1 even if CMD\n"
			"exits with 0. If CMD succeeded and that cannot be recorded, it is 4.\n"
			"CMD has POSTERN_HANDLER, POSTERN_KEY and POSTERN_FENCE in its environment.\n"
			"--store may also be the name of a store in the configuration, or redis://HOST.",
		.examples =
			"postern once backup \"$(date +%F)\" -- /usr/local/bin/backup\n"
			"postern once invoice order-17 --wait 1m --duplicate-exit 9 -- ./send-invoice 17\n"
			"postern once nightly \"$(date +%F)\" --store postgres://jobs@db.example/jobs -- ./nightly",
		.run = postern__command_once,
	},
	{
		.name = "key", .operands = "test CHANNEL FILE", .operand_min = 3, .operand_max = 3, .flags = key_flags,
		.help = "show the keys that a message would have",
		.about =
			"Prints which rule of CHANNEL applies to the message in FILE ('-': standard\n"
			"input), the key that it makes, and the same for each handler with a rule of its\n"
			"own. FILE is a CloudEvent in JSON, or a body with --raw. Only the configuration\n"
			"is read: no store, no server. The exit status is 1 if a key is missing.",
		.examples =
			"postern key test orders event.json\n"
			"postern key test orders --raw --type order.placed order.json\n"
			"postern key test orders --raw --header X-Idempotency-Key=7 order.json",
		.run = postern__command_key,
	},
	{
		.name = "mark", .asks_server = true, .operands = "try|has|record|forget|expire [HANDLER [KEY]]", .operand_min = 1, .operand_max = 3, .flags = mark_flags,
		.takes_store_name = true,
		.help = "remember what was done, by hand",
		.about =
			"A marker says that HANDLER, any name for who does it, has done KEY.\n"
			"  try HANDLER KEY     prints 'first' and remembers it, or prints 'duplicate'\n"
			"  has HANDLER KEY     prints 'done', or 'unknown' with exit status 3\n"
			"  record HANDLER KEY  remembers it, whatever was known: prints 'recorded'\n"
			"  forget HANDLER KEY  prints 'forgotten', or 'unknown' with exit status 3\n"
			"  expire [HANDLER] --older-than D   forgets what was done longer ago, and prints\n"
			"                      how many\n"
			"If it is being done now (see 'postern once'), try prints 'busy' and exits with 4.\n"
			"The first store of the configuration that keeps markers is used; --in or --store\n"
			"names another one. A missing store is created.",
		.examples =
			"postern mark try import 2026-01-31.csv --duplicate-exit 9 && ./import 2026-01-31.csv\n"
			"postern mark has backup 2026-01-31\n"
			"postern mark expire backup --older-than 90d",
		.run = postern__command_mark,
	},
	{
		.name = "bench", .operands = "", .flags = bench_flags,
		.help = "measure how fast a new store accepts and delivers messages",
		.about =
			"Sends messages of 256 bytes with random ids, some of them twice, and delivers\n"
			"them to one handler, through the library, in this process. Each is durable\n"
			"before it counts as accepted, and its completion before it counts as completed.\n"
			"The store is filled and not removed; a store that has been used is refused. The\n"
			"latency is from the call that accepts a message (with --rate: from when it was\n"
			"due to be sent) to the start of its handler.\n"
			"On PostgreSQL name a schema that does not exist, ?schema=bench; it is created,\n"
			"and 'drop schema bench cascade' removes it. With --handler sql a table\n"
			"bench_effect is created where the role creates tables, usually in the schema\n"
			"public, and is not removed: 'drop table bench_effect'.",
		.examples =
			"postern bench --store sqlite:bench.db --messages 100000\n"
			"postern bench --store sqlite:bench2.db --batch 1 --senders 64 --json\n"
			"postern bench --store sqlite:bench3.db --rate 500 --messages 5000\n"
			"postern bench --store 'postgres://orders@db.example/shop?schema=bench'\n"
			"postern bench --store memory: --duplicates 0%",
		.run = postern__command_bench,
	},
	{
		.name = "version", .operands = "", .flags = no_flags,
		.options = POSTERN__OPTIONS_NONE,
		.help = "print the version and what is built in",
		.about = "Needs neither a configuration nor a store.",
		.examples = "postern version --json",
		.run = postern__command_version,
	},
	{
		.name = "help", .operands = "[COMMAND|options]", .operand_max = 1, .flags = no_flags,
		.options = POSTERN__OPTIONS_NONE,
		.help = "print the help of a command",
		.about =
			"'postern COMMAND --help' prints the same. 'postern help options' lists the\n"
			"options of the configuration; each is a flag of every command that reads one.",
		.examples =
			"postern help send\n"
			"postern help options",
		.run = postern__command_help,
	},
};

/* clang-format on */

/* Planned commands: the error says so, instead of "no command". */
static const char *const later[] = {
	"config",
	"explain",
	"replay",
	"retry-plan",
	"top",
	"verify",
};

const struct postern__command *postern__commands(size_t *count_out) {
	*count_out = sizeof commands / sizeof commands[0];
	return commands;
}

const struct postern__flag *postern__common_flags(void) {
	return common_flags;
}

const struct postern__command *postern__command_find(const char *name) {
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcmp(commands[i].name, name) == 0) {
			return &commands[i];
		}
	}
	return NULL;
}

bool postern__command_later(const char *name) {
	for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
		if (strcmp(later[i], name) == 0) {
			return true;
		}
	}
	return false;
}
