"""Another Paimon table holds what its source holds; what it cannot hold is refused before anything is written."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    PaimonTarget,
    StreamConfigError,
    UnsupportedTableError,
    copy_stream,
    replicate,
    stream_read_builder,
    stream_write_builder,
)
from support.corpus.cases import load
from support.tables.copied_table import at, batches, changed, keyed, rows_of, stream
from support.tables.handles import batch_read, write_by_stream, write_with
from support.tables.orders import COLUMNS, append, catalog, create_orders, events, orders, state_of
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return keyed(tmp_path / "warehouse")


def copy_of(table: Table, primary_key: bool = True) -> Table:
    return Table(Path(), "copy", primary_key=primary_key, catalog=table.catalog)


def test_a_table_with_a_key_follows_and_takes_batches_twice(table: Table) -> None:
    copy = copy_of(table)
    target = PaimonTarget(copy.handle())
    for _ in range(2):
        for batch in batches(stream(table).with_start("earliest").with_catch_up("replay"), batch_bytes=1):
            target.apply(batch)
    assert rows_of(copy) == rows_of(table)


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}], ids=["whole", "cut"])
def test_a_full_state_replaces_what_the_table_holds(table: Table, limits: dict[str, int]) -> None:
    """In the midst of a stream, and at the start of a second one."""
    copy = copy_of(table)
    target = PaimonTarget(copy.handle())
    for batch in batches(stream(table).with_limits(**limits), batch_bytes=1):
        target.apply(batch)
    assert rows_of(copy) == rows_of(table)
    for _ in range(2):
        changed(table)
        builder = stream(table).with_limits(**limits).with_start(position=at(table, 2)).with_on_expired("full")
        for batch in batches(builder, batch_bytes=1):
            target.apply(batch)
        assert rows_of(copy) == rows_of(table)
    assert [copy.snapshot(number)["commitKind"] for number in copy.ids()].count("OVERWRITE") == 2


def test_a_copy_killed_while_the_table_is_replaced_continues(table: Table) -> None:
    """With each plan another program, which dies before the last batch of it is applied; then one that applies all."""
    copy = copy_of(table)
    copy.commit([77, 78])
    builder = stream(table).with_limits(max_splits=1)
    for number in range(1, len(batches(builder)) + 1):
        target = PaimonTarget(copy.handle(), replace=True)
        for batch in batches(builder, batch_bytes=1)[:number]:
            target.apply(batch)
    replicate(builder, PaimonTarget(copy.handle(), replace=True))
    assert rows_of(copy) == rows_of(table)
    assert copy.snapshot(2)["commitKind"] == "OVERWRITE"


def test_a_copy_is_resumed_where_its_table_says(table: Table) -> None:
    """Each plan once, though every batch is given twice, also to a table without a key."""
    source = Table(table.path.parents[1] / "append", "s")
    copy = Table(Path(), "c", catalog=source.catalog)
    for key in range(3):
        source.commit([key, key + 10])
        position = replicate(stream(source), PaimonTarget(copy.handle()))
        assert PaimonTarget(copy.handle()).load_position() == position
        target = PaimonTarget(copy.handle())
        for batch in batches(stream(source).with_start("earliest").with_catch_up("replay")):
            target.apply(batch)
    assert rows_of(copy) == rows_of(source)
    assert len(copy.ids()) == 3


def test_the_first_state_is_appended_so_that_others_may_follow_the_copy(table: Table) -> None:
    copy = copy_of(table)
    for batch in batches(stream(table)):
        PaimonTarget(copy.handle()).apply(batch)
    assert {copy.snapshot(number)["commitKind"] for number in copy.ids()} == {"APPEND"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merge-engine", "partial-update"),
        ("merge-engine", "first-row"),
        ("sequence.field", "v"),
        ("ignore-delete", "true"),
        ("deduplicate.ignore-delete", "true"),
        ("record-level.expire-time", "1 d"),
    ],
)
def test_a_table_that_would_merge_other_rows_is_refused_unless_it_is_shared(table: Table, key: str, value: str) -> None:
    copy = Table(Path(), "merging", primary_key=True, catalog=table.catalog, **{key: value})
    match = f"has '{key}' = '{value}', so that it would not hold the rows"
    with pytest.raises(StreamConfigError, match=match):
        replicate(stream(table), PaimonTarget(copy.handle()))
    with stream_write_builder(copy.handle()).open_sync() as writer, pytest.raises(StreamConfigError, match=match):
        copy_stream(stream(table), writer)
    assert not copy.ids()
    PaimonTarget(copy.handle(), shared=True).apply(batches(stream(table))[0])


def test_a_table_that_merges_as_its_source_does_is_taken(tables: Any) -> None:
    source, copy = (
        Table(
            Path(), name, primary_key=True, catalog=tables, **{"ignore-delete": "true", "changelog-producer": "input"}
        )
        for name in ("source", "same")
    )
    source.commit([1, 2])
    source.commit([("-D", 1, "v1")])
    replicate(stream(source), PaimonTarget(copy.handle()))
    assert rows_of(copy) == rows_of(source)


def test_all_partitions_are_replaced(tables: Any) -> None:
    """Also those that the state has no rows of any more."""
    source, target = events(tables, commits=1), events(tables, "db.copy", commits=2)
    builder = stream_read_builder(source).with_end(latest=True)
    builder.with_filter(builder.new_predicate_builder().equal("value", 1))
    for batch in batches(builder):
        PaimonTarget(target, replace=True).apply(batch)
    (copy,) = batches(stream_read_builder(target).with_end(latest=True))
    assert copy.data["value"].to_pylist() == [1]


def test_a_state_that_is_empty_empties_the_table(table: Table) -> None:
    copy = copy_of(table)
    copy.commit([1, 2])
    for _ in range(2):
        table.commit([("-D", key, "") for key in range(10)])
    table.expire(table.latest())
    for batch in batches(stream(table).with_start(position=at(table, 2)).with_on_expired("full")):
        PaimonTarget(copy.handle(), replace=True).apply(batch)
    assert rows_of(copy) == []


def test_shards_write_to_one_table_that_is_shared(table: Table) -> None:
    copy = copy_of(table)
    for index in range(2):
        target = PaimonTarget(copy.handle(), shared=True)
        for batch in batches(stream(table).with_shard(index, 2)):
            target.apply(batch)
    assert rows_of(copy) == rows_of(table)
    changed(table)
    (anew, *_) = batches(stream(table).with_start(position=at(table, 2)).with_on_expired("full"))
    before = copy.ids()
    with pytest.raises(StreamConfigError, match="shared"):
        PaimonTarget(copy.handle(), shared=True).apply(anew)
    assert copy.ids() == before


def test_shards_of_a_shared_table_stop_where_an_overwrite_moves_keys_to_another_shard(tmp_path: Path) -> None:
    """Otherwise the delete of the shard that had a key may come after the insert of the one that has it now."""
    source = key_value_table(tmp_path, "source")
    copy = key_value_table(tmp_path, "copy", catalog=source.catalog)

    def follow(index: int) -> None:
        builder = stream_read_builder(source.handle()).with_shard(index, 2).with_end(latest=True)
        replicate(builder, PaimonTarget(copy.handle(), shared=True, commit_user=f"shard-{index}"))

    write_by_stream(source.handle(), rows(*range(20)))
    for value in ("v", "w"):
        # The same buckets: each key stays with its shard.
        write_with(source.writer("other").with_overwrite(), rows(*range(20), value=value))
        for index in (0, 1):
            follow(index)
        assert rows_of(copy) == rows_of(source)
    source.catalog.alter_table(source.name, [SchemaChange.set_option("bucket", "3")], False)
    write_with(source.writer("other").with_overwrite(), rows(*range(20), value="x"))
    before = rows_of(copy)
    for index in (1, 0):
        with pytest.raises(StreamConfigError, match="has moved keys to other shards"):
            follow(index)
    assert rows_of(copy) == before
    alone = key_value_table(tmp_path, "alone", catalog=source.catalog)
    # A stream of the whole table retracts before it inserts.
    follower = PaimonTarget(alone.handle(), shared=True, commit_user="all")
    replicate(stream_read_builder(source.handle()).with_end(latest=True), follower)
    source.catalog.alter_table(source.name, [SchemaChange.set_option("bucket", "4")], False)
    write_with(source.writer("other").with_overwrite(), rows(*range(20), value="y"))
    replicate(stream_read_builder(source.handle()).with_end(latest=True), follower)
    assert rows_of(alone) == rows_of(source)


def test_a_target_that_is_closed_keeps_no_snapshots_unless_it_continues(table: Table) -> None:
    copy = copy_of(table)
    first, *_ = batches(stream(table))
    for user in (None, "shard-1"):
        target = PaimonTarget(copy.handle(), shared=True, commit_user=user)
        target.apply(first)
        before = copy.ids()
        for _ in range(2):
            target.close()
        assert copy.ids() == before
        kept = [path.name for path in (copy.path / "consumer").iterdir() if path.name.startswith("consumer-")]
        assert kept == ([] if user is None else [f"consumer-{user}"])
    assert PaimonTarget(copy.handle(), shared=True, commit_user="shard-1").load_position() == first.plan_after


def test_an_append_table_takes_inserts(tables: Any) -> None:
    source, target = events(tables), events(tables, "db.copy", commits=0)
    applied = PaimonTarget(target)
    builder = stream_read_builder(source)
    for _ in range(2):
        for batch in batches(builder.with_end(latest=True).with_consumer_id("copy")):
            applied.apply(batch)
        append(source, 3)
    (copy,) = batches(stream_read_builder(target).with_end(latest=True))
    values = [number * 10 + day for number in range(4) for day in range(3)]
    assert sorted(copy.data["value"].to_pylist()) == values


class FullFileIO(LocalFileIO):  # type: ignore[misc]
    """Local files, on a disk that is full after so many data files."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def new_output_stream(self, path: str) -> Any:
        if path.endswith(".parquet"):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "the disk is full", path)
        return super().new_output_stream(path)


