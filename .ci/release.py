"""The files of a release, in `dist/`: both distributions, a bill of materials of what the wheel installs, checksums.

The version is that of the tag (`git tag v0.2.0`). Without one on this commit, or with changes, nothing is built.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def run(*command: str | Path) -> str:
    """What a command prints; it must succeed."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def version() -> str:
    """That of the one tag of this commit."""
    tags = run("git", "tag", "--points-at", "HEAD", "--list", "v*").split()
    if len(tags) != 1:
        sys.exit(f"expected one tag v* on this commit, got {tags}: git tag v0.2.0")
    if changed := run("git", "status", "--porcelain"):
        sys.exit(f"commit or remove first:\n{changed}")
    return tags[0].removeprefix("v")


def main() -> None:
    """Build, check, describe."""
    wanted = version()
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (wheel,) = DIST.glob(f"pypaimon_streaming-{wanted}-*.whl")
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=False)
        python = Path(directory, "bin", "python")
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
        materials = DIST / f"pypaimon_streaming-{wanted}.cdx.json"
        describe = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
        run(*describe, "--output-file", materials, python)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    sys.stdout.write(sums)


if __name__ == "__main__":
    main()
