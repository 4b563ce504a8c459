/* SPDX-License-Identifier: MIT */
/*
 * Mistakes in a configuration, as tables: a YAML text and the complete error
 * that it must give. The file is always called "f".
 */

#include <stdlib.h>

#include "base/buf.h"
#include "config_bad.h"
#include "server/config.h"
#include "server/yaml.h"
#include "tap.h"

static void unknown_keys(void) {
	static const struct bad table[] = {
		{ "stoer: memory", "f:1:1: unknown key 'stoer' at the top level; did "
						   "you mean 'store'?" },
		{ "store: 'memory:'\nchannles: {}",
				"f:2:1: unknown key 'channles' at the top level; did you mean "
				"'channels'?" },
		{ "zzzzzzzzz: 1", "f:1:1: unknown key 'zzzzzzzzz' at the top level" },
		{ "? \n: 1", "f:1:2: unknown key '' at the top level" },
		{ "defaults: {leese: 5m}", "f:1:12: unknown key 'leese' in 'defaults'; "
								   "did you mean 'lease'?" },
		{ "stores: {a: {ulr: 'memory:'}}",
				"f:1:14: unknown key 'ulr' in a store; did you mean 'url'?" },
		{ "channels:\n  c:\n    handler: {}",
				"f:3:5: unknown key 'handler' in a channel; did you mean "
				"'handlers'?" },
		{ "channels: {c: {handlers: {h: {slq: x}}}}",
				"f:1:31: unknown key 'slq' in a handler; did you mean 'sql'?" },
		{ "channels: {c: {handlers: {h: {shell: cat}}}}",
				"f:1:31: unknown key 'shell' in a handler; a kind is 'sql', "
				"'exec' or 'pull'" },
		{ "channels: {c: {handlers: {h: {sql: reindex, shell: cat}}}}",
				"f:1:45: unknown key 'shell' in a handler" },
		{ "defaults: {retentoin: {}}",
				"f:1:12: unknown key 'retentoin' in 'defaults'; did you mean "
				"'retention'?" },
		{ "defaults: {retention: {playload: none}}",
				"f:1:24: unknown key 'playload' in 'retention'; did you mean "
				"'payload'?" },
		{ "store_fil: x", "f:1:1: unknown key 'store_fil' at the top level; "
						  "did you mean 'store_file'?" },
		{ "defaults: {lease_file: x}",
				"f:1:12: unknown key 'lease_file' in 'defaults'" },
		{ "defaults: {retention.payload: none}",
				"f:1:12: 'retention.payload' must be written as 'retention: "
				"{payload: none}'" },
		{ "retention.dedupe: 7d",
				"f:1:1: 'retention.dedupe' must be written as 'retention: "
				"{dedupe: 7d}', and belongs to 'defaults', a store, a channel "
				"or a handler" },
		{ "defaults: {retention: 2h}", "f:1:23: 'retention' must be a mapping, "
									   "such as {payload: none, "
									   "dedupe: none}, not text" },
	};
	CHECK_TABLE(table);
}

static void misplaced_keys(void) {
	static const struct bad table[] = {
		{ "lease: 5m",
				"f:1:1: 'lease' is not allowed at the top level; it belongs to "
				"'defaults', a store, a channel or a handler" },
		{ "defaults: {workers: 4}", "f:1:12: 'workers' is not allowed in "
									"'defaults'; it belongs to the top level "
									"or a store" },
		{ "defaults: {store: 'memory:'}",
				"f:1:12: 'store' is not allowed in 'defaults'; it belongs to "
				"the top level or a channel" },
		{ "channels: {c: {orphans: hold}}",
				"f:1:16: 'orphans' is not allowed in a channel; it belongs to "
				"'defaults' or a store" },
		{ "channels: {c: {sql: reindex}}", "f:1:16: 'sql' is not allowed in a "
										   "channel; it belongs to a handler" },
		{ "handlers: {}", "f:1:1: 'handlers' is not allowed at the top level; "
						  "it belongs to a channel" },
		{ "channels: {c: {handlers: {h: {unrouted: drop, sql: reindex}}}}",
				"f:1:31: 'unrouted' is not allowed in a handler; it belongs to "
				"a channel" },
		{ "channels: {c: {handlers: {h: {retention: {payload: 1d}}}}}",
				"f:1:43: 'retention.payload' is not allowed in a handler; it "
				"belongs to 'defaults', a store or a channel" },
	};
	CHECK_TABLE(table);
}

