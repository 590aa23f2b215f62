"""Bytewax's source, with its recovery."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import rollback
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, run_section
from support.tables.orders import catalog, orders

pytestmark = [pytest.mark.orchestrators, pytest.mark.filterwarnings("ignore")]


def run(table: SmallTable, recovery: Path, shards: int = 1, fails_after: int | None = None) -> list[list[int]]:
    """The keys of each item of a run."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import TestingSink, run_main

    from pypaimon.streaming.orchestrators.bytewax import PaimonSource

    if not recovery.exists():
        recovery.mkdir()
        init_db_dir(recovery, 1)
    items: list[Any] = []
    seen: list[Any] = []

    def step(rows: Any) -> Any:
        if len(seen) == fails_after:
            raise RuntimeError("killed")
        seen.append(rows)
        return sorted(rows["id"].to_pylist())

    flow = Dataflow("follow")
    found = op.input("paimon", flow, PaimonSource(table.builder().with_catch_up("replay"), shards, poll_interval=0.01))
    op.output("out", op.map("step", found, step), TestingSink(items))
    run_main(flow, epoch_interval=timedelta(0), recovery_config=RecoveryConfig(str(recovery)))
    return items


def test_the_page_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from bytewax.testing import run_main

    orders(catalog(tmp_path / "warehouse"))
    run_main(run_section(DOCS / "orchestrators.md", "Bytewax", tmp_path / "warehouse")["dataflow"])
    assert capfd.readouterr().out.splitlines() == ["1"]


def test_a_run_continues_after_what_the_last_one_saved(tmp_path: Path) -> None:
    table, recovery = SmallTable(tmp_path / "w"), tmp_path / "recovery"
    table.commit({"id": 1})
    table.commit({"id": 2})
    assert run(table, recovery) == [[1, 2]]
    assert run(table, recovery) == []
    for number in (3, 4, 5):
        table.commit({"id": number})
    with pytest.raises(RuntimeError, match="step"):
        run(table, recovery, fails_after=1)
    # At least once, as Bytewax says: what was not saved comes again.
    again = run(table, recovery)
    assert again in ([[3], [4], [5]], [[4], [5]])
    assert run(table, recovery) == []


def causes(error: BaseException) -> str:
    """The texts of an error of Bytewax and of its causes."""
    cause = error.__cause__ or error.__context__
    return str(error) if cause is None else f"{error}\n{causes(cause)}"


def test_a_position_that_cannot_continue_ends_the_dataflow(tmp_path: Path) -> None:
    table, recovery = SmallTable(tmp_path / "w"), tmp_path / "recovery"
    table.commit({"id": 1})
    table.commit({"id": 2})
    run(table, recovery)
    rollback(table.table, snapshot_id=1)
    table.commit({"id": 3})
    with pytest.raises(Exception, match="error") as raised:
        run(table, recovery)
    assert "rolled back" in causes(raised.value)


def test_shards_read_every_row_once(tmp_path: Path) -> None:
    table, recovery = SmallTable(tmp_path / "w"), tmp_path / "recovery"
    table.commit(*({"id": number} for number in range(20)))
    assert sorted(number for keys in run(table, recovery, shards=2) for number in keys) == [*range(20)]
    table.commit({"id": 20}, {"id": 21})
    assert sorted(number for keys in run(table, recovery, shards=2) for number in keys) == [20, 21]


def test_another_number_of_shards_needs_another_recovery_store(tmp_path: Path) -> None:
    """With it the positions are those of other rows."""
    table, recovery = SmallTable(tmp_path / "w", options={"bucket": "4"}), tmp_path / "recovery"
    table.commit(*({"id": number} for number in range(20)))
    run(table, recovery, shards=2)
    with pytest.raises(Exception, match="error") as raised:
        run(table, recovery, shards=3)
    assert "the recovery store is of shards=2, not 3" in causes(raised.value)
