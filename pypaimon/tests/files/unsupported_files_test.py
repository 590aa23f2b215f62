"""Sound files that pyarrow, or this library, does not read: an error that names file, column and what to do."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pypaimon.streaming import copy_stream, stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import CorruptTableError, UnsupportedFileError, UnsupportedTableError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.crafted_files import LZO, parquet, with_codec, with_empty_page, with_unknown_type
from support.tables.handles import create_table
from support.tables.stream_files import current_files, meta, write

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]}, COLUMNS)
NULLS = pa.table({"id": [1, 2], "v": [None, None]}, COLUMNS)


def put(table: Any, content: bytes, name: str = "a.parquet") -> Any:
    path = Path(str(table.table_path)) / "bucket-0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return meta(path, 2)


def read(table: Any, file: Any, *columns: str) -> dict[str, list[Any]]:
    fields = [field for field in table.fields if field.name in columns]
    return dict(pa.Table.from_batches(read_file(TableDirectory.of(table), file, fields, schema_id=0)).to_pydict())


CONTENTS = {
    "a logical type": (
        lambda: with_unknown_type(parquet(ROWS), "v"),
        "does not know its logical type, number 99 .*Install a newer pyarrow",
    ),
    "a compression": (lambda: with_codec(parquet(ROWS), "v", LZO), "does not read it .*LZO"),
    "an empty page": (
        lambda: with_empty_page(NULLS),
        "does not read its data pages without values.*Install pyarrow 20 or later",
    ),
}
READ_FROM = {"an empty page": 20, "a logical type": 26}
"""The pyarrow that reads it, at the latest; a logical type that it does not know it leaves out."""


@pytest.mark.parametrize("name", CONTENTS)
def test_what_pyarrow_does_not_read_is_not_damage(warehouse: Any, name: str) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    content, said = CONTENTS[name]
    file = put(table, content())
    assert read(table, file, "id") == {"id": [1, 2]}
    if int(pa.__version__.partition(".")[0]) >= READ_FROM.get(name, 1000):
        assert read(table, file, "id", "v") in (ROWS.to_pydict(), NULLS.to_pydict())
        return
    with pytest.raises(UnsupportedFileError, match=rf"a\.parquet, column 'v': pyarrow .*{said}") as caught:
        read(table, file, "id", "v")
    assert (caught.value.path, caught.value.column) == (file.file_path, "v")
    assert isinstance(caught.value, UnsupportedTableError) and not caught.value.retriable
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.path, copied.column) == (str(caught.value), file.file_path, "v")


def test_a_type_of_avro_that_is_not_read_is_not_damage(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["int", "string"]}]}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [{"v": 1}, {"v": "a"}])
    with pytest.raises(UnsupportedFileError, match=r"a\.avro, column 'v': columns of the Avro type"):
        read(table, put(table, out.getvalue(), "a.avro"), "v")


def test_a_damaged_file_stays_damaged(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    content = bytearray(parquet(ROWS, compression="snappy", use_dictionary=False))
    content[20:40] = bytes(20)
    with pytest.raises(CorruptTableError, match=r"a\.parquet: the file is damaged"):
        read(table, put(table, bytes(content)), "id", "v")


def test_nothing_of_such_a_file_is_passed_over_or_copied(warehouse: Any) -> None:
    """Also where damaged files are to be ignored: it is none, and a newer pyarrow reads it."""
    options = {"bucket": "-1", "scan.ignore-corrupt-files": "true"}
    source = create_table(warehouse, "t", COLUMNS, options=options)
    target = create_table(warehouse, "copy", COLUMNS, options={"bucket": "-1"})
    write(source, ROWS)
    (file,) = current_files(source)
    sound = Path(file.file_path).read_bytes()
    Path(file.file_path).write_bytes(with_codec(sound, "v", LZO))
    reading = stream_read_builder(source).with_end(latest=True)
    opened = stream_write_builder(target).with_commit_user("copy").open_sync()
    with opened as writer, pytest.raises(UnsupportedFileError, match="column 'v'"):
        copy_stream(reading, writer)
    assert target.snapshot_manager().get_latest_snapshot() is None
    Path(file.file_path).write_bytes(sound)
    with stream_write_builder(target).with_commit_user("copy").open_sync() as writer:
        copy_stream(reading, writer)
    assert len(current_files(target)) == 1
