"""A table is rolled back while the slots of a group are at different snapshots: those that are ahead lose rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import Position, StreamReadBuilder, TableChangedError
from pypaimon.streaming.groups.group_bounds import GroupStart
from pypaimon.streaming.groups.group_files import GroupState, SlotOwnership
from pypaimon.streaming.spec.spec_builder import resolved
from support.groups.members import FOR_EVER, SESSION, keys
from support.tables.streamed_table import Table, available
from support.waits import until

pytestmark = pytest.mark.slow

SNAPSHOTS = 5
KEPT = 3
KEPT_AND_NEW = {KEPT, KEPT + 11, KEPT + 12}
"""The commits from the last one that is kept to the new one with the id of the former last one."""
LOST = f"rolled back: snapshot {SNAPSHOTS} is no longer the one"


def commit(table: Table, *numbers: int) -> None:
    """Commits with rows in both buckets."""
    for number in numbers:
        table.commit(list(range(10 * number, 10 * number + 10)))


def commits(found: list[int]) -> set[int]:
    """Which commits keys are of."""
    return {key // 10 for key in found}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, bucket="2", bucket_key="k")
    commit(table, *range(1, SNAPSHOTS + 1))
    return table


def roll_back(table: Table) -> None:
    """The last snapshots are others afterwards, and one more follows them."""
    table.rollback(KEPT)
    commit(table, *range(KEPT + 11, KEPT + 14))


def replayed(table: Table) -> StreamReadBuilder:
    return table.builder().with_start("earliest").with_catch_up("replay").with_poll_interval_ms(20)


def member(table: Table, **end: Any) -> Any:
    builder = replayed(table).with_end(**end) if end else replayed(table)
    return builder.new_group("etl", commit="manual", session_timeout=SESSION).open_sync(read_ahead_bytes=0)


def read_apart(behind: Any, ahead: Any) -> None:
    """One member has slot 0 and confirms its first snapshot. The other has slot 1 and confirms all."""
    batch = next(behind)
    assert batch.slots == (0, 1)
    batch.commit()
    for batch in islice(ahead, SNAPSHOTS - 1):
        assert batch.slots == (1,)
        batch.commit()
    assert batch.snapshot_id == SNAPSHOTS


def read(stream: Any) -> list[int]:
    found = []
    for batch in stream:
        batch.commit()
        found += keys(batch)
    return found


@pytest.mark.parametrize("end", [{}, {"snapshot_id": SNAPSHOTS}], ids=["without an end", "with an end"])
def test_slots_that_come_to_one_snapshot_in_two_histories_are_not_taken_for_one(
    table: Table, end: dict[str, Any]
) -> None:
    with member(table) as ahead, member(table) as behind:
        read_apart(behind, ahead)
    roll_back(table)
    found = []
    with member(table, **end) as stream, pytest.raises(TableChangedError, match=LOST):
        for batch in stream:
            batch.commit()
            if 1 in batch.slots:
                break
            found += keys(batch)
    assert commits(found) >= {2, *KEPT_AND_NEW}


@pytest.mark.parametrize("successor", [False, True], ids=["which takes over", "and another takes over"])
def test_a_member_at_its_end_finds_a_rollback_before_the_group_ends(table: Table, successor: bool) -> None:
    end = {"snapshot_id": SNAPSHOTS}
    with (
        ThreadPoolExecutor(2) as pool,
        member(table, **end) as other,
        member(table, **end) as ahead,
        member(table, **end) as behind,
    ):
        read_apart(behind, ahead)
        waiting = pool.submit(list, ahead)
        roll_back(table)
        if successor:
            reading = pool.submit(read, other)
            until(lambda: ahead.assignment.members == 3)
        behind.close()
        with pytest.raises(TableChangedError, match=LOST):
            waiting.result(FOR_EVER)
        if successor:
            assert commits(reading.result(FOR_EVER)) == {2, *KEPT_AND_NEW}
    with member(table, latest=True) as following, pytest.raises(TableChangedError, match=LOST):
        read(following)


def test_a_member_that_joins_checks_all_slots_and_not_only_the_first_of_the_fastest(table: Table) -> None:
    def last_read() -> Position:
        with replayed(table).new_streaming_scan() as scan:
            return available(scan)[SNAPSHOTS - 1].position

    before = last_read()
    roll_back(table)
    after = last_read()
    assert before.order() == after.order()
    start = GroupStart(resolved(replayed(table)).scan_parts(), "etl")

    def check(*positions: Position) -> None:
        owned = tuple(SlotOwnership(None, 1, position) for position in positions)
        start.check_history(GroupState(1, after.table, after, True, "", "", (), owned))

    check(after, after)
    for positions in ((before, after), (after, before)):
        with pytest.raises(TableChangedError, match=LOST):
            check(*positions)


def test_an_end_that_was_rolled_back_without_new_commits_is_found(table: Table) -> None:
    with member(table, snapshot_id=SNAPSHOTS) as stream:
        for _ in range(SNAPSHOTS):
            next(stream)
        cursor = stream._reader._cursors[0]
        table.rollback(KEPT)
        # The reader's thread has asked as soon as it came to the end, which was before the rollback or after it.
        with pytest.raises(TableChangedError, match=f"rolled back, or is being dropped: it ends at snapshot {KEPT}"):
            cursor.check_end()
