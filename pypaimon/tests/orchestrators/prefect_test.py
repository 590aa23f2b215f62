"""Prefect's flow that starts runs, with a server of Prefect on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pypaimon.streaming import rollback
from pypaimon.streaming.errors import TableChangedError
from support.docs.doc_pages import DOCS, run_section
from support.tables.orders import catalog, change, orders

pytestmark = [pytest.mark.orchestrators, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _prefect_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield


def test_each_snapshot_starts_one_run(tmp_path: Path) -> None:
    from prefect import flow, get_client
    from prefect.variables import Variable

    table = orders(catalog(tmp_path / "warehouse"))
    find = run_section(DOCS / "orchestrators.md", "Prefect", tmp_path / "warehouse")["find_new_orders"]

    @flow(name="handle")
    def handle(position: str, snapshot_id: int, cursor: str) -> None:
        print(position, snapshot_id, cursor)

    handle.to_deployment("orders").apply()

    def started() -> list[int]:
        with get_client(sync_client=True) as client:
            return sorted(run.parameters["snapshot_id"] for run in client.read_flow_runs() if run.parameters)

    find()
    find()
    first = Variable.get("orders")
    change(table, "+I", (5, "placed", 5.0))
    change(table, "+I", (6, "placed", 6.0))
    find()
    # As if the flow was killed before it saved the cursor.
    Variable.set("orders", first, overwrite=True)
    find()
    assert started() == [4, 5, 6]
    rollback(table, snapshot_id=5)
    change(table, "+I", (7, "placed", 7.0))
    with pytest.raises(TableChangedError, match="rolled back"):
        find()
    assert started() == [4, 5, 6]
