# SPDX-License-Identifier: MIT
"""PgBouncer in transaction mode in front of a private server, for as long as a
test needs it: every transaction may get another session."""

import os
import signal
import socket

from postgres import PATIENCE_S, USER, ServerError, free_port, until

PROGRAM = "/usr/sbin/pgbouncer"

CONFIG = """\
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {sessions}
server_round_robin = {in_turn:d}
"""

# Server sessions for each database and user.
SESSIONS = 3


class Pooler:
    """Use it in a `with`; it listens on .port. `in_turn`: each transaction
    gets the next session, not the last one used."""

    def __init__(self, server, users=(USER,), in_turn=False):
        self.port = free_port()
        path = os.path.join(server.path, "pgbouncer.ini")
        names = os.path.join(server.path, "pgbouncer.users")
        self.log = os.path.join(server.path, "pgbouncer.log")
        with open(names, "w", encoding="utf-8") as file:
            file.writelines(f'"{user}" ""\n' for user in users)
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(server=server.port, port=self.port,
                                     users=names, sessions=SESSIONS,
                                     in_turn=in_turn))
        with open(self.log, "ab") as log:
            self.process = server.spawn([PROGRAM, path], log)
        until(self.answers, "starting pgbouncer")

    def answers(self):
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8") as file:
                raise ServerError(f"pgbouncer ended: {file.read()[-2000:]}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
