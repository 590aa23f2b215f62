"""Blob columns of primary-key tables: references in data files are copied, sidecars name managed blobs."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import UnsupportedTableError, compact, stream_write_builder
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import BlobDescriptor
from pypaimon.streaming.writing.files.blob_references import BlobReferences
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.tables.handles import current_files

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("b", pa.binary()), ("v", pa.int32())])
DESCRIPTORS = {key: bytes(range(256)) * key + b"not a descriptor" for key in range(1, 4)}


def table_with(
    directory: Path, form: str, options: dict[str, str], blob: Callable[[int, int], bytes] | None = None
) -> Any:
    """A table whose column `b` becomes a column of blobs after its files were written, which current Java makes."""
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "2", **options}
    catalog.create_table("d.t", Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options=given), False)
    for turn in range(3):
        made = {key: blob(key, turn) for key in DESCRIPTORS} if blob else DESCRIPTORS
        rows = [{"id": key, "b": made.get(key), "v": turn} for key in range(turn, 5)]
        with stream_write_builder(catalog.get_table("d.t")).with_commit_user("w").open_sync() as writer:
            writer.write(pa.Table.from_pylist(rows, COLUMNS))
            writer.commit()
    path = directory / "d.db" / "t" / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["fields"][1]["type"] = "BLOB"
    schema["options"] |= {f"blob-{form}-field": "b"} if form else {}
    path.write_text(json.dumps(schema))
    return CatalogFactory.create({"warehouse": str(directory)}).get_table("d.t")


def stored(table: Any) -> dict[int, tuple[bytes | None, int]]:
    """The rows of the only file of each bucket, without any resolving."""
    given = PaimonTable(table)
    directory = TableDirectory.of(table)
    entries = LiveEntries().look(directory, directory.snapshots.get_latest_snapshot())
    rows = [
        row
        for bucket in live_buckets(given, entries)
        for file in bucket.files
        for batch in read_file(directory, file.read, given.fields, schema_id=0)
        for row in batch.to_pylist()
    ]
    found = {row["id"]: (row["b"], row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("form", ["descriptor", "view"])
@pytest.mark.parametrize(
    "options", [{}, {"changelog-producer": "lookup"}, {"merge-engine": "partial-update"}, {"file.format": "avro"}]
)
def test_references_are_copied_as_they_are(tmp_path: Path, form: str, options: dict[str, str]) -> None:
    table = table_with(tmp_path, form, options)
    assert compact(table, full=True).compacted
    expected = {key: (DESCRIPTORS.get(key), min(key, 2)) for key in range(5)}
    assert stored(table) == expected
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match="Column 'b' is BLOB"):
        rescale(table, 1)
    assert sorted(tmp_path.rglob("*")) == before


PLACES = {
    1: "file:/warehouse/d.db/t/bucket-0",
    2: "oss://bucket/warehouse/d.db/t/bucket-1",
    3: "oss://bucket/warehouse/\u00e4/\U0001f601",
}


def descriptor(key: int, turn: int) -> bytes:
    return bytes(BlobDescriptor(f"{PLACES[key]}/pack-{turn % 2}.managed.blob", turn, 7).serialize())


def references(data: bytes) -> list[tuple[str, str]]:
    """The references of a sidecar, parsed as the format is described."""
    magic, version, count = struct.unpack(">IBi", data[:9])
    assert (magic, version) == (0x50424C52, 1)
    assert struct.unpack(">I", data[-4:]) == (zlib.crc32(data[4:-4]),)
    texts, place = list[str](), 9
    while place < len(data) - 4:
        (length,) = struct.unpack(">H", data[place : place + 2])
        place += 2 + length
        texts.append(
            data[place - length : place]
            .decode("utf-8", "surrogatepass")
            .encode("utf-16", "surrogatepass")
            .decode("utf-16")
        )
    assert len(texts) == 2 * count
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize("options", [{}, {"merge-engine": "partial-update"}, {"deletion-vectors.enabled": "true"}])
def test_a_sidecar_names_the_files_of_managed_blobs(tmp_path: Path, options: dict[str, str]) -> None:
    table = table_with(tmp_path, "", options, descriptor)
    compact(table, full=True)
    bucket_of = {}
    for file in current_files(table):
        (name,) = file.extra_files
        assert name == f"{file.file_name}.blobref"
        found = references((Path(file.file_path).parent / name).read_bytes())
        assert found == sorted(found)
        bucket_of[file.file_path.split("/")[-2]] = set(found)
    expected = {(PLACES[key], f"pack-{min(key, 2) % 2}.managed.blob") for key in PLACES}
    assert set().union(*bucket_of.values()) == expected
    assert stored(table) == {
        key: (descriptor(key, min(key, 2)) if key in PLACES else None, min(key, 2)) for key in range(5)
    }
    sidecars = {path.name for path in tmp_path.rglob("*.blobref")}
    assert sidecars == {name for file in current_files(table) for name in file.extra_files}


def test_rows_that_were_deleted_need_no_blob(tmp_path: Path) -> None:
    references_of = BlobReferences(["b"])
    kinds = pa.array([0, 1, 2, 3], pa.int8())
    blobs = [descriptor(1, 0), descriptor(2, 0), descriptor(3, 1), None]
    references_of.add(pa.table({"_VALUE_KIND": kinds, "b": pa.array(blobs, pa.large_binary())}))
    assert references(references_of.data()) == sorted(
        [(PLACES[1], "pack-0.managed.blob"), (PLACES[3], "pack-1.managed.blob")]
    )
    assert references(BlobReferences(["b"]).data()) == []


def test_blobs_in_lists_and_maps_and_spellings_of_places() -> None:
    uris = ["file:///w//t/a.managed.blob", "/w/b.managed.blob", "s3://h/c.managed.blob", "s3://h/other.bin"]
    found = [bytes(BlobDescriptor(uri, 0, 1).serialize()) for uri in uris]
    table = pa.table(
        {
            "_VALUE_KIND": pa.array([0, 2], pa.int8()),
            "l": pa.array([[found[0], None, b"inline"], None], pa.list_(pa.large_binary())),
            "m": pa.array([[("x", found[1]), ("y", None)], [("z", found[2])]], pa.map_(pa.string(), pa.large_binary())),
            "b": pa.array([found[3], None], pa.large_binary()),
        }
    )
    collected = BlobReferences(["l", "m", "b"])
    collected.add(table)
    assert references(collected.data()) == [
        ("/w", "b.managed.blob"), ("file:/w/t", "a.managed.blob"), ("s3://h/", "c.managed.blob"),
    ]  # fmt: skip


def test_a_compaction_that_fails_leaves_no_sidecar(tmp_path: Path) -> None:
    table = table_with(tmp_path, "", {}, descriptor)
    before = sorted(path for path in tmp_path.rglob("*.*") if path.is_file())

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(table, full=True, on_progress=fail)
    assert sorted(path for path in tmp_path.rglob("*.*") if path.is_file()) == before


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(119, 0, -17):
        table = table_with(tmp_path / str(steps), "", {}, descriptor)
        dying = table.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            compact(dying, full=True)
        except Killed:
            compact(table, full=True)
        assert all(file.extra_files == [f"{file.file_name}.blobref"] for file in current_files(table))
        assert all((Path(file.file_path).parent / file.extra_files[0]).exists() for file in current_files(table))
        assert len(stored(table)) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "aggregation"},
        {"changelog-producer": "lookup"},
        {"data-file.external-paths": "file:/elsewhere", "data-file.external-paths.strategy": "round-robin"},
    ],
)
def test_managed_blobs_of_other_tables_are_refused_at_once(tmp_path: Path, options: dict[str, str]) -> None:
    table = table_with(tmp_path, "", {})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match=r"Column 'b' of d\.t holds managed blobs"):
        compact(table.copy(options), full=True)
    assert sorted(tmp_path.rglob("*")) == before
