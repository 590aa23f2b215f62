"""Manifests crafted entry by entry, for tests."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import fastavro
import pytest

from pypaimon.streaming.formats import record_files


@pytest.fixture(params=[0, 1000], ids=["polars", "fastavro"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to decode, which normally the number of records decides between."""
    monkeypatch.setattr(record_files, "_MANY", request.param)


def avro(schema: Any, records: Iterable[Any], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


def entry_record(name: str, kind: int = 0, **changes: Any) -> dict[str, Any]:
    stats = {"_MIN_VALUES": bytes(12), "_MAX_VALUES": bytes(12), "_NULL_COUNTS": []}
    file: dict[str, Any] = {
        "_FILE_NAME": name,
        "_FILE_SIZE": 10,
        "_ROW_COUNT": 1,
        "_MIN_KEY": bytes(12),
        "_MAX_KEY": bytes(12),
        "_KEY_STATS": stats,
        "_VALUE_STATS": stats,
        "_MIN_SEQUENCE_NUMBER": 0,
        "_MAX_SEQUENCE_NUMBER": 0,
        "_SCHEMA_ID": 0,
        "_LEVEL": 0,
        "_EXTRA_FILES": [],
    }
    entry = {"_VERSION": 2, "_KIND": kind, "_PARTITION": bytes(12), "_BUCKET": 0, "_TOTAL_BUCKETS": 1, "_FILE": file}
    for key, value in changes.items():
        (entry if key in entry else file)[key] = value
    return entry
