"""File indexes of what is written: as Java writes them, and files that cannot match are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyroaring import BitMap

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.indexes.bitmap import BitmapIndex
from pypaimon.streaming.indexes.bloom_filter import hash_of, hashes_of
from pypaimon.streaming.indexes.column_index import KeyType, keys_of
from pypaimon.streaming.indexes.container import encode_container, index_parts
from pypaimon.streaming.indexes.file_index import FileIndex, IndexedColumn
from support.java.indexes import COLUMN, JavaIndex, java_indexes
from support.tables.handles import create_table, current_files, read_with
from support.tables.written_tables import key_value_table, rows

KINDS = ("bloom-filter", "bitmap", "bitmap-1")
JAVAS = [each for each in java_indexes() if each.index in KINDS]
COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("f", pa.float64())])
INDEXES = {
    "file-index.bloom-filter.columns": "s,k",
    "file-index.bloom-filter.s.items": "100",
    "file-index.bloom-filter.k.items": "100",
    "file-index.bitmap.columns": "f, s",
    "metadata.stats-mode": "none",
}


def part(data: bytes) -> bytes:
    """The index of the column."""
    (found,) = index_parts(data)[COLUMN]
    return data[found.start : found.start + found.length]


@pytest.mark.parametrize("sample", JAVAS, ids=str)
def test_an_index_is_that_of_java(sample: JavaIndex) -> None:
    # What the generator of the sample says of each index.
    options = {"items": "64", "index-block-size": "200 b", "version": "1" if sample.index == "bitmap-1" else "2"}
    kind = sample.index.removesuffix("-1")
    index = FileIndex([IndexedColumn(COLUMN, kind, options)], pa.schema([(COLUMN, sample.values.type)]))
    for values in (sample.values[:3], sample.values[3:]):
        index.add(pa.table({COLUMN: values}))
    ours, javas = part(index.data()), part(sample.data)
    if kind == "bloom-filter":
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
    indexes = {"file-index.bsi.columns": "k", "file-index.range-bitmap.columns": "k, v"}
    table = key_value_table(tmp_path, **indexes, **{"file-index.bitmap.columns": "v,m[x]"})
    with table.writer().open_sync() as writer:
        for key in range(2):
            writer.write(rows(key))
            writer.commit()
    told: list[dict[str, Any]] = [each.paimon for each in caplog.records if hasattr(each, "paimon")]
    (line,) = (each for each in told if each["event"] == "indexes_not_written")
    assert line["indexes"] == "bsi of k, range-bitmap of k, range-bitmap of v, bitmap of m[x]"
    assert line["table"] == "db.w"
