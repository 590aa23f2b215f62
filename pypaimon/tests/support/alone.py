"""Each test file in a process of its own, with an empty directory of temporary files: none needs what another one left.

Usage: `run.py support.alone [--some N] [FILE...]`; all files by default, `--some` of them drawn with `TEST_SEED`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.repository import ROOT, TESTS
from support.samples import how_to_repeat, seeded

AT_ONCE = 2
NO_TESTS = 5
"""How pytest ends where the marks leave out all tests of a file."""


def run(file: Path) -> str:
    """What is wrong with the tests of a file, by themselves; empty: nothing."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="alone-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o711)  # Postgres does not run as root, and its own account has to reach its files
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))
        environment = {**os.environ, "TMPDIR": directory}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    name, is_right = file.relative_to(TESTS), done.returncode in (0, NO_TESTS)
    print(f"{'passed' if is_right else 'FAILED'} {name} in {time.monotonic() - begun:.0f} s", flush=True)
    return "" if is_right else f"{name}\n{done.stdout}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="alone")
    parser.add_argument("--some", type=int, metavar="N", help="draw so many of the files")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    files = [path.resolve() for path in given.files] or sorted(TESTS.rglob("*_test.py"))
    if given.some is not None:
        print(how_to_repeat())
        files = seeded("files alone").sample(files, given.some)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [found for found in pool.map(run, files) if found]
    print(*wrong, f"{len(files)} files, {len(wrong)} of them fail alone", sep="\n\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
