"""Java reads, compacts and streams what the sink wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from support.java.live import LiveJava
from support.tables.written_rows import commit, rows_of

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
    kinds = [kind for kind, *_ in rows] if keyed else None
    commit(table, number, rows_of(COLUMNS, [row for _, *row in rows], kinds), user="query")


def _java_rows(java: LiveJava) -> dict[int, str]:
    reply: dict[str, Any] = java.call("read", options={"scan.mode": "latest-full"})
    assert reply["end"] == "waiting", reply
    rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    return {int(row[-2]): row[-1] for row in rows}
