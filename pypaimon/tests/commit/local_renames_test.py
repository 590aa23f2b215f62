"""On a local disk Java and pypaimon publish by renaming, which may replace a snapshot: never one of ours."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.errors import CommitFailedError
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

pytestmark = pytest.mark.slow


class Renaming:
    """A writer that is about to rename its snapshot: it has written it beside, and has seen that there is none yet."""

    def __init__(self, table: Table, number: int) -> None:
        self.target = table.path / "snapshot" / f"snapshot-{number}"
        self.temporary = self.target.with_name(f".{self.target.name}.{uuid4()}.tmp")
        latest = table.snapshot(number - 1)
        own = {"id": number, "commitUser": "renaming", "uuid": str(uuid4()), "deltaManifestList": "manifest-list-none"}
        self.temporary.write_text(json.dumps(latest | own))

    def rename(self) -> bool:
        """What Java's and pypaimon's FileIO do, behind their look whether the file is there."""
        try:
            os.rename(self.temporary, self.target)
        except FileNotFoundError:
            return False
        return True


def around_the_link(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]) -> None:
    """Have something happen right before and right behind the next link."""
    link = os.link

    def linked(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        before()
        link(source, target)
        after()

    monkeypatch.setattr(os, "link", linked)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = key_value_table(tmp_path)
    commit(found, 1)
    return found


def commit(table: Table, key: int, user: str = "writer") -> int | None:
    with table.writer(user).open_sync() as writer:
        writer.write(rows(key))
        return writer.commit().snapshot_id


def test_a_writer_that_looked_before_our_link_and_renames_after_it_fails(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    renaming = list[Renaming]()
    around_the_link(monkeypatch, lambda: renaming.append(Renaming(table, 2)), lambda: None)
    assert commit(table, 2) == 2
    assert not renaming[0].rename()
    assert table.rows() == [(1, "v1"), (2, "v2")]
    assert not list((table.path / "snapshot").glob(".*"))


def test_a_link_that_was_replaced_at_once_is_not_a_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    renaming = list[Renaming]()

    def replace() -> None:
        assert renaming[0].rename()
        # Its lists are not there, since nobody has written them.
        before, now = table.snapshot(1), table.snapshot(2)
        renaming[0].target.write_text(json.dumps(now | {"deltaManifestList": before["deltaManifestList"]}))

    around_the_link(monkeypatch, lambda: renaming.append(Renaming(table, 2)), replace)
    assert commit(table, 2) == 3
    assert [table.snapshot(each)["commitUser"] for each in table.ids()] == ["writer", "renaming", "writer"]


def test_a_snapshot_whose_writer_died_is_safe_before_another_one_follows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of snapshot 2 died behind its link, before it could see to the one that is about to rename."""
    renaming = list[Renaming]()

    def die() -> None:
        raise KeyboardInterrupt

    around_the_link(monkeypatch, lambda: renaming.append(Renaming(table, 2)), die)
    with pytest.raises(KeyboardInterrupt):
        commit(table, 2)
    around_the_link(monkeypatch, lambda: renaming.append(renaming[0]) if renaming[0].rename() else None, lambda: None)
    assert commit(table, 3, "other") == 3
    assert len(renaming) == 1, "snapshot 2 was replaced though 3 follows it"
    assert table.rows() == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_of_two_of_ours_one_is_first(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one deletes what the second one wrote beside."""
    around_the_link(monkeypatch, lambda: commit(table, 3, "other"), lambda: None)
    assert commit(table, 2) == 3
    assert table.rows() == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_pypaimon_that_was_slower_learns_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its renaming."""
    exists = Path.exists

    def then_ours(self: Path) -> bool:
        found = exists(self)
        if self.name == "snapshot-2" and any(self.parent.glob(f".{self.name}.*")):
            monkeypatch.setattr(Path, "exists", exists)
            assert commit(table, 2) == 2
        return found

    monkeypatch.setattr(Path, "exists", then_ours)
    target = table.path / "snapshot" / "snapshot-2"
    assert not LocalFileIO().try_to_write_atomic(str(target), "{}")
    assert Path.exists is exists and table.rows() == [(1, "v1"), (2, "v2")]


def test_a_link_that_was_reported_as_a_failure_is_safe_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network file system may do it."""
    renaming = list[Renaming]()

    def fail() -> None:
        raise OSError(errno.EIO, "the answer was lost")

    around_the_link(monkeypatch, lambda: renaming.append(Renaming(table, 2)), fail)
    assert commit(table, 2) == 2
    assert not renaming[0].rename()
    assert table.rows() == [(1, "v1"), (2, "v2")]


def test_snapshots_of_its_own_are_listed_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where thousands of snapshots are kept, a listing is what a commit costs most."""
    listed, listdir = list[str](), os.listdir

    def counted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    with table.writer().open_sync() as writer:
        for key in range(2, 5):
            writer.write(rows(key))
            listed.clear()
            with monkeypatch.context() as patched:
                patched.setattr(os, "listdir", counted)
                writer.commit()
    assert [Path(each).name for each in listed].count("snapshot") == 1


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_links_is_named_at_once_and_nothing_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    asked = []

    def refused(source: str, target: str) -> None:
        asked.append(target)
        raise OSError(number, os.strerror(number), source, None, target)

    monkeypatch.setattr(os, "link", refused)
    files = table.data_files()
    with pytest.raises(CommitFailedError, match=r"has no hard links, .*its files are deleted"):
        commit(table, 2)
    assert len(asked) == 1 and table.data_files() == files
    assert not list((table.path / "snapshot").glob(".*.tmp"))
