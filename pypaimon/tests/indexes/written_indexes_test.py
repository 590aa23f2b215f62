"""File indexes of what is written: as Java writes them, and files that cannot match are not read."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pypaimon import CatalogFactory
from pypaimon.schema.schema_change import SchemaChange
from pyroaring import BitMap

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction import rewrite_file_index
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.indexes.bitmap import BitmapIndex
from pypaimon.streaming.indexes.bloom_filter import hash_of, hashes_of
from pypaimon.streaming.indexes.column_index import KeyType, keys_of
from pypaimon.streaming.indexes.container import encode_container, index_parts
from pypaimon.streaming.indexes.file_index import FileIndex, IndexedColumn
from pypaimon.streaming.indexes.range_bitmap import BsiIndex, RangeBitmapIndex
from support.java.indexes import COLUMN, JavaIndex, java_indexes
from support.java.live import LiveJava
from support.tables.handles import batch_read, create_table, current_files, read_with, write_by_stream
from support.tables.written_tables import key_value_table, rows

JAVAS = java_indexes()
COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("f", pa.float64())])
INDEXES = {
    "file-index.bloom-filter.columns": "s,k",
    "file-index.bloom-filter.s.items": "100",
    "file-index.bloom-filter.k.items": "100",
    "file-index.bitmap.columns": "f, s",
    "metadata.stats-mode": "none",
}
IN_MANIFEST = {"file-index.in-manifest-threshold": "1 mb", "metadata.stats-mode": "none"}


def part(data: bytes) -> bytes:
    """The index of the column."""
    (found,) = index_parts(data)[COLUMN]
    return data[found.start : found.start + found.length]


@pytest.mark.parametrize("sample", JAVAS, ids=str)
def test_an_index_is_that_of_java(sample: JavaIndex) -> None:
    # What the generator of the sample says of each index.
    options = {"items": "64", "index-block-size": "200 b", "version": "1" if sample.index == "bitmap-1" else "2"}
    options |= {"chunk-size": "100 b"}
    kind = sample.index.removesuffix("-1")
    index = FileIndex([IndexedColumn(COLUMN, kind, options)], pa.schema([(COLUMN, sample.values.type)]))
    for values in (sample.values[:3], sample.values[3:]):
        index.add(pa.table({COLUMN: values}))
    ours, javas = part(encode_container(index.parts())), part(sample.data)
    if kind != "bitmap":
        assert ours == javas
        return
    # Java has the bitmaps in the order of its hash map.
    assert len(ours) == len(javas)
    keys = keys_of(sample.values)
    codes = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q"}
    code = {pa.float32(): "f", pa.float64(): "d"}.get(sample.values.type, codes.get(keys.type))
    found = [BitmapIndex(each, KeyType(code, lambda _: 0)) for each in (ours, javas)]
    bits = keys.to_pylist()
    assert found[0].valid() == found[1].valid() == BitMap([row for row, each in enumerate(bits) if each is not None])
    for value in keys.drop_null().unique().to_pylist():
        key = value
        if code in ("f", "d"):
            key = np.array([value]).astype(keys.type.to_pandas_dtype()).view(code)[0].item()
        held = [each.one_of([key]) for each in found]
        assert held[0] == held[1] == BitMap([row for row, each in enumerate(bits) if each == value])


TYPES = {
    "b": "BOOLEAN", "y": "TINYINT", "h": "SMALLINT", "k": "BIGINT", "n": "INT", "f": "FLOAT", "g": "DOUBLE",
    "s": "STRING", "c": "CHAR(3)", "d": "DATE", "m": "DECIMAL(18, 3)", "t": "TIMESTAMP(6)",
    "o": "MAP",
}  # fmt: skip


MAP = {"type": "MAP", "key": "STRING", "value": "BIGINT"}


def value(name: str, turn: int) -> Any:
    """A value as the harness takes it."""
    if turn % 11 == 5:
        return None
    if name == "o":
        return [[key, None if turn % 4 == 1 else turn % 50] for key in ("x", "y", "z")[turn % 2 :: 1 + turn % 2]]
    if name == "b":
        return turn % 3 == 0
    if name in "sc":
        return f"{turn * 7919 % 1000:03}" if name == "c" else f"text {turn * 7919 % 1000} " + "x" * (turn % 90)
    if name == "d":
        return str(date.fromordinal(date(1969, 6, 1).toordinal() + turn * 37 % 5000))
    if name == "m":
        return str(Decimal(turn * 7919 - 3_000_000).scaleb(-3))
    if name == "t":
        return (datetime(1969, 12, 31) + timedelta(microseconds=turn * 86_400_123_457 % 10**13)).isoformat()
    if name in "fg":
        return [0.5, -0.0, 0.0, -1.25, 1e30][turn % 5] * (1 + turn // 5)
    return (turn * 7919 - 3_000_000) % {"y": 200, "h": 60_000}.get(name, 10**9) - {"y": 100, "h": 30_000}.get(name, 0)


@pytest.mark.java
def test_indexes_of_a_table_are_those_that_java_makes_by_its_defaults(java: LiveJava, tmp_path: Path) -> None:
    plain = [name for name in TYPES if name != "o"]
    kinds = {
        "range-bitmap": [*plain, "o[x]", "o[missing]"],
        "bsi": [*(name for name in plain if name not in "bfgsc"), "o[y]"],
        "bloom-filter": ["o[x]", "o[z]"],
    }
    options = {f"file-index.{kind}.columns": ",".join(names) for kind, names in kinds.items()}
    fields = [[name, MAP if name == "o" else kind] for name, kind in TYPES.items()]
    java.call(
        "create", warehouse=str(tmp_path), fields=fields, partition_keys=[], primary_keys=[],
        options={
            **options, "file-index.in-manifest-threshold": "10 mb", "file-index.bloom-filter.o.items": "50",
            "file-index.bloom-filter.o[z].items": "20",
        },
    )  # fmt: skip
    given = [[value(name, turn) for name in TYPES] for turn in range(3000)]
    java.call("write", flushes=[[["+I", *row] for row in given]])
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    (javas,) = current_files(table)
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    with builder.open_sync() as stream:
        stored = pa.concat_tables(batch.data for batch in stream)
    with stream_write_builder(table).open_sync() as writer:
        writer.write(stored)
        writer.commit()
    (ours,) = (file for file in current_files(table) if file.file_name != javas.file_name)
    parts = [index_parts(bytes(file.embedded_index)) for file in (javas, ours)]
    assert parts[0].keys() == parts[1].keys() == {*plain, "o[x]", "o[y]", "o[z]", "o[missing]"}
    for name in parts[0]:
        found = [
            {each.kind: bytes(file.embedded_index)[each.start : each.start + each.length] for each in part[name]}
            for file, part in zip((javas, ours), parts, strict=True)
        ]
        assert found[0] == found[1], name


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"0123456789abcdef" * 2, 0x642A94958E71E6C5),
        (bytes(range(256)), 0x1FACBE8406CD904B),
    ],
)
def test_bytes_are_hashed_as_by_the_library_xxhash(key: bytes, expected: int) -> None:
    assert hash_of(key) == expected


@hypothesis.given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_integers_are_hashed_as_many_and_one_by_one(numbers: list[int]) -> None:
    assert hashes_of(pa.array(numbers, pa.int64())).tolist() == list(map(hash_of, numbers))


def test_bytes_of_any_length_are_hashed_as_the_reader_does() -> None:
    source = np.random.default_rng(7)
    texts = [source.bytes(length) for length in range(100) for _ in range(2)]
    found = hashes_of(pa.array([b"sliced away", *texts], pa.large_binary())[1:])
    assert found.tolist() == [hash_of(each) for each in texts]


@hypothesis.given(
    st.lists(st.none() | st.integers(-(1 << 63) + 1, (1 << 63) - 1) | st.integers(-9, 9), min_size=1),
    st.integers(-10, 10) | st.integers(-(1 << 63) + 1, (1 << 63) - 1),
    st.sampled_from(["0 b", "8 b", "20 b", "16 kb"]),
)
def test_ranges_of_integers_are_those_of_the_values(numbers: list[int | None], bound: int, chunk: str) -> None:
    for kind in ("range-bitmap", "bsi"):
        index = FileIndex([IndexedColumn(COLUMN, kind, {"chunk-size": chunk})], pa.schema([(COLUMN, pa.int64())]))
        index.add(pa.table({COLUMN: pa.array(numbers, pa.int64())}))
        reading = (RangeBitmapIndex if kind == "range-bitmap" else BsiIndex)(
            part(encode_container(index.parts())), KeyType("q", int)
        )
        expect(reading, numbers, bound)


@hypothesis.given(
    st.lists(st.none() | st.text(max_size=9), min_size=1),
    st.text(max_size=3),
    st.sampled_from(["0 b", "9 b", "40 b", "16 kb"]),
)
def test_ranges_of_texts_are_those_of_the_values(texts: list[str | None], bound: str, chunk: str) -> None:
    index = FileIndex(
        [IndexedColumn(COLUMN, "range-bitmap", {"chunk-size": chunk})], pa.schema([(COLUMN, pa.string())])
    )
    index.add(pa.table({COLUMN: pa.array(texts, pa.string())}))
    keys = [None if each is None else each.encode() for each in texts]
    expect(RangeBitmapIndex(part(encode_container(index.parts())), KeyType(None, str.encode)), keys, bound.encode())


def expect(index: Any, keys: list[Any], bound: Any) -> None:
    def rows_where(holds: Any) -> BitMap:
        return BitMap([row for row, key in enumerate(keys) if key is not None and holds(key)])

    assert index.valid() == rows_where(lambda key: True)
    for key in {bound, *keys} - {None}:
        assert index.one_of([key]) == rows_where(lambda each, key=key: each == key)
        for inclusive in (False, True):
            assert index.above(key, inclusive) == rows_where(
                lambda each, key=key, too=inclusive: each > key or (too and each == key)
            )
            assert index.below(key, inclusive) == rows_where(
                lambda each, key=key, too=inclusive: each < key or (too and each == key)
            )


def test_a_number_without_an_absolute_value_leaves_its_file_without_the_index(warehouse: Any) -> None:
    """Java's writer fails."""
    table = create_table(warehouse, "i", COLUMNS, options={"file-index.bsi.columns": "k", **IN_MANIFEST})
    with stream_write_builder(table).open_sync() as writer:
        for number in (-(1 << 63), 1):
            writer.write(pa.table({"k": [number], "s": ["a"], "f": [0.5]}, schema=COLUMNS))
            writer.commit()
    wanted = stream_read_builder(table).new_predicate_builder().less_than("k", 0)
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_filter(wanted)
    assert [row["k"] for row in read_with(builder)] == [-(1 << 63)]
    assert sorted(file.embedded_index is not None for file in current_files(table)) == [False, True]