@pytest.mark.parametrize("rolls", [False, True], ids=["at the end", "while it writes"])
def test_what_was_written_of_a_batch_that_fails_is_deleted(table: Table, rolls: bool) -> None:
    options = {"target_file_size": "1 b", "write_buffer_size": "1 b"} if rolls else {}
    copy = Table(Path(), "copy", primary_key=True, bucket="3", catalog=table.catalog, **options)
    found = batches(stream(table).with_limits(max_splits=3), batch_bytes=1)
    for left in range(20):
        handle = copy.handle()
        handle.file_io = FullFileIO(left)
        try:
            target = PaimonTarget(handle)
            for batch in found:
                target.apply(batch)
        except OSError:
            assert not list(copy.path.rglob("*.parquet"))
        else:
            break
    assert left > 1
    assert rows_of(copy) == rows_of(table)


def test_what_was_written_of_a_plan_whose_later_batch_does_not_fit_is_deleted(tables: Any) -> None:
    columns = pa.schema([("day", pa.date32()), ("value", pa.int8())])
    options = {"write-buffer-size": "1 b"}
    tables.create_table("db.copy", Schema.from_pyarrow_schema(columns, options=options), False)
    source = events(tables, commits=1)
    append(source, 100)
    target = PaimonTarget(tables.get_table("db.copy"))
    first, *others = batches(stream_read_builder(source).with_end(latest=True), batch_bytes=1)
    target.apply(first)
    directory = Path(tables.get_table("db.copy").table_path)
    assert list(directory.rglob("*.parquet"))
    with pytest.raises(StreamConfigError, match="do not fit column value"):
        for batch in others:
            target.apply(batch)
    assert not list(directory.rglob("*.parquet"))