static void wrong_values(void) {
	static const struct bad table[] = {
		{ "defaults: {lease: 5}",
				"f:1:19: lease: duration '5' has no unit; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {lease: 5 min}",
				"f:1:19: lease: '5 min' is not a duration; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {lease: 64KiB}",
				"f:1:19: lease: '64KiB' is not a duration; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {lease: 0}",
				"f:1:19: lease: '0' is out of range; write 1ms to 3650d" },
		{ "defaults: {lease: 99999999999999999999d}",
				"f:1:19: lease: '99999999999999999999d' is out of range; write "
				"1ms to 3650d" },
		{ "defaults: {max_message_size: 99999999999GiB}",
				"f:1:30: max_message_size: '99999999999GiB' is out of range; "
				"write 1B to 128MiB" },
		{ "defaults: {lease: 4000d}",
				"f:1:19: lease: '4000d' is out of range; write 1ms to 3650d" },
		{ "defaults: {lease: none}",
				"f:1:19: lease: 'none' is not a duration; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {lease: -5s}",
				"f:1:19: lease: '-5s' is not a duration; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {max_message_size: 1MB}",
				"f:1:30: max_message_size: size '1MB' has a unit that is not "
				"clear; write MiB" },
		{ "defaults: {max_message_size: 1GiB}",
				"f:1:30: max_message_size: '1GiB' is out of range; write 1B to "
				"128MiB" },
		{ "defaults: {max_message_size: 200MiB}",
				"f:1:30: max_message_size: '200MiB' is out of range; write 1B "
				"to 128MiB" },
		{ "channels: {c: {max_message_size: 129MiB}}",
				"f:1:34: max_message_size: '129MiB' is out of range; write 1B "
				"to 128MiB" },
		{ "defaults: {max_message_size: 0}",
				"f:1:30: max_message_size: '0' is out of range; write 1B to "
				"128MiB" },
		{ "workers: many",
				"f:1:10: workers: 'many' is not a number from 1 to 1024" },
		{ "workers: 0",
				"f:1:10: workers: '0' is out of range; write 1 to 1024" },
		{ "workers: 1025",
				"f:1:10: workers: '1025' is out of range; write 1 to 1024" },
		{ "defaults: {commit_batch: 1001}", "f:1:26: commit_batch: '1001' is "
											"out of range; write 1 to 1000" },
		{ "defaults: {concurrency: 0}", "f:1:25: concurrency: '0' is out of "
										"range; write 1 to 1000000" },
		{ "defaults: {concurrency: 1000001}",
				"f:1:25: concurrency: '1000001' is out of range; write 1 to "
				"1000000" },
		{ "health: {degraded_after: 5m, unhealthy_after: 1m}",
				"f:1:47: health.unhealthy_after (1m) must not be less than "
				"health.degraded_after (5m)" },
		{ "health: {degraded_after: 0s}",
				"f:1:26: degraded_after: '0s' is out of range; write 1ms to "
				"3650d" },
		{ "health: {after: 1s}", "f:1:10: unknown key 'after' in 'health'" },
		{ "metrics: maybe",
				"f:1:10: metrics: 'maybe' is not a switch; write on or off" },
		{ "defaults: {orphans: poisen}",
				"f:1:21: orphans: 'poisen' is not one of poison|hold|fail; did "
				"you mean 'poison'?" },
		{ "defaults: {require_inbox: xyzzy}",
				"f:1:27: require_inbox: 'xyzzy' is not one of none|warn|fail" },
		{ "channels: {c: {unrouted: keep}}",
				"f:1:26: unrouted: 'keep' is not one of park|drop|reject" },
		{ "defaults: {backoff: [1s, 10]}",
				"f:1:21: backoff: duration '10' has no unit; write a number "
				"with one of the units ms, s, m, h, d, such as 30s" },
		{ "defaults: {backoff: []}", "f:1:21: 'backoff' is empty" },
		{ "defaults: {backoff: [[1s]]}",
				"f:1:22: an entry of the list must be one value, not a list" },
		{ "defaults: {backoff: [1s, ~]}",
				"f:1:26: an entry of the list has no value" },
		{ "defaults: {backoff: linear}",
				"f:1:21: backoff: 'linear' is not a duration; write a number "
				"with one of the units ms, s, m, h, d, such as 30s; or write "
				"'exponential', or a list of pauses" },
		{ "shutdown_grace: ''",
				"f:1:17: shutdown_grace: '' is not a duration; write a number "
				"with one of the units ms, s, m, h, d, such as 30s" },
	};
	CHECK_TABLE(table);
}

static void wrong_types(void) {
	static const struct bad table[] = {
		{ "just text", "f:1:1: expected a mapping (key: value), not text" },
		{ "[a, b]", "f:1:1: expected a mapping (key: value), not a list" },
		{ "store: [x]", "f:1:8: store must be one value, not a list" },
		{ "workers: {a: b}",
				"f:1:10: workers must be one value, not a mapping" },
		{ "store:", "f:1:7: store has no value" },
		{ "store: ~", "f:1:8: store has no value" },
		{ "store: null", "f:1:8: store has no value" },
		{ "defaults: 5m", "f:1:11: expected a mapping (key: value), not text" },
		{ "defaults: {retention: 7d}", "f:1:23: 'retention' must be a mapping, "
									   "such as {payload: none, "
									   "dedupe: none}, not text" },
		{ "stores: [a]",
				"f:1:9: 'stores' must be a mapping of names, not a list" },
		{ "channels: [orders]",
				"f:1:11: 'channels' must be a mapping of names, not a list" },
		{ "channels: {c: x}",
				"f:1:15: expected a mapping (key: value), not text" },
		{ "channels: {c: {handlers: [h]}}",
				"f:1:26: 'handlers' must be a mapping of names, not a list" },
		{ "channels: {c: {handlers: {h: exec}}}",
				"f:1:30: expected a mapping (key: value), not text" },
	};
	CHECK_TABLE(table);
}

