"""Merge engines from table options: what each becomes, and what is refused before any read; runs of files; levels."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypaimon import Schema
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.table_schema import TableSchema
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge import (
    Aggregation,
    Deduplicate,
    FirstRow,
    PartialUpdate,
    SequenceGroup,
    merge_batches,
    merge_engine,
    sorted_runs,
)
from pypaimon.streaming.merge.ordering import KeyCodec

FIELDS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("g", pa.int32()),
        ("h", pa.int32()),
        ("l", pa.list_(pa.int32())),
    ]
)


def engine_of(**options: str) -> Any:
    """The engine of a table with options, whose keys are written with `__` for `.` and `_` for `-`."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    schema = Schema.from_pyarrow_schema(FIELDS, partition_keys=["p"], primary_keys=["p", "k"], options=named)
    return merge_engine(TableSchema.from_schema(0, schema))


def test_engines() -> None:
    assert engine_of() == Deduplicate(("k",))
    assert engine_of(
        sequence__field="g, h", sequence__field__sort_order="descending", ignore_delete="true"
    ) == Deduplicate(("k",), ("g", "h"), ascending=False, ignore_delete=True)
    assert engine_of(merge_engine="first-row", first_row__ignore_delete="TRUE") == FirstRow(("k",), ignore_delete=True)
    assert engine_of(merge_engine="partial-update", changelog_producer="lookup") == PartialUpdate(
        ("k",), wants_levels=True
    )
    aggregation = engine_of(merge_engine="aggregation", sequence__field="g", fields__a__aggregate_function="sum")
    assert isinstance(aggregation, Aggregation)
    names = {name: aggregate.aggregator.name for name, aggregate in aggregation.aggregates.items()}
    assert names == {
        "p": "primary_key",
        "k": "primary_key",
        "a": "sum",
        "b": "last_non_null_value",
        "g": "last_value",
        "h": "last_non_null_value",
        "l": "last_non_null_value",
    }


def test_sequence_groups() -> None:
    options = {
        "fields.g,h.sequence-group": "a,b",
        "fields.a.aggregate-function": "sum",
        "merge-engine": "partial-update",
    }
    schema = Schema.from_pyarrow_schema(FIELDS, partition_keys=["p"], primary_keys=["p", "k"], options=options)
    engine = merge_engine(TableSchema.from_schema(0, schema))
    assert isinstance(engine, PartialUpdate)
    assert engine.groups == (SequenceGroup(("g", "h"), ("a", "b")),)
    assert set(engine.aggregates) == {"a"}
    assert engine.needs(["p", "b"]) == ("k", "g", "h")
    assert engine.needs(["k", "l"]) == ()


