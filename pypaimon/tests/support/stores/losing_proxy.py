"""A program between a client and a Postgres server, on Unix sockets: it loses the answer to a commit."""

from __future__ import annotations

import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from support.repository import program

_FILE = ".s.PGSQL.5432"


@contextmanager
def losing_a_commit(address: str, after: str) -> Iterator[str]:
    """The address of a server whose connection is lost with the answer to the first COMMIT after a statement.

    It is a process of its own, for a driver that waits lets no other thread run.
    """
    found = re.search("host=([^&]*)", address)
    assert found is not None
    home = tempfile.mkdtemp(prefix="pg")
    command = program("support.stores.losing_proxy", f"{home}/{_FILE}", f"{found[1]}/{_FILE}", after)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as proxy:
        try:
            assert proxy.stdout is not None and proxy.stdout.readline() == b"listens\n"
            yield address.replace(found[1], home)
        finally:
            proxy.kill()
            shutil.rmtree(home)


def _forward(here: str, there: str, after: str) -> None:
    """One connection after the other: the driver's first one asks for types alone."""
    awaited = [after.encode(), b"COMMIT"]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(here)
        listening.listen()
        print("listens", flush=True)
        while awaited:
            client, _ = listening.accept()
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(there)
                _forward_one(client, server, awaited)


def _forward_one(client: socket.socket, server: socket.socket, awaited: list[bytes]) -> None:
    while True:
        for source in select.select([client, server], [], [])[0]:
            data = source.recv(1 << 16)
            if not data or (source is server and not awaited):
                return
            if source is client and awaited and awaited[0] in data:
                del awaited[0]
            (server if source is client else client).sendall(data)


if __name__ == "__main__":
    _forward(*sys.argv[1:])