static void bad_yaml(void) {
	static const struct bad table[] = {
		{ "store: 'memory:'\nstore: memory",
				"f:2:1: duplicate key 'store', first on line 1" },
		{ "channels:\n  a: {}\n  b: {}\n  a: {}",
				"f:4:3: duplicate key 'a', first on line 2" },
		{ "a: &x 1",
				"f:1:4: anchors ('&x') are not supported: repeat the value" },
		{ "a: &x {b: c}",
				"f:1:4: anchors ('&x') are not supported: repeat the value" },
		{ "a: &x [c]",
				"f:1:4: anchors ('&x') are not supported: repeat the value" },
		{ "a: *x", "f:1:4: aliases ('*x') are not supported: repeat the value, "
				   "or quote a text that begins with '*'" },
		{ "*x : 1", "f:1:1: aliases ('*x') are not supported: repeat the "
					"value, or quote a text that begins with '*'" },
		{ "a: [*]", "f:1:5: a text that begins with '*' must be in quotes: "
					"\"*\"" },
		{ "a:\n  - b\n  - *.c",
				"f:3:5: a text that begins with '*' must be in quotes: "
				"\"*\"" },
		{ "a: & b", "f:1:4: a text that begins with '&' must be in quotes" },
		{ "ü: @x", "f:1:4: a text that begins with '@' must be in quotes" },
		{ "a: `x`", "f:1:4: a text that begins with '`' must be in quotes" },
		{ "a: %x", "f:1:4: a text that begins with '%' must be in quotes" },
		{ "a:\n\tb: c", "f:2:1: unexpected tab; indent with spaces only" },
		{ "a: b\n\tc: d", "f:2:1: unexpected tab; indent with spaces only" },
		{ "a:\n  b: 1\n\tc: 2",
				"f:3:1: unexpected tab; indent with spaces only" },
		{ "a: |\n\tb", "f:2:1: unexpected tab; indent with spaces only" },
		{ "a: !!int 5", "f:1:4: tags ('!…') are not supported: remove "
						"'tag:yaml.org,2002:int'" },
		{ "a: !x {}", "f:1:4: tags ('!…') are not supported: remove '!x'" },
		{ "a: !x []", "f:1:4: tags ('!…') are not supported: remove '!x'" },
		{ "%YAML 1.1\n---\na: b",
				"f:1:1: YAML directives ('%…') are not supported" },
		{ "store: 'memory:'\n---\nstore: memory",
				"f:2:1: a second document ('---') is not supported" },
		{ "---\n---\n", "f:2:1: a second document ('---') is not supported" },
		{ "{a: b}: c", "f:1:1: a key must be plain text" },
		{ "? [a]\n: b", "f:1:3: a key must be plain text" },
		{ "store: [a, b\n", "f:2:1: did not find expected ',' or ']' while "
							"parsing a flow sequence (line 1)" },
		{ "\tstore: memory", "f:1:1: unexpected tab; indent with spaces only" },
		{ "store: 'x", "f:1:10: found unexpected end of stream while scanning "
					   "a quoted scalar (line 1)" },
		{ "a: b: c", "f:1:5: unexpected ':'; quote a text that has ':' at its "
					 "end or before a blank" },
		{ "store: \"a\\0b\"", "f:1:8: a text contains a zero byte" },
		{ "store: \xff", "f:1:8: not valid UTF-8" },
		{ "store: \xc0\xaf", "f:1:8: not valid UTF-8" },
		{ "a: ü\nb: \x01", "f:2:4: unexpected control character U+0001" },
		{ "a: \xc2\x9b", "f:1:4: unexpected control character U+009B" },
		{ "a: b\rc: \x7f", "f:2:4: unexpected control character U+007F" },
	};
	CHECK_TABLE(table);
	static const char zero[] = "a: b\n\0";
	check_bad(zero, sizeof zero - 1,
			"f:2:1: unexpected control character U+0000");
	static const char utf16[] = "\xff\xfe"
								"a\0:\0";
	check_bad(utf16, sizeof utf16 - 1, "f:1:1: not valid UTF-8");
}

static void key_rules(void) {
	static const struct bad table[] = {
		{ "channels: {c: {key: 'json:a'}}",
				"f:1:21: the JSON pointer 'a' does not begin with '/'" },
		{ "channels: {c: {key: {a: id, b: nothing}}}",
				"f:1:32: unknown key rule 'nothing': use id, header:NAME, "
				"correlation-id, composite, json:/POINTER, hash:body, or "
				"callback in a program" },
		{ "channels: {c: {key: callback}}",
				"f:1:21: the key rule 'callback' is a function of a program: "
				"use json:, header: or another rule in a configuration" },
		{ "channels: {c: {key: [id]}}",
				"f:1:21: key is a rule, or a mapping of at most 32 types to "
				"rules: {order.placed: \"json:/order/id\", default: id}" },
		{ "channels: {c: {key: {}}}",
				"f:1:21: key is a rule, or a mapping of at most 32 types to "
				"rules: {order.placed: \"json:/order/id\", default: id}" },
		{ "channels: {c: {missing_key: maybe}}",
				"f:1:29: missing_key: 'maybe' is not one of reject|process" },
	};
	CHECK_TABLE(table);
}

