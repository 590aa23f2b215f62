"""The files of a release in `dist/`: built, checked, and tried as a user tries them. Nothing is published.

With a tag on this commit (`git tag v0.2.0`) they are those of its version: both distributions, a bill of materials of
what the wheel installs, and checksums. Without one this is a rehearsal of what the changelog announces, `0.2.0.dev0`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import venv
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TRIAL_SECONDS = 120
"""How long the first program may take to print its first line."""


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """What a command prints; it must succeed."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def version_of(tags: list[str], changelog: str, readme: str) -> str:
    """The version to build, of which the tag, the changelog and the README must say the same."""
    heading = re.search(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)
    if heading is None or not re.fullmatch(r"\d+\.\d+\.\d+", heading[1]):
        found = heading[1] if heading else "nothing"
        sys.exit(f"CHANGELOG.md begins with [{found}]: name the release that is due, as ## [0.2.0] - 2026-11-27")
    announced, day = heading.groups()
    if f"version {announced.rpartition('.')[0]}:" not in readme:
        sys.exit(f"README.md says another version than {announced} under Status")
    if not tags:
        return f"{announced}.dev0"
    if tags != [f"v{announced}"]:
        sys.exit(f"the tag and CHANGELOG.md differ: this commit has {', '.join(tags)}, the changelog [{announced}]")
    if day is None:
        sys.exit(f"CHANGELOG.md: date the section [{announced}]")
    return announced


def install(python: Path, *what: str | Path) -> None:
    by_uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python)
    by_pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*(by_uv if find_spec("uv") else by_pip), *what)


def try_out(python: Path, wheel: Path, version: str, directory: Path) -> None:
    """Do what the README begins with, far from the repository."""
    install(python, f"pypaimon-streaming[cli] @ {wheel.as_uri()}")
    about = "import pypaimon.streaming as ours; print(ours.__version__, ours.__file__)"
    found, file = run(python, "-P" if sys.version_info >= (3, 11) else "-I", "-c", about, cwd=directory).split()
    if found != version or not Path(file).is_relative_to(python.parent.parent):
        sys.exit(f"the wheel of {version} installs {found} ({file})")
    warehouse = directory / "warehouse"
    run(python, "-m", "pypaimon.streaming.example_tables", warehouse, cwd=directory)
    (code, *_) = re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = code.replace("/path/to/warehouse", str(warehouse))
    with subprocess.Popen([python, "-u", "-c", code], cwd=directory, stdout=subprocess.PIPE, text=True) as program:
        limit = threading.Timer(TRIAL_SECONDS, program.kill)
        limit.start()
        assert program.stdout is not None
        line = program.stdout.readline()
        limit.cancel()
        program.kill()
    if not line.startswith("4 pyarrow.Table"):
        sys.exit(f"the first program of README.md printed {line!r}")
    command = python.with_name("paimon-stream")
    run(command, "--help", cwd=directory)
    sys.stdout.write(f"{run(command, 'tail', 'db.orders', '--warehouse', warehouse, cwd=directory)}\n")


def main() -> None:
    """Build, check, describe, try."""
    texts = ((ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "README.md"))
    tags = run("git", "tag", "--points-at", "HEAD", "--list", "v*").split()
    version = version_of(tags, *texts)
    if tags and (changed := run("git", "status", "--porcelain")):
        sys.exit(f"commit or remove first:\n{changed}")
    shutil.rmtree(DIST, ignore_errors=True)
    builder = ("--installer", "uv") if find_spec("uv") else ()
    named = {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_PYPAIMON_STREAMING": version}
    run(sys.executable, "-m", "build", *builder, "--outdir", DIST, **named)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (wheel,) = DIST.glob(f"pypaimon_streaming-{version}-*.whl")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        venv.create(place / "venv", with_pip=False)
        python = place / "venv" / "bin" / "python"
        install(python, wheel)
        materials = DIST / f"pypaimon_streaming-{version}.cdx.json"
        describe = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
        run(*describe, "--output-file", materials, python)
        (place / "empty").mkdir()
        try_out(python, wheel, version, place / "empty")
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    sys.stdout.write(f"{sums}{'' if tags else f'a rehearsal: no tag on this commit; git tag v{version[:-5]}'}\n")


if __name__ == "__main__":
    main()
