/* SPDX-License-Identifier: MIT */
/*
 * The commands, one row each. What a row says is all that the parser and the
 * help know; what it does stands in a file of its own.
 */

#include <string.h>

#include "cli/command.h"

/* clang-format off */

#define END { 0 }

#define IN \
	{ "in", 0, false, "STORE", "of several stores only this one, by its name in the configuration" }

#define FILTERS(states) \
	IN, \
	{ "state", 0, false, "STATE", states ", or retrying: pending after a failure" }, \
	{ "channel", 0, false, "CHANNEL", "only this channel" }, \
	{ "handler", 0, false, "HANDLER", "only this handler, by its key or a legacy key" }, \
	{ "type", 0, false, "TYPE", "only this message type; '*' stands for anything" }, \
	{ "source", 0, false, "SOURCE", "only messages of this source" }, \
	{ "since", 0, false, "WHEN", "received since: 15m, 7d, or a time such as 2026-01-31T08:00:00Z" }, \
	{ "until", 0, false, "WHEN", "received before" }

#define BULK \
	{ "id", 0, false, "ID", "the message with this id, even if it looks like a number: '#7'" }, \
	{ "seq", 0, false, "N", "the message with this number, in place of its id" }, \
	{ "limit", 0, false, "N", "at most so many; 1000" }, \
	{ "dry-run", 'n', false, NULL, "only say how many there are" }, \
	{ "yes", 'y', false, NULL, "do not ask" }

static const struct postern__flag common_flags[] = {
	{ "config", 'c', false, "FILE", "the configuration; else $POSTERN_CONFIG, ./postern.yaml, /etc/postern/postern.yaml" },
	{ "json", 0, false, NULL, "print the result as JSON" },
	{ "help", 'h', false, NULL, "say what the command does" },
	END
};

static const struct postern__flag no_flags[] = { END };

static const struct postern__flag in_flags[] = { IN, END };

static const struct postern__flag serve_flags[] = {
	{ "demo", 0, false, NULL, "serve a built-in configuration and say what to try" },
	{ "verbose", 'v', false, NULL, "log more" },
	END
};

static const struct postern__flag check_flags[] = {
	{ "print", 0, false, NULL, "print every option's value and where it was said" },
	IN,
	END
};

static const struct postern__flag migrate_flags[] = {
	{ "print", 0, false, NULL, "print the SQL of the schema and change nothing" },
	IN,
	END
};

static const struct postern__flag send_flags[] = {
	{ "id", 0, false, "ID", "what identifies the message; a random UUID if left out" },
	{ "type", 't', false, "TYPE", "what kind of message it is; handlers choose by it; 'message' if left out" },
	{ "source", 0, false, "SOURCE", "where it comes from; the channel's name if left out" },
	{ "subject", 0, false, "SUBJECT", "what it is about" },
	{ "time", 0, false, "TIME", "when it happened, such as 2026-01-31T08:00:00Z" },
	{ "content-type", 0, false, "TYPE", "the media type of the body" },
	{ "correlation-id", 0, false, "ID", "what it belongs to" },
	{ "traceparent", 0, false, "TEXT", "the trace it belongs to, as in W3C Trace Context" },
	{ "header", 'H', true, "NAME=VALUE", "a header; may be given more than once" },
	{ "body", 'b', false, "TEXT", "the body, in place of FILE" },
	{ "in", 0, false, "STORE", NULL }, /* known, to say why it is refused */
	END
};

static const struct postern__flag process_flags[] = {
	{ "max", 0, false, "N", "run at most N deliveries; no limit if left out" },
	IN,
	END
};

static const struct postern__flag list_flags[] = {
	FILTERS("pending, leased, done, poisoned, discarded, parked"),
	{ "id", 0, false, "ID", "only messages with this id" },
	{ "limit", 0, false, "N", "at most so many, up to 10000; 100" },
	{ "cursor", 0, false, "CURSOR", "go on where the last listing ended" },
	END
};

static const struct postern__flag show_flags[] = {
	{ "source", 0, false, "SOURCE", "where several messages have the id: the one from this source" },
	{ "channel", 0, false, "CHANNEL", "where several messages have the id: the one in this channel" },
	{ "id", 0, false, "ID", "the message with this id, even if it looks like a number: '#7'" },
	{ "seq", 0, false, "N", "the message with this number, in place of its id" },
	{ "body", 0, false, NULL, "print the body, byte for byte, and nothing else" },
	IN,
	END
};

static const struct postern__flag bench_flags[] = {
	{ "messages", 0, false, "N", "how many to send, copies included; 100000" },
	{ "batch", 0, false, "N", "how many a sender sends at a time, up to 10000; 1000" },
	{ "senders", 0, false, "N", "how many send at the same time, up to 256; 1" },
	{ "duplicates", 0, false, "PERCENT", "how many of them are copies of an earlier one; 10%" },
	{ "handler", 0, false, "callback|sql|exec|none", "what they are delivered to: a function that does nothing, one INSERT, the program /bin/true, or nothing; callback" },
	{ "rate", 0, false, "N", "send so many per second, one by one, for a look at latency" },
	{ "drain", 0, false, NULL, "accept everything before anything is delivered" },
	{ "shared", 0, false, NULL, "take a store that has been used: other processes do the same on it; ends when nothing in it is open" },
	END
};

