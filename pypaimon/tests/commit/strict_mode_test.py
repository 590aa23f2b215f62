"""`commit.strict-mode.last-safe-snapshot`: which commits of others forbid to go on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError, compact, stream_write_builder
from pypaimon.streaming.errors import StrictModeError
from support.tables.handles import sorted_rows, write_with
from support.tables.streamed_table import Table

LAST_SAFE_SNAPSHOT = "commit.strict-mode.last-safe-snapshot"

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)])


class Parts:
    """A table with a primary key, partitioned by `p`, in whose partition `a` two commits of another user lie."""

    def __init__(self, directory: Path) -> None:
        made = Table(directory, columns=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], bucket="1")
        self.table, self.path = made.handle(), made.path
        for key in range(2):
            self.append("a", key)

    def append(self, partition: str = "a", key: int = 9) -> None:
        self.writes("other", [(partition, key)])

    def overwrite(self, partition: str = "a") -> None:
        self.writes("other", [(partition, 9)], over={"p": partition})

    def compact(self) -> None:
        """Another user's COMPACT, of partition `a` alone."""
        assert compact(self.table, full=True).new_snapshot_ids

    def writes(self, user: str, rows: list[tuple[str, int]], over: Any = None, **options: str) -> None:
        """One commit of a writer that opens for it."""
        builder = stream_write_builder(self.table.copy(options) if options else self.table).with_commit_user(user)
        write_with((builder if over is None else builder.with_overwrite(over)), table_of(rows))

    def strict(self, last_safe: int) -> Any:
        """A writer that heeds what came after a snapshot."""
        return stream_write_builder(self.table.copy({LAST_SAFE_SNAPSHOT: str(last_safe)})).with_commit_user("ours")

    def rows(self) -> list[tuple[str, int]]:
        return sorted_rows(self.table, ["p", "k"])


def table_of(rows: list[tuple[str, int]]) -> pa.Table:
    return pa.table([pa.array(each) for each in zip(*rows, strict=True)], schema=COLUMNS)


def commit(writer: Any, partition: str, key: int) -> None:
    writer.write(table_of([(partition, key)]))
    writer.commit()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


@pytest.mark.parametrize(
    ("happens", "partition", "overwrites", "refused"),
    [
        ("compact", "a", False, "COMPACT"),
        ("overwrite", "a", False, "OVERWRITE"),
        ("append", "a", False, None),
        ("append", "a", True, "APPEND"),
        ("compact", "b", False, None),
        ("overwrite", "b", False, None),
        ("append", "b", True, None),
    ],
)
def test_what_others_did_to_the_same_partition_since(
    parts: Parts, happens: str, partition: str, overwrites: bool, refused: str | None
) -> None:
    getattr(parts, happens)()
    before, files = parts.rows(), len(list(parts.path.rglob("*.parquet")))
    over = {"p": partition} if overwrites else None
    if refused is None:
        parts.writes("ours", [(partition, 5)], over, **{LAST_SAFE_SNAPSHOT: "2"})
        assert (partition, 5) in parts.rows()
        return
    with pytest.raises(StrictModeError, match=rf"Snapshot 3 \({refused} by '.+'\) changes") as caught:
        parts.writes("ours", [(partition, 5)], over, **{LAST_SAFE_SNAPSHOT: "2"})
    assert caught.value.snapshot == 3 and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert (parts.rows(), len(list(parts.path.rglob("*.parquet")))) == (before, files)
    # Behind it the same work is fine.
    parts.writes("ours", [(partition, 5)], over, **{LAST_SAFE_SNAPSHOT: "3"})


def test_what_the_user_did_itself_is_safe(parts: Parts) -> None:
    parts.writes("ours", [("a", 7)], over={"p": "a"})
    parts.writes("ours", [("a", 8)], **{LAST_SAFE_SNAPSHOT: "2"})
    assert parts.rows() == [("a", 7), ("a", 8)]


def test_what_a_writer_has_looked_at_is_safe_and_what_comes_then_is_not(parts: Parts) -> None:
    with parts.strict(2).open_sync() as writer:
        parts.overwrite("a")
        commit(writer, "b", 1)
        commit(writer, "a", 2)
        parts.overwrite("b")
        with pytest.raises(StrictModeError, match="Snapshot 6 "):
            commit(writer, "b", 3)
    assert parts.rows() == [("a", 2), ("a", 9), ("b", 9)]


def test_minus_one_begins_after_the_first_commit(parts: Parts) -> None:
    parts.overwrite("a")
    with parts.strict(-1).open_sync() as writer:
        commit(writer, "a", 1)
        parts.overwrite("a")
        with pytest.raises(StrictModeError, match="Snapshot 5 "):
            commit(writer, "a", 2)


def test_snapshots_after_the_first_row_count(parts: Parts) -> None:
    with parts.strict(2).open_sync() as writer:
        commit(writer, "a", 1)
        writer.write(table_of([("a", 2)]))
        parts.overwrite("a")
        with pytest.raises(StrictModeError, match="Snapshot 4 "):
            writer.commit()


def test_a_snapshot_that_has_expired_decides_nothing(parts: Parts) -> None:
    parts.append("b")
    (parts.path / "snapshot" / "snapshot-1").unlink()
    with pytest.raises(StrictModeError, match="Snapshot 1 has expired"):
        parts.writes("ours", [("a", 5)], **{LAST_SAFE_SNAPSHOT: "0"})


def test_a_compaction_is_refused_too(parts: Parts) -> None:
    parts.overwrite("a")
    parts.append("a")
    with pytest.raises(StrictModeError, match=r"Snapshot 3 \(OVERWRITE by"):
        compact(parts.table.copy({LAST_SAFE_SNAPSHOT: "2"}), full=True)


def test_an_option_that_is_not_a_number_is_refused(parts: Parts) -> None:
    with pytest.raises(StreamConfigError, match="last-safe-snapshot"):
        parts.writes("ours", [("a", 5)], **{LAST_SAFE_SNAPSHOT: "two"})
