"""The example that joins a stream with a dimension table finds what was committed before each change."""

from __future__ import annotations

from pathlib import Path

from pypaimon.streaming.testing import SmallTable
from support.repository import load_example
from support.tables.live_tables import often


async def test_each_change_has_the_row_of_the_dimension_that_was_there_before(tmp_path: Path) -> None:
    example = load_example("lookup_join")
    events = SmallTable(tmp_path, keys=(), name="db.events")
    users = SmallTable(tmp_path, name="db.users")
    users.commit({"id": 1, "name": "Ann"})
    events.commit({"id": 10, "number": 1}, {"id": 11, "number": 2})
    rows = example.joined(often(events.table), "number", often(users.table))
    found: dict[int, str | None] = {}
    while len(found) < 2:
        found |= {row["id"]: row["dimension_name"] for row in (await anext(rows)).to_pylist()}
    assert found == {10: "Ann", 11: None}
    for step in range(3):
        users.commit(("+U", {"id": 2, "name": f"Bob {step}"}))
        events.commit({"id": 20 + step, "number": 2})
        assert [row["dimension_name"] for row in (await anext(rows)).to_pylist()] == [f"Bob {step}"]
    await rows.aclose()
