"""A writer: what it was given is in the table once it was committed, and only then, each commit once."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    Position,
    StreamConfigError,
    TableChangedError,
    UnsupportedTableError,
    stream_write_builder,
)
from pypaimon.streaming.errors import (
    BadRowError,
    CommitConflictError,
    SchemaMismatchError,
    WriterClosedError,
    WriterConflictError,
)
from support.crash.crashing_file_io import MortalFileIO
from support.tables.handles import batch_table, create_table, write_by_stream, write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return key_value_table(tmp_path)


def test_rows_are_visible_once_they_are_committed(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(1, 2))
        assert table.ids() == []
        report = writer.commit()
        assert (report.snapshot_id, report.written.rows, report.repeated) == (1, 2, False)
        writer.write(changes(("-D", 1, "v1"), ("+U", 2, "new"), ("+I", 3, "v3")))
        assert table.rows() == [(1, "v1"), (2, "v2")]
        writer.commit()
    assert table.rows() == [(2, "new"), (3, "v3")]


def test_commits_are_counted_and_a_new_writer_continues(table: Table) -> None:
    for number in range(3):
        with table.writer().open_sync() as writer:
            assert writer.last_committed == (None if number == 0 else 2 * number - 1)
            for _ in range(2):
                writer.write(rows(number))
                writer.commit()
            assert writer.last_committed == 2 * number + 1
    assert [table.snapshot(each)["commitIdentifier"] for each in table.ids()] == [0, 1, 2, 3, 4, 5]
    assert {table.snapshot(each)["commitUser"] for each in table.ids()} == {"writer"}


def test_a_writer_continues_after_an_earlier_version(table: Table) -> None:
    """Its record knows a snapshot by the `uuid` alone."""
    for number in range(2):
        with table.writer().open_sync() as writer:
            writer.write(rows(number))
            writer.commit()
    (record,) = (table.path / "consumer").glob("sink-*")
    value = json.loads(record.read_text())
    _, _, uuid = value["mark"].rpartition("#")
    assert len(uuid) == 36
    record.write_text(json.dumps({**value, "mark": uuid}))
    with table.writer().open_sync() as writer:
        assert writer.last_committed == 1
        writer.write(rows(2))
        writer.commit()
    assert table.ids() == [1, 2, 3]


def test_an_identifier_that_the_table_holds_is_not_committed_again(table: Table) -> None:
    for _ in range(2):
        with table.writer().open_sync() as writer:
            for identifier in (7, 9):
                writer.write(rows(identifier))
                report = writer.commit(identifier)
    assert report.repeated
    assert table.ids() == [1, 2]
    assert len(table.data_files()) == 2, "what was written again is deleted"


def test_position_and_rows_are_one_commit(table: Table) -> None:
    position = Position("source", 7, "print")
    with table.writer().open_sync() as writer:
        assert writer.position is None
        writer.write(rows(1))
        writer.commit(position)
        writer.write(rows(2))
        writer.commit(properties={"offsets": "12"})
        assert writer.position == position, "it stays, where a commit names none"
    with table.writer().open_sync() as writer:
        assert (writer.position, writer.last_committed) == (position, 1)
        assert writer.committed_properties["offsets"] == "12"
        writer.commit(Position("source", 8))
        assert writer.position == Position("source", 8)
    assert len(table.ids()) == 3, "a position is noted without rows too"
    assert table.rows() == [(1, "v1"), (2, "v2")]


def test_nothing_is_committed_of_nothing(table: Table) -> None:
    with table.writer().open_sync() as writer:
        assert writer.commit().snapshot_id is None
        writer.write(rows())
        assert writer.commit(3).snapshot_id is None
        assert writer.last_committed is None
    assert table.ids() == []


@pytest.mark.parametrize("leave", ["abort", "close", "error"])
def test_what_is_not_committed_is_deleted(table: Table, leave: str) -> None:
    builder = table.writer().with_memory_limit(1)
    with pytest.raises(KeyError), builder.open_sync() as writer:
        writer.write(rows(1, 2, 3))
        assert table.data_files(), "rows beyond the limit are in files"
        if leave == "abort":
            writer.abort()
            assert table.data_files() == []
            writer.write(rows(4))
            writer.commit()
        if leave != "error":
            writer.close()
        raise KeyError
    assert len(table.data_files()) == (leave == "abort")
    assert table.ids() == ([1] if leave == "abort" else [])


def test_rows_beyond_the_memory_limit_are_in_files_and_later_ones_win(table: Table) -> None:
    with table.writer().with_memory_limit(1).open_sync() as writer:
        for value in "abc":
            writer.write(rows(1, 2, value=value))
        assert len(table.data_files()) >= 3
        writer.commit()
        writer.write(rows(1, value="d"))
        writer.commit()
    assert table.rows() == [(1, "d1"), (2, "c2")]


def test_later_commits_win_whatever_commits_between(table: Table) -> None:
    with table.writer().open_sync() as mine, table.writer("other").open_sync() as other:
        for number in range(6):
            writer = (mine, mine, other)[number % 3]
            writer.write(rows(1, value=str(number)))
            writer.commit()
            assert table.rows() == [(1, f"{number}1")]


def test_later_commits_win_though_others_committed_while_rows_waited(table: Table) -> None:
    with table.writer().open_sync() as mine, table.writer("other").open_sync() as other:
        mine.write(rows(1, value="first"))
        for number in range(5):
            other.write(changes(*(("+I", 1, f"{number}.{each}") for each in range(9))))
            other.commit()
        mine.commit()
        mine.write(rows(1, value="last"))
        mine.commit()
    assert table.rows() == [(1, "last1")]


def test_a_commit_after_one_of_its_own_costs_few_requests(table: Table) -> None:
    """Whether others committed, the table's identity, its last commit and its schemas: four requests beside the files
    and what the commit itself costs."""
    builder = table.writer()
    builder._table.handle.file_io = file_io = MortalFileIO()
    requests = []
    with builder.open_sync() as writer:
        for key in range(8):
            before = file_io.steps
            writer.write(rows(key))
            writer.commit()
            requests.append(file_io.steps - before)
    assert min(requests[2:]) <= 11


@pytest.mark.parametrize(
    "make",
    [
        lambda given: given,
        lambda given: given.to_batches()[0],
        lambda given: given.to_reader(),
        lambda given: given.to_pandas(),
        polars.DataFrame,
        lambda given: given.set_column(1, "v", given["v"].dictionary_encode()),
        lambda given: given.set_column(1, "v", given["v"].cast(pa.large_string())),
        lambda given: given.select(["v", "k"]),
    ],
    ids=["table", "record batch", "reader", "pandas", "polars", "dictionary", "large text", "other order"],
)
def test_what_it_takes(table: Table, make: Any) -> None:
    write_with(table.writer(), make(rows(1, 2)))
    assert table.rows() == [(1, "v1"), (2, "v2")]


def test_it_takes_batches_of_a_stream_with_their_kinds(table: Table, tmp_path: Path) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(1, 2))
        writer.commit()
        writer.write(changes(("-D", 1, "v1")))
        writer.commit()
    copy = key_value_table(tmp_path / "copy")
    source = table.builder().with_start("earliest").with_end(latest=True)
    with source.open_sync() as stream, copy.writer().open_sync() as writer:
        for batch in stream:
            writer.write(batch)
        writer.commit()
    assert copy.rows() == [(2, "v2")]


def test_integers_of_other_libraries_are_narrowed_where_they_fit(table: Table) -> None:
    small = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int8())])
    table.catalog.create_table("db.small", pypaimon_schema(small), False)
    handle = table.catalog.get_table("db.small")
    with stream_write_builder(handle).open_sync() as writer:
        writer.write(pandas.DataFrame({"k": [1, 2], "v": [3, -128]}))
        with pytest.raises(BadRowError, match=r"'v' of db\.small is TINYINT, and a row does not fit"):
            writer.write(pa.table({"k": [3, 4], "v": [1, 128]}))
        writer.commit()
    found = batch_table(handle)
    assert found.to_pydict() == {"k": [1, 2], "v": [3, -128]}


def pypaimon_schema(schema: pa.Schema) -> Any:
    from pypaimon import Schema

    return Schema.from_pyarrow_schema(schema)


# ---- what does not fit ----


BAD = {
    "column too many": (rows(1).append_column("x", pa.array([1])), SchemaMismatchError, "no column 'x'"),
    "column missing": (rows(1).drop_columns("k"), SchemaMismatchError, "column 'k'.* is missing"),
    "type": (pa.table({"k": [1.5], "v": ["a"]}), SchemaMismatchError, "column 'k' is double"),
    "null in the key": (pa.table({"k": pa.array([None], pa.int64()), "v": ["a"]}), BadRowError, "holds null"),
    "kind": (changes(("+I", 1, "a"), ("*", 2, "b")), BadRowError, r"expected \+I, -U, \+U or -D, got '\*'"),
    "no rows": ([{"k": 1}], StreamConfigError, "got list"),
}


@pytest.mark.parametrize("which", BAD)
def test_what_does_not_fit_is_refused_and_the_writer_continues(table: Table, which: str) -> None:
    bad, error, text = BAD[which]
    with table.writer().open_sync() as writer:
        writer.write(rows(1))
        with pytest.raises(error, match=text):
            writer.write(bad)
        writer.write(rows(2))
        writer.commit()
    assert table.rows() == [(1, "v1"), (2, "v2")]


def test_of_a_table_with_a_bad_row_nothing_is_taken(table: Table) -> None:
    """Also where it comes in several record batches, of which the first ones fit."""
    bad = pa.concat_tables([changes(("+I", 5, "a")), changes(("+I", 6, "a")), changes(("*", 7, "a"))])
    with table.writer().open_sync() as writer:
        with pytest.raises(BadRowError):
            writer.write(bad)
        writer.write(rows(1))
        writer.commit()
    assert table.rows() == [(1, "v1")]


def test_a_bad_row_in_the_middle_of_a_reader_ends_the_writer(table: Table) -> None:
    bad = pa.concat_tables([changes(("+I", 5, "a")), changes(("*", 7, "a"))])
    with table.writer().with_memory_limit(1).open_sync() as writer:
        writer.write(rows(1))
        with pytest.raises(BadRowError):
            writer.write(bad.to_reader())
        assert table.data_files() == []
        with pytest.raises(WriterClosedError, match="an error while rows were written"):
            writer.commit()
    assert table.ids() == []


def test_kinds_that_the_merge_engine_cannot_take(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, merge_engine="first-row")
    with table.writer().open_sync() as writer, pytest.raises(BadRowError, match="first-row"):
        writer.write(changes(("-D", 1, "a")))


def test_kinds_in_a_column_that_is_named(table: Table) -> None:
    named = changes(("+I", 1, "a"), ("-D", 1, "a"), ("+I", 2, "b")).rename_columns(["op", "k", "v"])
    write_with(table.writer().with_row_kind_column("op"), named)
    assert table.rows() == [(2, "b")]


def test_settings_that_cannot_work_are_refused(table: Table, tmp_path: Path) -> None:
    builder = table.writer()
    for call in (lambda: builder.with_commit_user("a/b"), lambda: builder.with_memory_limit(0)):
        with pytest.raises(StreamConfigError):
            call()
    with builder.open_sync() as writer:
        for point in (-1, True, "3", 2**63 - 1):
            with pytest.raises(StreamConfigError, match="commit"):
                writer.commit(point)  # type: ignore[arg-type]
        with pytest.raises(StreamConfigError, match="properties"):
            writer.commit(properties={"pypaimon.source-position": "x"})
    moving = key_value_table(tmp_path / "moving", **{"bucket-function.type": "hive"})
    with pytest.raises(UnsupportedTableError, match="hive"):
        moving.writer().open_sync().__enter__()


# ---- what becomes of the table meanwhile ----


def test_a_partition_that_is_divided_again_meanwhile_ends_the_commit(table: Table) -> None:
    write_with(table.writer(), rows(1))
    with table.writer().open_sync() as late:
        late.write(rows(*range(10)))
        table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "3")], False)
        write_with(table.writer("other").with_overwrite(), rows(7))
        with pytest.raises(CommitConflictError, match="was rescaled meanwhile"):
            late.commit()
    assert table.rows() == [(7, "v7")]


def test_a_partition_that_is_replaced_meanwhile_takes_more_rows(table: Table) -> None:
    with table.writer().open_sync() as late:
        late.write(rows(1))
        write_with(table.writer("other").with_overwrite(), rows(7))
        late.commit()
    assert table.rows() == [(1, "v1"), (7, "v7")]


def test_overwrite_replaces(table: Table) -> None:
    for key in (1, 2):
        write_with(table.writer().with_overwrite(), rows(key))
        assert table.rows() == [(key, f"v{key}")]


def partitioned(table: Table) -> Any:
    columns = pa.schema([("day", pa.string()), ("value", pa.int64())])
    return create_table(table.catalog, "days", columns, partition_keys=["day"])


@pytest.mark.parametrize(
    ("partition", "left"),
    [(None, [("a", 9), ("b", 2)]), ({"day": "b"}, None), ({"day": "a"}, [("a", 9), ("b", 2)])],
    ids=["those of its rows", "another one", "a given one"],
)
def test_overwrite_of_partitions(table: Table, partition: Any, left: Any) -> None:
    days = partitioned(table)
    write_by_stream(days, pa.table({"day": ["a", "b"], "value": [1, 2]}))
    with stream_write_builder(days).with_overwrite(partition).open_sync() as writer:
        writer.write(pa.table({"day": ["a"], "value": [9]}))
        if left is None:
            with pytest.raises(StreamConfigError):
                writer.commit()
        else:
            writer.commit()
    found = batch_table(days).to_pydict()
    expected = left or [("a", 1), ("b", 2)]
    assert sorted(zip(found["day"], found["value"], strict=True)) == expected
    with pytest.raises(StreamConfigError, match="'value' is not a partition column"):
        stream_write_builder(days).with_overwrite({"value": 1})


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("error", [None, KeyError])
def test_a_commit_user_that_nobody_chose_keeps_no_snapshots_after_its_end(
    table: Table, is_named: bool, error: type[Exception] | None
) -> None:
    builder = table.writer() if is_named else stream_write_builder(table.handle())
    with pytest.raises(KeyError) if error else nullcontext(), builder.open_sync() as writer:
        writer.write(rows(1))
        writer.commit()
        consumers = table.path / "consumer"
        assert len(list(consumers.iterdir())) == 2
        if error is not None:
            raise error
    assert len(list(consumers.iterdir())) == (2 if is_named or error else 0)
    assert table.rows() == [(1, "v1")]


def test_a_watermark_is_noted_and_never_falls(table: Table) -> None:
    with table.writer().open_sync() as writer:
        for watermark in (5_000, 3_000):
            writer.commit(watermark=watermark)
        with pytest.raises(StreamConfigError, match="watermark"):
            writer.commit(watermark="now")  # type: ignore[arg-type]
    assert [table.snapshot(each)["watermark"] for each in table.ids()] == [5_000, 5_000]


def test_a_table_that_is_dropped_or_recreated(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(1))
        table.recreate()
        with pytest.raises(TableChangedError, match="recreated"):
            writer.commit()
        with pytest.raises(WriterClosedError):
            writer.write(rows(1))
    assert table.ids() == []


def test_a_table_that_is_rolled_back(table: Table) -> None:
    with table.writer().open_sync() as writer:
        for key in (1, 2, 3):
            writer.write(rows(key))
            writer.commit(Position("source", key))
        table.rollback(1)
        writer.write(rows(4))
        with pytest.raises(TableChangedError, match="rolled back to before snapshot 3"):
            writer.commit(Position("source", 4))
    with table.writer().open_sync() as writer:
        assert writer.position == Position("source", 1), "the table tells what it holds now"
        writer.write(rows(5))
        writer.commit()
    assert table.rows() == [(1, "v1"), (5, "v5")]


def test_a_table_that_is_altered_is_written_under_the_schema_of_the_writer(table: Table) -> None:
    from pypaimon.schema.schema_change import SchemaChange

    with table.writer().open_sync() as writer:
        writer.write(rows(1))
        table.catalog.alter_table(table.name, [SchemaChange.rename_column("v", "w")], False)
        writer.commit()
        writer.write(rows(2))
        writer.commit()
    assert table.rows() == [(1, "v1"), (2, "v2")]


def test_two_writers_of_one_commit_user(table: Table) -> None:
    with table.writer().open_sync() as first, table.writer().open_sync() as second:
        first.write(rows(1))
        first.commit(Position("source", 2))
        second.write(rows(2))
        with pytest.raises(WriterConflictError, match="from another writer"):
            second.commit(Position("source", 3))
        first.write(rows(3))
        first.commit(Position("source", 4))
    assert table.rows() == [(1, "v1"), (3, "v3")]


def test_the_snapshot_that_holds_the_position_is_kept(table: Table) -> None:
    """Whatever others commit, and though a later commit was begun and died."""
    with table.writer().open_sync() as writer:
        writer.write(rows(1))
        writer.commit(Position("source", 1))
        with table.writer("other").open_sync() as other:
            for key in (2, 3):
                other.write(rows(key))
                other.commit()
        writer.write(rows(4))
        _break_publishing(writer)
        with pytest.raises(Exception, match="publishing fails"):
            writer.commit(Position("source", 2))
    from pypaimon.streaming import ConsumerManager

    handle = table.handle()
    kept = ConsumerManager(handle.file_io, handle.table_path).consumers()
    assert kept["writer"] == 1
    with table.writer().open_sync() as writer:
        assert writer.position == Position("source", 1)


def test_snapshots_before_the_newest_commits_may_expire(table: Table) -> None:
    from pypaimon.streaming import ConsumerManager

    with table.writer().open_sync() as writer:
        for key in range(5):
            writer.write(rows(key))
            writer.commit()
    handle = table.handle()
    kept = ConsumerManager(handle.file_io, handle.table_path).consumers()
    assert 1 < kept["writer"] <= 5, "not with each commit, but they do not pile up"


def _break_publishing(writer: Any) -> None:
    """From now on no snapshot is published."""
    environment = writer._writer.table.handle.catalog_environment

    def broken(*_: Any) -> Any:
        raise RuntimeError("publishing fails")

    environment.snapshot_commit = broken