static void modes(void) {
	static const struct bad table[] = {
		{ "channels: {c: {mode: fast}}",
				"f:1:22: mode: 'fast' is not one of inbox|guard|direct" },
		{ "channels: {c: {mode: direct, guard: {types: [a]}}}",
				"f:1:30: 'guard' is for channels in the mode guard: add 'mode: "
				"guard'" },
		{ "channels: {c: {mode: guard, guard: on}}",
				"f:1:36: 'guard' must be a mapping, such as {types: "
				"[payment.*]} or {handlers: [charge-v1]}, not text" },
		{ "channels: {c: {mode: guard, guard: {type: [a]}}}",
				"f:1:37: unknown key 'type' in 'guard'; it has types and "
				"handlers" },
		{ "channels: {c: {mode: guard, guard: {handlers: [h]}}}",
				"f:1:48: the channel 'c' has no handler 'h' to guard" },
		{ "channels: {c: {marker: m}}",
				"f:1:24: 'marker' is for channels in the mode guard: add "
				"'mode: guard'" },
		{ "channels: {c: {mode: guard, marker: 'a b'}}",
				"f:1:37: marker: the handler key 'a b' may only have letters, "
				"digits and -_.:/" },
		{ "channels: {c: {fault_channel: d}}",
				"f:1:31: fault_channel 'd' of the channel 'c' is no channel" },
		{ "channels: {c: {fault_channel: c}}",
				"f:1:31: fault_channel 'c' of the channel 'c' is the channel "
				"itself" },
		{ "channels: {c: {mode: direct, handlers: {h: {sql: select 1}}}}",
				"f:1:41: handler 'h' is transactional, so all of its messages "
				"must be guarded or stored: use mode guard or inbox" },
		{ "defaults: {require_inbox: fail}\nchannels: {c: {mode: guard}}",
				"f:2:22: channel 'c' has no inbox, but require_inbox is set; "
				"set allow_without_inbox if that is intended" },
	};
	CHECK_TABLE(table);
}

static void not_in_this_version(void) {
	static const struct bad table[] = {
		{ "store: redis://u:secret@h", "f:1:8: store: the store 'redis:' needs "
									   "libpostern-redis, which is not "
									   "registered; write " STORE_URLS },
		{ "channels: {c: {order_by: subject}}",
				"f:1:26: order_by: 'subject' is not in this version" },
		{ "channels: {c: {sources: [{kafka: {}}]}}",
				"f:1:27: unknown key 'kafka' in a source; the kinds of "
				"sources are 'lines'" },
		{ "channels: {c: {sources: x}}",
				"f:1:25: 'sources' must be a list, as in [{lines: {file: "
				"FILE}}]" },
		{ "channels: {c: {sources: [x]}}",
				"f:1:26: a source must be a mapping, as in {lines: {file: "
				"FILE}}, not text" },
		{ "channels: {c: {sources: [{name: x}]}}",
				"f:1:33: a source needs a kind, one of 'lines'" },
		{ "channels: {c: {sources: [{lines: {}}]}}",
				"f:1:34: a source of kind 'lines' needs the option 'file'" },
		{ "channels: {c: {sources: [{lines: {file: a, path: b}}]}}",
				"f:1:50: a source of kind 'lines' has no option 'path'" },
		{ "channels: {c: {sources: [{lines: {file: a, folow: on}}]}}",
				"f:1:51: a source of kind 'lines' has no option 'folow'; did "
				"you mean 'follow'?" },
		{ "channels: {c: {sources: [{lines: a, name: staged}]}}",
				"f:1:43: the name 'staged' of a source is already used" },
		{ "store: memory\nchannels: {c: {sources: [staged]}}",
				"f:2:26: messages of channel 'c' cannot be staged by the "
				"transactions of other programs in a memory store; use "
				"postgres://… or sqlite:FILE?shared=yes" },
		{ "store: sqlite:a.db\nchannels: {c: {sources: [staged]}}",
				"f:2:26: messages of channel 'c' cannot be staged by the "
				"transactions of other programs in a sqlite store; use "
				"postgres://… or sqlite:FILE?shared=yes" },
		{ "store: sqlite:a.db?shared=yes\n"
		  "channels: {c: {mode: direct, sources: [staged]}}",
				"f:2:40: messages of channel 'c' cannot be staged: it has no "
				"inbox" },
		{ "channels: {c: {sources: [{lines: a, name: x}]}, "
		  "d: {sources: [{lines: a, name: x}]}}",
				"f:1:80: the name 'x' of a source is already used" },
		{ "tls: {cert_file: x}",
				"f:1:18: tls: a certificate needs its key: add 'key_file'" },
		{ "tls: {key_file: x}",
				"f:1:17: tls: a key needs its certificate: add 'cert_file'" },
		{ "tls: {cert: x}", "f:1:7: unknown key 'cert' in 'tls'" },
		{ "tls: x", "f:1:6: 'tls' must be a mapping, such as "
					"{cert_file: none, key_file: none}, not text" },
		{ "channels: {b: , c: {former_names: [b]}}",
				"f:1:17: the former name 'b' of the channel 'c' is also a name "
				"of the channel 'b', line 1" },
		{ "channels: {c: {former_names: [a, a]}}",
				"f:1:12: the former name 'a' of the channel 'c' is also a name "
				"of the channel 'c', line 1" },
		{ "channels: {c: {former_names: [a b]}}",
				"f:1:31: the channel's name 'a b' may only have letters, "
				"digits "
				"and -_." },
		{ "channels: {c: {handlers: {h: {webhook: {url: x}}}}}",
				"f:1:31: 'webhook' is not in this version" },
		{ "channels: {c: {handlers: {h: {publish: }}}}",
				"f:1:31: 'publish' is not in this version" },
		{ "channels: {c: {handlers: {h: {plugin: x.so}}}}",
				"f:1:31: 'plugin' is not in this version" },
		{ "defaults: {rate: 10}",
				"f:1:18: rate: '10' is not a rate; write a number per second, "
				"minute or hour, such as 100/s, 10/m or 5/h" },
		{ "defaults: {rate: 0/s}",
				"f:1:18: rate: '0/s' is out of range; write 1 to 1000000 per "
				"second, minute or hour" },
		{ "defaults: {rate: 1000000000/s}",
				"f:1:18: rate: '1000000000/s' is out of range; write 1 to "
				"1000000 per second, minute or hour" },
		{ "defaults: {rate: 10/d}",
				"f:1:18: rate: '10/d' is not a rate; write a number per "
				"second, minute or hour, such as 100/s, 10/m or 5/h" },
		{ "defaults: {break_after: 0}",
				"f:1:25: break_after: '0' is out of range; write 1 to 1000" },
		/* A mistake is still reported as a mistake. */
		{ "channels: {c: {mode: gaurd}}",
				"f:1:22: mode: 'gaurd' is not one of inbox|guard|direct; did "
				"you mean 'guard'?" },
		{ "defaults: {cleanup_interval: 2}",
				"f:1:30: cleanup_interval: duration '2' has no unit; write a "
				"number with one of the units ms, s, m, h, d, such as 30s" },
	};
	CHECK_TABLE(table);
}

