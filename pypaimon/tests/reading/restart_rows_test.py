"""Restarts by rows: what was confirmed does not come again, and all that was not does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pypaimon.streaming import Plan, Position, StreamReadBuilder
from support.samples import every
from support.tables.streamed_table import Row, Table, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "append with buckets": {"bucket": "2", "bucket_key": "k"},
    "records": {"primary_key": True},
    "changelog": {"primary_key": True, "changelog_producer": "input"},
}


@pytest.fixture(scope="module", params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six commits of four keys each, of which later ones change two of the commit before."""
    table = Table(tmp_path_factory.mktemp("restart") / "w", **KINDS[request.param])
    for number in range(6):
        table.commit([("+I", number * 2 + row, f"v{number}") for row in range(4)])
    return table


def builder_of(table: Table, catch_up: str) -> StreamReadBuilder:
    """From the state of the third snapshot on, each plan as small as it can be."""
    return table.builder().with_end(latest=True).with_catch_up(catch_up).with_limits(max_splits=1)


def follow(builder: StreamReadBuilder) -> Iterator[tuple[Plan, list[Row]]]:
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        for plan in scan.stream_sync():
            yield plan, rows(read, plan)


@pytest.mark.parametrize("catch_up", ["replay", "auto"])
def test_a_restart_by_position_continues_with_the_next_row(table: Table, catch_up: str) -> None:
    """After each plan that was kept with its position, also inside of a snapshot; one more plan was in hand."""
    whole = list(follow(builder_of(table, catch_up).with_start(snapshot_id=3, full=True)))
    assert len(whole) >= 4 and any(plan.position.unit is not None for plan, _ in whole)
    expected = [found for _, found in whole]
    for confirmed in every(7, range(1, len(whole) + 1)):
        builder = builder_of(table, catch_up).with_start(snapshot_id=3, full=True)
        before = []
        with builder.new_streaming_scan() as scan:
            stream = scan.stream_sync()
            for _ in range(confirmed):
                before.append(rows(builder.new_read(), plan := next(stream)))
                kept = plan.position.to_json()
            next(stream, None)
        again = builder_of(table, catch_up).with_start(position=Position.from_json(kept))
        after = [found for _, found in follow(again)]
        assert [row for found in before + after for row in found] == [row for found in expected for row in found]
        assert before == expected[:confirmed]


def test_a_restart_by_consumer_continues_with_the_first_snapshot_that_was_not_confirmed(table: Table) -> None:
    whole = list(follow(builder_of(table, "replay").with_start(snapshot_id=1)))
    for confirmed in every(7, range(1, len(whole) + 1)):
        name = f"c{confirmed}"
        builder = builder_of(table, "replay").with_start(snapshot_id=1).with_consumer_id(name)
        with builder.new_streaming_scan() as scan:
            stream = scan.stream_sync()
            for _ in range(confirmed):
                plan = next(stream)
            scan.commit(plan.position)
            next(stream, None)
        snapshot = plan.position.snapshot
        again = builder_of(table, "replay").with_start(snapshot_id=1).with_consumer_id(name)
        wanted = [(plan.snapshot_id, row) for plan, found in whole for row in found if plan.snapshot_id >= snapshot]
        assert [(plan.snapshot_id, row) for plan, found in follow(again) for row in found] == wanted