PARTIAL = {"merge_engine": "partial-update"}
GROUP = {"fields__g__sequence_group": "a"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"merge_engine": "lightning"}, UnsupportedTableError, "lightning"),
        ({"sequence__snapshot_ordering": "true", "sequence__field": "g"}, StreamConfigError, "snapshot-ordering"),
        ({"sequence__field": "nope"}, StreamConfigError, "'nope'"),
        ({"sequence__field": "g,g"}, StreamConfigError, "more than once"),
        ({"sequence__field": "l"}, UnsupportedTableError, "'l' of option 'sequence.field'"),
        ({"sequence__field": "g", "merge_engine": "first-row"}, StreamConfigError, "first-row"),
        ({"sequence__field": "g", "fields__g__aggregate_function": "sum"}, StreamConfigError, "'g'"),
        ({"merge_engine": "aggregation", "fields__a__aggregate_function": "median"}, UnsupportedTableError, "'median'"),
        (
            {"merge_engine": "aggregation", "fields__default_aggregate_function": "rbm64"},
            StreamConfigError,
            "rbm64.*VARBINARY",
        ),
        (
            {"merge_engine": "aggregation", "fields__b__aggregate_function": "sum"},
            StreamConfigError,
            "'sum' of field 'b'",
        ),
        (
            {
                "merge_engine": "aggregation",
                "fields__a__ignore_retract": "true",
                "aggregation__remove_record_on_delete": "true",
            },
            StreamConfigError,
            "ignore-retract",
        ),
        (PARTIAL | {"fields__a__aggregate_function": "sum"}, StreamConfigError, "sequence group"),
        (PARTIAL | {"fields__g__sequence_group": "k"}, StreamConfigError, "primary key"),
        (PARTIAL | {"fields__g__sequence_group": "x"}, StreamConfigError, "'x'"),
        (PARTIAL | GROUP | {"fields__h__sequence_group": "a"}, StreamConfigError, "more than one"),
        (PARTIAL | GROUP | {"partial_update__remove_record_on_delete": "true"}, StreamConfigError, "contradict"),
        (PARTIAL | GROUP | {"partial_update__remove_record_on_sequence_group": "h"}, StreamConfigError, "'h'"),
        (
            PARTIAL | {"ignore_delete": "true", "partial_update__remove_record_on_delete": "true"},
            StreamConfigError,
            "contra",
        ),
        (
            PARTIAL | GROUP | {"ignore_delete": "true", "partial_update__remove_record_on_sequence_group": "g"},
            StreamConfigError,
            "contradict",
        ),
    ],
)
def test_refusals(options: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine_of(**options)


def test_a_key_of_partition_columns_alone_is_refused() -> None:
    schema = Schema.from_pyarrow_schema(FIELDS, partition_keys=["p"], primary_keys=["p"], options={})
    with pytest.raises(StreamConfigError, match="not a partition column"):
        merge_engine(TableSchema.from_schema(0, schema))


def test_records_that_a_lower_level_has_merged_do_not_count_twice() -> None:
    """With lookup compaction the lowest level above 0 holds the sum of the levels below it."""
    engine = engine_of(merge_engine="aggregation", changelog_producer="lookup", fields__a__aggregate_function="sum")
    runs = [
        pa.record_batch(
            {
                "k": pa.array([1], pa.int64()),
                "a": pa.array([amount], pa.int32()),
                "_SEQUENCE_NUMBER": pa.array([number], pa.int64()),
                "_VALUE_KIND": pa.array([0], pa.int8()),
                "_LEVEL": pa.array([level], pa.int32()),
            }
        )
        for number, (level, amount) in enumerate([(5, 100), (4, 110), (0, 1), (0, 2)])
    ]
    (merged,) = merge_batches([[run] for run in runs], engine)
    assert merged.to_pylist() == [{"k": 1, "a": 113, "_VALUE_KIND": 0}]
    (merged,) = merge_batches([[run] for run in runs[:2]], engine)
    assert merged.column("a").to_pylist() == [110]


def test_merged_records_of_a_level_are_separated_key_by_key() -> None:
    """Each key has its own lowest level above 0, whatever its age says; a key of level 0 alone has none."""
    engine = engine_of(merge_engine="aggregation", changelog_producer="lookup", fields__a__aggregate_function="sum")
    amounts = {0: {1: 1, 2: 1, 3: 1, 4: 1}, 1: {2: 10, 4: 10}, 3: {1: 100, 2: 100, 4: 100}, 5: {1: 1000, 3: 1000}}
    runs = [
        pa.record_batch(
            {
                "k": pa.array(list(of_level), pa.int64()),
                "a": pa.array(list(of_level.values()), pa.int32()),
                "_SEQUENCE_NUMBER": pa.array([level] * len(of_level), pa.int64()),
                "_VALUE_KIND": pa.array([0] * len(of_level), pa.int8()),
                "_LEVEL": pa.array([level] * len(of_level), pa.int32()),
            }
        )
        for level, of_level in (*amounts.items(), (0, {5: 1, 6: 1}), (0, {5: 2}))
    ]
    merged = pa.Table.from_batches(merge_batches([[run] for run in runs], engine))
    assert dict(zip(*(merged[name].to_pylist() for name in ("k", "a")), strict=True)) == {
        1: 101,
        2: 11,
        3: 1001,
        4: 11,
        5: 3,
        6: 1,
    }


LONG = "x" * 300
LONG_TEXTS = ["", "\0", "\0\0", "\1", LONG[1:], *(LONG + end for end in ("", "\0", "\0\0", "\0\1", "\1", "a"))]


@given(rows=st.lists(st.tuples(st.none() | st.sampled_from(LONG_TEXTS), st.none() | st.sampled_from(["", "\0", LONG]))))
def test_keys_of_long_texts_sort_and_differ_as_the_texts_do(rows: list[tuple[str | None, str | None]]) -> None:
    rows = [*rows, (LONG, ""), (None, LONG)]
    columns = [pa.array([row[index] for row in rows], pa.string()) for index in range(2)]
    codec = KeyCodec(2)
    codec.fit(columns)
    codes = codec.encode(columns)
    wanted = [tuple((value is not None, (value or "").encode()) for value in row) for row in rows]
    for one, code in zip(wanted, codes, strict=True):
        assert [(code < other, code == other) for other in codes] == [(one < other, one == other) for other in wanted]


@given(st.lists(st.tuples(st.text("aé\0", max_size=2), st.text("aé\0", max_size=2)).map(sorted), max_size=12))
def test_sorted_runs(bounds: list[list[str]]) -> None:
    files = [file(str(number), *bound) for number, bound in enumerate(bounds)]
    runs = sorted_runs(files)
    assert sorted(each.file_name for run in runs for each in run) == sorted(each.file_name for each in files)
    for run in runs:
        for former, latter in itertools.pairwise(run):
            assert former.max_key.values < latter.min_key.values
    overlaps = [sum(low <= point <= high for low, high in bounds) for point, _ in bounds]
    assert len(runs) == max(overlaps, default=0)


def test_a_small_new_file_in_the_run_of_a_large_old_one_does_not_make_it_the_newest() -> None:
    """Stages join the newest runs, so they would write the whole large run to temporary files."""
    old = file("old", 0, 1_000_000, rows=1_000_000, number=1)
    new = [file(f"{each}", 990_000 + each, 1_000_000 + each, rows=100, number=2 + each) for each in range(40)]
    newest = file("newest", 1_010_000, 1_010_100, rows=100, number=42)
    names = [[each.file_name for each in run] for run in sorted_runs([newest, *new, old])]
    assert names == [["old", "newest"], *([each.file_name] for each in new)]


def file(name: str, smallest: Any, largest: Any, *, rows: int = 1, number: int = 0) -> DataFileMeta:
    stats = SimpleStats.empty_stats()
    return DataFileMeta(
        file_name=name,
        file_size=1,
        row_count=rows,
        min_key=GenericRow([smallest], []),
        max_key=GenericRow([largest], []),
        key_stats=stats,
        value_stats=stats,
        min_sequence_number=0,
        max_sequence_number=number,
        schema_id=0,
        level=0,
        extra_files=[],
    )