static void bad_retention(void) {
	static const struct bad table[] = {
		{ "channels: {c: {retention: {payload: 2d, dedupe: 1d}}}",
				"f:1:49: retention.dedupe (1d) must not be less than "
				"retention.payload (2d): an id is remembered at least as long "
				"as its message is kept" },
		{ "channels: {c: {retention: {dedupe: 1d}}}",
				"f:1:36: retention.dedupe (1d) must not be less than "
				"retention.payload (none: unlimited): an id is remembered at "
				"least as long as its message is kept" },
		/* The position is that of the more specific value. */
		{ "defaults: {retention: {payload: 2d, dedupe: 3d}}\n"
		  "channels: {c: {retention: {payload: 4d}}}",
				"f:2:37: retention.dedupe (3d) must not be less than "
				"retention.payload (4d): an id is remembered at least as long "
				"as its message is kept" },
		{ "channels: {c: {retention: 7d}}", "f:1:27: 'retention' must be a "
											"mapping, such as {payload: none, "
											"dedupe: none}, not text" },
		{ "channels: {c: {retention: {payloads: 7d}}}",
				"f:1:28: unknown key 'payloads' in 'retention'; did you mean "
				"'payload'?" },
		{ "channels: {c: {retention: {payload: 0}}}",
				"f:1:37: payload: '0' is out of range; write 1ms to 3650d" },
		{ "channels: {c: {handlers: {h: {exec: [/a], retention: {dedupe: "
		  "1d}}}}}",
				"f:1:63: retention.dedupe of the handler 'h' needs a key of "
				"its own: set 'key' of the handler, or the retention of the "
				"channel" },
		{ "defaults: {lock_name: x, cleanup_lock_name: x}",
				"f:1:45: lock_name and cleanup_lock_name must differ" },
		{ "stores: {a: {url: memory, lock_name: 'InboxCleanup_{store}'}}",
				"f:1:38: lock_name and cleanup_lock_name must differ" },
		{ "defaults: {processing: exclusiv}",
				"f:1:24: processing: 'exclusiv' is not one of "
				"parallel|exclusive; did you mean 'exclusive'?" },
		{ "defaults: {cleanup_batch: 0}",
				"f:1:27: cleanup_batch: '0' is out of range; write 1 to "
				"1000000" },
	};
	CHECK_TABLE(table);
	char text[400] = "defaults: {lock_name: '{store}";
	memset(text + strlen(text), 'x', 194);
	memcpy(text + strlen(text), "'}", 3);
	check_bad(text, strlen(text),
			"f:1:23: a lock name must have 1 to 200 bytes");
}