def test_a_container_holds_texts_as_java_writes_them() -> None:
    names = ["a\0b", "é", "\U0001f601", ""]
    data = encode_container({name: {"bitmap": name.encode(), "bloom-filter": b"x"} for name in names})
    parts = index_parts(data)
    assert list(parts) == names
    for name, found in parts.items():
        assert [data[each.start : each.start + each.length] for each in found] == [name.encode(), b"x"]


@pytest.mark.parametrize(("threshold", "embedded"), [("1 mb", True), ("0 b", False)])
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_files_without_a_match_are_not_read(warehouse: Any, threshold: str, embedded: bool, keyed: bool) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), not keyed), *list(COLUMNS)[1:]])
    options = {**INDEXES, "file-index.in-manifest-threshold": threshold, "bucket": "1" if keyed else "-1"}
    table = create_table(warehouse, "i", columns, primary_keys=["k"] if keyed else None, options=options)
    with stream_write_builder(table).open_sync() as writer:
        for number in range(3):
            texts = [None, f"text {number}", "of all"]
            given = {"k": [3 * number + each for each in range(3)], "s": texts, "f": [0.0, number + 0.5, float("nan")]}
            writer.write(pa.table(given, schema=columns))
            writer.commit()
    files = current_files(table)
    assert [bool(file.embedded_index) for file in files] == [embedded] * 3
    assert [file.extra_files for file in files] == [[] if embedded else [file.file_name + ".index"] for file in files]
    builder = stream_read_builder(table)
    predicates = builder.new_predicate_builder()
    wanted = [predicates.equal("s", "text 1"), predicates.equal("f", 1.5), predicates.equal("k", 4)]
    for file in sorted(files, key=lambda each: each.creation_time.get_millisecond())[::2]:
        Path(file.file_path).unlink()
    # An old row of a key may match, so that only filters on the key drop files.
    for each in wanted[2:] if keyed else wanted:
        changes = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_filter(each)
        assert [row["k"] for row in read_with(changes)] == [4]


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_compaction_writes_ranges_anew(warehouse: Any, keyed: bool) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), not keyed), *list(COLUMNS)[1:]])
    bucket = {"bucket": "1"} if keyed else {"bucket": "-1", "compaction.min.file-num": "2"}
    indexes = {"file-index.bsi.columns": "k", "file-index.range-bitmap.columns": "s, f"}
    options = {**bucket, **indexes, **IN_MANIFEST}
    table = create_table(warehouse, "i", columns, primary_keys=["k"] if keyed else None, options=options)
    with stream_write_builder(table).open_sync() as writer:
        for number in range(3):
            writer.write(pa.table({"k": [number], "s": [f"text {number}"], "f": [number / 2]}, schema=columns))
            writer.commit()
    assert compact(table, full=True).new_snapshot_ids
    (file,) = current_files(table)
    assert {name: [each.kind for each in found] for name, found in index_parts(file.embedded_index).items()} == {
        "k": ["bsi"], "s": ["range-bitmap"], "f": ["range-bitmap"],
    }  # fmt: skip
    for name, least, found in (("s", "text 1", [1, 2]), ("f", 0.75, [2]), ("k", 2, [2]), ("k", 3, [])):
        wanted = stream_read_builder(table).new_predicate_builder().greater_or_equal(name, least)
        builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_filter(wanted)
        assert [row["k"] for row in read_with(builder)] == found


