"""Append tables with row tracking: compaction keeps the id and the sequence number of each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, stream_read_builder, table_files
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.tables.handles import current_files, read_with, sorted_rows, write_by_stream
from support.tables.streamed_table import Table

TRACKED = {"row-tracking.enabled": "true"}
COLUMNS = ["k", "v", "_ROW_ID", "_SEQUENCE_NUMBER"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, row_tracking__enabled="true", compaction__min__file_num="3")


def tracked(table: Table) -> list[dict[str, Any]]:
    """What our reader gives, with ids and sequence numbers, by id."""
    builder = stream_read_builder(table.handle(), view="row_tracking").with_end(latest=True)
    return sorted(read_with(builder), key=lambda row: row["_ROW_ID"])


def written(table: Table, *keys: int) -> None:
    write_by_stream(table.handle(), pa.table({"k": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]}))


def test_ids_and_numbers_stay_twice(table: Table) -> None:
    for first in range(0, 9, 3):
        written(table, first, first + 1)
    before = tracked(table)
    assert [(row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in before] == [
        (0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)
    ]  # fmt: skip
    assert compact(table.handle()).new_snapshot_ids == (4,)
    (file,) = current_files(table.handle())
    assert (file.first_row_id, file.min_sequence_number, file.max_sequence_number) == (None, 1, 3)
    assert file.write_cols == COLUMNS
    assert pq.read_schema(file.file_path).names == COLUMNS
    assert tracked(table) == before
    written(table, 10)
    before = tracked(table)
    assert before[-1] == {"k": 10, "v": "v10", "_ROW_ID": 6, "_SEQUENCE_NUMBER": 5}
    assert compact(table.handle(), full=True).new_snapshot_ids == (6,)
    assert tracked(table) == before
    assert sorted(sorted_rows(table.handle(), ["k", "v"])) == sorted((row["k"], row["v"]) for row in before)
    assert json.loads((table.path / "snapshot" / "snapshot-6").read_text())["nextRowId"] == 7


def test_statistics_are_those_of_the_columns_of_the_table(table: Table) -> None:
    for key in range(3):
        written(table, key)
    compact(table.handle())
    assert stored(table)["_VALUE_STATS_COLS"] == ["k", "v"]
    builder = table.handle().new_read_builder()
    predicates = builder.new_predicate_builder()
    for wanted, count in ((2, 1), (3, 0)):
        plan = builder.with_filter(predicates.equal("k", wanted)).new_scan().plan()
        assert sum(len(split.files) for split in plan.splits()) == count
    found = stream_read_builder(table.handle()).with_filter("k >= 1").with_end(latest=True)
    assert sorted(row["k"] for row in read_with(found)) == [1, 2]


def stored(table: Table) -> Any:
    """The metadata of the only file."""
    directory = TableDirectory.of(table.handle())
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    (bucket,) = live_buckets(PaimonTable(table.handle()), LiveEntries().look(directory, snapshot))
    (file,) = bucket.files
    return file.stored.file


def test_a_stream_gets_nothing_of_a_compaction(table: Table) -> None:
    for key in range(3):
        written(table, key)
    builder = stream_read_builder(table.handle()).with_start(snapshot_id=1).with_end(latest=True)
    before = read_with(builder)
    assert compact(table.handle()).compacted
    assert read_with(builder) == before


def test_tables_with_a_key_or_buckets_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path, bucket="2", bucket_key="k")
    table.commit([1])
    schema = next((table.path / "schema").glob("schema-*"))
    stored = json.loads(schema.read_text())
    stored["options"] |= TRACKED
    schema.write_text(json.dumps(stored))
    with pytest.raises(UnsupportedTableError, match="row-tracking"):
        compact(table.handle())
    assert "row-tracking" in str(table_files(table.handle()).not_compacted)


STEPS = st.lists(
    st.one_of(st.integers(1, 4), st.sampled_from(["due", "full", "add column", "rename column"])),
    min_size=4, max_size=12,
)  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=200 if SOAK else 8, deadline=None, phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(
    steps=STEPS, size=st.sampled_from(["1500 b", "128 mb"]), format_=st.sampled_from(["parquet", "orc", "avro", "row"])
)
def test_random_histories(tmp_path_factory: pytest.TempPathFactory, steps: list[Any], size: str, format_: str) -> None:
    table = Table(
        tmp_path_factory.mktemp("t"), row_tracking__enabled="true", compaction__min__file_num="2",
        target_file_size=size, file__format=format_,
    )  # fmt: skip
    key, renamed = 0, "v"
    for number, step in enumerate(steps):
        if step == "add column":
            _alter(table, SchemaChange.add_column(f"c{number}", AtomicType("INT")))
        elif step == "rename column":
            _alter(table, SchemaChange.rename_column(renamed, f"v{number}"))
            renamed = f"v{number}"
        elif isinstance(step, int):
            rows = [{"k": key + each, renamed: f"{key + each}"} for each in range(step)]
            key += step
            given_ = pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), (renamed, pa.string())]))
            write_by_stream(table.handle(), given_)
        else:
            before = tracked(table)
            assert not compact(table.handle(), full=step == "full").conflicts
            assert tracked(table) == before
    assert len(tracked(table)) == key


def _alter(table: Table, change: SchemaChange) -> None:
    table.catalog.alter_table(table.name, [change], False)
