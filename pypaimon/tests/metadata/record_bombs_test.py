"""Files of records that are small and hold much: refused before they fill the memory."""

from __future__ import annotations

import io
import tracemalloc

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
import zstandard

from pypaimon.streaming.formats import record_files
from pypaimon.streaming.metadata.index_manifests import parse_index_manifest
from support.tables.crafted_files import container

OPTIONAL = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]}]}


def test_an_index_manifest_holds_no_more_entries_than_it_has_names_for() -> None:
    count = 1 << 22
    data = container(OPTIONAL, count, zstandard.ZstdCompressor().compress(bytes(count)), b"zstandard")
    assert len(data) < 1000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="decompressed"):
            parse_index_manifest(data)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_value_that_is_stored_once_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "_MOST_BYTES", 1 << 20)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 100_000])
    parquet, stripes = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"a": texts}), parquet, store_schema=False)
    orc.write_table(pa.table({"a": pa.array([0] * 1_000_000)}), stripes, compression="zstd")
    for file in (parquet, stripes):
        assert len(file.getvalue()) < 1 << 16
        with pytest.raises(ValueError, match="more than 1 GiB"):
            record_files.parse(file.getvalue())
