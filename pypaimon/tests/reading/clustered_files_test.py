"""Primary-key tables whose files are sorted by other columns than the key, as Java wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.merge import in_key_order, stages
from pypaimon.streaming.merge.runs import Chunk, chunks
from pypaimon.streaming.stream_types import PlanKind
from pypaimon.streaming.targets import apply_to_dict
from support.corpus.cases import load
from support.spark.driver import batch_tasks

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("stored", [0, 50, 1 << 20])
@pytest.mark.parametrize("piece", [1, 30, 1 << 20])
@pytest.mark.parametrize("most", [2, 32])
def test_records_are_put_in_the_order_of_their_keys(
    monkeypatch: pytest.MonkeyPatch, most: int, piece: int, stored: int
) -> None:
    """Nulls first; what is equal keeps its order, of whatever file and piece it is."""
    monkeypatch.setattr(stages, "MOST_RUNS", most)
    monkeypatch.setattr(stages, "PIECE_BYTES", piece)
    monkeypatch.setattr(stages, "STORED_BYTES", stored)
    numbers = pa.array([3, None, 1, 3, 2, 1], pa.int32())
    batch = pa.record_batch({"k": numbers, "place": pa.array(range(6))})
    with in_key_order([[batch.slice(0, 1), batch.slice(1, 3)], [], [batch.slice(4)]], ["k"], list) as runs:
        ordered = pa.Table.from_batches([each.batch.take(pa.array(order_of(each))) for each in chunks(runs, ["k"])])
    assert ordered.to_pydict() == {"k": [None, 1, 1, 2, 3, 3], "place": [1, 2, 5, 4, 0, 3]}
    with in_key_order([], ["k"], list) as runs:
        assert runs == []


def order_of(chunk: Chunk) -> Any:
    order, _ = chunk.by_key()
    return range(chunk.batch.num_rows) if order is None else order


def test_of_many_records_few_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of files, and of pieces that they are sorted in; nor are many files open."""
    monkeypatch.setattr(stages, "MOST_RUNS", 8)
    monkeypatch.setattr(stages, "PIECE_BYTES", 2 << 20)
    monkeypatch.setattr(stages, "STORED_BYTES", 2 << 20)
    before, peak, rows = pa.total_allocated_bytes(), 0, 1 << 17
    open_before, most_open = len(os.listdir("/dev/fd")), 0

    def look() -> None:
        nonlocal peak, most_open
        peak = max(peak, pa.total_allocated_bytes() - before)
        most_open = max(most_open, len(os.listdir("/dev/fd")) - open_before)

    def file(number: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, rows // 8):
            keys = np.arange(start, start + rows // 8)[::-1] * 40 + number
            look()
            yield pa.record_batch({"k": pa.array(keys).cast(pa.int64()), "v": pa.array(keys).cast(pa.string())})

    found = 0
    with in_key_order([file(number) for number in range(40)], ["k"], list) as runs:
        for chunk in chunks(runs, ["k"]):
            found += chunk.batch.num_rows
            look()
    assert found == 40 * rows
    # Of more than 80 MB.
    assert peak < 40 << 20
    # Of about 50 pieces.
    assert 1 < most_open < 20