static void bad_channels(void) {
	static const struct bad table[] = {
		{ "channels: {'': {}}", "f:1:12: the channel's name is empty" },
		{ "channels: {a b: {}}", "f:1:12: the channel's name 'a b' may only "
								 "have letters, digits and -_." },
		{ "channels: {a/b: {}}", "f:1:12: the channel's name 'a/b' may only "
								 "have letters, digits and -_." },
		{ "channels: {c: {handlers: {h h: {sql: reindex}}}}",
				"f:1:27: the handler key 'h h' may only have letters, digits "
				"and -_.:/" },
		{ "channels: {c: {handlers: {h: }}}",
				"f:1:27: handler 'h' has no kind; add 'sql', 'exec' or "
				"'pull'" },
		{ "channels: {c: {handlers: {h: {types: [a]}}}}",
				"f:1:27: handler 'h' has no kind; add 'sql', 'exec' or "
				"'pull'" },
		{ "channels: {c: {handlers: {h: {sql: reindex, exec: [/bin/true]}}}}",
				"f:1:45: handler 'h' has two kinds, 'sql' and 'exec'; remove "
				"one" },
		{ "channels: {c: {handlers: {h: {exec: [/bin/true], sql: reindex}}}}",
				"f:1:50: handler 'h' has two kinds, 'exec' and 'sql'; remove "
				"one" },
		{ "channels: {c: {handlers: {h: {sql: ' ; '}}}}",
				"f:1:36: sql: the SQL has no statement" },
		{ "channels: {c: {handlers: {h: {sql: }}}}",
				"f:1:36: sql has no value" },
		{ "channels: {c: {handlers: {h: {pull: }}}}",
				"f:1:37: pull has no value; write {} for its defaults" },
		{ "channels: {c: {handlers: {h: {sql: 'select :bodi'}}}}",
				"f:1:36: sql: line 1: unknown parameter ':bodi' (did you "
				"mean ':body'?)" },
		{ "channels: {c: {handlers: {h: {sql: commit}}}}",
				"f:1:36: sql: line 1: commit is not allowed in a handler: ends "
				"the transaction that the delivery is a part of" },
		{ "channels: {c: {handlers: {h: {exec: /bin/true}}}}",
				"f:1:37: 'exec' must be a list: [\"/bin/prog\", \"arg\"]" },
		{ "channels: {c: {handlers: {h: {exec: []}}}}",
				"f:1:37: 'exec' is empty" },
		{ "channels: {c: {handlers: {h: {exec: }}}}",
				"f:1:37: 'exec' must be a list: [\"/bin/prog\", \"arg\"]" },
		{ "channels: {c: {handlers: {h: {exec: [true]}}}}",
				"f:1:37: exec: the program 'true' must have an absolute path" },
		{ "channels: {c: {handlers: {h: {sql: reindex, types: a}}}}",
				"f:1:52: 'types' must be a list, as in [a, b]" },
		{ "channels: {c: {handlers: {h: {sql: reindex, types: [a, '']}}}}",
				"f:1:56: a pattern is empty" },
		{ "channels: {c: {handlers: {h: {sql: reindex, types: [\"a\\tb\"]}}}}",
				"f:1:53: a pattern has a control character" },
		{ "channels: {c: {handlers: {h: {sql: reindex, types: [a, "
		  "'*********']}}}}",
				"f:1:56: pattern '*********' has 9 stars; at most 8 are "
				"allowed" },
		{ "channels: {c: {handlers: {h: {sql: reindex, legacy_keys: [a, 'b "
		  "c']}}}}",
				"f:1:62: the handler key 'b c' may only have letters, digits "
				"and -_.:/" },
	};
	CHECK_TABLE(table);
}

/* SQL that SQLite cannot parse would poison every message. */
static void sql_grammar(void) {
	static const struct bad table[] = {
		{ "channels: {c: {handlers: {h: {sql: 'insrt into t values (:id)'}}}}",
				"f:1:36: sql: line 1: near \"insrt\": syntax error" },
		{ "channels: {c: {handlers: {h: {sql: 'insert into t values (:id'}}}}",
				"f:1:36: sql: line 1: incomplete input" },
		{ "channels: {c: {handlers: {h: {sql: 'select 1 \\ 2'}}}}",
				"f:1:36: sql: line 1: unrecognized token: \"\\\"" },
		{ "channels:\n c:\n  handlers:\n   h:\n    sql: |\n"
		  "      create table if not exists t(id);\n"
		  "      insert into t\n"
		  "        valuse (:id);\n",
				"f:5:10: sql: line 3: near \"valuse\": syntax error" },
		{ "channels:\n c:\n  handlers:\n   h:\n    sql: |\n"
		  "      delete from t;\n"
		  "      insert into t\n\n",
				"f:5:10: sql: line 2: incomplete input" },
	};
	/* Errors that only the store can detect. */
	static const char *const good[] = {
		"channels: {c: {handlers: {h: {sql: 'insert into t values (:id)'}}}}",
		"channels: {c: {handlers: {h: {sql: 'select f(x) from t'}}}}",
		"channels: {c: {handlers: {h: {sql: 'create table t(x, x)'}}}}",
		"channels: {c: {handlers: {h: {sql: 'delete from \"near \"'}}}}",
		"channels: {c: {handlers: {h: {sql: \"select 'a; b'; select 1 --\"}}}}",
	};
	CHECK_TABLE(table);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		struct postern__config *config = NULL;
		struct postern_error error;
		CHECK_OK(postern__config_parse("f", good[i], strlen(good[i]), NULL,
						 &config, &error),
				&error);
		postern__config_destroy(config);
	}
}