static const struct postern__flag retry_flags[] = {
	FILTERS("pending, poisoned, discarded"), BULK, END
};

static const struct postern__flag discard_flags[] = {
	FILTERS("pending, poisoned, parked"), BULK, END
};

static const struct postern__command commands[] = {
	{
		.name = "serve", .operands = "", .flags = serve_flags,
		.options = POSTERN__OPTIONS_ALL,
		.help = "run the server",
		.about =
			"Delivers what is in the stores. Files it takes for itself, and answers the\n"
			"other commands through sockets beside them; a database it shares with other\n"
			"servers. SIGTERM and SIGINT let what is running finish (shutdown_grace) and\n"
			"give everything else back.\n"
			"Logs go to stderr, as JSON lines with --json or where it is no terminal.",
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
			"--store-file names; a password in its URL is left to the environment\n"
			"(POSTERN_PASSWORD) or to ~/.pgpass, and not written. A file that is there is\n"
			"kept as it is, and its store is created if it is missing; flags that mean\n"
			"another store are refused. Nothing that is there is changed; while a server or\n"
			"another program has the store's file open, init is refused with exit status 4;\n"
			"a database is shared. With a configuration of your own 'postern migrate' is\n"
			"enough.",
		.examples =
			"postern init\n"
			"postern init -c /etc/postern/postern.yaml\n"
			"postern init --store postgres://orders@db.example/shop",
		.run = postern__command_init,
	},
	{
		.name = "check", .operands = "", .flags = check_flags,
		.help = "validate the configuration, also against the store",
		.about =
			"Reads the configuration and refuses what serve would. Then it looks into the\n"
			"store, if there is one, without changing it: deliveries whose handler is no\n"
			"longer configured and would be poisoned, ids that are forgotten before the last\n"
			"retry, programs that cannot be run, a store that does not keep what it promises,\n"
			"a server that is not well or has another configuration.\n"
			"Exits with 2 if the configuration is wrong, 1 if something was found, 4 if\n"
			"the store cannot be read, 5 if the running server is not well.",
		.examples =
			"postern check\n"
			"postern check -c new.yaml && cp new.yaml postern.yaml",
		.run = postern__command_check,
	},
	{
		.name = "migrate", .operands = "", .flags = migrate_flags,
		.help = "bring the store's schema up to date, or print it",
		.about =
			"A store that is missing is created. Refused while a server or another program\n"
			"has the store's file open; a database is shared. serve does it by itself, if\n"
			"its role has the right to. --print shows the whole schema, whatever the store\n"
			"has of it. For a database it can be run by its owner in place of this command;\n"
			"either way the GRANTs of docs/postgresql.md are to follow.",
		.examples =
			"postern migrate\n"
			"postern migrate --print | less\n"
			"postern migrate --print | psql -X -v ON_ERROR_STOP=1 postgres://owner@db.example/shop",
		.run = postern__command_migrate,
	},
	{
		.name = "send", .operands = "CHANNEL [FILE]", .operand_min = 1, .operand_max = 2, .flags = send_flags,
		.help = "accept a message",
		.about =
			"Prints 'accepted' when the message is safe in the store, 'duplicate' if it was\n"
			"before (both are a success), or 'conflict', with exit status 1, if another\n"
			"message has its identity: same channel, source and id, but another body.\n"
			"Where nobody wants its type and the channel says 'unrouted: drop', it is\n"
			"accepted, dropped, and that is said.\n"
			"The body is read from FILE, or from standard input if FILE is '-' or left out.\n"
			"In a loop that reads standard input, say '< /dev/null' or use --body.",
		.examples =
			"postern send orders --id 42 --type order.placed order.json\n"
			"echo '{\"n\":1}' | postern send orders --type order.placed --content-type application/json\n"
			"postern send orders --id 43 --header tenant=acme --body hello",
		.run = postern__command_send,
	},
	{
		.name = "process", .operands = "", .flags = process_flags,
		.help = "deliver what is due and return",
		.about =
			"For cron and the like: runs the configured handlers on this thread until\n"
			"nothing is due, in one store after the other. Refused while a server or another\n"
			"program has the store's file open; a database is shared.",
		.examples =
			"postern process\n"
			"postern process --max 100",
		.run = postern__command_process,
	},
	{
		.name = "list", .operands = "", .flags = list_flags,
		.help = "list deliveries, newest first",
		.about =
			"A message has one delivery for each handler that wants it; a parked one, which\n"
			"nobody wants yet, has one without a handler. Several stores are listed one\n"
			"after the other.",
		.examples =
			"postern list --state poisoned --since 7d\n"
			"postern list --json --limit 1000 | jq -r '.[].message_id'",
		.run = postern__command_list,
	},
	{
		.name = "show", .operands = "[ID]", .operand_max = 1, .flags = show_flags,
		.help = "show one message with its deliveries and attempts",
		.about =
			"The message is named by its id, or by its number as '#7' or --seq 7; an id that\n"
			"looks like that is given with --id. Where several have the id, they are listed;\n"
			"choose by --source, --channel or number. Numbers are those of a store: where\n"
			"several have one, choose by --in.",
		.examples =
			"postern show 42\n"
			"postern show '#7' --json\n"
			"postern show 42 --body > order.json",
		.run = postern__command_show,
	},
	{
		.name = "retry", .operands = "[ID]", .operand_max = 1, .flags = retry_flags,
		.help = "run deliveries again, now",
		.about =
			"With an ID (or '#N'), the message's deliveries that are pending or poisoned, or\n"
			"just the one to --handler, which may also be a discarded one. Without, all that\n"
			"the filters match, after saying how many; a script says --yes. What is done is\n"
			"not run again.",
		.examples =
			"postern retry 42 --handler charge-card\n"
			"postern retry --state poisoned --since 1d --dry-run\n"
			"postern retry --state poisoned --handler mail --yes",
		.run = postern__command_retry,
	},
	{
		.name = "discard", .operands = "[ID]", .operand_max = 1, .flags = discard_flags,
		.help = "end deliveries without running them",
		.about =
			"With an ID (or '#N'), the message's deliveries that are pending, poisoned or\n"
			"parked, or just the one to --handler. Without, all that the filters match,\n"
			"after saying how many; a script says --yes.",
		.examples =
			"postern discard 42 --handler mail\n"
			"postern discard --state poisoned --type 'test.*' --yes",
		.run = postern__command_discard,
	},
	{
		.name = "pause", .operands = "HANDLER", .operand_min = 1, .operand_max = 1, .flags = in_flags,
		.help = "stop delivering to a handler",
		.about =
			"What is running finishes; what comes in waits. It lasts, also over restarts,\n"
			"until 'postern resume'.",
		.examples = "postern pause charge-card",
		.run = postern__command_pause,
	},
	{
		.name = "resume", .operands = "HANDLER", .operand_min = 1, .operand_max = 1, .flags = in_flags,
		.help = "go on delivering to a handler",
		.about = "Ends what 'postern pause' began.",
		.examples = "postern resume charge-card",
		.run = postern__command_resume,
	},
	{
		.name = "cleanup", .operands = "", .flags = in_flags,
		.help = "remove what has expired, now",
		.about =
			"A server does so by itself every 'cleanup_interval'. What may go is said by\n"
			"'retention' of each channel: messages that are complete, and the memory of their\n"
			"ids. Poisoned and parked ones stay, and so do the ids of what is open.",
		.examples =
			"postern cleanup\n"
			"postern cleanup --json | jq .messages",
		.run = postern__command_cleanup,
	},
	{
		.name = "stats", .operands = "", .flags = in_flags,
		.help = "count messages and deliveries",
		.about =
			"For each channel what came in, for each handler what became of it. PENDING\n"
			"counts all that waits; RETRYING are those among them that have failed before.\n"
			"Then the processes that work the store: how many deliveries each has, when it\n"
			"was last heard of, until when it counts as alive, and whether it is the one\n"
			"that answers ('this'), has the lock of exclusive processing ('processor'), or\n"
			"waits for work ('sleeping').",
		.examples =
			"postern stats\n"
			"postern stats --json | jq '.handlers[] | select(.poisoned > 0)'",
		.run = postern__command_stats,
	},
	{
		.name = "bench", .operands = "", .flags = bench_flags,
		.help = "measure how fast a new store takes and delivers messages",
		.about =
			"Sends messages of 256 bytes with random ids, some of them twice, and delivers\n"
			"them to one handler, through the library, in this process. Each is durable\n"
			"before it counts as accepted, and its completion before it counts as completed.\n"
			"Fills the store and leaves it there; refuses one that has been used. The\n"
			"latency is from the call that accepts a message (with --rate: from when it was\n"
			"due to be sent) to the start of its handler.\n"
			"On PostgreSQL name a schema that is not there yet, ?schema=bench; it is made,\n"
			"and 'drop schema bench cascade' removes it. With --handler sql the effects go\n"
			"into a table bench_effect, which is made where the role creates tables, usually\n"
			"in the schema public, and stays: 'drop table bench_effect'.",
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
		.help = "say which version this is and what is built in",
		.about = "Needs neither a configuration nor a store.",
		.examples = "postern version --json",
		.run = postern__command_version,
	},
	{
		.name = "help", .operands = "[COMMAND|options]", .operand_max = 1, .flags = no_flags,
		.options = POSTERN__OPTIONS_NONE,
		.help = "say what a command does",
		.about =
			"'postern COMMAND --help' does the same. 'postern help options' lists the options\n"
			"of the configuration, each of which is a flag of every command that reads one.",
		.examples =
			"postern help send\n"
			"postern help options",
		.run = postern__command_help,
	},
};

/* clang-format on */

/* Promised, but not yet: better to say so than "no such command". */
static const char *const later[] = {
	"explain",
	"replay",
	"top",
	"verify",
	"key",
	"retry-plan",
	"config",
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
