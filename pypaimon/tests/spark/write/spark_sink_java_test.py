"""Java reads, compacts and streams what the sink wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.writing.record_writer import RecordWriter
from support.java.live import LiveJava

pytestmark = pytest.mark.java

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
BATCHES = [
    [(0, each, f"name of {each}" * (each % 3)) for each in range(30)],
    [(3 if each % 2 else 2, each, "new") for each in range(10)],
]


@pytest.mark.parametrize("keyed", [True, False])
def test_java_reads_what_was_written(java: LiveJava, tmp_path: Path, keyed: bool) -> None:
    keys = {"primary_keys": ["id"], "options": {"bucket": "3"}}
    append = {"primary_keys": [], "options": {"bucket": "3", "bucket-key": "name,id"}}
    fields = [["id", "BIGINT NOT NULL"], ["name", "STRING"]]
    java.call("create", warehouse=str(tmp_path), fields=fields, partition_keys=[], **(keys if keyed else append))
    for number, rows in enumerate(BATCHES if keyed else BATCHES[:1]):
        _commit(tmp_path, rows, number, keyed)
    expected = {key: name for _, key, name in BATCHES[0]}
    if keyed:
        expected |= {key: name for kind, key, name in BATCHES[1] if kind != 3}
        expected = {key: name for key, name in expected.items() if key >= 10 or key % 2 == 0}
    assert _java_rows(java) == expected
    if keyed:
        java.call("compact", full=True)
        assert _java_rows(java) == expected


def _commit(warehouse: Path, rows: list[tuple[int, int, str]], number: int, keyed: bool) -> None:
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")
    kinds, ids, names = (list(column) for column in zip(*rows, strict=True))
    batch = pa.record_batch([pa.array(ids, pa.int64()), pa.array(names)], schema=COLUMNS)
    if keyed:
        batch = batch.append_column(pa.field(VALUE_KIND, pa.int8(), nullable=False), pa.array(kinds, pa.int8()))
    writer = RecordWriter(PaimonTable(table), "query", False)
    writer.write(batch)
    messages = writer.prepare()
    writer.close()
    commit_once(CommitRequest(PaimonTable(table), "query", number, messages))


def _java_rows(java: LiveJava) -> dict[int, str]:
    reply: dict[str, Any] = java.call("read", options={"scan.mode": "latest-full"})
    assert reply["end"] == "waiting", reply
    rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    return {int(row[-2]): row[-1] for row in rows}
