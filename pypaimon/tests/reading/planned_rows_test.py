"""Splits carry the filter and the columns that they were planned with, to whichever read they reach."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import SchemaChangedError, StreamConfigError, StreamReadBuilder
from support.tables.streamed_table import Table, available

pytestmark = pytest.mark.slow

Use = Callable[[StreamReadBuilder], StreamReadBuilder]


def plain(builder: StreamReadBuilder) -> StreamReadBuilder:
    return builder


def filtered(builder: StreamReadBuilder) -> StreamReadBuilder:
    return builder.with_filter("k > 2")


def narrow(builder: StreamReadBuilder) -> StreamReadBuilder:
    return builder.with_projection(["v"])


def both(builder: StreamReadBuilder) -> StreamReadBuilder:
    return narrow(filtered(builder))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path)
    table.commit([1, 2, 3])
    return table


def read(table: Table, scan: Use, reader: Use) -> list[dict[str, object]]:
    """The rows that one builder's read makes of another builder's plans."""
    splits = [split for plan in available(scan(table.builder()).new_streaming_scan()) for split in plan.splits()]
    # As they come in another process.
    rows = reader(table.builder()).new_read().to_arrow(pickle.loads(pickle.dumps(splits)))
    return sorted(rows.to_pylist(), key=lambda row: row["v"])


@pytest.mark.parametrize(
    ("scan", "reader"),
    [
        (both, plain),
        (filtered, narrow),
        (narrow, filtered),
        (plain, both),
        (both, both),
        (both, lambda builder: builder.with_filter(builder.new_predicate_builder().greater_than("k", 2))),
        (narrow, lambda builder: filtered(builder).with_read_type([builder.table.fields[1]])),
    ],
)
def test_what_was_set_on_either_builder_holds(table: Table, scan: Use, reader: Use) -> None:
    assert read(table, scan, reader) == [{"v": "v3"}]


@pytest.mark.parametrize(
    ("scan", "reader", "names"),
    [
        (filtered, lambda builder: builder.with_filter("k > 1"), ("k greaterThan 2", "k greaterThan 1")),
        (filtered, lambda builder: builder.with_filter("k > 2", unmatched="drop"), ("'delete'", "'drop'")),
        (narrow, lambda builder: builder.with_projection(["k"]), ("['v']", "['k']")),
        (narrow, lambda builder: builder.with_projection({"w": "v"}), ("['v']", "{'w': 'v'}")),
        (narrow, lambda builder: builder.with_read_type(builder.table.fields), ("['v']", "['k', 'v']")),
    ],
)
def test_other_settings_of_the_read_are_refused_with_both_names(
    table: Table, scan: Use, reader: Use, names: tuple[str, str]
) -> None:
    with pytest.raises(StreamConfigError) as caught:
        read(table, scan, reader)
    assert all(name in str(caught.value) for name in names)


def test_splits_of_different_scans_are_refused(table: Table) -> None:
    scans = [use(table.builder()).new_streaming_scan() for use in (plain, narrow)]
    splits = [split for scan in scans for plan in available(scan) for split in plan.splits()]
    with pytest.raises(StreamConfigError, match=r"no filter and all columns, and with_projection\(\['v'\]\)"):
        table.builder().new_read().to_arrow(splits)


def test_splits_of_different_scans_are_refused_also_where_each_was_pickled_alone(table: Table) -> None:
    """Those of one scan are equal then, and not the same object."""
    scans = [table.builder().with_filter(each).new_streaming_scan() for each in ("k < 3", "k < 3", "k >= 3")]
    same, _, _ = splits = [
        pickle.loads(pickle.dumps(split)) for scan in scans for plan in available(scan) for split in plan.splits()
    ]
    read = table.builder().new_read()
    assert read.to_arrow([same, pickle.loads(pickle.dumps(same))]).num_rows == 4
    with pytest.raises(StreamConfigError, match=r"k lessThan 3.* and .*k greaterOrEqual 3"):
        read.to_arrow(splits)


def test_schemas_are_those_of_the_plan(table: Table) -> None:
    (plan,) = available(narrow(table.builder()).new_streaming_scan())
    plain = table.builder().new_read()
    assert plain.schema.names == ["k", "v"]
    assert plain.schema_of(plan).names == ["v"]
    assert plain.to_arrow_batch_reader(plan.splits()).schema.names == ["v"]


async def test_awaited_reads_take_it_too(table: Table) -> None:
    (plan,) = available(narrow(table.builder()).new_streaming_scan())
    rows = await table.builder().new_read().to_arrow_async(plan.splits())
    assert rows.column_names == ["v"] and rows.num_rows == 3


def test_names_follow_a_column_that_was_renamed_between_the_builders(table: Table) -> None:
    (plan,) = available(both(table.builder()).new_streaming_scan())
    renamed = [SchemaChange.rename_column("v", "w"), SchemaChange.rename_column("k", "key")]
    table.catalog.alter_table(table.name, renamed, False)
    assert table.builder().new_read().to_arrow(plan.splits()).to_pylist() == [{"w": "v3"}]
    table.catalog.alter_table(table.name, [SchemaChange.drop_column("w")], False)
    with pytest.raises(SchemaChangedError, match="'v' was dropped"):
        table.builder().new_read().to_arrow(plan.splits())


def test_deletes_that_a_filter_of_the_scan_makes_are_not_hidden_by_the_read(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True)
    table.commit([1, 2])
    table.commit([1])
    builder = table.builder().with_start("earliest").with_filter("v = 'v2'")
    splits = [split for plan in available(builder.new_streaming_scan()) for split in plan.splits()]
    with pytest.raises(StreamConfigError, match="would hide that rows are deletes"):
        table.builder().with_include_row_kind(False).new_read().to_arrow(splits)
    dropping = table.builder().with_start("earliest").with_filter("v = 'v2'", unmatched="drop")
    splits = [split for plan in available(dropping.new_streaming_scan()) for split in plan.splits()]
    rows = table.builder().with_include_row_kind(False).with_projection(["k"]).new_read().to_arrow(splits)
    assert rows.to_pylist() == [{"k": 2}]
