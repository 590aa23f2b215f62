"""Deletion vectors: Java's of three releases, both formats, and index manifests that lead to them."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.deletionvectors.deletion_vector import DeletionVector as PaimonDeletionVector
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.manifest.index_manifest_file import INDEX_MANIFEST_ENTRY_SCHEMA
from pyroaring import BitMap, BitMap64

from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.files.deletion_vectors import DeletionVector
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.index_manifests import deletion_files, parse_index_manifest
from pypaimon.streaming.paimon.internals import DeletionFile, TableSchema
from support.corpus.cases import ARCHIVES, unpack


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(LocalFileIO(str(tmp_path)))
    yield store
    store.close()


def _framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def _vector_32(rows: set[int]) -> tuple[bytes, int]:
    content = struct.pack(">I", 1581511376) + BitMap(rows).serialize()
    return _framed(content), len(content)


def _vector_64(rows: set[int]) -> tuple[bytes, int]:
    content = struct.pack("<I", 1681511377) + BitMap64(rows).serialize()
    return _framed(content), len(content) + 8


@pytest.mark.parametrize("archive", ARCHIVES)
def test_deletion_vectors_of_the_corpus(archive: str, store: Store) -> None:
    """Against pypaimon's reader; the counts that newer releases record are checked on the way."""
    found = 0
    for snapshot_file in sorted(unpack(archive).glob("*deletion_vectors*/wh/d.db/t/snapshot/snapshot-*")):
        table = snapshot_file.parent.parent
        snapshot = json.loads(snapshot_file.read_text())
        if not snapshot.get("indexManifest"):
            continue
        schema = TableSchema.from_json((table / f"schema/schema-{snapshot['schemaId']}").read_text())
        entries = parse_index_manifest((table / "manifest" / snapshot["indexManifest"]).read_bytes())
        for (_, bucket, name), file in deletion_files(entries, FilePaths.of(str(table), schema)).items():
            vector = deletion_vectors.read(store, file)
            wanted = PaimonDeletionVector.read(store.file_io, file)
            assert vector.positions.tolist() == list(wanted.bit_map())
            assert (table / f"bucket-{bucket}" / name).exists() or list(table.glob(f"*/bucket-{bucket}/{name}"))
            assert (file.cardinality is None) == (archive == "java-0.9")
            found += 1
    assert found


@pytest.mark.parametrize("write", [_vector_32, _vector_64])
@given(rows=st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 50), max_size=30), start=st.integers(0, 60))
@settings(max_examples=50, deadline=None)
def test_masks(write: Callable[[set[int]], tuple[bytes, int]], rows: set[int], start: int) -> None:
    data, length = write(rows)
    file = DeletionFile("p", 1, length, len(rows))
    vector = deletion_vectors.parse(b"\x02" + data, file)
    assert vector.positions.tolist() == sorted(rows)
    assert vector.keep_mask(start, 20).to_pylist() == [start + i not in rows for i in range(20)]
    assert vector.keep_mask(start, 0).to_pylist() == []


def test_rows_beyond_32_bits() -> None:
    rows = {0, 2**32 + 1, 2**40}
    data, length = _vector_64(rows)
    vector = deletion_vectors.parse(data, DeletionFile("p", 0, length))
    assert set(vector.positions.tolist()) == rows
    assert vector.keep_mask(2**40 - 1, 3).to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "cut off"),
        (lambda data: b"", "cut off"),
        (lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:], "checksum"),
        (lambda data: _framed(b"abcd" + data[8:-4]), "61626364, an unknown format"),
        (lambda data: _vector_32({1, 2})[0], "has 2 rows, its manifest says 1"),
        (lambda data: _vector_32({1, 70000})[0], "bytes, its manifest says"),
    ],
)
def test_damage(change: Callable[[bytes], bytes], message: str) -> None:
    data, length = _vector_32({1})
    file = DeletionFile("p", 0, length + (2 if "says 1" in message else 0), 1)
    with pytest.raises(ValueError, match=message):
        deletion_vectors.parse(change(data), file)


def _runs(rows: int) -> BitMap:
    bitmap = BitMap(range(rows))
    bitmap.run_optimize()
    return bitmap


def test_rows_beyond_the_file_are_damage_before_they_are_listed() -> None:
    content = struct.pack(">I", 1581511376) + _runs(1 << 27).serialize()
    file = DeletionFile("p", 0, len(content))
    with pytest.raises(ValueError, match="beyond the 100 rows"):
        deletion_vectors.parse(_framed(content), file, 100)
    data, length = _vector_64({0, 99})
    assert deletion_vectors.parse(data, DeletionFile("p", 0, length), 100).positions.tolist() == [0, 99]
    with pytest.raises(ValueError, match="beyond the 99 rows"):
        deletion_vectors.parse(data, DeletionFile("p", 0, length), 99)


def test_a_vector_is_a_value() -> None:
    vector = DeletionVector(np.array([3], dtype=np.uint64))
    with pytest.raises(AttributeError):
        vector.positions = np.array([], dtype=np.uint64)  # type: ignore[misc]


def _index_entry(name: str, **changes: Any) -> dict[str, Any]:
    entry = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": bytes(12),
        "_BUCKET": 3,
        "_INDEX_TYPE": "DELETION_VECTORS",
        "_FILE_NAME": name,
        "_FILE_SIZE": 10,
        "_ROW_COUNT": 1,
        "_DELETIONS_VECTORS_RANGES": [{"f0": f"data-{name}", "f1": 1, "f2": 22, "_CARDINALITY": 2}],
    }
    return {**entry, **changes}


def test_where_index_files_lie() -> None:
    records = [
        _index_entry("i1"),
        _index_entry("i2", _EXTERNAL_PATH="s3://elsewhere/i2"),
        _index_entry("gone"),
        _index_entry("gone", _KIND=1),
        _index_entry("hash", _INDEX_TYPE="HASH", _DELETIONS_VECTORS_RANGES=None),
    ]
    out = io.BytesIO()
    fastavro.writer(out, INDEX_MANIFEST_ENTRY_SCHEMA, records)
    entries = parse_index_manifest(out.getvalue())
    assert [entry.file_name for entry in entries] == ["i1", "i2", "hash"]
    assert deletion_files(entries, FilePaths("/t")) == {
        (bytes(12), 3, "data-i1"): DeletionFile("/t/index/i1", 1, 22, 2),
        (bytes(12), 3, "data-i2"): DeletionFile("s3://elsewhere/i2", 1, 22, 2),
    }
    beside = deletion_files(entries, FilePaths("/t", index_in_bucket=True))
    assert beside[bytes(12), 3, "data-i1"].dv_index_path == "/t/bucket-3/i1"


def test_a_damaged_index_manifest() -> None:
    out = io.BytesIO()
    fastavro.writer(out, INDEX_MANIFEST_ENTRY_SCHEMA, [_index_entry("i1")], codec="zstandard")
    for length in range(1, 17):
        with pytest.raises(ValueError, match="ends in the middle"):
            parse_index_manifest(out.getvalue()[:-length])
    nameless = json.loads(json.dumps(INDEX_MANIFEST_ENTRY_SCHEMA))
    del nameless["fields"][5]
    out = io.BytesIO()
    fastavro.writer(out, nameless, [_index_entry("i1")])
    with pytest.raises(ValueError, match="holds no '_FILE_NAME'"):
        parse_index_manifest(out.getvalue())
