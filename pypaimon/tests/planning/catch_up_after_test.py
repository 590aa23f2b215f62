"""`with_catch_up(mode, after=...)`: from how many snapshots on they come as one plan; rows never depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.options.stream_options import CatchUp
from pypaimon.streaming.stream_types import PlanKind
from support.models.table import Record
from support.samples import SOAK, seeded
from support.tables.crafted_table import CraftedTable
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table, available, keys

pytestmark = pytest.mark.slow

MIXED = 28


@pytest.mark.soak
@pytest.mark.parametrize("number", range(40 if SOAK else 1))
def test_rows_and_their_order_are_those_of_a_replay(tmp_path: Path, number: int) -> None:
    """Over random histories of appends, compactions and overwrites, from random snapshots on.

    The last commits are appends, so that some can be told to be one plan, whatever is drawn.
    """
    draw = seeded(f"catch up after {number}")
    table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=0, options={"bucket": "-1"})
    key = table.columns.named("k").id
    for commit in range(40):
        dice = draw.random() if commit < MIXED else 1
        live = table.live
        new = [Record("+I", (None, commit), commit, {key: commit})]
        if dice < 0.08 and len(live) > 2:
            gone = draw.sample(live, 2)
            rows = [record for file in gone for record in file.records]
            table.commit("COMPACT", [table.file((None, 0), rows, compacted=True)], gone)
        elif dice < 0.14 and live:
            table.commit("OVERWRITE", [table.file((None, 0), new)], live)
        else:
            table.commit("APPEND", [table.file((None, 0), new)])

    handle = table.handle()
    collapsed = 0
    for start in (1, draw.randint(2, MIXED), MIXED + 1):

        def read(mode: CatchUp, after: int | None, start: int = start) -> tuple[list[int], list[PlanKind]]:
            drive = Drive(handle, EARLIEST, catch_up=mode, catch_up_after=after)
            drive.state = drive.at_snapshot(start)
            plans = drive.run()
            return drive.keys(plans), [plan.kind for plan in plans]

        wanted, _ = read(CatchUp.REPLAY, None)
        for after in (1, 2, 5, 9, 1000):
            found, kinds = read(CatchUp.AUTO, after)
            assert found == wanted
            collapsed += kinds.count(PlanKind.COLLAPSED)
    assert collapsed


@pytest.mark.parametrize(("after", "nets"), [(None, True), (2, True), (5, True), (6, False)])
def test_net_changes_too_begin_from_this_many_snapshots_on(tmp_path: Path, after: int | None, nets: bool) -> None:
    table = Table(tmp_path / "w", primary_key=True).commit_each(range(1, 7))
    builder = table.builder().with_catch_up("net", after=after).with_start(snapshot_id=2)
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
    assert sorted(keys(builder.new_read(), plans)) == [2, 3, 4, 5, 6]
    assert [plan.kind is PlanKind.NET for plan in plans] == ([True] if nets else [False] * 5)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    builder = Table(tmp_path / "w").builder()
    for mode, after, text in (("auto", 0, "less than 1"), ("net", "3", "expected int"), ("replay", 3, "replay")):
        with pytest.raises(StreamConfigError, match=text):
            builder.with_catch_up(mode, after=after)  # type: ignore[arg-type]
