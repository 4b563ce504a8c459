/* SPDX-License-Identifier: MIT */

/*
 * Stores, their settings and sockets that are refused when the file is read:
 * nothing has been opened yet.
 */

#include "config_bad.h"

static void bad_listen(void) {
	static const struct bad table[] = {
		{ "listen: 'unix:'",
				"f:1:9: listen: the path is missing; write unix:PATH" },
		{ "listen: unix:/run/",
				"f:1:9: listen: the path is missing; write unix:PATH" },
		{ "listen: unix:a/..",
				"f:1:9: listen: the path is missing; write unix:PATH" },
		{ "listen: unix:/run/"
		  "0123456789012345678901234567890123456789"
		  "0123456789012345678901234567890123456789/x01234567890123456789012",
				"f:1:9: listen: a socket path must have at most 107 bytes" },
		{ "listen: unix:"
		  "0123456789012345678901234567890123456789"
		  "01234567890123456789012345678901234567890",
				"f:1:9: listen: a socket name must have at most 80 bytes" },
		{ "listen: 7420",
				"f:1:9: listen: '7420' is not an address; write ADDRESS:PORT, "
				"[IPv6]:PORT, unix:PATH, systemd, or none" },
		{ "listen: '::1:7420'",
				"f:1:9: listen: '::1:7420' is not an address; write "
				"ADDRESS:PORT, [IPv6]:PORT, unix:PATH, systemd, or none" },
		{ "listen: http://127.0.0.1:80",
				"f:1:9: listen: 'http://127.0.0.1:80' is not an address; write "
				"ADDRESS:PORT, [IPv6]:PORT, unix:PATH, systemd, or none" },
		{ "listen: example.com:80",
				"f:1:9: listen: 'example.com' is not an IP address or "
				"'localhost'; write ADDRESS:PORT, [IPv6]:PORT, unix:PATH, "
				"systemd, or none" },
		{ "listen: '[127.0.0.1]:80'",
				"f:1:9: listen: '[127.0.0.1]' is not an IP address or "
				"'localhost'; write ADDRESS:PORT, [IPv6]:PORT, unix:PATH, "
				"systemd, or none" },
		{ "listen: 127.0.0.1:65536",
				"f:1:9: listen: '127.0.0.1:65536' has no port from 0 to 65535; "
				"write ADDRESS:PORT, [IPv6]:PORT, unix:PATH, systemd, or "
				"none" },
		{ "listen: 127.0.0.1:http",
				"f:1:9: listen: '127.0.0.1:http' has no port from 0 to 65535; "
				"write ADDRESS:PORT, [IPv6]:PORT, unix:PATH, systemd, or "
				"none" },
		{ "listen: 0.0.0.0:80",
				"f:1:9: listen: other machines can reach '0.0.0.0:80', which "
				"needs tokens: add 'auth', or listen on 127.0.0.1" },
		{ "hosts: 'https://example.com'",
				"f:1:8: hosts: 'https://example.com' is not the name of a "
				"host; write names as in example.com, without a port" },
		{ "hosts: [a, 'b:80']",
				"f:1:8: hosts: 'a,b:80' is not the name of a host; write names "
				"as in example.com, without a port" },
		{ "ingest_listen: '[::]:80'",
				"f:1:16: ingest_listen: other machines can reach '[::]:80', "
				"which needs tokens: add 'auth', or listen on 127.0.0.1" },
		{ "listen: [127.0.0.1:7420, 'unix:a', 127.0.0.1:7420]",
				"f:1:9: listen: the address '127.0.0.1:7420' is given twice" },
		{ "listen: 127.0.0.1:80\ningest_listen: 127.0.0.1:80",
				"f:2:16: ingest_listen: the address '127.0.0.1:80' is given "
				"twice" },
		{ "listen: "
		  "'unix:a,unix:b,unix:c,unix:d,unix:e,unix:f,unix:g,unix:h,unix:i'",
				"f:1:9: listen: more than 8 addresses" },
		{ "listen_mode: rw-rw----",
				"f:1:14: listen_mode: 'rw-rw----' is not a mode of a socket; "
				"write 0600, 0660 or 0666" },
		{ "listen_mode: 0066", "f:1:14: listen_mode: '0066' is not a mode of a "
							   "socket; write 0600, 0660 or 0666" },
		{ "stores: {a: {url: 'sqlite:a', listen: none}}",
				"f:1:31: 'listen' is not allowed in a store; it belongs to the "
				"top level" },
	};
	CHECK_TABLE(table);
}

