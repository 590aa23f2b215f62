"""Entries of manifests as commits have them, without files behind them."""

from __future__ import annotations

from typing import Any

from pypaimon.streaming.commit.changes import AvroRecord, FileChange
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer

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
    """A file that comes."""
    return FileChange(EntryKind.ADD, partition, bucket, total, file_record(name, **values))


def deleted(name: str, **values: Any) -> FileChange:
    """A file that goes; arguments as `added`."""
    return added(name, **values).deleted()


def vectors(name: str, *files: str, bucket: int = 0) -> AvroRecord:
    """An index file with the deletion vectors of data files."""
    return {
        "_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": bucket, "_INDEX_TYPE": "DELETION_VECTORS",
        "_FILE_NAME": name, "_FILE_SIZE": 10, "_ROW_COUNT": len(files), "_EXTERNAL_PATH": None, "_GLOBAL_INDEX": None,
        "_DELETIONS_VECTORS_RANGES": [{"f0": file, "f1": 1, "f2": 8, "_CARDINALITY": 1} for file in files],
    }  # fmt: skip
