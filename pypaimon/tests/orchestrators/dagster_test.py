"""Dagster's sensor and IO manager, with an instance of Dagster in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import rollback
from pypaimon.streaming.orchestrators import new_snapshots
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, run_section
from support.tables.orders import catalog, change, events, orders
from support.tables.streamed_table import expire

pytestmark = [pytest.mark.orchestrators, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return orders(catalog(tmp_path / "warehouse"))


@pytest.fixture
def page(table: Any, tmp_path: Path) -> dict[str, Any]:
    """What the page defines."""
    return run_section(DOCS / "orchestrators.md", "Dagster", tmp_path / "warehouse")


def requests_of(page: dict[str, Any], instance: Any, cursor: str | None) -> tuple[list[tuple[str, int]], str | None]:
    import dagster

    context = dagster.build_sensor_context(instance=instance, cursor=cursor)
    tick = page["new_orders"].evaluate_tick(context)
    found = [(each.run_key, each.run_config["ops"]["handle"]["config"]["snapshot_id"]) for each in tick.run_requests]
    return found, tick.cursor


def test_each_snapshot_asks_for_one_run(page: dict[str, Any], table: Any, tmp_path: Path) -> None:
    import dagster

    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        (state,), cursor = requests_of(page, instance, None)
        assert (state[1], cursor) == (4, state[0])
        assert requests_of(page, instance, cursor) == ([], cursor)
        change(table, "+I", (5, "placed", 5.0))
        # A daemon that died before it saved the cursor: the same key, and one more.
        (first,), _ = requests_of(page, instance, cursor)
        change(table, "+I", (6, "placed", 6.0))
        again, last = requests_of(page, instance, cursor)
        assert again[0] == first and [number for _, number in again] == [5, 6]
        assert requests_of(page, instance, last) == ([], last)
        config = next(iter(new_snapshots(table, cursor))).to_dict()
        result = page["handle_orders"].execute_in_process(
            run_config={"ops": {"handle": {"config": config}}}, instance=instance
        )
        assert result.success


def test_a_cursor_that_cannot_continue_fails_the_tick(page: dict[str, Any], table: Any, tmp_path: Path) -> None:
    import dagster

    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        _, cursor = requests_of(page, instance, None)
        rollback(table, snapshot_id=3)
        change(table, "+I", (5, "placed", 5.0))
        with pytest.raises(Exception, match="rolled back"):
            requests_of(page, instance, cursor)
        _, before = requests_of(page, instance, None)
        change(table, "+I", (6, "placed", 6.0))
        change(table, "+I", (7, "placed", 7.0))
        expire(Path(table.table_path), 6)
        with pytest.raises(Exception, match="expired"):
            requests_of(page, instance, before)


def test_assets_are_tables_that_each_materialization_replaces(table: Any, tmp_path: Path) -> None:
    import dagster

    events(catalog(tmp_path / "warehouse"), "db.events")
    page = run_section(DOCS / "orchestrators.md", "Dagster", tmp_path / "warehouse")
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for _ in range(2):
            result = dagster.materialize(
                [page["events"], page["total"]], instance=instance, resources={"io_manager": page["lake"]}
            )
            assert result.success
            (total,) = result.asset_materializations_for_node("total")
            assert total.metadata["total"].value == 7


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_assets_downstream_get_the_kind_that_they_name(kind: str, table: Any, tmp_path: Path) -> None:
    import dagster
    import pandas
    import polars

    from pypaimon.streaming.orchestrators.dagster import PaimonIOManager

    wanted: Any = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pa.Table}[kind]
    seen: list[Any] = []

    @dagster.asset(name="orders")
    def given() -> Any:
        rows = pa.table({"id": [7, 8], "status": ["paid", "paid"], "amount": [1.0, 2.0], "op": ["+I", "+I"]})
        return rows if kind == "arrow" else polars.from_arrow(rows) if kind == "polars" else rows.to_pandas()

    def read(orders: Any) -> None:
        seen.append(orders)

    read.__annotations__["orders"] = wanted
    manager = PaimonIOManager(options={"warehouse": str(tmp_path / "warehouse")}, database="db")
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert dagster.materialize(
            [given, dagster.asset(read)], instance=instance, resources={"io_manager": manager}
        ).success
    (rows,) = seen
    assert isinstance(rows, wanted)
    assert sorted(rows["id"].to_pylist() if kind == "arrow" else rows["id"]) == [7, 8]
    assert "_row_kind" not in (rows.column_names if kind == "arrow" else rows.columns)


@pytest.mark.parametrize(
    "options", [{"changelog-producer": "lookup"}, {"changelog-producer": "none", "merge-engine": "partial-update"}]
)
def test_assets_downstream_get_rows_that_are_not_compacted(options: dict[str, str], tmp_path: Path) -> None:
    import dagster

    from pypaimon.streaming.orchestrators.dagster import PaimonIOManager

    SmallTable(tmp_path / "w", options=options)
    seen: list[Any] = []

    @dagster.asset
    def small() -> Any:
        return pa.table({"id": [7, 8]})

    @dagster.asset
    def read(small: pa.Table) -> None:
        seen.extend(small["id"].to_pylist())

    manager = PaimonIOManager(options={"warehouse": str(tmp_path / "w")}, database="db")
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert dagster.materialize([small, read], instance=instance, resources={"io_manager": manager}).success
    assert sorted(seen) == [7, 8]


def test_what_an_io_manager_cannot_do_fails_without_a_retry(table: Any, tmp_path: Path) -> None:
    import dagster

    from pypaimon.streaming.orchestrators.dagster import PaimonIOManager

    policy = dagster.RetryPolicy(max_retries=3)
    days = dagster.StaticPartitionsDefinition(["a"])

    @dagster.asset(retry_policy=policy)
    def missing() -> Any:
        return pa.table({"id": [1]})

    @dagster.asset(name="orders", partitions_def=days)
    def parted() -> Any:
        return pa.table({"id": [1]})

    manager = PaimonIOManager(options={"warehouse": str(tmp_path / "warehouse")}, database="db")
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for asset, key, told in ((missing, None, "db.missing does not exist"), (parted, "a", "replaces whole tables")):
            result = dagster.materialize(
                [asset], instance=instance, resources={"io_manager": manager}, partition_key=key, raise_on_error=False
            )
            assert not result.success
            told_by = [str(event.event_specific_data) for event in result.all_events if event.is_step_failure]
            assert len(told_by) == 1 and told in told_by[0]
            assert not [event for event in result.all_events if event.is_step_up_for_retry]
