#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lines of docs/webhooks.md, run as a reader would."""

import os
import re
import subprocess

from support import PATIENCE_S, POSTERN, case, equal, main, until

TEXT = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "webhooks.md")


def read_section():
    """The configuration, and the blocks of commands, of the tutorial."""
    with open(TEXT, encoding="utf-8") as file:
        section = file.read().partition("## Receiving webhooks\n")[2]
    section = section.partition("\n### ")[0]
    config = re.search(r"```yaml\n(.*?)```", section, re.DOTALL).group(1)
    blocks = re.findall(r"(?:^    .*\n)+", section.replace(config, ""), re.MULTILINE)
    return config, [re.sub(r"^    ", "", block, flags=re.MULTILINE)
                    for block in blocks]


def run(place, script, url=""):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("http://127.0.0.1:7420", url)],
        cwd=place.path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env=place.environment({"PATH": os.path.dirname(POSTERN) + ":" + os.environ["PATH"]}))
    equal(done.returncode, 0, script, done.stdout, done.stderr)
    return done.stdout


@case("the tutorial of webhooks works line by line")
def _(place):
    config, (secrets, push, forged, charge, look) = read_section()
    place.configure(config)
    run(place, secrets)
    server = place.serve(tcp=True)
    assert " 202 Accepted" in run(place, push, server.url)
    out = run(place, push, server.url)
    assert " 200 OK" in out and '"status":"duplicate"' in out, out
    # The variables are those of the block before it.
    out = run(place, push + forged, server.url)
    assert " 401 Unauthorized" in out and "the signature is not valid" in out, out
    assert " 202 Accepted" in run(place, charge, server.url)
    until(lambda: {place.state(name, "archive") for name in ("delivery-1", "evt_1")}
          == {"done"})
    out = run(place, look)
    for text in ("push", "charge.succeeded", "events.webhook.github", "no signature matches"):
        assert text in out, out


main()
