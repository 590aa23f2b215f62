"""Time that passes while the machine sleeps, and does not go back where a clock is set."""

from __future__ import annotations

from pypaimon.streaming.concurrency.clock import SuspendAwareClock


def test_of_several_clocks_the_one_counts_that_went_furthest() -> None:
    awake, wall = [5.0], [1000.0]
    clock = SuspendAwareClock((lambda: awake[0], lambda: wall[0]))
    assert clock() == 0
    awake[0], wall[0] = 7.0, 1001.0
    assert clock() == 2
    # It slept for a minute.
    awake[0], wall[0] = 7.5, 1061.0
    assert clock() == 62
    # The wall clock was set back by an hour, and on again.
    awake[0], wall[0] = 8.5, -2539.0
    assert clock() == 63
    awake[0], wall[0] = 8.5, -2538.0
    assert clock() == 64


def test_it_goes_by_the_clocks_of_the_machine() -> None:
    clock = SuspendAwareClock()
    first = clock()
    while clock() == first:
        pass
    assert first < clock() < first + 600
