"""A store where nobody arbitrates between two commits: one program writes a table at a time, and others are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import StreamWriteBuilder, TableChangedError, stream_write_builder
from pypaimon.streaming.errors import CommitFailedError, WriterClosedError
from support.stores.lossy_store import SCHEME, LossyStore
from support.stores.s3_server import S3Server
from support.tables.handles import write_with
from support.tables.streamed_table import USER, Table
from support.tables.written_tables import key_value_table, rows

pytestmark = pytest.mark.server


class Unsafe(LossyStore):
    """Answers are not lost.

    Attributes:
        before_look: What happens before it is looked whether a snapshot is there.
        before: What happens behind that look, before the snapshot is put there.
    """

    def __init__(self) -> None:
        super().__init__("no", left=0)
        self.before_look, self.before = list[Any](), list[Any]()

    def exists(self, path: str) -> bool:
        if "/snapshot/snapshot-" in path and self.before_look:
            self.before_look.pop()()
        return bool(super().exists(path))

    def rename(self, src: str, dst: str) -> bool:
        if "/snapshot/snapshot-" in dst and self.before:
            self.before.pop()()
            # What an object store does, which copies.
            self._to_file(src).replace(self._to_file(dst))
            return True
        return super().rename(src, dst)

    def _to_file(self, path: str) -> Path:
        return Path(re.sub("^object:/+", "/", path))


@pytest.fixture(params=["append", "keyed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return key_value_table(tmp_path, keyed=request.param == "keyed", **{"commit.min-retry-wait": "1 ms"})


def writer(table: Table, store: Unsafe, user: str = USER) -> StreamWriteBuilder:
    handle = table.handle()
    handle.file_io, handle.table_path = store, SCHEME + str(table.path)
    return stream_write_builder(handle).with_commit_user(user)


def commit(table: Table, store: Unsafe, user: str, key: int) -> None:
    write_with(writer(table, store, user), rows(key))


def test_an_open_writer_that_finds_commits_of_another_one_ends(table: Table) -> None:
    store = Unsafe()
    with writer(table, store).open_sync() as opened:
        opened.write(rows(1))
        opened.commit()
        commit(table, store, "other", 2)
        opened.write(rows(3))
        with pytest.raises(CommitFailedError, match=r"'other' has committed snapshot 2 .*\(no client here") as caught:
            opened.commit()
        assert not caught.value.retriable and "its files are deleted" in str(caught.value)
        with pytest.raises(WriterClosedError):
            opened.commit()
    assert [key for key, _ in table.rows()] == [1, 2] and len(table.data_files()) == 2


def test_the_second_writer_ends(table: Table) -> None:
    """Another one commits between its look and its own publishing."""
    store = Unsafe()
    store.before_look.append(lambda: commit(table, Unsafe(), "other", 2))
    with pytest.raises(CommitFailedError, match=r"'other' has committed snapshot 1 .* its files are deleted") as caught:
        commit(table, store, USER, 1)
    assert "one program write at a time" in str(caught.value)
    assert [key for key, _ in table.rows()] == [2]
    # Of who came second nothing is left: of each commit there are two lists and a manifest.
    assert len(table.data_files()) == 1 and len(list((table.path / "manifest").iterdir())) == 3
    commit(table, store, USER, 3)
    assert [key for key, _ in table.rows()] == [2, 3]


def test_a_replaced_writer_finds_it_with_its_next_commit(table: Table) -> None:
    """Both found no snapshot of that id; nobody could have kept the later one from replacing the earlier."""
    slow = Unsafe()
    with writer(table, Unsafe()).open_sync() as fast:
        fast.write(rows(1))
        slow.before.append(fast.commit)
        commit(table, slow, "other", 2)
        assert [key for key, _ in table.rows()] == [2]
        fast.write(rows(3))
        with pytest.raises(TableChangedError, match="Nothing was committed"):
            fast.commit()
    assert [key for key, _ in table.rows()] == [2]


def test_one_after_the_other_they_may_write(table: Table) -> None:
    store = Unsafe()
    for key in range(6):
        commit(table, store, USER if key % 2 else "other", key)
    assert [key for key, _ in table.rows()] == list(range(6))


def test_a_store_that_compares_takes_several_at_the_same_time(server: S3Server) -> None:
    catalog = server.catalog("arbiter")
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(pa.schema([("k", pa.int64())])), False)
    one, two = (stream_write_builder(catalog.get_table("db.t")).with_commit_user(user) for user in ("one", "two"))
    with one.open_sync() as first, two.open_sync() as second:
        for key in range(6):
            opened = second if key % 2 else first
            opened.write(pa.table({"k": [key]}))
            assert opened.commit().snapshot_id == key + 1
