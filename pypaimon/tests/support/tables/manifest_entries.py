"""Data files and entries of manifests without files behind them, and manifests crafted entry by entry."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import fastavro
import pytest

from pypaimon.streaming.commit.changes import AvroRecord, FileChange
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.formats import record_files
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.paimon.internals import DataFileMeta, GenericRow, GenericRowSerializer, SimpleStats, Timestamp

EMPTY_ROW: bytes = GenericRowSerializer.to_bytes(GenericRow([], []))
_STATS = {"_MIN_VALUES": EMPTY_ROW, "_MAX_VALUES": EMPTY_ROW, "_NULL_COUNTS": []}


def file_record(name: str, **values: Any) -> dict[str, Any]:
    """The record of a data file with ten rows, on level 0."""
    record = {
        "_FILE_NAME": name, "_FILE_SIZE": 100, "_ROW_COUNT": 10, "_MIN_KEY": EMPTY_ROW, "_MAX_KEY": EMPTY_ROW,
        "_KEY_STATS": _STATS, "_VALUE_STATS": _STATS, "_MIN_SEQUENCE_NUMBER": 0, "_MAX_SEQUENCE_NUMBER": 9,
        "_SCHEMA_ID": 0, "_LEVEL": 0, "_EXTRA_FILES": [], "_CREATION_TIME": 1_700_000_000_000, "_DELETE_ROW_COUNT": 0,
        "_EMBEDDED_FILE_INDEX": None, "_FILE_SOURCE": 0, "_VALUE_STATS_COLS": None, "_EXTERNAL_PATH": None,
        "_FIRST_ROW_ID": None, "_WRITE_COLS": None, "_WRITE_COLS_SEQUENCES": None,
    }  # fmt: skip
    assert values.keys() <= record.keys()
    return record | values


def added(name: str, *, partition: bytes = EMPTY_ROW, bucket: int = 0, total: int = 1, **values: Any) -> FileChange:
    return FileChange(EntryKind.ADD, partition, bucket, total, file_record(name, **values))


def deleted(name: str, **values: Any) -> FileChange:
    return added(name, **values).deleted()


def vectors(name: str, *files: str, bucket: int = 0) -> AvroRecord:
    """An index file with the deletion vectors of data files."""
    return {
        "_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": bucket, "_INDEX_TYPE": "DELETION_VECTORS",
        "_FILE_NAME": name, "_FILE_SIZE": 10, "_ROW_COUNT": len(files), "_EXTERNAL_PATH": None, "_GLOBAL_INDEX": None,
        "_DELETIONS_VECTORS_RANGES": [{"f0": file, "f1": 1, "f2": 8, "_CARDINALITY": 1} for file in files],
    }  # fmt: skip


OPTIONS = CompactionOptions(
    trigger=3,
    levels=4,
    size_amplification=25,
    size_ratio=1,
    off_peak=None,
    interval_millis=None,
    total_bytes=None,
    incremental_bytes=None,
    force_rewrite=False,
    force_up_level_0=False,
    target_bytes=1000,
    small_bytes=700,
    min_files=5,
    open_bytes=1,
)


def live_file(
    name: str,
    *,
    size: int,
    level: int = 0,
    sequence: int = 0,
    made: int = 0,
    keys: tuple[int, int] = (0, 0),
    deletes: int | None = 0,
) -> LiveFile:
    """A file of one row."""
    meta = DataFileMeta(
        name, size, 1, GenericRow([keys[0]], []), GenericRow([keys[1]], []), SimpleStats.empty_stats(),
        SimpleStats.empty_stats(), sequence, sequence, 0, level, [], Timestamp.from_epoch_millis(made), deletes,
    )  # fmt: skip
    return LiveFile(meta, FileChange(EntryKind.ADD, b"", 0, 1, {}))


@pytest.fixture(params=[0, 1000], ids=["polars", "fastavro"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to decode, which normally the number of records decides between."""
    monkeypatch.setattr(record_files, "_MANY", request.param)


def avro(schema: Any, records: Iterable[Any], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


def entry_record(name: str, kind: int = 0, **changes: Any) -> dict[str, Any]:
    unknown = dict.fromkeys(("_CREATION_TIME", "_DELETE_ROW_COUNT", "_FILE_SOURCE"))
    file = file_record(name, _FILE_SIZE=10, _ROW_COUNT=1, _MAX_SEQUENCE_NUMBER=0, **unknown)
    entry = {"_VERSION": 2, "_KIND": kind, "_PARTITION": EMPTY_ROW, "_BUCKET": 0, "_TOTAL_BUCKETS": 1, "_FILE": file}
    for key, value in changes.items():
        (entry if key in entry else file)[key] = value
    return entry
