"""The stream reader as Spark calls it, without Spark: offsets, batches, limits, requests, progress."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pypaimon.streaming import PositionExpiredError, SchemaChangedError, StreamConfigError, TableChangedError
from support.spark.driver import Driver, Offset
from support.tables.handles import write_by_stream, write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

pytestmark = pytest.mark.slow


def keys(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots of two rows."""
    table = Table(tmp_path / "warehouse")
    for number in range(3):
        table.commit([number * 2, number * 2 + 1])
    return table


@pytest.fixture
def changing(tmp_path: Path) -> Table:
    """A table with a primary key."""
    return Table(tmp_path / "warehouse", "pk", primary_key=True)


# ---- starts ----


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [[0, 1, 2, 3, 4, 5]]),
        ({"start": "latest"}, []),
        ({"start": "earliest"}, [[0, 1, 2, 3, 4, 5]]),
        ({"scan__mode": "from-snapshot", "scan__snapshot-id": "3"}, [[4, 5]]),
        ({"scan__snapshot-id": "2"}, [[2, 3, 4, 5]]),
    ],
)
def test_starts(table: Table, more: dict[str, str], expected: list[list[int]]) -> None:
    assert [sorted(keys(batch)) for batch in Driver(table, **more).batches()] == expected


def test_a_tag_is_a_start(table: Table) -> None:
    table.handle().create_tag("old", 2)
    assert [keys(batch) for batch in Driver(table, start__tag="old").batches()] == [[4, 5]]
    full = Driver(table, start__tag="old", start__full="true").batches()
    assert sorted(keys(full[0])) == [0, 1, 2, 3, 4, 5]


def test_an_empty_first_plan_does_not_end_the_stream(changing: Table) -> None:
    changing.commit([1])
    changing.write(empty(), overwrite=True)
    driver = Driver(changing)
    start, end = driver.first()
    assert driver.rows(start, end) == []
    changing.commit([2])
    driver = Driver(changing)
    assert [row[:2] for row in driver.rows(end, driver.latest(end))] == [("+I", 2)]


def empty() -> Any:
    return pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string()), "kind": pa.array([], pa.string())})


# ---- the same batch again ----


def test_a_batch_is_the_same_in_another_process(table: Table) -> None:
    driver = Driver(table, start="earliest", maxRowsPerTrigger="3")
    start, middle = driver.first()
    end = driver.latest(middle)
    batches = driver.rows(start, middle), driver.rows(middle, end)
    table.commit([6])
    for more in ({}, {"maxFilesPerTrigger": "1"}, {"source__split__target-size": "1 b"}):
        other = Driver(table, start="earliest", **more)
        assert (other.rows(start, middle), other.rows(middle, end)) == batches


def test_tasks_are_about_as_large_and_no_more_than_asked_for(tmp_path: Path) -> None:
    """A rest of one file, read alone when all others have ended, would take as long again."""
    table = Table(tmp_path / "warehouse", source__split__open_file_cost="1 b")
    for number in range(8):
        table.commit(range(number * 1000, number * 1000 + 990 - number))
    driver = Driver(table, start="earliest", scan__parallelism="2")
    start = driver.initial()
    tasks = driver.reader.partitions(start, driver.latest(start))
    assert [len(task.parts) for task in tasks] == [4, 4]
    assert [part.split.snapshot_id for task in tasks for part in task.parts] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_files_of_one_split_are_read_by_all_tasks(tmp_path: Path) -> None:
    """The first plan of an append table packs its files into splits that could be one task."""
    table = Table(tmp_path / "warehouse", source__split__open_file_cost="1 b")
    for number in range(5):
        table.commit(range(number * 1000, number * 1000 + 990 - number))
    driver = Driver(table, scan__parallelism="3")
    start, end = driver.first()
    tasks = driver.reader.partitions(start, end)
    assert [[len(part.split.files) for part in task.parts] for task in tasks] == [[2], [1], [2]]
    assert [part.ordinal for task in tasks for part in task.parts] == [0, 990 + 989, 990 + 989 + 988]
    assert keys(driver.rows(start, end)) == [key for n in range(5) for key in range(n * 1000, n * 1000 + 990 - n)]


