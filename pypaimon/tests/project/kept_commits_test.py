"""Commits that tests of a worker repeat: a table that is copied has nothing of what another test did to its own."""

from __future__ import annotations

import time
from pathlib import Path

from support.tables import kept_commits
from support.tables.streamed_table import Table


def test_a_hint_that_one_test_has_changed_is_not_in_the_table_of_another(tmp_path: Path) -> None:
    table = Table(tmp_path / "changed", "t").commit_each(range(3))
    hint = table.path / "snapshot" / "EARLIEST"
    hint.write_text("3")
    table.commit([3])
    kept_commits.begin_test()
    other = Table(tmp_path / "other", "t").commit_each(range(4))
    assert other.ids() == [1, 2, 3, 4] and hint.read_text() == "3"
    assert not (other.path / "snapshot" / "EARLIEST").exists()


def test_no_snapshot_of_a_copy_is_later_than_now(tmp_path: Path) -> None:
    for name in ("first", "copy"):
        kept_commits.begin_test()
        table = Table(tmp_path / name, "t").commit_each(range(12))
        times = [table.snapshot(number)["timeMillis"] for number in table.ids()]
        assert times == sorted(set(times)) and times[-1] <= time.time_ns() // 1_000_000
