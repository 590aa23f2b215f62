"""Options of a table that say how its files are made: names, formats, places, sizes, statistics."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming import compact, stream_read_builder
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.files.statistics import ColumnBounds, StatsMode
from pypaimon.streaming.writing.record_writer import RecordWriter
from support.tables.handles import batch_read, create_table, write_by_stream
from support.tables.written_rows import commit, recount, rows_of, stored, write

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("v", pa.float64())])
ROWS = [(1, "somewhat longer than sixteen", 0.5), (2, None, -1.0), (3, "a", None)]
KEYED: dict[str, Any] = {"primary_keys": ["id"]}
UUID = "[0-9a-f-]{36}"


def _keyed(warehouse: Any, **options: str) -> tuple[Any, Any]:
    options = {"bucket": "1", "changelog-producer": "input", **{key.replace("_", "-"): v for key, v in options.items()}}
    table = create_table(warehouse, "t", COLUMNS, **KEYED, options=options)
    (message,) = write(table, rows_of(COLUMNS, ROWS, [0, 0, 0]))
    return table, message


def _state(warehouse: Any) -> list[Any]:
    builder = stream_read_builder(warehouse.get_table("db.t"))
    with builder.new_streaming_scan() as scan:
        data = builder.new_read().to_arrow(scan.plan().splits())
    return sorted(zip(*(data[name].to_pylist() for name in COLUMNS.names), strict=True))


@pytest.mark.parametrize(
    ("options", "data", "changelog"),
    [
        ({}, r"data-U-0\.parquet", r"changelog-U-0\.parquet"),
        ({"data-file.prefix": "d.", "changelog-file.prefix": "c."}, r"d\.U-0\.parquet", r"c\.U-0\.parquet"),
        (
            {"file.suffix.include.compression": "true", "file.compression": "SNAPPY"},
            r"data-U-0\.snappy\.parquet",
            r"changelog-U-0\.snappy\.parquet",
        ),
        ({"file.format.per.level": "0:avro,5:orc"}, r"data-U-0\.avro", r"changelog-U-0\.avro"),
        ({"file.format": "orc", "changelog-file.format": "avro"}, r"data-U-0\.orc", r"changelog-U-0\.avro"),
        (
            {"file.suffix.include.compression": "true", "file.compression.per.level": "0:none",
             "changelog-file.compression": "gzip"},
            r"data-U-0\.none\.parquet",
            r"changelog-U-0\.gzip\.parquet",
        ),
    ],
)  # fmt: skip
def test_files_are_called_and_encoded_as_the_table_says(
    warehouse: Any, options: dict[str, str], data: str, changelog: str
) -> None:
    table, message = _keyed(warehouse, **options)
    for files, pattern in ((message.new_files, data), (message.changelog_files, changelog)):
        (file,) = files
        assert re.fullmatch(pattern.replace("U", UUID).replace("-0", r"-\d"), file.file_name)
        assert stored(file.file_path)["id"].to_pylist() == [1, 2, 3]
        recount(table, file)


def test_the_level_of_an_append_table_has_no_format_of_its_own(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"file.format.per.level": "0:avro"})
    (message,) = write(table, rows_of(COLUMNS, ROWS))
    assert message.new_files[0].file_name.endswith(".parquet")


@pytest.mark.parametrize(
    ("options", "told", "names"),
    [
        ({}, None, ("a", "somewhat longer!", 1)),
        ({"metadata.stats-mode": "full"}, None, ("a", "somewhat longer than sixteen", 1)),
        ({"metadata.stats-mode": "TRUNCATE(1)"}, None, ("a", "t", 1)),
        ({"metadata.stats-mode": "counts"}, None, (None, None, 1)),
        ({"metadata.stats-mode": "none"}, [], None),
        ({"metadata.stats-mode": "none", "fields.name.stats-mode": "full"}, ["name"], ("a", ROWS[0][1], 1)),
        ({"metadata.stats-keep-first-n-columns": "1"}, ["id"], None),
        ({"metadata.stats-keep-first-n-columns": "0"}, [], None),
        ({"metadata.stats-mode": "none", "metadata.stats-dense-store": "false"}, None, (None, None, None)),
        ({"metadata.stats-mode": "none", "metadata.stats-mode.per.level": "0:full"}, None, ("a", ROWS[0][1], 1)),
    ],
)
def test_statistics_are_those_of_the_mode(
    warehouse: Any, options: dict[str, str], told: list[str] | None, names: tuple[Any, ...] | None
) -> None:
    table = create_table(warehouse, "t", COLUMNS, **KEYED, options={"bucket": "1", **options})
    (message,) = commit(table, 1, rows_of(COLUMNS, ROWS, [0, 0, 0]))
    (file,) = message.new_files
    assert file.value_stats_cols == told
    all_names = COLUMNS.names if told is None else told
    stats = file.value_stats
    found = dict(
        zip(
            all_names,
            zip(stats.min_values.values, stats.max_values.values, stats.null_counts, strict=True),
            strict=True,
        )
    )
    assert found.get("name") == names
    assert (file.key_stats.min_values.values, file.key_stats.max_values.values) == ([1], [3])
    assert _state(warehouse) == sorted(ROWS)
    builder = stream_read_builder(warehouse.get_table("db.t"))
    for where in ("name = 'a'", "name > 'b'", "name IS NULL", "v < 0"):
        filtered = builder.with_filter(where)
        with filtered.new_streaming_scan() as scan:
            assert len(filtered.new_read().to_arrow(scan.plan().splits())) == 1, where


def test_an_unknown_mode_is_refused(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"fields.v.stats-mode": "truncate(0)"})
    expected = r"'fields.v.stats-mode': expected none, counts, full or truncate\(n\) from 1"
    with pytest.raises(StreamConfigError, match=expected):
        RecordWriter(PaimonTable(table), "user", False)


TEXT = st.text(st.sampled_from("a\ud7ff\U0010ffff\x7f\u0100"), max_size=4)


@given(values=st.lists(st.none() | TEXT | st.just("\U0010ffff" * 4), min_size=1, max_size=5), length=st.integers(1, 3))
def test_cut_bounds_of_texts_hold_all_values(values: list[str | None], length: int) -> None:
    _check_bounds(pa.array(values, pa.string()), length, lambda value: value.encode())


def _check_bounds(column: pa.Array, length: int, order: Any) -> None:
    bounds = ColumnBounds(column.type)
    bounds.add(pa.chunked_array([column]))
    least, greatest = bounds.values(StatsMode(True, True, length))
    there = [value for value in column.to_pylist() if value is not None]
    assert bounds.nulls == column.null_count
    assert (least is None) == (greatest is None)
    if least is None:
        # Unknown: only where there is nothing, or no short value is greater.
        assert not there or set(max(there, key=order)[:length]) <= {"\U0010ffff", 255}
        return
    assert len(least) <= length
    assert len(greatest) <= length
    assert all(order(least) <= order(value) <= order(greatest) for value in there)


@pytest.mark.parametrize(
    ("kind", "chunks", "bounds"),
    [
        (pa.float64(), [[0.0, 1.0], [-0.0]], (-0.0, 1.0)),
        (pa.float64(), [[-0.0], [-1.0]], (-1.0, 0.0)),
        (pa.float32(), [[1.0], [math.nan]], (None, None)),
        (pa.decimal128(10, 2), [[Decimal("1.00")], [Decimal("-1.00")]], (Decimal("-1.00"), Decimal("1.00"))),
        (pa.timestamp("ns"), [[1]], (None, None)),
        (pa.bool_(), [[None], [True]], (True, True)),
        (pa.list_(pa.int32()), [[[1]]], (None, None)),
        (pa.binary(), [[b"\x00"]], (None, None)),
        (pa.binary(2), [[b"\x7f\xff"]], (None, None)),
    ],
)
def test_bounds_by_type(kind: pa.DataType, chunks: list[list[Any]], bounds: tuple[Any, Any]) -> None:
    column = ColumnBounds(kind)
    for chunk in chunks:
        column.add(pa.chunked_array([pa.array(chunk, kind)]))
    assert repr(column.values(StatsMode(True, True))) == repr(bounds)


@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject", None])
def test_files_are_where_the_table_says(warehouse: Any, tmp_path: Path, strategy: str | None) -> None:
    if strategy is None:
        options, home = {"data-file.path-directory": "below/data"}, Path("below/data")
    else:
        home = tmp_path / "outside"
        options = {"data-file.external-paths": f"file://{home}", "data-file.external-paths.strategy": strategy}
    table = create_table(warehouse, "t", COLUMNS, options=options)
    (message,) = commit(table, 1, rows_of(COLUMNS, ROWS))
    (file,) = message.new_files
    assert list((Path(str(table.table_path)) / home).rglob(file.file_name))
    assert (file.external_path is None) == (strategy is None)
    assert _state(warehouse) == sorted(ROWS)


def test_a_file_ends_with_its_number_of_rows(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"target-file-row-num": "2"})
    (message,) = write(table, rows_of(COLUMNS, ROWS), rows_of(COLUMNS, ROWS))
    assert [file.row_count for file in message.new_files] == [2, 2, 2]
    assert [(file.min_sequence_number, file.max_sequence_number) for file in message.new_files] == [
        (0, 1),
        (2, 3),
        (4, 5),
    ]


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_a_changelog_file_ends_with_its_number_of_rows_too(warehouse: Any, producer: str) -> None:
    """Whoever writes it; data files of a compaction do not, as in Java."""
    options = {"bucket": "1", "changelog-producer": producer, "target-file-row-num": "3"}
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
    table = create_table(warehouse, "t", schema, primary_keys=["k"], options=options)
    write_by_stream(table, pa.table({"k": range(7), "v": range(7)}, schema=schema))
    assert compact(table, full=True).after.files == 1
    path = Path(str(table.table_path))
    assert sorted(pq.read_metadata(each).num_rows for each in path.rglob("changelog-*.parquet")) == [1, 3, 3]
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).open_sync() as stream:
        assert [row["k"] for batch in stream for row in batch.data.to_pylist()] == list(range(7))


def test_files_of_tracked_rows_begin_with_the_number_that_the_commit_replaces(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"row-tracking.enabled": "true", "target-file-size": "1 b"})
    (message,) = write(table, rows_of(COLUMNS, ROWS))
    assert [(file.min_sequence_number, file.max_sequence_number) for file in message.new_files] == [(0, 0)] * 3


@pytest.mark.parametrize(("keyed", "partitions"), [(False, 120), (True, 20)])
def test_many_partitions_stay_within_the_bound(warehouse: Any, keyed: bool, partitions: int) -> None:
    """Of memory, and of open files."""
    schema = pa.schema([pa.field("p", pa.int32(), False), pa.field("id", pa.int64(), False), ("v", pa.string())])
    keys = {"primary_keys": ["p", "id"], "options": {"bucket": "2", "write-buffer-size": "32 kb"}}
    append = {"options": {"write-buffer-size": "32 kb"}}
    table = create_table(warehouse, "t", schema, partition_keys=["p"], **(keys if keyed else append))
    writer = RecordWriter(PaimonTable(table), "user", False)
    rows = [(number % partitions, number, "x" * 100) for number in range(600)]
    batch = rows_of(schema, rows, [0] * len(rows) if keyed else None)
    for start in range(0, len(rows), 100):
        writer.write(batch.slice(start, 100))
        assert writer.buffered_bytes <= 32 << 10
    messages = writer.prepare()
    assert len({message.partition for message in messages}) == partitions
    written = [
        row for message in messages for file in message.new_files for row in stored(file.file_path)["id"].to_pylist()
    ]
    assert sorted(written) == list(range(600))


def test_values_that_hardly_repeat_get_no_dictionary(warehouse: Any) -> None:
    columns = pa.schema([(name, pa.int64()) for name in ("few", "many", "null")] + [("list", pa.list_(pa.int64()))])
    table = create_table(warehouse, "t", columns)
    numbers = range(20_000)
    rows = pa.record_batch(
        {
            "few": [number % 5_000 for number in numbers],
            "many": [number * 7_919 % 20_011 for number in numbers],
            "null": [None for _ in numbers],
            "list": [[number] for number in numbers],
        },
        schema=columns,
    )
    (message,) = write(table, rows)
    (file,) = message.new_files
    assert stored(file.file_path) == pa.table(rows)
    group = pq.ParquetFile(file.file_path).metadata.row_group(0)
    with_dictionary = {
        column.path_in_schema
        for column in (group.column(number) for number in range(group.num_columns))
        if column.has_dictionary_page
    }
    assert with_dictionary == {"few", "null", "list.list.element"}


@pytest.mark.parametrize("keyed", [False, True])
def test_the_block_size_bounds_row_groups_and_stripes(warehouse: Any, keyed: bool) -> None:
    rows = pa.table({"id": range(24_000), "name": [f"n{each:09}" for each in range(24_000)], "v": [0.5] * 24_000})
    for number, (format_, block) in enumerate(
        [("parquet", None), ("parquet", "128 kb"), ("orc", "32 kb"), ("orc", "0")]
    ):
        options = {"file.format": format_, "bucket": "1" if keyed else "-1", "file.compression": "none"}
        options |= {} if block is None else {"file.block-size": block}
        table = create_table(warehouse, f"t{number}", COLUMNS, options=options, **(KEYED if keyed else {}))
        write_by_stream(table, rows)
        (path,) = Path(table.table_path).rglob(f"*.{format_}")
        blocks = pq.ParquetFile(path).num_row_groups if format_ == "parquet" else orc.ORCFile(path).nstripes
        assert (blocks > 4) if block in ("128 kb", "32 kb") else (blocks == 1), (format_, block, blocks)
        assert sorted(row["id"] for row in batch_read(table)) == [*range(24_000)]


def test_options_of_files_without_effect_are_logged_once(warehouse: Any, caplog: pytest.LogCaptureFixture) -> None:
    options = {"parquet.encryption.footer.key": "secret", "parquet.write-page-index.enabled": "false"}
    table = create_table(warehouse, "t", COLUMNS, options=options)
    for _ in range(2):
        write_by_stream(table, pa.table({"id": [1]}))
    compact(table, full=True)
    (found,) = [each.paimon for each in caplog.records if each.paimon["event"] == "file_options_ignored"]
    assert found["options"] == "parquet.encryption.footer.key" and "secret" not in caplog.text
