"""Which runs of a bucket are compacted, and to which level: as Java's universal compaction picks them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.compaction.compaction_options import OffPeak
from pypaimon.streaming.compaction.run_picking import LevelRun, Pick, level_runs, pick_full, pick_needed
from support.tables.manifest_entries import OPTIONS, live_file

NOON = datetime(2026, 1, 1, 12)


def runs(*sizes: tuple[int, int]) -> list[LevelRun]:
    """Runs of (level, bytes), newest first."""
    return [
        LevelRun(level, (live_file(f"f{index}", size=size, level=level),)) for index, (level, size) in enumerate(sizes)
    ]


def told(pick: Pick | None) -> tuple[int, int] | None:
    """How many runs go to which level."""
    return None if pick is None else (len(pick.runs), pick.level)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (((0, 1), (0, 1)), None),  # below the trigger
        (((0, 1), (0, 1), (0, 10)), (3, 3)),  # not too much beside the oldest; level 0 is taken whole
        (((0, 1), (0, 1), (3, 7)), (3, 3)),  # 2 are 28 % of 7: too much beside the oldest
        (((0, 1), (0, 1), (3, 100)), (2, 2)),  # the oldest stays; the others go right below it
        (((0, 1), (0, 50), (3, 1000)), None),  # the second is much larger than the first
        (
            ((0, 1), (0, 50), (0, 60), (3, 1000)),
            (3, 2),
        ),  # too many runs: those above the trigger, and what is like them
        (((0, 1), (0, 1), (1, 2), (3, 1000)), (3, 2)),
        (((0, 1), (0, 1), (1, 900), (3, 100000)), (3, 2)),  # a large level at the bottom is taken along
        (((0, 1), (0, 1), (2, 900), (3, 100000)), (2, 1)),
    ],
)
def test_picks_by_size(given: tuple[tuple[int, int], ...], expected: tuple[int, int] | None) -> None:
    assert told(pick_needed(runs(*given), OPTIONS, NOON)) == expected


def test_level_0_never_stays_there() -> None:
    # One below level 1 would be level 0: that run is taken along, and its level is that of all.
    options = replace(OPTIONS, size_amplification=10**6)
    assert told(pick_needed(runs((0, 1), (0, 1), (0, 100), (1, 100000), (3, 10**9)), options, NOON)) == (4, 1 + 1)


def test_deletes_may_go_only_where_nothing_older_is_left() -> None:
    pick = pick_needed(runs((0, 1), (0, 1), (3, 100)), OPTIONS, NOON)
    assert pick is not None
    assert not pick.top
    whole = pick_full(runs((0, 1), (2, 100)), OPTIONS)
    assert whole is not None
    assert (told(whole), whole.top) == ((2, 3), True)


def test_all_is_there_already() -> None:
    assert pick_full(runs((3, 100)), OPTIONS) is None
    assert pick_full([], OPTIONS) is None
    assert told(pick_full(runs((3, 100)), replace(OPTIONS, force_rewrite=True))) == (1, 3)
    assert told(pick_full(runs((2, 100)), OPTIONS)) == (1, 3)


def test_files_above_the_highest_level_of_now_say_which_is_the_highest() -> None:
    assert told(pick_full(runs((0, 1), (5, 100)), OPTIONS)) == (2, 5)


def test_level_0_goes_up_where_readers_do_not_see_it() -> None:
    few = runs((0, 1), (3, 1000))
    assert pick_needed(few, OPTIONS, NOON) is None
    assert told(pick_needed(few, OPTIONS, NOON, up_level_0=True)) == (1, 2)
    assert told(pick_needed(runs((0, 5)), OPTIONS, NOON, up_level_0=True)) == (1, 3)
    assert pick_needed(runs((3, 5)), OPTIONS, NOON, up_level_0=True) is None


def test_all_of_a_bucket_by_size_and_by_time() -> None:
    two = runs((0, 10), (3, 1000))
    assert told(pick_needed(two, replace(OPTIONS, total_bytes=1011), NOON)) == (2, 3)
    assert pick_needed(two, replace(OPTIONS, total_bytes=1010), NOON) is None
    assert told(pick_needed(two, replace(OPTIONS, incremental_bytes=9), NOON)) == (2, 3)
    assert pick_needed(two, replace(OPTIONS, incremental_bytes=10), NOON) is None
    hourly = replace(OPTIONS, interval_millis=3_600_000)
    made = int(NOON.replace(tzinfo=timezone.utc).timestamp() * 1000)
    there = [runs((0, 1))[0], LevelRun(3, (live_file("top", size=1000, level=3, made=made),))]
    assert pick_needed(there, hourly, NOON + timedelta(minutes=59)) is None
    assert told(pick_needed(there, hourly, NOON + timedelta(minutes=61))) == (2, 3)
    assert told(pick_needed(runs((0, 1), (0, 1)), hourly, NOON)) == (2, 3)  # never done before


@pytest.mark.parametrize(
    ("off_peak", "inside"),
    [
        (OffPeak(10, 14, 900), True),
        (OffPeak(22, 13, 900), True),
        (OffPeak(13, 14, 900), False),
        (OffPeak(12, 12, 900), False),
    ],
)
def test_more_is_compacted_off_peak(off_peak: OffPeak, inside: bool) -> None:
    found = pick_needed(runs((0, 10), (0, 90), (3, 10**6)), replace(OPTIONS, off_peak=off_peak), NOON)
    assert told(found) == ((2, 2) if inside else None)


@given(
    st.lists(st.integers(1, 1000), max_size=8),
    st.dictionaries(st.integers(1, 5), st.integers(1, 100_000), max_size=4),
    st.integers(1, 6),
    st.integers(0, 300),
    st.integers(0, 100),
    st.booleans(),
)
def test_a_pick_is_contiguous_and_takes_level_0_whole(
    first: list[int], above: dict[int, int], trigger: int, amplification: int, ratio: int, up: bool
) -> None:
    files = [live_file(f"a{index}", size=size, sequence=100 - index) for index, size in enumerate(first)]
    files += [live_file(f"b{level}", size=size, level=level) for level, size in above.items()]
    found = level_runs(files)
    options = replace(OPTIONS, trigger=trigger, levels=trigger + 1, size_amplification=amplification, size_ratio=ratio)
    pick = pick_needed(found, options, NOON, up_level_0=up)
    if pick is None:
        assert not up or not first
        return
    assert pick.level > 0
    assert list(pick.runs) == found[: len(pick.runs)]
    left = found[len(pick.runs) :]
    if left:
        # What was not taken is older and higher, unless it is another file of level 0.
        assert all(run.level > pick.level for run in left if run.level)
    assert pick.top == (not any(run.level > pick.level for run in found))
