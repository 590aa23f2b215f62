"""The examples that keep a table of PostgreSQL, and one of Delta, current."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pypaimon.streaming import StreamConfigError, replicate
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import in_order
from support.repository import load_example
from support.tables.target_places import DeltaPlace, PostgresPlace

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("postgres")]


def test_a_table_of_postgres_is_copied_again_after_its_connection_is_lost(tmp_path: Path, address: str) -> None:
    source, program = SmallTable(tmp_path / "w"), load_example("postgres_copy")
    source.commit({"id": 1})
    pauses: list[float] = []
    place = PostgresPlace(address, "public")
    lost = [address.replace("host=", "host=/nowhere")] * 2

    def attempt() -> None:
        program.copy(source.builder(), lost.pop() if lost else address, "public.copy", ["id"])

    program.serve(attempt, pauses.append)
    source.commit({"id": 2})
    program.serve(attempt, pauses.append)
    assert in_order(place.held()) == in_order(source.rows())
    assert pauses == [1.0, 2.0]
    source.commit(("-D", {"id": 1}))
    with pytest.raises(StreamConfigError, match="the target has no keys"):
        program.serve(lambda: program.copy(source.builder(), address, "public.copy", []), pauses.append)


def test_a_delta_table_is_copied_and_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, place, program = SmallTable(tmp_path / "w"), DeltaPlace(tmp_path), load_example("delta_copy")
    monkeypatch.setattr(program, "COMPACT_EVERY", 3)
    for number in range(4):
        source.commit({"id": number})
    uri, every = f"{tmp_path}/copy", source.builder().with_start(snapshot_id=1, full=True).with_catch_up("replay")
    replicate(every, program.CompactedDelta(uri, ["id"], {}))
    source.commit({"id": 7})
    replicate(source.builder(), program.CompactedDelta(uri, ["id"], {}))
    assert in_order(place.held()) == in_order(source.rows())
    operations = [entry["operation"] for entry in DeltaTable(tmp_path / "copy").history()]
    assert operations.count("OPTIMIZE") == 1