# ---- what it cannot take ----


def refused(target: Any, builder: Any, message: str) -> None:
    """A batch is refused with a typed error, and nothing is written."""
    with pytest.raises(StreamConfigError, match=message):
        for batch in batches(builder):
            PaimonTarget(target).apply(batch)
    assert target.snapshot_manager().get_latest_snapshot() is None


def test_a_column_that_the_table_lacks(tables: Any) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("status", pa.string())])
    tables.create_table(
        "db.copy", Schema.from_pyarrow_schema(columns, primary_keys=["id"], options={"bucket": "1"}), False
    )
    builder = stream_read_builder(orders(tables)).with_projection(COLUMNS).with_end(snapshot_id=1)
    refused(tables.get_table("db.copy"), builder.with_start("earliest"), "no column amount")


def test_a_column_that_the_batch_lacks_may_be_null_where_the_table_allows(tables: Any) -> None:
    builder = stream_read_builder(orders(tables)).with_projection(["id"]).with_end(latest=True)
    nullable = create_orders(tables, "db.nullable")
    for batch in batches(builder):
        PaimonTarget(nullable).apply(batch)
    (copy,) = batches(stream_read_builder(nullable).with_projection(COLUMNS).with_end(latest=True))
    assert copy.rows.to_pylist() == [{"id": 1, "status": None, "amount": None}]
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("status", pa.string(), nullable=False)])
    schema = Schema.from_pyarrow_schema(columns, primary_keys=["id"], options={"bucket": "1"})
    tables.create_table("db.strict", schema, False)
    refused(tables.get_table("db.strict"), builder, "needs status")


