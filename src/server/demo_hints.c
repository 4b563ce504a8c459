/* SPDX-License-Identifier: MIT */
/*
 * What `postern serve --demo` prints: every line works when it is pasted.
 */

#include "server/demo_hints.h"

#include <string.h>

#include "base/buf.h"
#include "server/listening.h"
#include "server/stores.h"

/* Text quoted as one word of a shell. */
static void append_quoted(struct postern__buf *buf, const char *text) {
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
								"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+";
	if (*text && text[strspn(text, plain)] == '\0') {
		postern__buf_append_text(buf, text);
		return;
	}
	postern__buf_append_char(buf, '\'');
	for (; *text; text++) {
		if (*text == '\'') {
			postern__buf_append_text(buf, "'\\''");
		} else {
			postern__buf_append_char(buf, *text);
		}
	}
	postern__buf_append_char(buf, '\'');
}

/* Lines that send the same message twice. */
static void append_curl(const struct postern__listening *listening,
		struct postern__buf *buf) {
	const char *tcp = postern__listening_tcp(listening);
	postern__buf_printf(buf, "  URL=%s://%s/v1/channels/demo/messages\n",
			tcp && listening->secure ? "https" : "http", tcp ? tcp : "postern");
	postern__buf_append_text(buf, "  curl ");
	if (!tcp) {
		postern__buf_append_text(buf, "--unix-socket ");
		append_quoted(buf, listening->sockets[0].path);
		postern__buf_append_char(buf, ' ');
	}
	postern__buf_append_text(buf, "-w '\\n' -H 'Idempotency-Key: curl-1' -d "
								  "'hello from curl' $URL $URL"
								  "   # accepted, and duplicate\n");
}

void postern__demo_hints(const struct postern__listening *listening,
		const struct postern__open_store *store, const char *program,
		bool hooks, struct postern__buf *out) {
	static const struct {
		bool hooks;
		const char *text;
	} commands[] = {
		{ false, "echo hello | %s send demo --id hello-1   # accepted, and "
				 "again: duplicate" },
		{ false, "echo other | %s send demo --id hello-1   # conflict: the "
				 "first is kept" },
		{ false, "echo hi | %s send demo --id flaky-1 --type demo.flaky   # "
				 "fails twice" },
		{ false, "echo no | %s send demo --id poison-1 --type demo.poison # "
				 "poisoned by the first attempt" },
		{ true, "echo hi | %s send demo --id hook-1 --type demo.webhook   # "
				"posted to 'received'" },
		{ false, "echo no | %s send demo --id fail-1 --type demo.fail     # "
				 "fails three times" },
		{ false, "%s list" },
		{ false, "%s show flaky-1" },
		{ true, "%s list --channel received   # what the webhook became" },
		{ false, "%s list --state poisoned" },
		{ false, "%s retry poison-1   # or: discard poison-1" },
		{ false, "%s stats" },
	};
	struct postern__buf word;
	postern__buf_init(&word, (size_t)16 * 1024);
	postern__buf_append_text(out, "\nTry, in another terminal:\n\n");
	append_curl(listening, out);
	postern__buf_printf(&word, "%s:%s", store->scheme, store->file);
	postern__buf_append_text(out, "  export POSTERN_STORE=");
	append_quoted(out, postern__buf_text(&word));
	postern__buf_append_char(out, '\n');

	postern__buf_reset(&word);
	append_quoted(&word, program ? program : "postern");
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		const char *text = commands[i].text;
		const char *hole = strstr(text, "%s");
		if (commands[i].hooks && !hooks) {
			continue;
		}
		postern__buf_append_text(out, "  ");
		postern__buf_append(out, text, (size_t)(hole - text));
		postern__buf_append_text(out, postern__buf_text(&word));
		postern__buf_append_text(out, hole + 2);
		postern__buf_append_char(out, '\n');
	}
	postern__buf_append_text(out, "\nControl-C stops the server.\n\n");
	postern__buf_finish(&word);
}
