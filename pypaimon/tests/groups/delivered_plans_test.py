"""Which plans of a group stream a confirmation covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.groups.group_stream import DeliveredPlans
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position

FIRST, SECOND, THIRD = {0: 1, 1: 1}, {2: 4}, {0: 1, 1: 1}
ROWS = pa.table({"k": [1]})


def plan(snapshot: int) -> Plan:
    schema: Any = None
    return Plan(
        (),
        kind=PlanKind.DELTA,
        snapshot_id=snapshot,
        position=Position("t", snapshot + 1),
        schema=schema,
        watermark=None,
        commit_time_millis=0,
    )


def chunk(of: Plan, rows: pa.Table | None = ROWS, *, first: bool = True, last: bool = True) -> BatchChunk:
    return BatchChunk(of, None, rows, first, last)


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def confirm(plans: DeliveredPlans, chunk: BatchChunk | None) -> list[tuple[Mapping[int, int], Position]]:
    """What confirming a chunk confirms; asking twice, as after an interrupt, changes nothing."""
    found = plans.up_to(chunk)
    assert plans.up_to(chunk) == found
    plans.forget(found)
    plans.forget(found)
    return [(each.slots, each.plan.position) for each in found if each.is_complete]


@pytest.fixture
def plans() -> DeliveredPlans:
    return DeliveredPlans()


def test_a_confirmation_covers_the_plans_up_to_its_chunk_and_no_later_one(plans: DeliveredPlans) -> None:
    chunks = [chunk(plan(1)), chunk(plan(1)), chunk(plan(2))]
    for each, slots in zip(chunks, (FIRST, SECOND, THIRD), strict=True):
        plans.add(each, slots)
    assert plans.has_complete
    assert confirm(plans, chunks[1]) == [(FIRST, at(2)), (SECOND, at(2))]
    assert confirm(plans, chunks[1]) == confirm(plans, chunks[0]) == []
    assert confirm(plans, chunks[2]) == [(THIRD, at(3))]
    assert not plans.has_complete


def test_a_plan_is_confirmed_only_with_its_last_chunk(plans: DeliveredPlans) -> None:
    one = plan(1)
    begins, ends = chunk(one, last=False), chunk(one, first=False)
    plans.add(begins, FIRST)
    assert confirm(plans, begins) == [] and not plans.has_complete
    plans.add(ends, FIRST)
    assert plans.has_complete
    assert confirm(plans, begins) == []
    assert confirm(plans, ends) == [(FIRST, at(2))]


def test_an_incomplete_plan_is_never_confirmed(plans: DeliveredPlans) -> None:
    plans.add(chunk(plan(1), last=False), FIRST)
    later = chunk(plan(2))
    plans.add(later, SECOND)
    assert confirm(plans, later) == [(SECOND, at(3))]
    assert not plans.has_complete


def test_plans_without_rows_are_confirmed_with_the_one_before_them(plans: DeliveredPlans) -> None:
    before, after = chunk(plan(1)), chunk(plan(3))
    plans.add(before, FIRST)
    plans.add(chunk(plan(2), None), FIRST)
    plans.add(after, FIRST)
    assert confirm(plans, None) == []
    assert confirm(plans, before) == [(FIRST, at(2)), (FIRST, at(3))]


def test_plans_without_rows_are_confirmed_at_once_if_no_plan_is_before_them(plans: DeliveredPlans) -> None:
    plans.add(chunk(plan(1), None), FIRST)
    plans.add(chunk(plan(2), None, last=False), FIRST)
    assert confirm(plans, None) == [(FIRST, at(2))]


def test_the_end_of_a_plan_may_have_no_rows(plans: DeliveredPlans) -> None:
    one = plan(1)
    plans.add(chunk(one, last=False), FIRST)
    plans.add(end := chunk(one, None, first=False), FIRST)
    assert confirm(plans, None) == []
    assert confirm(plans, end) == [(FIRST, at(2))]


def test_adding_a_chunk_twice_changes_nothing(plans: DeliveredPlans) -> None:
    one = chunk(plan(1))
    plans.add(one, FIRST)
    plans.add(one, SECOND)
    assert confirm(plans, one) == [(FIRST, at(2))]
    plans.add(one, SECOND)
    assert confirm(plans, one) == [] and not plans.has_complete