def test_values_that_do_not_fit(tables: Any) -> None:
    columns = pa.schema([("day", pa.date32()), ("value", pa.int8())])
    tables.create_table("db.copy", Schema.from_pyarrow_schema(columns), False)
    source = events(tables, commits=0)
    append(source, 100)
    refused(tables.get_table("db.copy"), stream_read_builder(source).with_end(latest=True), "do not fit column value")


def test_deletes_need_no_column_of_row_kinds(tables: Any) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("status", pa.string()), ("amount", pa.float64())])
    schema = Schema.from_pyarrow_schema(columns, primary_keys=["id"], options={"bucket": "1"})
    tables.create_table("db.copy", schema, False)
    source, copy = orders(tables), tables.get_table("db.copy")
    builder = stream_read_builder(source).with_projection(COLUMNS).with_start("earliest").with_catch_up("replay")
    target = PaimonTarget(copy)
    for batch in batches(builder.with_end(latest=True)):
        target.apply(batch)
    assert state_of(copy) == state_of(source)


def test_a_table_with_a_column_that_pypaimon_cannot_write_is_refused() -> None:
    warehouse = load("java-2.1-more", "multiset_append_parquet").warehouse
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")
    with pytest.raises(UnsupportedTableError, match="column 's' of type MULTISET<STRING>, which pypaimon cannot write"):
        PaimonTarget(table)


@pytest.mark.parametrize("how", ["replicate", "copy_stream"])
def test_nulls_of_the_source_stay_in_columns_with_default_values(tables: Any, how: str) -> None:
    """A column that the source lacks gets its default value, though."""
    fields = [
        DataField(0, "k", AtomicType("INT", False)),
        DataField(1, "v", AtomicType("INT")),
        DataField(2, "w", AtomicType("INT")),
    ]
    defaults = [fields[0], *(DataField(each.id, each.name, each.type, default_value="7") for each in fields[1:])]
    for name, given in (("source", fields[:2]), ("copy", defaults)):
        tables.create_table(f"db.{name}", Schema(given, primary_keys=["k"], options={"bucket": "1"}), False)
    source, copy = tables.get_table("db.source"), tables.get_table("db.copy")
    write_by_stream(source, pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array([None, 3], pa.int32())}))
    builder = stream_read_builder(source).with_end(latest=True)
    if how == "replicate":
        replicate(builder, PaimonTarget(copy))
    else:
        with stream_write_builder(copy).with_commit_user("copy").open_sync() as writer:
            copy_stream(builder, writer)
    expected = [{"k": 1, "v": None, "w": 7}, {"k": 2, "v": 3, "w": 7}]
    assert sorted(batch_read(tables.get_table("db.copy")), key=lambda row: row["k"]) == expected
