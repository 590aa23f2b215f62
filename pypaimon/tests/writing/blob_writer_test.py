"""Columns of blobs: files beside those of the rows, with the row ids that Java gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.row.blob import BlobDescriptor, BlobViewStruct

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import BadRowError, CorruptTableError, UnsupportedTableError
from support.tables.blob_tables import blob_table, rows
from support.tables.handles import batch_read

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int32()), ("b", pa.large_binary()), ("c", pa.large_binary())])
ROWS = [(1, b"one", None), (2, None, b"zwei"), (3, b"", b"three" * 10), (4, b"vier", b"")]


def table_of(directory: Path, columns: pa.Schema = COLUMNS, **options: str) -> Any:
    return blob_table(directory, columns=columns, **options).handle()


def write(table: Any, *commits: Sequence[tuple[Any, ...]], columns: pa.Schema = COLUMNS) -> list[Any]:
    with stream_write_builder(table).with_commit_user("blobs").open_sync() as writer:
        reports = []
        for each in commits:
            arrays = [
                pa.array(list(column), field.type)
                for column, field in zip(zip(*each, strict=True), columns, strict=True)
            ]
            writer.write(pa.table(arrays, schema=columns))
            reports.append(writer.commit())
        return reports


def read(table: Any) -> list[tuple[Any, ...]]:
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    return [tuple(row.values()) for row in rows(builder)]


def test_blobs_are_next_to_their_rows_and_have_their_ids(tmp_path: Path) -> None:
    table = table_of(tmp_path, blob__target_file_size="10 b", target_file_row_num="3")
    first, second = write(table, ROWS, ROWS[:1])
    assert (first.written.rows, second.written.rows) == (4, 1)
    assert read(table) == [tuple(row.values()) for row in batch_read(table)] == [*ROWS, ROWS[0]]
    splits = table.new_read_builder().new_scan().plan().splits()
    found = [
        (file.write_cols[0], file.first_row_id, file.row_count, file.max_sequence_number, file.value_stats_cols)
        for split in splits
        for file in split.files
    ]
    assert [each[:3] for each in found] == [
        ("id", 0, 3), ("b", 0, 1), ("b", 1, 2), ("c", 0, 2), ("c", 2, 1),
        ("id", 3, 1), ("b", 3, 1), ("c", 3, 1),
        ("id", 4, 1), ("b", 4, 1), ("c", 4, 1),
    ]  # fmt: skip
    assert [each[3] for each in found] == [1] * 8 + [2] * 3
    assert [each[4] for each in found if each[0] != "id"] == [[]] * 8
    latest = table.snapshot_manager().get_latest_snapshot()
    assert (latest.next_row_id, latest.commit_kind) == (5, "APPEND")


def test_filters_on_other_columns_find_the_blobs_of_their_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, target_file_row_num="1")
    write(table, ROWS)
    builder = stream_read_builder(table)
    wanted = builder.new_predicate_builder().equal("id", 4)
    assert [row["b"] for row in rows(builder.with_filter(wanted).with_start("latest-full").with_end(latest=True))] == [
        b"vier"
    ]


def test_arrays_and_maps_of_blobs(tmp_path: Path) -> None:
    columns = pa.schema(
        [("id", pa.int32()), ("a", pa.list_(pa.large_binary())), ("m", pa.map_(pa.string(), pa.large_binary()))]
    )
    table = table_of(tmp_path, columns)
    given = [(1, [b"x", None], [("k", b"y"), ("n", None)]), (2, None, None), (3, [], [])]
    write(table, given, columns=columns)
    assert read(table) == given
    twice = (4, [], [("k", b"1"), ("k", b"2")])
    with pytest.raises(BadRowError, match=r"'m' is MAP.*unique"):
        write(table, [twice], columns=columns)


def test_a_commit_that_fails_leaves_no_blob_file(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with stream_write_builder(table).with_memory_limit(1).open_sync() as writer:
        writer.write(pa.table({"id": [1], "b": [b"x"], "c": [b"y"]}, schema=COLUMNS))
        assert len(list(Path(str(table.table_path)).rglob("data-*.blob"))) == 2
        writer.abort()
    assert not [path for path in Path(str(table.table_path)).rglob("data-*") if path.is_file()]


def test_descriptors_are_copied_where_the_table_says_so(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_bytes(b"..a blob..")
    inside, beyond = (BlobDescriptor(str(held), 2, length).serialize() for length in (6, 60))
    table = table_of(tmp_path / "copied", blob_as_descriptor="true")
    write(table, [(1, inside, b"bytes")])
    held.unlink()
    plain = table.copy({"blob-as-descriptor": "false"})
    assert read(plain) == [(1, b"a blob", b"bytes")]
    held.write_bytes(b"..a blob..")
    for wrong in (beyond, BlobDescriptor(str(tmp_path / "gone"), 0, 1).serialize()):
        with pytest.raises(CorruptTableError):
            write(table, [(2, wrong, None)])
    with pytest.raises(UnsupportedTableError, match="outside of the allowed places"):
        write(table, [(2, BlobDescriptor("s3://elsewhere/blob", 0, 1).serialize(), None)])
    assert len(read(plain)) == 1
    unasked = table_of(tmp_path / "plain")
    with pytest.raises(BadRowError, match=r"'b' .*BLOBDESC.*'blob-as-descriptor' = 'true'"):
        write(unasked, [(1, inside, None)])


def test_descriptors_and_views_are_kept_in_the_rows(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_bytes(b"..a blob..")
    table = table_of(tmp_path / "w", blob_descriptor_field="b", blob_view_field="c")
    descriptor, view = BlobDescriptor(str(held), 2, 6).serialize(), BlobViewStruct("db.t", 1, 0).serialize()
    write(table, [(1, descriptor, view), (2, None, None)])
    assert not list(Path(str(table.table_path)).rglob("*.blob"))
    assert read(table) == [(1, b"a blob", b"a blob"), (2, None, None)]
    for wrong, what in (((3, b"blob", None), "BlobDescriptor"), ((3, None, descriptor), "BlobViewStruct")):
        with pytest.raises(BadRowError, match=f"something other than a serialised {what}"):
            write(table, [wrong])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_evolution__enabled": "false"}, "'b' is BLOB, .*'data-evolution.enabled'"),
        ({"video_frame_field": "b"}, "'video-frame-field'"),
        ({"blob_as_descriptor": "true", "blob_descriptor__fs__x": "y"}, "another file system"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    table = table_of(tmp_path).copy({key.replace("__", ".").replace("_", "-"): each for key, each in options.items()})
    with pytest.raises(UnsupportedTableError, match=message), stream_write_builder(table).open_sync():
        pytest.fail("the writer opens")