/* Settings that only stores in PostgreSQL have. */
static void bad_settings(void) {
	static const struct bad table[] = {
		{ "stores: {a: {url: 'sqlite:a', schema: x}}",
				"f:1:39: 'schema' is a setting of stores in PostgreSQL only" },
		{ "stores: {a: {url: 'sqlite:a', schema: postern}}",
				"f:1:39: 'schema' is a setting of stores in PostgreSQL only" },
		{ "stores: {a: {url: memory, connections: 8}}",
				"f:1:40: 'connections' is a setting of stores on a server "
				"only" },
		{ "defaults: {listen_url: 'postgres://u:canary@h/d'}",
				"f:1:24: 'listen_url' is a setting of stores in PostgreSQL "
				"only" },
		{ "defaults: {connections: 9}",
				"f:1:25: 'connections' is a setting of stores on a server "
				"only" },
		{ "defaults: {connections: 1}",
				"f:1:25: connections: '1' is out of range; write 2 to 64" },
		{ "defaults: {command_retries: 101}",
				"f:1:29: command_retries: '101' is out of range; write 0 to "
				"100" },
		{ "schema: x", "f:1:1: 'schema' is not allowed at the top level; it "
					   "belongs to 'defaults' or a store" },
		{ "channels: {c: {listen_url: none}}",
				"f:1:16: 'listen_url' is not allowed in a channel; it belongs "
				"to 'defaults' or a store" },
#ifdef POSTERN_POSTGRES
		{ "stores: {a: {url: 'postgres://h/d?schema=x', schema: y}}",
				"f:1:54: the URL has schema=x and the setting 'schema' is y: "
				"set it once" },
		{ "stores: {a: {url: 'postgresql://h/d?connections=9', "
		  "connections: 8}}",
				"f:1:66: the URL has connections=9 and the setting "
				"'connections' is 8: set it once" },
		{ "store: postgres://h/d?schema=a&schema=b",
				"f:1:8: store: 'schema' is in the store's URL twice" },
		{ "store: postgres://h/d?schema=a.b",
				"f:1:8: store: 'a.b' is not a valid schema name: use lowercase "
				"letters, digits and '_', no prefix 'pg_', at most 63 "
				"characters" },
		{ "store: postgres://u:canary@[::1/d",
				"f:1:8: store: the store's URL is not valid for libpq: "
				"write postgres://user@host:port/database or "
				"'postgres:host=… dbname=…'" },
		{ "store: postgres://h/d\ndefaults: {schema: Big}",
				"f:2:20: 'Big' is not a valid schema name: use lowercase "
				"letters, "
				"digits and '_', no prefix 'pg_', at most 63 characters" },
		{ "store: postgres://h/d\ndefaults: {listen_url: 'sqlite:canary'}",
				"f:2:24: 'listen_url' is not a PostgreSQL URL; write "
				"postgres://USER@HOST/DATABASE" },
		{ "store: postgres://h/d\ndefaults: {listen_url: 'postgres:canary'}",
				"f:2:24: 'listen_url' is not valid for libpq: "
				"write postgres://user@host:port/database or "
				"'postgres:host=… dbname=…'" },
		{ "store: postgres://h/d\n"
		  "defaults: {listen_url: 'postgres://h/d?schema=x'}",
				"f:2:24: 'schema' is a parameter of the store's own URL, not "
				"of 'listen_url'" },
		{ "store: postgres://h/d\n"
		  "defaults: {listen_url: 'postgres://h', listen_url_file: /x}",
				"f:2:57: listen_url_file: 'listen_url' and 'listen_url_file' "
				"cannot be combined" },
#endif
	};
	CHECK_TABLE(table);
}

