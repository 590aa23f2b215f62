"""Parts of a snapshot's changes are applied as they are read: nobody sees them before the last one, nor are they kept
in memory beyond what rows may take there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import BlockingBatch
from pypaimon.streaming.live.arrow_row_store import ArrowRowStore
from pypaimon.streaming.live.duckdb_row_store import DuckDBRowStore, MemoryBound
from pypaimon.streaming.live.row_store import HeldColumns, RowStore, TableVersion
from pypaimon.streaming.testing import SmallTable
from support.tables.live_tables import in_order

pytestmark = pytest.mark.slow

ROWS, CHANGED = 400, 16_000


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[list[BlockingBatch]]:
    """A state, and one snapshot that changes, adds and deletes many more rows, in batches."""
    table = SmallTable(tmp_path_factory.mktemp("unseen"), options={"bucket": "8"})
    table.commit(*({"id": number, "name": "old"} for number in range(ROWS)))
    changed = range(ROWS // 4, ROWS // 4 + CHANGED)
    deleted = range(ROWS // 2, ROWS)
    table.commit(
        *(("+U", {"id": number, "name": f"new {number}"}) for number in changed),
        *(("-D", {"id": number, "name": f"new {number}"}) for number in deleted),
    )
    builder = table.builder().with_start("earliest").with_catch_up("replay")
    with builder.open_sync(batch_bytes=1) as stream:
        batches = list(stream)
    return [[batch for batch in batches if batch.snapshot_id == snapshot] for snapshot in (1, 2)]


def contents(rows: RowStore) -> tuple[TableVersion, int, list[str], Any]:
    """What is seen of it."""
    found = rows.get_many(pa.array([0, ROWS // 4, ROWS // 2, ROWS]))
    return rows.table_version, len(rows), in_order(rows.to_arrow().to_pylist()), found.to_pylist()


@pytest.mark.parametrize(("begins", "max_bytes"), [("in memory", 1 << 40), ("in memory", 100_000), ("on disk", 0)])
def test_nobody_sees_a_part_of_a_snapshot(plans: list[list[BlockingBatch]], begins: str, max_bytes: int) -> None:
    state, changes = plans
    assert len(changes) > 5
    rows: RowStore
    if begins == "in memory":
        rows = ArrowRowStore(HeldColumns.of(state[0]), MemoryBound(max_bytes))
    else:
        rows = DuckDBRowStore(HeldColumns.of(state[0]), MemoryBound(0))
    for batch in state:
        rows = rows.apply(batch, None)
    rows.publish(TableVersion(1))
    before = contents(rows)
    assert before[:2] == (TableVersion(1), ROWS)
    seen, size, most = rows, rows.nbytes, max(batch.rows.nbytes for batch in changes)
    for batch in changes:
        rows = rows.apply(batch, None)
        assert contents(seen) == before
        if begins == "in memory":
            assert seen.nbytes <= size + max_bytes + 2 * most
    assert isinstance(rows, ArrowRowStore if begins == "in memory" and max_bytes > 100_000 else DuckDBRowStore)
    assert rows is seen or isinstance(seen, ArrowRowStore)
    rows.publish(TableVersion(2))
    table_version, count, found, asked = contents(rows)
    expected = dict.fromkeys(range(ROWS // 4), "old")
    expected |= {number: f"new {number}" for number in range(ROWS // 4, ROWS // 4 + CHANGED)}
    for number in range(ROWS // 2, ROWS):
        del expected[number]
    assert (table_version, count) == (TableVersion(2), len(expected))
    assert [row["name"] for row in asked] == ["old", f"new {ROWS // 4}", None, f"new {ROWS}"]
    assert found == in_order(
        {"id": number, "name": name, "number": None, "amount": None} for number, name in expected.items()
    )
