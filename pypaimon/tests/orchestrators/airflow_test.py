"""A Dag of a real Airflow: each snapshot is returned once, over runs, failures and restarts of the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import rollback
from pypaimon.streaming.orchestrators import new_snapshots
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, HOME, of_section
from support.tables.orders import catalog, change, orders

pytestmark = [pytest.mark.orchestrators, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An Airflow over SQLite in a directory of its own, with the Dag of the page."""
    home = tmp_path_factory.mktemp("airflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(home))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(home / "dags"))
        (block,) = (each.text for each in of_section(DOCS / "orchestrators.md", "Airflow") if each.language == "python")
        # A look every tenth of a second, so that the test need not wait for a minute.
        program = block.replace(HOME, str(home)).replace("options=lake", "options=lake, poke_interval=0.1")
        (home / "dags").mkdir()
        (home / "dags" / "page.py").write_text(program)
        patch.syspath_prepend(str(home / "dags"))
        from airflow.utils import db

        db.initdb()
        yield home


def results(run: Any) -> dict[str, Any]:
    """The XComs of a run by task."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id))
        return {each.task_id: XComModel.deserialize_value(each) for each in found}


def test_the_dag_of_the_page_reads_each_snapshot_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = orders(catalog(home / "warehouse"))
    from page import dag_of_orders

    from pypaimon.streaming.orchestrators.airflow import SnapshotSensor

    def defer(sensor: Any, **given: Any) -> None:
        # A commit while the sensor moves to the triggerer.
        change(table, "+I", (7, "placed", 7.0))
        super(SnapshotSensor, sensor).defer(**given)

    def run(day: int | None) -> tuple[str, int | None, list[int]]:
        date = None if day is None else datetime(2026, 11, day, tzinfo=timezone.utc)
        found = dag_of_orders.test(logical_date=date)
        values = results(found)
        ids = [row["id"] for row in values.get("handle", [])]
        return str(found.state), values["new"]["snapshot_id"] if "new" in values else None, ids

    assert run(1) == ("success", 4, [1])
    change(table, "+I", (5, "placed", 5.0))
    change(table, "+I", (6, "placed", 6.0))
    assert run(2) == ("success", 6, [5, 6])
    # The same run again continues after the one before it, not after itself.
    assert run(2) == ("success", 6, [5, 6])
    monkeypatch.setattr(SnapshotSensor, "defer", defer)
    assert run(3) == ("success", 7, [7])
    assert run(None) == ("failed", None, [])
    rollback(table, snapshot_id=6)
    change(table, "+I", (8, "placed", 8.0))
    assert run(4) == ("failed", None, [])


@pytest.fixture
def table(home: Path, tmp_path: Path) -> SmallTable:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    return table


def trigger_of(table: SmallTable, directory: Path, cursor: str | None) -> Any:
    from pypaimon.streaming.orchestrators.airflow import SnapshotTrigger

    return SnapshotTrigger(table.name, {"warehouse": str(directory)}, cursor, poke_interval=0.01)


def restarted(trigger: Any) -> Any:
    """The trigger as another triggerer makes it, of what Airflow stored."""
    from airflow.models.trigger import Trigger
    from airflow.sdk.module_loading import import_string

    path, arguments = trigger.serialize()
    stored = Trigger(path, arguments)
    return import_string(stored.classpath)(**stored.kwargs)


async def event_of(trigger: Any) -> dict[str, Any]:
    (event,) = [event async for event in trigger.run()]
    return dict(event.payload)


async def test_a_triggerer_that_restarts_looks_from_the_same_cursor(table: SmallTable, tmp_path: Path) -> None:
    (state,) = new_snapshots(table.table)
    first = trigger_of(table, tmp_path, state.cursor)
    killed = asyncio.create_task(event_of(first))
    await asyncio.sleep(0.1)
    killed.cancel()
    table.commit({"id": 2})
    table.commit({"id": 3})
    event = await event_of(restarted(first))
    # An event that never reached the database is found again.
    assert await event_of(restarted(restarted(first))) == event
    assert (event["position"], event["snapshot_id"], event["table"]) == (state.cursor, 3, "db.small")
    assert [*new_snapshots(table.table, event["cursor"])] == []


async def test_an_error_that_no_retry_heals_ends_the_sensor(table: SmallTable, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from pypaimon.streaming.orchestrators.airflow import SnapshotSensor

    (state,) = new_snapshots(table.table)
    table.commit({"id": 2})
    table.commit({"id": 3})
    table.expire()
    event = await event_of(trigger_of(table, tmp_path, state.cursor))
    assert event.keys() == {"error"}
    sensor = SnapshotSensor(task_id="new", table=table.name, options={"warehouse": str(tmp_path)})
    with pytest.raises(AirflowFailException, match="Snapshot 2 has expired"):
        sensor.execute_complete({}, event)


async def test_a_trigger_waits_out_an_outage(table: SmallTable, tmp_path: Path) -> None:
    trigger = trigger_of(table, tmp_path, None)
    there, trigger.options = trigger.options, {"warehouse": "s3://lake/w", "s3.endpoint": "http://127.0.0.1:1"}
    waiting = asyncio.create_task(event_of(trigger))
    done, _ = await asyncio.wait([waiting], timeout=1)
    assert not done
    trigger.options = there
    assert (await asyncio.wait_for(waiting, 60))["snapshot_id"] == 1