static void keys_already_used(void) {
	static const struct bad table[] = {
		{ "channels:\n  a: {handlers: {h: {sql: reindex}}}\n  b: {handlers: "
		  "{h: "
		  "{sql: reindex}}}\n",
				"f:3:18: the handler key 'h' is already used: line 2, channel "
				"'a'" },
		{ "channels:\n  a: {handlers: {h: {sql: reindex, legacy_keys: "
		  "[old]}}}\n  b: "
		  "{handlers: {old: {sql: reindex}}}\n",
				"f:3:18: the handler key 'old' is already used, as a legacy "
				"key of "
				"'h': line 2, channel 'a'" },
		{ "channels:\n  a: {handlers: {old: {sql: reindex}}}\n  b: {handlers: "
		  "{h: "
		  "{sql: reindex, legacy_keys: [g, old]}}}\n",
				"f:3:53: the handler key 'old' is already used: line 2, "
				"channel 'a'" },
		{ "channels:\n  a: {handlers: {x: {sql: reindex, legacy_keys: "
		  "[old]}}}\n  b: "
		  "{handlers: {y: {sql: reindex, legacy_keys: [old]}}}\n",
				"f:3:50: the handler key 'old' is already used, as a legacy "
				"key of "
				"'x': line 2, channel 'a'" },
		{ "channels: {a: {handlers: {h: {sql: reindex, legacy_keys: [h]}}}}",
				"f:1:59: the handler key 'h' is already used: line 1, channel "
				"'a'" },
		{ "channels: {a: {handlers: {h: {sql: reindex, legacy_keys: [g, g]}}}}",
				"f:1:62: the handler key 'g' is already used, as a legacy key "
				"of 'h': "
				"line 1, channel 'a'" },
		/* Of two mistakes the first is reported. */
		{ "channels:\n  a: {handlers: {z: {sql: reindex}, b: {sql: "
		  "reindex}}}\n  b: "
		  "{handlers: {z: {sql: reindex}}}\n  c: {handlers: {b: {sql: "
		  "reindex}}}\n",
				"f:3:18: the handler key 'z' is already used: line 2, channel "
				"'a'" },
	};
	CHECK_TABLE(table);
}

static void timeouts_over_leases(void) {
	static const struct bad table[] = {
		{ "defaults: {timeout: 5m}",
				"f:1:21: timeout (5m) must be less than lease (5m, the "
				"default); raise 'lease', too" },
		{ "defaults:\n  timeout: 10s\n  lease: 5s",
				"f:2:12: timeout (10s) must be less than lease (5s)" },
		{ "channels: {c: {timeout: 6m}}",
				"f:1:25: timeout (6m) must be less than lease (5m, the "
				"default); raise 'lease', too" },
		{ "defaults: {timeout: 30s}\nchannels: {c: {lease: 30s}}",
				"f:2:23: timeout (30s) must be less than lease (30s)" },
		{ "channels: {c: {handlers: {h: {exec: [/a], timeout: 5m}}}}",
				"f:1:52: timeout (5m) must be less than lease (5m, the "
				"default); raise 'lease', too" },
		{ "channels: {c: {timeout: 20s, handlers: {h: {exec: [/a], lease: "
		  "20s}}}}",
				"f:1:64: timeout (20s) must be less than lease (20s)" },
		{ "channels: {c: {handlers: {h: {sql: reindex, lease: 5s}}}}",
				"f:1:52: timeout (5s, the default for sql) must be less than "
				"lease (5s)" },
	};
	CHECK_TABLE(table);
}

static void bad_variables(void) {
	static const struct bad table[] = {
		{ "store: ${NO_SUCH}", "f:1:8: the variable 'NO_SUCH' is not set; "
							   "write ${NO_SUCH:-TEXT} to give it a default" },
		{ "store: \"a ${\"", "f:1:8: '${' without '}'; to write the two "
							 "characters, use '$${'" },
		{ "store: ${}", "f:1:8: '${}' is not ${NAME} or ${NAME:-TEXT}" },
		{ "store: ${1A}", "f:1:8: '${1A}' is not ${NAME} or ${NAME:-TEXT}" },
		{ "store: ${A-b}", "f:1:8: '${A-b}' is not ${NAME} or ${NAME:-TEXT}" },
		{ "channels: {c: {handlers: {h: {sql: reindex, types: [a, '${T}']}}}}",
				"f:1:56: the variable 'T' is not set; write ${T:-TEXT} to give "
				"it a default" },
		{ "defaults: {lease: '${X:-5}'}",
				"f:1:19: lease: duration '5' has no unit; write a number with "
				"one of the units ms, s, m, h, d, such as 30s" },
	};
	CHECK_TABLE(table);
}

/* Fills a buffer with `count` copies of a text between two others. */
static void fill_repeated(struct postern__buf *buf, const char *before,
		const char *text, size_t count, const char *after) {
	postern__buf_reset(buf);
	postern__buf_append_text(buf, before);
	for (size_t i = 0; i < count; i++) {
		postern__buf_append_text(buf, text);
	}
	postern__buf_append_text(buf, after);
}

static void check_bad_buf(const struct postern__buf *buf,
		const char *expected) {
	CHECK_INT(buf->failed, POSTERN_OK);
	check_bad(postern__buf_text(buf), buf->len, expected);
}

