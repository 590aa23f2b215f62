"""Steps that are taken before a caller asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.model.plan import Plan, SplitMode
from pypaimon.streaming.planning.planner_state import Following, PlannerState, Step
from pypaimon.streaming.scanning import prefetch
from pypaimon.streaming.scanning.prefetch import Prefetcher
from support.tables.stream_files import meta, split

LONG = 30.0


def next_step(state: PlannerState) -> Step:
    """A step over one snapshot."""
    assert isinstance(state, Following)
    return Step(Following(state.next_id + 1))


def prefetcher(before_each: Callable[[PlannerState], None]) -> Prefetcher:
    """One that calls a function before it begins a step that nobody asked for."""
    return Prefetcher(next_step, 2, time.monotonic, before_each)


def test_a_prefetch_whose_caller_leaves_as_it_begins_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    scope = CancelScope()
    ahead = prefetcher(lambda _: scope.cancel())
    taken = ahead.request(Following(1), scope)
    assert taken.future.result(LONG).state == Following(2)
    # The pool has one thread, so what follows from the step is done before another call.
    ahead._pool.run(int)
    ahead.accept(taken)
    assert not caplog.records


def test_steps_are_prefetched_several_in_a_row() -> None:
    begun: list[int] = []
    ahead = Prefetcher(next_step, 4, time.monotonic, lambda state: begun.append(state.next_id))
    state: PlannerState = Following(1)
    counts = []
    for _ in range(6):
        taken = ahead.request(state, CancelScope())
        state = taken.future.result(LONG).state
        ahead.accept(taken)
        for _ in range(4):
            # The pool has one thread, so each call comes after at least one of the steps that follow.
            ahead._pool.run(int)
        counts.append(len(begun))
    # Two steps are begun together, so the thread is not woken for each.
    assert counts == [3, 5, 5, 7, 7, 9]


def test_plans_of_many_files_are_prefetched_as_far_as_their_files_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "_MOST_FILES", 6)

    def two_files(state: PlannerState) -> Step:
        assert isinstance(state, Following)
        files = [meta(Path(f"data-{number}.parquet"), 1) for number in range(2)]
        return Step(Following(state.next_id + 1), Plan([split(SplitMode.ROWS, files)]))

    begun: list[int] = []
    ahead = Prefetcher(two_files, 32, time.monotonic, lambda state: begun.append(state.next_id))
    state: PlannerState = Following(1)
    counts = []
    for _ in range(3):
        taken = ahead.request(state, CancelScope())
        state = taken.future.result(LONG).state
        ahead.accept(taken)
        for _ in range(8):
            ahead._pool.run(int)
        counts.append(len(begun))
    # Three plans wait each time. Without a limit it would be 32.
    assert counts == [3, 4, 5]