static void bad_stores(void) {
	static const struct bad table[] = {
		{ "store: postern.db", "f:1:8: store: 'postern.db' is not a store; "
							   "write sqlite:postern.db" },
		{ "store: /var/x", "f:1:8: store: '/var/x' is not a store; write "
						   "sqlite:/var/x" },
		{ "store: postern",
				"f:1:8: store: 'postern' is not a store; write " STORE_URLS },
		{ "store: me@canary.db", "f:1:8: store: '***' is not a store; "
								 "write " STORE_URLS },
		{ "store: sqlit:a.db?token=canary",
				"f:1:8: store: 'sqlit:***' is not a store; did you mean "
				"'sqlite:'?" },
		{ "store: sqlit://u:canary@h",
				"f:1:8: store: 'sqlit://u:***@h' is not a store; did you mean "
				"'sqlite:'?" },
		{ "store: other:canary", "f:1:8: store: 'other:***' is not a store; "
								 "write " STORE_URLS },
		{ "store: 'sqlite:'",
				"f:1:8: store: the file is missing; write sqlite:FILE" },
		{ "store: sqlite:?x=y",
				"f:1:8: store: the file is missing; write sqlite:FILE" },
		{ "store: sqlite:a.db?mode=ro",
				"f:1:8: store: unknown parameter 'mode=ro' of sqlite:; it "
				"has ?shared=yes only" },
		{ "store: sqlit:a.db",
				"f:1:8: store: 'sqlit:a.db' is not a store; did you "
				"mean 'sqlite:'?" },
		{ "store: memory:x", "f:1:8: store: unexpected text after 'memory:'" },
		{ "store: ''", "f:1:8: store: '' is not a store; write " STORE_URLS },
		{ "store: \"sqlite:a\\nb\"",
				"f:1:8: store: not valid UTF-8, or with a control character" },
		{ "store_file: /nonexistent/x",
				"f:1:13: store_file: no file '/nonexistent/x'" },
		{ "store: 'memory:'\nstore_file: /x",
				"f:2:13: store_file: 'store' and 'store_file' cannot be "
				"combined" },
		{ "stores: {a: {}}", "f:1:10: store 'a' has no 'url'" },
		{ "stores: {a: }", "f:1:10: store 'a' has no 'url'" },
		{ "stores: {a: {url: x}}",
				"f:1:19: url: 'x' is not a store; write " STORE_URLS },
		{ "stores: {a: {url: 'memory:', url_file: /x}}",
				"f:1:40: url_file: 'store' and 'store_file' cannot be "
				"combined" },
		{ "store: 'memory:'\nstores: {default: {url: 'memory:'}}",
				"f:2:10: the store 'default' is configured twice: 'store' "
				"(line 1) "
				"is short for it" },
		{ "stores: {a: {url: 'memory:'}, a: {url: 'memory:'}}",
				"f:1:31: duplicate key 'a', first on line 1" },
		{ "stores: {a/b: {url: 'memory:'}}",
				"f:1:10: invalid store name 'a/b'; use 1 to 64 letters, "
				"digits, '-', '_', '.', a letter first" },
		{ "stores: {--in: {url: 'memory:'}}",
				"f:1:10: invalid store name '--in'; use 1 to 64 letters, "
				"digits, '-', '_', '.', a letter first" },
		{ "stores: {'..': {url: 'memory:'}}",
				"f:1:10: invalid store name '..'; use 1 to 64 letters, "
				"digits, '-', '_', '.', a letter first" },
		{ "stores: {9: {url: 'memory:'}}",
				"f:1:10: invalid store name '9'; use 1 to 64 letters, "
				"digits, '-', '_', '.', a letter first" },
		{ "stores: {'': {url: 'memory:'}}",
				"f:1:10: invalid store name ''; use 1 to 64 letters, "
				"digits, '-', '_', '.', a letter first" },
		{ "stores: {a: {url: 'sqlite:x.db'}, b: {url: 'sqlite:./x.db'}}",
				"f:1:44: the stores 'a' and 'b' are in the same file, "
				"'./x.db'" },
		{ "store: sqlite:x.db\nstores: {b: {url: 'sqlite:/no/../x.db'}, "
		  "c: {url: 'sqlite:x.db'}}",
				"f:2:51: the stores 'default' and 'c' are in the same file, "
				"'x.db'" },
#ifdef POSTERN_POSTGRES
		{ "stores: {a: {url: 'postgres://h/d'}, b: {url: 'postgres://h/d'}}",
				"f:1:47: the stores 'a' and 'b' are in the same schema, "
				"'postern'" },
		{ "stores: {a: {url: 'postgres://h/d', schema: s}, "
		  "b: {url: 'postgres://h/d'}, c: {url: 'postgres://h/d', schema: s}}",
				"f:1:86: the stores 'a' and 'c' are in the same schema, 's'" },
#endif
		{ "stores: {audit: {url: memory}, archive: {url: memory}}\n"
		  "channels: {c: {store: audti}}",
				"f:2:23: no store 'audti'; did you mean 'audit'?" },
		{ "stores: {a: {url: memory}, b: {url: memory}}\n"
		  "channels: {c: {store: nowhere}}",
				"f:2:23: no store 'nowhere'" },
		{ "stores: {a: {url: memory}, b: {url: memory}}\n"
		  "channels: {c: {}}",
				"f:2:12: channel 'c' needs 'store: NAME': there are several "
				"stores, and none is named 'default'" },
		{ "stores: {a: {url: memory, timeout: 5m}}",
				"f:1:36: timeout (5m) must be less than lease (5m, the "
				"default); raise 'lease', too" },
		{ "stores: {a: {url: 'memory:'}}\nchannels: {c: {store: b}}",
				"f:2:23: no store 'b', only 'a'" },
		{ "channels: {c: {store: other}}",
				"f:1:23: no store 'other', only 'default'" },
	};
	CHECK_TABLE(table);
}

static const struct tap_case cases[] = {
	{ "an invalid store is refused", bad_stores },
	{ "an invalid address is refused", bad_listen },
	{ "a setting that a store does not support, or that conflicts, is refused",
			bad_settings },
};

TAP_MAIN(cases)
