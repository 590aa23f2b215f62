"""dlt's resource and destination, in pipelines of a real dlt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, run_section
from support.tables.handles import batch_read
from support.tables.orders import catalog, change, events, orders, state_of

pytestmark = [pytest.mark.orchestrators, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dlt keeps its pipelines in the directory of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")


def test_the_page_copies_changes_and_writes_rows(tmp_path: Path) -> None:
    warehouse = catalog(tmp_path / "warehouse")
    table = orders(warehouse)
    target = events(warehouse, commits=0)
    for expected in range(1, 3):
        run_section(DOCS / "orchestrators.md", "dlt", tmp_path / "warehouse")
        with duckdb.connect("copy_orders.duckdb") as database:
            assert dict(database.sql("SELECT id, status FROM copy_orders_dataset.orders").fetchall()) == state_of(table)
        assert [row["value"] for row in batch_read(target, ["value"])] == [7] * expected
        change(table, "-U", (1, "paid", 1.5))
        change(table, "+U", (1, "sent", 1.5))
        change(table, "+I", (3, "placed", 1.0))
        change(table, "-D", (3, "placed", 1.0))


def pipeline(destination: Any, name: str = "p") -> Any:
    import dlt

    return dlt.pipeline(name, destination=destination, dataset_name="d")


def copied() -> list[Any]:
    with duckdb.connect("p.duckdb") as database:
        return database.sql("SELECT id, name FROM d.small ORDER BY ALL").fetchall()


def test_changes_of_a_failed_run_come_with_the_next_one(tmp_path: Path) -> None:
    from dlt.pipeline.exceptions import PipelineStepFailed

    from pypaimon.streaming.orchestrators.dlt import changes

    table = SmallTable(tmp_path / "w", keys=())
    table.commit({"id": 1, "name": "a"})

    def run(fails: bool = False) -> None:
        resource = changes(stream_read_builder(table.table), "small")

        def check(rows: Any) -> Any:
            if fails:
                raise RuntimeError("killed")
            return rows

        pipeline("duckdb").run(resource.add_map(check))

    run()
    table.commit({"id": 2, "name": "b"})
    with pytest.raises(PipelineStepFailed, match="killed"):
        run(fails=True)
    table.commit({"id": 3, "name": "c"})
    for _ in range(2):
        run()
        assert copied() == [(1, "a"), (2, "b"), (3, "c")]
    table.commit({"id": 4, "name": "d"})
    table.commit({"id": 5, "name": "e"})
    table.expire()
    with pytest.raises(PipelineStepFailed, match="Snapshot 4 has expired"):
        run()


def test_a_file_that_is_loaded_again_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dlt repeats a file whose outcome it does not know."""
    from pypaimon.streaming.errors import StoreError
    from pypaimon.streaming.orchestrators import dlt as ours

    target = SmallTable(tmp_path / "w", keys=())
    write, failed = ours._write, []

    def write_and_fail(*given: Any) -> None:
        write(*given)
        if len(failed) < 2:
            failed.append(Path(given[0]).name)
            raise StoreError("no answer")

    monkeypatch.setattr(ours, "_write", write_and_fail)
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "1")
    rows = [{"id": number, "name": "x", "number": 1, "amount": 1.0} for number in range(3)]
    pipeline(ours.paimon_destination({"warehouse": str(tmp_path / "w")}, "db")).run(rows, table_name="small")
    assert len(failed) == 2
    assert sorted(row["id"] for row in target.rows()) == [0, 1, 2]


def test_pipelines_do_not_share_what_the_table_knows_of_them(tmp_path: Path) -> None:
    """If they did, a load of one would forget the files of the other, which are then written again after a crash."""
    from pypaimon.streaming.orchestrators.dlt import paimon_destination

    target = SmallTable(tmp_path / "w", keys=())
    users = []
    for name in ("p", "q"):
        destination = paimon_destination({"warehouse": str(tmp_path / "w")}, "db")
        pipeline(destination, name).run([{"id": 1}], table_name="small")
        users.append(target.table.snapshot_manager().get_latest_snapshot().commit_user)
    assert users == ["dlt-p", "dlt-q"]


def test_without_keys_a_deleted_row_is_no_other_row(tmp_path: Path) -> None:
    from pypaimon.streaming.orchestrators.dlt import changes

    table = SmallTable(tmp_path / "w")
    for kind in ("+I", "-D"):
        table.commit((kind, {"id": 1}))
        pipeline("duckdb").run(changes(stream_read_builder(table.table), "small"))
    with duckdb.connect("p.duckdb") as database:
        assert database.sql("SELECT id, _row_kind FROM d.small ORDER BY ALL").fetchall() == [(1, "+I"), (1, "-D")]


def test_what_a_destination_cannot_do_fails_the_load(tmp_path: Path) -> None:
    from dlt.pipeline.exceptions import PipelineStepFailed

    from pypaimon.streaming.orchestrators.dlt import paimon_destination

    SmallTable(tmp_path / "w", keys=())
    destination = paimon_destination({"warehouse": str(tmp_path / "w")}, "db")
    with pytest.raises(PipelineStepFailed, match=r"a load cannot replace a table"):
        pipeline(destination).run([{"id": 1}], table_name="small", write_disposition="replace")
    with pytest.raises(PipelineStepFailed, match=r"cannot be merged into a table without a primary key"):
        pipeline(destination, "r").run([{"id": 1}], table_name="small", write_disposition="merge", primary_key="id")
    with pytest.raises(PipelineStepFailed, match=r"db\.missing does not exist"):
        pipeline(destination, "q").run([{"id": 1}], table_name="missing")
