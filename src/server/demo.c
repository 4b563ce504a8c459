/* SPDX-License-Identifier: MIT */
/*
 * The configuration of `postern serve --demo`: a channel with handlers that
 * need only a shell, and one that posts webhooks to this server, which receives
 * them in another channel. It has a store file of its own and holds orphans, so
 * that a demo beside real data does no harm.
 */

#include "server/demo.h"

#include <postern/error.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/expand.h"
#include "server/config.h"
#include "server/tcp.h"

#define LISTEN_DEFAULT "127.0.0.1:7420"

/* Everyone may know it. */
#define SECRET "whsec_bm90IGEgc2VjcmV0OiBpdCBpcyBpbiB0aGUgZGVtby4="

/* clang-format off */
static const char basic[] =
"store: sqlite:postern-demo.db\n"
"defaults:\n"
"  orphans: hold\n"
"channels:\n"
"  demo:\n"
"    handlers:\n"
"      # Exactly once: the row and the delivery's completion commit together.\n"
"      ledger:\n"
"        sql: |\n"
"          create table if not exists demo_ledger(\n"
"            message_id text, subject text, entry text);\n"
"          insert into demo_ledger(message_id, subject, entry)\n"
"            values (:id, :subject, :body);\n"
"      # At least once: a program that reads the body.\n"
"      greet:\n"
"        exec: [/bin/sh, -c, 'echo \"hello, $CE_ID: $(cat)\"']\n"
"        timeout: 10s\n"
"      # Fails twice, to show retries: send --type demo.flaky.\n"
"      flaky:\n"
"        types: [demo.flaky]\n"
"        exec:\n"
"          - /bin/sh\n"
"          - -c\n"
"          - |\n"
"            [ \"$POSTERN_ATTEMPT\" -ge 3 ] && exit 0\n"
"            echo \"attempt $POSTERN_ATTEMPT fails on purpose\" >&2\n"
"            exit 75\n"
"        backoff: [1s, 2s]\n"
"        timeout: 10s\n"
"      # Always fails, and is poisoned by the third attempt: --type demo.fail.\n"
"      hopeless:\n"
"        types: [demo.fail]\n"
"        exec: [/bin/sh, -c, 'echo \"it fails, as always\" >&2; exit 1']\n"
"        max_attempts: 3\n"
"        backoff: [1s]\n"
"        timeout: 10s\n"
"      # Is poisoned at once, to show what a person can do: --type demo.poison.\n"
"      # A retry has a higher fence, and succeeds.\n"
"      strict:\n"
"        types: [demo.poison]\n"
"        exec:\n"
"          - /bin/sh\n"
"          - -c\n"
"          - |\n"
"            [ \"$POSTERN_FENCE\" -gt 1 ] && exit 0\n"
"            echo \"refused on purpose\" >&2\n"
"            exit 65\n"
"        timeout: 10s\n";
/* Behind the handlers of `demo`, with the address of this server. */
static const char hooks[] =
"      # Posts a signed webhook, to the channel below: --type demo.webhook.\n"
"      notify:\n"
"        types: [demo.webhook]\n"
"        webhook:\n"
"          url: http://%s/v1/channels/received/webhooks/demo\n"
"          secret: " SECRET "\n"
"  received:\n"
"    sources:\n"
"      - webhook: {name: demo, verify: standard, secret: " SECRET "}\n"
"    handlers:\n"
"      keep:\n"
"        sql: |\n"
"          create table if not exists demo_received(message_id text, body text);\n"
"          insert into demo_received(message_id, body) values (:id, :body);\n";
/* clang-format on */

/* The value of a global option, from a flag or a variable; NULL: neither. */
static const char *value_of(const struct postern__config_input *input,
		const char *flag, const char *variable) {
	for (size_t i = 0; i < input->flag_count; i++) {
		if (strcmp(input->flags[i].name, flag) == 0) {
			return input->flags[i].value;
		}
	}
	const char *value =
			postern__environment_get(input->environment ? input->environment
														: environ,
					variable);
	return value && *value ? value : NULL;
}

/* The address of TCP at which this server will be, in plain HTTP; false: there
   is none, or it is not known yet. */
static bool find_address(const struct postern__config_input *input,
		struct postern__tcp *out) {
	const char *listen = value_of(input, "listen", "POSTERN_LISTEN");
	char first[POSTERN__TCP_TEXT_MAX] = LISTEN_DEFAULT;
	if (listen && strcspn(listen, ", ") < sizeof first) {
		memcpy(first, listen, strcspn(listen, ", "));
		first[strcspn(listen, ", ")] = '\0';
	}
	return !value_of(input, "tls-cert-file", "POSTERN_TLS_CERT_FILE") &&
		   !value_of(input, "tls_cert_file", "POSTERN_TLS_CERT_FILE") &&
		   postern__tcp_parse(first, out, NULL) == POSTERN_OK &&
		   postern__tcp_port(out) != 0;
}

void postern__demo_write(const struct postern__config_input *input,
		struct postern__buf *out) {
	struct postern__tcp address;
	postern__buf_append_text(out, basic);
	if (find_address(input, &address)) {
		postern__buf_printf(out, hooks, address.text);
	}
}