@pytest.mark.parametrize("threshold", ["1 mb", "0 b"])
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_compaction_keeps_them(warehouse: Any, threshold: str, keyed: bool) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), not keyed), *list(COLUMNS)[1:]])
    bucket = {"bucket": "1"} if keyed else {"bucket": "-1", "compaction.min.file-num": "2"}
    options = {**INDEXES, **bucket, "file-index.in-manifest-threshold": threshold}
    table = create_table(warehouse, "i", columns, primary_keys=["k"] if keyed else None, options=options)
    with stream_write_builder(table).open_sync() as writer:
        for number in range(3):
            writer.write(pa.table({"k": [number], "s": [f"text {number}"], "f": [0.5]}, schema=columns))
            writer.commit()
            if number == 0 and keyed:
                # The only file is moved to another level, as it is.
                assert compact(table, full=True).new_snapshot_ids
    assert compact(table, full=True).new_snapshot_ids
    (file,) = current_files(table)
    directory = Path(file.file_path).parent
    data = file.embedded_index or (directory / file.extra_files[0]).read_bytes()
    assert {name: [each.kind for each in found] for name, found in index_parts(data).items()} == {
        "s": ["bloom-filter", "bitmap"], "k": ["bloom-filter"], "f": ["bitmap"],
    }  # fmt: skip
    for text, rows_found in (("text 1", 1), ("text 9", 0)):
        wanted = stream_read_builder(table).new_predicate_builder().equal("s", text)
        builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_filter(wanted)
        with builder.open_sync() as stream:
            assert sum(batch.data.num_rows for batch in stream) == rows_found


