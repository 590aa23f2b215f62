"""Primary-key tables whose files are sorted by other columns than the key, as Java wrote them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from corpus_cases import load
from pypaimon import CatalogFactory
from spark_driver import batch_tasks

from pypaimon.streaming import PlanKind, StreamReadBuilder, apply_to_dict, stream_read_builder
from pypaimon.streaming.merge import in_key_order

SCENARIOS = ["pk_clustering_override", "pk_clustering_override_first_row"]
LAST = 11
State = dict[Any, dict[str, Any]]


def builder_of(scenario: str) -> StreamReadBuilder:
    catalog = CatalogFactory.create({"warehouse": str(load("java-2.1-more", scenario).warehouse)})
    return stream_read_builder(catalog.get_table("d.t")).with_raw(scenario.endswith("first_row"))


def state(scenario: str, snapshot: int) -> State:
    builder = builder_of(scenario).with_start(snapshot_id=snapshot, full=True).with_end(snapshot_id=snapshot)
    found: State = {}
    with builder.open_sync() as stream:
        for batch in stream:
            apply_to_dict(batch, found, "a")
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("start", range(1, 8))
def test_a_net_change_leads_from_one_state_to_the_other(scenario: str, start: int) -> None:
    """It compares merged states, for which the records must be in the order of their keys."""
    found = state(scenario, start)
    builder = builder_of(scenario).with_start(snapshot_id=start + 1).with_catch_up("net").with_end(latest=True)
    kinds = set()
    with builder.open_sync() as stream:
        for batch in stream:
            kinds.add(batch.kind)
            apply_to_dict(batch, found, "a")
    assert kinds == {PlanKind.NET}
    assert found == state(scenario, LAST)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_difference_is_that_of_the_states(scenario: str) -> None:
    warehouse = str(load("java-2.1-more", scenario).warehouse)
    options = {"warehouse": warehouse, "table": "d.t", "incremental-between-scan-mode": "diff"}
    for start in (2, 4, 7):
        before, after = state(scenario, start), state(scenario, LAST)
        tasks = batch_tasks({**options, "incremental-between": f"{start},{LAST}", "include-row-kind": "false"})
        rows = [row for batches in tasks for batch in batches for row in batch.to_pylist()]
        assert {row["a"]: row for row in rows} == {key: row for key, row in after.items() if before.get(key) != row}


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_records_are_put_in_the_order_of_their_keys(rows: int) -> None:
    """Nulls first; what is equal keeps its order."""
    numbers = pa.array([3, None, 1, 3, 2, 1], pa.int32())
    batch = pa.record_batch({"k": numbers, "place": pa.array(range(6))})
    found = list(in_key_order([batch.slice(0, 4), batch.slice(4)], ["k"], rows))
    assert max(each.num_rows for each in found) == min(rows, 6)
    ordered = pa.Table.from_batches(found).to_pydict()
    assert ordered == {"k": [None, 1, 1, 2, 3, 3], "place": [1, 2, 5, 4, 0, 3]}
    assert list(in_key_order([], ["k"], rows)) == []
