/* SPDX-License-Identifier: MIT */
/*
 * The configuration of `postern serve --demo`: one channel with four handlers
 * that need only a shell. It has a store file of its own and holds orphans, so
 * that a demo beside real data does no harm.
 */

#include "server/config.h"

/* clang-format off */
const char postern__config_demo[] =
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
/* clang-format on */