def test_a_write_that_is_given_up_leaves_no_index(warehouse: Any) -> None:
    options = {**INDEXES, "file-index.in-manifest-threshold": "0 b", "target-file-row-num": "1"}
    table = create_table(warehouse, "i", COLUMNS, options=options)
    with stream_write_builder(table).with_memory_limit(1).open_sync() as writer:
        writer.write(pa.table({"k": [1, 2], "s": ["a", "b"], "f": [0.0, 1.0]}, schema=COLUMNS))
        directory = Path(str(table.table_path)) / "bucket-0"
        assert len(list(directory.glob("*.index"))) == 2
        writer.abort()
        assert not [path for path in directory.iterdir() if path.is_file()]


def test_options_that_make_no_index_are_refused(warehouse: Any) -> None:
    for number, (key, value) in enumerate([("bloom-filter.k.fpp", "2"), ("bitmap.s.version", "3")]):
        table = create_table(warehouse, f"i{number}", COLUMNS, options={**INDEXES, f"file-index.{key}": value})
        with pytest.raises(StreamConfigError, match=r"'file-index\.b"), stream_write_builder(table).open_sync():
            pytest.fail("the writer opens")


def test_a_writer_logs_once_which_indexes_it_does_not_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    indexes = {"file-index.bsi.columns": "k, v", "file-index.bitmap.columns": "v,v[x]"}
    table = key_value_table(tmp_path, **indexes)
    with table.writer().open_sync() as writer:
        for key in range(2):
            writer.write(rows(key))
            writer.commit()
    told: list[dict[str, Any]] = [each.paimon for each in caplog.records if hasattr(each, "paimon")]
    (line,) = (each for each in told if each["event"] == "indexes_not_written")
    assert line["indexes"] == "bsi of v, bitmap of v[x]"
    assert line["table"] == "db.w"


def test_without_an_index_there_is_no_file_of_one(warehouse: Any) -> None:
    columns = pa.schema([("n", pa.int64())])
    options = {"file-index.bsi.columns": "n", "file-index.in-manifest-threshold": "0 b"}
    table = create_table(warehouse, "i", columns, options=options)
    # The least BIGINT cannot be in such an index.
    for values in ([-(2**63), 1], [2, 3]):
        write_by_stream(table, pa.table({"n": values}, columns))
    files = sorted(current_files(table), key=lambda file: file.creation_time)
    assert [file.embedded_index for file in files] == [None, None]
    assert [file.extra_files for file in files] == [[], [f"{files[1].file_name}.index"]]
    warehouse.alter_table("db.i", [SchemaChange.remove_option("file-index.bsi.columns")], False)
    table = warehouse.get_table("db.i")
    assert rewrite_file_index(table).before.files == 1
    assert [file.extra_files for file in current_files(table)] == [[], []]
    assert sorted(row["n"] for row in batch_read(table)) == [-(2**63), 1, 2, 3]