static void bombs(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)4 * 1024 * 1024);

	fill_repeated(&buf, "a: ", "[", 32, "");
	check_bad_buf(&buf, "f:1:35: nested more than 32 deep");
	fill_repeated(&buf, "a: ", "[", 1000000, "");
	check_bad_buf(&buf, "f:1:35: nested more than 32 deep");
	fill_repeated(&buf, "a: ", "{b: ", 200000, "");
	check_bad_buf(&buf, "f:1:128: nested more than 32 deep");
	fill_repeated(&buf, "a:\n ", "- ", 500000, "");
	check_bad_buf(&buf, "f:2:64: nested more than 32 deep");
	fill_repeated(&buf, "a: [", "b, ", 1001, "]");
	check_bad_buf(&buf, "f:1:3005: more than 1000 entries in one place");
	fill_repeated(&buf, "a: [",
			"[b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,"
			"b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,"
			"b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,"
			"b,b,b,b,b,b,],\n",
			1000, "]");
	check_bad_buf(&buf, "f:953:76: more than 100000 values in one file");
	fill_repeated(&buf, "", "%TAG !a! b\n", 90000, "--- a");
	check_bad_buf(&buf, "f:1:1: YAML directives ('%…') are not supported");
	fill_repeated(&buf, "", "#", POSTERN__CONFIG_BYTES_MAX + 1, "");
	check_bad_buf(&buf, "f:1:1: the file exceeds 1048576 bytes");
	postern__buf_finish(&buf);
}

static void limits(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)4 * 1024 * 1024);

	fill_repeated(&buf, "channels: {", "a", 201, ": {}}");
	check_bad_buf(&buf, "f:1:12: the channel's name is longer than 200 bytes");
	fill_repeated(&buf, "channels: {c: {handlers: {", "a", 201,
			": {sql: reindex}}}}");
	check_bad_buf(&buf, "f:1:27: the handler key is longer than 200 bytes");
	fill_repeated(&buf, "defaults: {backoff: [", "1s,", 65, "]}");
	check_bad_buf(&buf, "f:1:21: 'backoff' has more than 64 entries");
	fill_repeated(&buf, "defaults: {backoff: '", "1s,", 65, "'}");
	check_bad_buf(&buf, "f:1:21: backoff: more than 64 delays");
	fill_repeated(&buf, "channels: {c: {handlers: {h: {sql: reindex, types: [",
			"a,", 65, "]}}}}");
	check_bad_buf(&buf, "f:1:52: 'types' has more than 64 entries");
	fill_repeated(&buf, "channels: {c: {handlers: {h: {sql: reindex, types: [",
			"a", 201, "]}}}}");
	check_bad_buf(&buf, "f:1:53: a pattern has more than 200 characters");
	fill_repeated(&buf,
			"channels: {c: {handlers: {h: {sql: reindex, legacy_keys: [", "a,",
			17, "]}}}}");
	check_bad_buf(&buf, "f:1:58: 'legacy_keys' has more than 16 entries");
	fill_repeated(&buf, "channels: {c: {handlers: {h: {exec: [/a,", "a,", 64,
			"]}}}}");
	check_bad_buf(&buf, "f:1:37: 'exec' has more than 64 entries");
	fill_repeated(&buf, "store: sqlite:", "a", 4096, "");
	check_bad_buf(&buf, "f:1:8: store: longer than 4096 bytes");
	postern__buf_finish(&buf);
}

static void too_many_handlers(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, (size_t)4 * 1024 * 1024);
	postern__buf_append_text(&buf, "channels:\n");
	for (int i = 0; i < 3; i++) {
		postern__buf_printf(&buf, " c%d:\n  handlers:\n", i);
		for (int j = 0; j < 400; j++) {
			postern__buf_printf(&buf, "   h%d-%d: {sql: reindex}\n", i, j);
		}
	}
	check_bad_buf(&buf, "f:1008:4: more than 1000 handlers");
	postern__buf_finish(&buf);
}

static void long_names(void) {
	char name[5000];
	struct postern__config *config = NULL;
	struct postern_error error;
	memset(name, 'd', sizeof name);
	memcpy(name + sizeof name - 14, "/postern.yaml", 14);
	CHECK_INT(postern__config_parse(name, "lease: 1", 8, NULL, &config, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "...ddd");
	CHECK_CONTAINS(error.text, "/postern.yaml:1:1: 'lease' is not allowed at");
}

static const struct tap_case cases[] = {
	{ "an unknown key is refused with a suggestion", unknown_keys },
	{ "the error of a misplaced key names where it belongs", misplaced_keys },
	{ "a bad value is refused with the allowed values", wrong_values },
	{ "a value of the wrong YAML type is refused", wrong_types },
	{ "unsupported YAML is refused with its position", bad_yaml },
	{ "a key rule that is not valid is refused at its place", key_rules },
	{ "a mode that does not fit the channel is refused at its place", modes },
	{ "planned features are refused as not in this version",
			not_in_this_version },
	{ "an invalid retention or lock name is refused", bad_retention },
	{ "an invalid channel or handler is refused", bad_channels },
	{ "SQL that SQLite cannot parse is refused", sql_grammar },
	{ "a key is unique among all keys and legacy keys", keys_already_used },
	{ "a timeout that is not less than the lease is refused",
			timeouts_over_leases },
	{ "a variable that is unset or misspelled is refused", bad_variables },
	{ "nesting and repetition have limits", bombs },
	{ "names, lists and texts have limits", limits },
	{ "the handlers of all channels are counted together", too_many_handlers },
	{ "a long file name leaves room for the error", long_names },
};

TAP_MAIN(cases)
