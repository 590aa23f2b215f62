"""Which partitions are compacted by their age."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError, stream_write_builder
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import Timestamp
from support.tables.handles import catalog_with_database, create_table

COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms"))])
TIMES = [datetime.datetime(2026, 1, day, 8, 30) for day in (1, 2, 3)]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    catalog = catalog_with_database(tmp_path)
    options = {"bucket": "2", "bucket-key": "id"}
    table = create_table(catalog, "t", COLUMNS, partition_keys=["at"], options=options)
    with stream_write_builder(table).with_commit_user("load").open_sync() as writer:
        writer.write(pa.table({"id": range(12), "at": TIMES * 4}, schema=COLUMNS))
        writer.commit()
    return table


def buckets_of(table: Any) -> list[LiveBucket]:
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    return list(live_buckets(PaimonTable(table), LiveEntries().look(directory, snapshot)))


def aged(bucket: LiveBucket, hours: int) -> LiveBucket:
    """The bucket with files that were made hours ago, by the local clock as files tell it."""
    made = datetime.datetime.now() - datetime.timedelta(hours=hours)
    millis = int(made.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000)
    files = [
        replace(file, read=replace(file.read, creation_time=Timestamp.from_epoch_millis(millis)))
        for file in bucket.files
    ]
    return replace(bucket, files=tuple(files))


def test_only_conditions_make_others(table: Any) -> None:
    rows = pa.array(list(dict.fromkeys(bucket.row for bucket in buckets_of(table))), pa.binary())
    given, where = PaimonTable(table), "at >= '2026-01-03 00:00:00'"
    dropped, other = ChosenPartitions(given, where=where).others(rows).to_pylist()
    for chosen in (ChosenPartitions(given), ChosenPartitions(given, without=[dropped])):
        assert not len(chosen.others(rows))
    assert ChosenPartitions(given, where=where, without=[dropped]).others(rows).to_pylist() == [other]


def test_a_partition_is_as_old_as_its_youngest_file(table: Any) -> None:
    buckets = buckets_of(table)
    hours = {buckets[0].row: [5, 5], buckets[2].row: [1, 5], buckets[4].row: [1, 1]}
    given = [aged(bucket, hours[bucket.row][bucket.bucket]) for bucket in buckets]
    assert len(given) == 6
    chosen = ChosenPartitions(PaimonTable(table), partition_idle_time=3 * 3600)
    assert [(each.row, each.bucket) for each in chosen.idle(given)] == [(buckets[0].row, 0), (buckets[0].row, 1)]
    assert list(ChosenPartitions(PaimonTable(table)).idle(given)) == given


def test_conditions_on_partitions_of_times(table: Any) -> None:
    chosen = ChosenPartitions(PaimonTable(table), where="at >= '2026-01-02 00:00:00' and at <> '2026-01-03 08:30:00'")
    rows = pa.array([bucket.row for bucket in buckets_of(table)])
    found = [decode(row, table.partition_keys_fields) for row in chosen.among(rows).to_pylist()]
    assert [str(at) for (at,) in found] == ["2026-01-02 08:30:00"] * 2


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_an_invalid_age_is_refused(table: Any, seconds: float) -> None:
    with pytest.raises(StreamConfigError, match="partition_idle_time"):
        ChosenPartitions(PaimonTable(table), partition_idle_time=seconds)


def test_others_are_those_that_a_condition_excludes(table: Any) -> None:
    found = {bucket.row for bucket in buckets_of(table)}
    rows = pa.array(sorted(found, key=lambda row: tuple(decode(row, table.partition_keys_fields))))
    given = PaimonTable(table)
    for where, without, expected in ((None, 0, 0), (None, 1, 0), ("at >= '2026-01-02 00:00:00'", 0, 1)):
        chosen = ChosenPartitions(given, where=where, without=rows[:without].to_pylist())
        assert len(chosen.others(rows)) == expected
    chosen = ChosenPartitions(given, where="at < '2026-01-02 00:00:00'", without=rows[1:2].to_pylist())
    assert chosen.others(rows).to_pylist() == rows[2:].to_pylist()