def test_files_are_listed_by_few_tasks(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tasks would read their rows: what such a task does is little beside its start."""
    driver = Driver(table, start="earliest", mode="files", scan__parallelism="3")
    begin, end = driver.first()
    assert len(driver.reader.partitions(begin, end)) == 1
    assert [row[2] for row in driver.rows(begin, end)] == [1, 2, 3]
    monkeypatch.setattr("pypaimon.spark.read.tasks._LISTED_FILES", 2)
    assert [len(task.parts) for task in driver.reader.partitions(begin, end)] == [2, 1]


def test_batch_0_begins_where_it_began_at_first(table: Table) -> None:
    driver = Driver(table)
    start, end = driver.first()
    rows = driver.rows(start, end)
    table.commit([6])
    again = Driver(table)
    other_start = again.initial()
    assert other_start != start
    assert again.rows(other_start, end) == rows
    assert keys(again.rows(end, again.latest(end))) == [6]


def test_a_batch_that_began_on_an_empty_table_is_the_same_again(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    driver = Driver(table)
    start = driver.initial()
    table.commit([1])
    end = driver.latest(start)
    assert keys(driver.rows(start, end)) == [1]
    table.commit([2])
    again = Driver(table)
    assert keys(again.rows(start, end)) == [1]
    assert keys(again.rows(again.initial(), end)) == [1]


def test_a_cut_inside_a_bucket_continues_after_it(changing: Table) -> None:
    for number in range(4):
        changing.commit([("+I", number, "x")])
    driver = Driver(changing, start="earliest", maxFilesPerTrigger="1")
    assert [[row[1] for row in batch] for batch in driver.batches()] == [[0], [1], [2], [3]]
    whole = Driver(changing, start="earliest", maxRowsPerTrigger="3")
    assert [[row[1] for row in batch] for batch in whole.batches()] == [[0, 1, 2], [3]]


# ---- limits ----


def test_several_limits_hold_at_once(table: Table) -> None:
    assert Driver(table, maxRowsPerTrigger="7", maxFilesPerTrigger="2").limit == ReadMaxRows(7)
    sizes = [
        len(batch) for batch in Driver(table, start="earliest", maxRowsPerTrigger="7", maxFilesPerTrigger="2").batches()
    ]
    assert sizes == [4, 2]
    spelled_as_paimon = Driver(table, start="earliest", read__stream__maxBytesPerTrigger="1")
    assert [len(batch) for batch in spelled_as_paimon.batches()] == [2, 2, 2]


def test_everything_is_everything_whatever_the_limits(table: Table) -> None:
    driver = Driver(table, start="earliest", maxRowsPerTrigger="1")
    start = driver.initial()
    assert len(driver.rows(start, driver.latest(start, ReadAllAvailable()))) == 6


def test_too_few_rows_wait_but_not_for_ever(table: Table) -> None:
    more = {"start": "earliest", "minRowsPerTrigger": "7"}
    waiting = Driver(table, **more, maxTriggerDelayMs="3600000")
    start = waiting.initial()
    assert waiting.latest(start) == start
    late = Driver(table, **more, maxTriggerDelayMs="1")
    begin, until = late.initial(), time.monotonic() + 30
    while late.latest(begin) == start:
        assert time.monotonic() < until
    waiting.reader.prepareForTriggerAvailableNow()
    again = Driver(table, **more, maxTriggerDelayMs="3600000")
    again.reader.prepareForTriggerAvailableNow()
    assert len(again.rows(start, again.latest(start))) == 6


def test_available_now_ends_at_what_was_there(table: Table) -> None:
    driver = Driver(table, maxFilesPerTrigger="2")
    driver.reader.prepareForTriggerAvailableNow()
    table.commit([6])
    batches = driver.batches()
    assert [len(batch) for batch in batches] == [4, 2]


def test_available_now_on_an_empty_table_ends(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    driver = Driver(table)
    driver.reader.prepareForTriggerAvailableNow()
    start = driver.initial()
    table.commit([1])
    assert driver.latest(start) == start
    other = Driver(table)
    other.reader.prepareForTriggerAvailableNow()
    table.commit([2])
    end = other.latest(start)
    assert keys(other.rows(start, end)) == [1]
    assert other.latest(end) == end


# ---- idle queries, lag ----


def test_an_idle_query_asks_the_store_once_per_poll_interval(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    driver.latest(start)
    store = driver.reader._live._stream.directory.store
    before = sum(store.requests.values())
    for _ in range(100):
        assert driver.latest(start) == start
        driver.reader.reportLatestOffset()
    assert sum(store.requests.values()) - before <= 2


def test_lag_is_what_the_batch_leaves(table: Table) -> None:
    driver = Driver(table, start="earliest", maxRowsPerTrigger="2")
    _, end = driver.first()
    lag = driver.reader.reportLatestOffset()
    assert {key: lag[key] for key in ("snapshot", "snapshotsBehind", "rowsBehind", "bytesBehind")} == {
        "snapshot": 3,
        "snapshotsBehind": 2,
        "rowsBehind": 4,
        "bytesBehind": None,
    }
    assert lag["millisBehind"] > 0
    driver.latest(driver.latest(driver.latest(end)))
    lag = driver.reader.reportLatestOffset()
    assert lag == {"snapshot": 3, "snapshotsBehind": 0, "rowsBehind": 0, "bytesBehind": 0, "millisBehind": 0}


# ---- what may go wrong ----


def test_an_expired_checkpoint_fails_or_continues_at_the_earliest(table: Table) -> None:
    driver = Driver(table, start="earliest", maxRowsPerTrigger="2")
    start = driver.latest(driver.initial())
    for number in range(3):
        table.commit([number + 6])
    table.expire(5)
    with pytest.raises(PositionExpiredError, match="Snapshot 2 has expired"):
        Driver(table).latest(start)
    lossy = Driver(table, failOnDataLoss="false")
    end = lossy.latest(start)
    assert keys(lossy.rows(start, end)) == [7, 8]
    assert keys(Driver(table, failOnDataLoss="false").rows(start, end)) == [7, 8]


def test_a_re_created_table_fails(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.recreate()
    table.commit_each(range(4))
    with pytest.raises(TableChangedError, match="another table"):
        Driver(table).latest(start)
    with pytest.raises(TableChangedError):
        Driver(table).rows(driver.initial(), start)


def test_a_rollback_fails(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.rollback(2)
    table.commit([7, 8])
    with pytest.raises(TableChangedError, match="rolled back"):
        Driver(table).latest(start)


def test_a_batch_of_another_history_is_not_run_again(table: Table) -> None:
    """The batch was logged, the table rolled back to where it begins, and new commits have its ids."""
    driver = Driver(table)
    begin, kept = driver.latest(driver.initial()), table.latest()
    table.commit_each((101, 102))
    end = driver.latest(begin)
    assert keys(Driver(table).rows(begin, end)) == [101, 102]
    table.rollback(kept)
    table.commit_each((103, 104))
    with pytest.raises(TableChangedError, match="rolled back"):
        Driver(table).rows(begin, end)


@pytest.mark.parametrize(
    "more",
    [{"start": "earliest"}, {"start": "earliest", "maxFilesPerTrigger": "4"}, {}, {"maxFilesPerTrigger": "4"}],
    ids=["follow", "inside", "full", "inside the full plan"],
)
def test_a_batch_of_a_history_that_is_gone_is_not_read_again(tmp_path: Path, more: dict[str, str]) -> None:
    table = Table(tmp_path / "warehouse").commit_each((0, 1))
    table.commit_files([10, 11, 12])
    driver = Driver(table, **more)
    start, end = driver.first()
    table.rollback(2)
    table.commit_files([20, 21, 22])
    for again in (Driver(table, **more), Driver(table, start="earliest")):
        with pytest.raises(TableChangedError, match="rolled back"):
            again.rows(start, end)


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"sourceVersion": 1},
        {"version": 99, "table": "x", "origin": {}},
        {"version": 1, "table": "x", "snapshot": 1},
    ],
)
def test_a_foreign_checkpoint_is_refused(table: Table, offset: Offset) -> None:
    with pytest.raises(StreamConfigError, match="not an offset of this source"):
        Driver(table).latest(offset)


def test_a_schema_change_stops_the_query_and_a_restart_takes_it(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.catalog.alter_table(table.name, [SchemaChange.add_column("w", AtomicType("INT"))], False)
    table._writer = table.handle()
    table.write(pa.table({"k": [9], "v": ["x"], "w": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaChangedError):
        driver.latest(start)
    again = Driver(table)
    assert again.rows(start, again.latest(start)) == [(9, "x", 1)]


# ---- consumer ids ----


def test_progress_is_saved_with_sparks_commit_and_never_too_early(table: Table) -> None:
    driver = Driver(table, **{"consumer-id": "etl"})
    start, end = driver.first()
    driver.rows(start, end)
    assert saved(table) == {"consumer-etl.first-plan": 3}
    table.commit([6])
    following = driver.latest(end)
    driver.reader.commit(end)
    assert saved(table) == {"consumer-etl": 4}
    driver.rows(end, following)
    assert saved(table) == {"consumer-etl": 4}
    restarted = Driver(table, **{"consumer-id": "etl"})
    restarted.latest(following)
    restarted.reader.commit(following)
    assert saved(table) == {"consumer-etl": 5}
    new_query = Driver(table, **{"consumer-id": "etl"})
    assert new_query.initial()["snapshot"] == 5


def test_a_query_of_a_consumer_whose_history_was_rolled_back_is_an_error(table: Table) -> None:
    driver = Driver(table, **{"consumer-id": "etl"})
    start, end = driver.first()
    driver.rows(start, end)
    driver.reader.commit(end)
    table.rollback(2)
    table.commit_each(range(100, 103))
    query = Driver(table, **{"consumer-id": "etl"})
    with pytest.raises(TableChangedError, match="rolled back: snapshot 3"):
        query.latest(query.initial())


def saved(table: Table) -> dict[str, int]:
    return {file.name: json.loads(file.read_text())["nextSnapshot"] for file in (table.path / "consumer").iterdir()}


# ---- columns ----


def test_snapshot_ids_and_ordinals_give_back_the_order(changing: Table) -> None:
    changing.commit([("+I", 1, "a"), ("+I", 2, "a")])
    changing.commit([("+U", 1, "b"), ("-D", 2, "a"), ("+U", 1, "c")])
    driver = Driver(changing, start="earliest", include_snapshot_id="true", include_ordinal="true", columns="k,v")
    assert driver.source.schema().fieldNames() == ["_row_kind", "_snapshot_id", "_ordinal", "k", "v"]
    rows = driver.rows(start := driver.initial(), driver.latest(start))
    assert {row[1] for row in rows} == {1, 2}
    by_key = sorted((row for row in rows if row[3] == 1), key=lambda row: row[1:3])
    assert [row[4] for row in by_key] in (["a", "b", "c"], ["a", "c"])


def test_ordinals_of_rows_that_come_are_greater_where_keys_move_to_other_buckets(tmp_path: Path) -> None:
    """Each key is retracted from the bucket that it was in, and inserted in another one."""
    table = key_value_table(tmp_path)
    write_by_stream(table.handle(), rows(*range(40)))
    table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "5")], False)
    write_with(table.writer("other").with_overwrite(), rows(*range(40), value="new"))
    names = {"include_snapshot_id": "true", "include_ordinal": "true", "columns": "k,v"}
    driver = Driver(table, on_overwrite="read", scan__snapshot_id="2", scan__parallelism="3", **names)
    start, end = driver.first()
    changes = driver.rows(start, end)
    assert len(changes) == 80
    newest = {row[3]: row for row in sorted(changes, key=lambda row: row[1:3])}
    assert sorted((row[3], row[0], row[4]) for row in newest.values()) == [
        (key, "+I", f"new{key}") for key in range(40)
    ]


def test_ordinals_continue_where_a_limit_cut_a_snapshot(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    writer = table.handle().new_batch_write_builder()
    messages = []
    for number in range(3):
        each = writer.new_write()
        each.write_arrow(pa.table({"k": [number * 2, number * 2 + 1], "v": ["x", "x"]}))
        messages += each.prepare_commit()
        each.close()
    writer.new_commit().commit(messages)
    more = {"include-ordinal": "true", "start": "earliest"}
    whole = Driver(table, **more).batches()[0]
    parts = Driver(table, **more, maxFilesPerTrigger="1").batches()
    assert [len(part) for part in parts] == [2, 2, 2]
    assert sorted(row[0] for row in whole) == list(range(6))
    numbers = [row[0] for part in parts for row in part]
    assert numbers == sorted(set(numbers))
    assert [row[1] for part in parts for row in part] == [row[1] for row in sorted(whole)]


def test_a_filter_prunes_and_is_exact(table: Table) -> None:
    driver = Driver(table, filter="k >= 2 AND k < 5")
    assert sorted(keys(driver.batches()[0])) == [2, 3, 4]


def test_secrets_are_in_no_offset_and_no_task(table: Table) -> None:
    driver = Driver(table, **{"fs.s3.accessKeySecret": "hush-hush"})
    start, end = driver.first()
    assert "hush-hush" not in json.dumps([start, end, driver.reader.reportLatestOffset()])
    for task in driver.reader.partitions(start, end):
        assert b"hush-hush" not in pickle.dumps(task)
    shown = repr((driver.source, driver.reader, driver.reader._live.options, driver.reader.partitions(start, end)))
    assert "hush-hush" not in shown
