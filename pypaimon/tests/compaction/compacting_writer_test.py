"""A writer that compacts too is named, once; other compactions of ours are none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.write.commit_message import CommitMessage

from pypaimon.streaming import compact
from pypaimon.streaming.commit.idempotent_commit import commit_compaction
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.handles import catalog_with_database, create_table, write_by_stream

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def created(warehouse: Path, **options: str) -> Any:
    catalog = catalog_with_database(warehouse)
    return create_table(catalog, "t", COLUMNS, primary_keys=["id"], options={"bucket": "1", **options})


def write(table: Any) -> None:
    write_by_stream(table, pa.table({"id": [1], "v": [1]}, schema=COLUMNS))


def compacted_by_a_writer(table: Any) -> int:
    """A file of level 0 moves up, in a snapshot of another user."""
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    (bucket,) = live_buckets(PaimonTable(table), LiveEntries().look(directory, snapshot))
    (file,) = [each for each in bucket.files if each.level == 0]
    message = CommitMessage((), 0, [], compact_before=[file.replaced()], compact_after=[file.moved(4)])
    commit_compaction(CommitRequest(PaimonTable(table), "writer", 1, [message]), planned_at=snapshot.id)
    return snapshot.id + 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [each.paimon for each in caplog.records if each.levelno == logging.WARNING]  # type: ignore[attr-defined]


def test_a_writer_that_compacts_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = created(tmp_path)
    write(table)
    compact(table, full=True)
    compaction = Compaction(PaimonTable(table))
    compaction.run()
    assert warnings(caplog) == []
    write(table)
    number = compacted_by_a_writer(table)
    compaction.run()
    compaction.run()
    (told,) = warnings(caplog)
    assert (told["event"], told["table"], told["user"], told["snapshot"]) == (
        "compacting_writer",
        "db.t",
        "writer",
        number,
    )


def test_where_writers_do_not_compact_nobody_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = created(tmp_path, **{"write-only": "true"})
    write(table)
    compacted_by_a_writer(table)
    compact(table)
    assert warnings(caplog) == []
