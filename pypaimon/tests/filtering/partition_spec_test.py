"""One notion of a partition: whoever names it, by a value or by a text, names the same one."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming import StreamConfigError, compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row_encoding import encoded_columns
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.paimon.internals import AtomicType, DataField, PyarrowFieldParser, TableSchema
from support.tables.chain_tables import DELTA, SNAPSHOT, ChainTable
from support.tables.handles import catalog_with_database, create_table, write_by_stream

UTC = dt.timezone.utc
NAMED: dict[str, tuple[pa.DataType, list[Any], list[tuple[Any, str]]]] = {
    "DATE": (
        pa.date32(),
        [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None],
        [(dt.date(2024, 1, 1), "2024-01-01"), (dt.date(2024, 1, 2), "2024-1-2"), (dt.date(2024, 1, 1), "19723")],
    ),
    "INT": (pa.int32(), [7, -7, None], [(7, "7"), (-7, "-7"), (7, "+7")]),
    "DECIMAL": (
        pa.decimal128(20, 2),
        [Decimal("1.50"), Decimal("-0.01"), None],
        [(Decimal("1.50"), "1.5"), (Decimal("-0.01"), "-0.01"), (Decimal("1.50"), "15e-1")],
    ),
    "BOOLEAN": (pa.bool_(), [True, False, None], [(True, "true"), (False, "FALSE"), (True, "1")]),
    "TIMESTAMP": (
        pa.timestamp("us"),
        [dt.datetime(2024, 1, 1, 8, 30), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 8, 30, 0, 1), None],
        [
            (dt.datetime(2024, 1, 1, 8, 30), "2024-01-01 08:30:00"),
            (dt.datetime(2024, 1, 1), "2024-01-01"),
            (dt.datetime(2024, 1, 1, 8, 30, 0, 1), "2024-01-01T08:30:00.000001"),
        ],
    ),
    "LTZ": (
        pa.timestamp("ms", "UTC"),
        [dt.datetime(2024, 1, 1, 8, tzinfo=UTC), dt.datetime(2024, 1, 1, 9, tzinfo=UTC), None],
        [
            (dt.datetime(2024, 1, 1, 8, tzinfo=UTC), "2024-01-01 08:00:00Z"),
            (dt.datetime(2024, 1, 1, 9, tzinfo=UTC), "2024-01-01 10:00:00+01:00"),
            (dt.datetime(2024, 1, 1, 9, tzinfo=UTC), "2024-01-01 09:00:00"),
        ],
    ),
    "DOUBLE": (
        pa.float64(),
        [0.0, -0.0, math.nan, math.inf, None],
        [(0.0, "0.0"), (-0.0, "-0"), (math.nan, "NaN"), (math.inf, "Infinity")],
    ),
    "FLOAT": (pa.float32(), [0.1, 0.5, None], [(0.1, "0.1"), (0.5, "0.5")]),
    "STRING": (pa.string(), ["2024-01-01", "", "a/b", None], [("2024-01-01", "2024-01-01"), ("", ""), ("a/b", "a/b")]),
}


def made(warehouse: Path, kind: pa.DataType, values: list[Any], **options: str) -> Any:
    """A table with a row in each partition: its number is that of the value."""
    catalog = catalog_with_database(warehouse)
    columns = pa.schema([("id", pa.int64()), ("p", kind)])
    table = create_table(catalog, "t", columns, partition_keys=["p"], options=options)
    write_by_stream(table, pa.table({"id": range(len(values)), "p": pa.array(values, kind)}, schema=columns))
    return table


def rows_of(table: Any) -> list[int]:
    with stream_read_builder(table).with_end(latest=True).open_sync() as stream:
        return sorted(key for batch in stream for key in batch.data["id"].to_pylist())


def same(left: Any, right: Any) -> bool:
    """Whether two values are those of one partition."""
    return repr(left) == repr(right)


@pytest.mark.parametrize("kind", NAMED)
def test_a_value_and_its_text_name_one_partition_for_reads_compactions_and_overwrites(
    tmp_path: Path, kind: str
) -> None:
    arrow, values, named = NAMED[kind]
    table = made(tmp_path, arrow, values, **{"partition.default-name": "nothing"})
    left = list(range(len(values)))
    for value, text in [*named, (None, "nothing")]:
        number = next(number for number, each in enumerate(values) if same(each, value))
        if number not in left:
            continue
        for spelled in (value, text):
            (bucket,) = table_files(table, partition={"p": spelled}).buckets
            assert bucket.files.rows == 1
            stored = pa.array([value], arrow)[0].as_py()
            assert same(bucket.partition["p"], stored)
        assert rows_of(table.copy({"scan.partitions": f"p={text}"})) == [number]
        with stream_write_builder(table).with_overwrite({"p": text}).open_sync() as writer:
            writer.commit()
        left.remove(number)
        assert rows_of(table) == left
    for value, text in named:
        assert not table_files(table, partition={"p": value}).buckets
        assert not table_files(table, partition={"p": text}).buckets
    assert rows_of(table) == left


def schema_of(kind: str, **options: str) -> TableSchema:
    fields = [DataField(0, "p", AtomicType(kind)), DataField(1, "v", AtomicType("INT"))]
    return TableSchema(
        id=0, fields=fields, highest_field_id=1, partition_keys=["p"], primary_keys=[], options=options, comment=None
    )


VALUES = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DATE": st.dates(),
    "DECIMAL(12, 3)": st.decimals(-999_999_999, 999_999_999, places=3),
    "BOOLEAN": st.booleans(),
    "TIMESTAMP(3)": st.datetimes().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": st.datetimes(),
    "TIME(3)": st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    "DOUBLE": st.floats(),
    "FLOAT": st.floats(width=32),
    "STRING": st.text(max_size=8),
}


@given(data=st.data())
def test_what_java_calls_a_partition_names_it(data: st.DataObject) -> None:
    """The names of directories: of both kinds, of values of any type."""
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=4))
    schema, arrow = schema_of(kind), PyarrowFieldParser.from_paimon_type(AtomicType(kind))
    column = pa.array([*values, None], arrow)
    rows = pa.array(encoded_columns([column]), pa.binary())
    for index, value in enumerate([*values, None]):
        spelled = [value]
        legacy = data.draw(st.booleans())
        named = FilePaths("/t", tuple(schema.fields[:1]), legacy_names=legacy).values(rows[index].as_py())["p"]
        blank = isinstance(value, str) and named == "__DEFAULT_PARTITION__"
        if not blank:
            spelled.append(named)
        for each in spelled:
            if isinstance(each, str) and each == "__DEFAULT_PARTITION__":
                expected = [other is None for other in [*values, None]]
            else:
                expected = [same(other, column[index].as_py()) for other in column.to_pylist()]
            spec = PartitionSpec.of(schema, {"p": each}, "partition")
            assert spec.matches(rows, schema.fields[:1]).to_pylist() == expected, (kind, each)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("DATE", [dt.datetime(2024, 1, 1, 8), 19723, True, "2024-01-01 08:30:00", "soon", "2024-13-01", b"2024-01-01"]),
        ("INT", [1.5, True, "1.0", "1_0", " 1", "", 2**31, str(2**31), dt.date(2024, 1, 1)]),
        ("DECIMAL(10, 2)", [1.5, Decimal("1.005"), "1.005", "one", "1e20", "1e-999999999", True]),
        ("BOOLEAN", [1, 0, "on", " true"]),
        ("TIMESTAMP(3)", [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC), 5, "2024-01-01 08:30:00.0001"]),
        ("TIMESTAMP(3)", ["2024-01-01 08:30:00Z", "2024-01-01 8", "24-01-01", dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [dt.datetime(2024, 1, 1), "2024-01-01 8", "1704067200000"]),
        ("TIME(3)", ["25:00:00", "noon", 5, dt.time(1, 2, 3, 4)]),
        ("DOUBLE", ["1_0", "", "nan", True, "0x1p3"]),
        ("FLOAT", ["0.10000000001", "x"]),
        ("VARCHAR(3)", ["abcd", 5, b"abc"]),
    ],
)
def test_an_invalid_value_of_the_column_is_refused_by_name(kind: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(StreamConfigError, match=r"^here: invalid value .* of partition column 'p' \(") as caught:
            PartitionSpec.of(schema_of(kind), {"p": value}, "here")
        assert kind in str(caught.value) and repr(value) in str(caught.value)


def test_a_time_without_an_offset_is_of_the_table_s_zone() -> None:
    def named(text: str, **options: str) -> Any:
        schema = schema_of("TIMESTAMP(3) WITH LOCAL TIME ZONE", **options)
        return PartitionSpec.of(schema, {"p": text}, "here").predicate.literals

    assert named("2024-01-01 17:00:00", **{"time-zone": "Asia/Shanghai"}) == named("2024-01-01 09:00:00Z")
    assert named("2024-01-01 17:00:00+01:00", **{"time-zone": "Asia/Shanghai"}) == named("2024-01-01 16:00:00Z")


def test_names_of_other_columns_and_no_names_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path, pa.date32(), [dt.date(2024, 1, 1)])
    for partition, message in (
        ({}, "expected values of partition columns"),
        ({"id": 1}, "'id' is not a partition column"),
    ):
        with pytest.raises(StreamConfigError, match=message):
            stream_write_builder(table).with_overwrite(partition)
        with pytest.raises(StreamConfigError, match=message):
            compact(table, partition=partition)
        with pytest.raises(StreamConfigError, match=message):
            table_files(table, partition=partition)
    with pytest.raises(StreamConfigError, match="the table has no partitions"):
        PartitionSpec.of(
            TableSchema(
                id=0, fields=[], highest_field_id=0, partition_keys=[], primary_keys=[], options={}, comment=None
            ),
            {"p": 1},
            "partition",
        )


def test_some_columns_name_all_partitions_that_have_their_values(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    columns = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("hour", pa.int32())])
    table = create_table(catalog, "t", columns, partition_keys=["hour", "day"])
    days = [dt.date(2024, 1, day) for day in (1, 1, 2, 2)]
    write_by_stream(table, pa.table({"day": days, "id": range(4), "hour": [7, 8, 7, 8]}, schema=columns))
    with stream_write_builder(table).with_overwrite({"day": "2024-01-01"}).open_sync() as writer:
        writer.write(pa.table({"day": days[:1], "id": [9], "hour": [9]}, schema=columns))
        writer.commit()
        writer.write(pa.table({"day": days[2:3], "id": [9], "hour": [7]}, schema=columns))
        with pytest.raises(StreamConfigError, match=r"only \{'day': '2024-01-01'\} is to be overwritten"):
            writer.commit()
    assert rows_of(table) == [2, 3, 9]
    assert sum(each.files.rows for each in table_files(table, partition={"hour": 7}).buckets) == 1


def test_overwriting_a_delta_branch_is_refused_and_no_other_branch(tmp_path: Path) -> None:
    chain = ChainTable(tmp_path)
    with pytest.raises(UnsupportedTableError, match="delta branch of a chain table"):
        stream_write_builder(chain.branch(DELTA)).with_overwrite().open_sync().__enter__()
    for branch, overwrites in ((SNAPSHOT, True), (DELTA, False)):
        builder = stream_write_builder(chain.branch(branch))
        with (builder.with_overwrite() if overwrites else builder).open_sync() as writer:
            assert writer.last_committed is None
