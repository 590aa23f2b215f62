"""The command that measures real engines: its rows, its tables and its page, and what it refuses before it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.docs.readme_parts import rivals
from support.repository import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _from_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_its_page_has_a_table_for_each_measure_and_the_readme_takes_the_rates() -> None:
    from benchmarks.public.__main__ import page
    from benchmarks.public.engines import Cost
    from benchmarks.public.report import compared

    ours = [Cost(1.0, processor, 100.0, {}) for processor in (0.5, 2.0, 1.0)]
    java = [Cost(4.0, 4 * each.processor, 900.0, {}) for each in ours]
    section = compared(
        "Read: append, 8 x 10 rows", {"this library": ours, "Java's API": java}, 2_000_000, "Equal rows."
    )
    text = page([section], seconds=3, cores=0.25, scale=0.1)
    assert "## Read: append, 8 x 10 rows\n" in text
    assert "| this library | 1 | 1 | 2 M | 100 MB |  |\n" in text
    assert "| Java's API | 4 | 4 | 0.5 M | 900 MB | 4 x |\n\nEqual rows.\n" in text
    assert "sizes are 0.1 of the full ones. Other programs kept 0.25 cores busy.\n" in text
    assert rivals(text).splitlines()[-1] == "| append, 8 x 10 rows | 2 M | 0.5 M |"


def test_rows_are_the_same_in_arrow_and_in_files_and_their_checksum_counts_kinds(tmp_path: Path) -> None:
    from benchmarks.public.rows import Checksum, Rows, changes

    rows = changes(commits=2, each=10)
    assert rows.arrow().column("_row_kind").to_pylist()[10:] == ["-U", "+U"] * 4 + ["-D", "+I"]
    home = rows.save(tmp_path / "rows")
    assert {path.name: path.stat().st_size // len(rows) for path in home.iterdir()} == {
        name: width for name, _, width in rows.layout
    }
    assert np.fromfile(home / "id", np.int64).tolist() == rows.arrow().column("id").to_pylist()
    assert (home / "name").read_bytes().decode() == "".join(rows.arrow().column("name").to_pylist())

    two = Rows({"id": np.array([1, 2])}, np.array([0, 3], np.int8))
    found = Checksum()
    found.add(two.arrow())
    assert (found.rows, found.value) == (2, 1 * 1 + 4 * 2)


@pytest.mark.parametrize(
    ("arguments", "path", "said"),
    [
        (["--scale", "2"], None, "--scale: expected 0.01 to 1, got 2"),
        ([], "/nowhere", "needs Maven and a JDK 17 or newer: not found on the path: mvn, javac, java"),
    ],
)
def test_it_refuses_before_it_starts(
    arguments: list[str], path: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path is not None:
        monkeypatch.setenv("PATH", path)
    command = [sys.executable, "-m", "benchmarks.public", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2
    assert said in ended.stderr
