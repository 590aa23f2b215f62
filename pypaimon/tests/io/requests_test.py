"""What a stream asks of the store, counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, PositionExpiredError
from support.stores.fault_file_io import FaultFileIO, Meeting
from support.stores.virtual_clock import VirtualClock
from support.tables.streamed_table import Table, available, snapshots

pytestmark = pytest.mark.slow


@pytest.fixture
def file_io() -> FaultFileIO:
    return FaultFileIO()


def caught_up(table: Table, file_io: FaultFileIO, prefetch: int = 0) -> AsyncStreamingTableScan:
    """A scan that has read everything; what it asked is forgotten."""
    builder = table.builder(file_io, VirtualClock()).with_start("latest").with_prefetch(prefetch)
    scan = builder.with_catch_up("replay").new_streaming_scan()
    assert available(scan) == []
    file_io.forget()
    return scan


def kinds_of(names: list[str]) -> Counter[str]:
    """How many of which kind of object."""
    return Counter(name.split("-")[0] + ("-list" if "manifest-list" in name else "") for name in names)


@pytest.fixture(params=["append", "input"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    if request.param == "append":
        table = Table(tmp_path / "w")
    else:
        table = Table(tmp_path / "w", primary_key=True, changelog_producer="input", bucket="1")
    table.commit([1])
    return table


def test_a_poll_that_finds_nothing_is_one_request(table: Table, file_io: FaultFileIO) -> None:
    scan = caught_up(table, file_io)
    for _ in range(14):
        assert scan.plan() is None
        assert file_io.names() == ["snapshot-2"]
        file_io.forget()
    scan.close()


def test_every_16th_poll_checks_the_range(table: Table, file_io: FaultFileIO) -> None:
    scan = caught_up(table, file_io)
    costs = []
    for _ in range(48):
        file_io.forget()
        assert scan.plan() is None
        costs.append(len(file_io.calls))
    assert sorted(set(costs))[0] == 1
    assert [cost for cost in costs if cost > 1] == [max(costs)] * 3
    assert max(costs) <= 8
    scan.close()


def test_only_making_a_builder_asks(table: Table, file_io: FaultFileIO) -> None:
    builder = table.builder(file_io)
    assert {name.split("-")[0] for name in file_io.names()} == {"schema"}
    file_io.forget()
    builder.with_start("latest").with_consumer_id("c").with_filter(None).with_projection(["k"]).read_type()
    builder.new_read()
    builder.new_streaming_scan().close()
    builder.open()
    builder.open_sync()
    assert file_io.names() == []


@pytest.mark.parametrize("start", ["latest-full", "latest", "earliest"])
def test_a_poll_of_an_empty_table_is_one_request(tmp_path: Path, file_io: FaultFileIO, start: str) -> None:
    empty = Table(tmp_path / "w")
    scan = empty.builder(file_io, VirtualClock()).with_start(start).with_prefetch(0).new_streaming_scan()
    assert scan.plan() is None
    file_io.forget()
    costs = []
    for _ in range(47):
        assert scan.plan() is None
        costs.append(len(file_io.calls))
        file_io.forget()
    # Every 16th looks at hint and listing, and whether it still is the same table.
    assert [number for number, cost in enumerate(costs, start=2) if cost > 1] == [16, 32, 48]
    assert max(costs) == 3
    empty.commit([1])
    assert snapshots(available(scan)) == [1]
    assert file_io.names().count("snapshot-1") == 1
    scan.close()


@pytest.mark.parametrize("polls", range(1, 18))
def test_a_first_commit_that_expired_between_two_polls_is_not_an_empty_table(
    tmp_path: Path, file_io: FaultFileIO, polls: int
) -> None:
    empty = Table(tmp_path / "w")
    scan = empty.builder(file_io, VirtualClock()).with_prefetch(0).new_streaming_scan()
    for _ in range(polls):
        assert scan.plan() is None
    empty.commit_each(range(1, 4))
    empty.expire(3)
    (empty.path / "snapshot" / "LATEST").unlink(missing_ok=True)
    found = next(plan for _ in range(16) if (plan := scan.plan()) is not None)
    assert (found.snapshot_id, found.kind) == (3, "full")
    scan.close()


def test_latest_of_an_empty_table_whose_first_commits_expired_unseen_is_an_error_within_a_range_check(
    tmp_path: Path, file_io: FaultFileIO
) -> None:
    empty = Table(tmp_path / "w")
    scan = empty.builder(file_io, VirtualClock()).with_start("latest").with_prefetch(0).new_streaming_scan()
    assert scan.plan() is None
    empty.commit_each(range(1, 4))
    empty.expire(3)
    with pytest.raises(PositionExpiredError) as raised:
        for _ in range(17):
            assert scan.plan() is None
    assert (raised.value.wanted, raised.value.earliest) == (1, 3)
    scan.close()


def test_a_start_with_a_consumer_looks_once_more_whether_its_snapshot_stands(
    table: Table, file_io: FaultFileIO
) -> None:
    costs = []
    for consumer in (None, "c"):
        builder = table.builder(file_io, VirtualClock()).with_prefetch(0)
        scan = (builder if consumer is None else builder.with_consumer_id(consumer)).new_streaming_scan()
        file_io.forget()
        assert scan.plan() is not None
        costs.append(Counter(name for name in file_io.names() if not name.startswith("consumer")))
        scan.close()
    assert costs[1] - costs[0] == {"snapshot-1": 1}


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_new_snapshot_costs_itself_its_list_its_manifest_and_a_look_at_the_one_before(
    table: Table, file_io: FaultFileIO, prefetch: int
) -> None:
    scan = caught_up(table, file_io, prefetch)
    for number in range(2, 6):
        table.commit([number])
        file_io.forget()
        stream = scan.stream_sync()
        assert next(stream).snapshot_id == number
        assert scan.plan() is None
        names = file_io.names()
        assert len(set(names)) == len(names) - names.count(f"snapshot-{number + 1}") + 1
        assert names.count(f"snapshot-{number + 1}") <= 2
        assert kinds_of([name for name in names if name != f"snapshot-{number + 1}"]) == {
            "snapshot": 2,
            "manifest-list": 1,
            "manifest": 1,
        }
        assert names.count(f"snapshot-{number - 1}") == 1
        assert file_io.counts()["list"] == 0
    scan.close()


def test_where_changelogs_outlive_snapshots_one_more_is_asked_for(tmp_path: Path, file_io: FaultFileIO) -> None:
    table = Table(tmp_path / "w", changelog__num_retained__max="90", snapshot__num_retained__max="9").commit_each([1])
    with caught_up(table, file_io) as scan:
        for number in range(2, 5):
            assert scan.plan() is None
            assert file_io.names() == [f"snapshot-{number}", f"changelog-{number}"]
            table.commit([number])
            file_io.forget()
            assert scan.plan() is not None
            assert kinds_of(file_io.names()) == {"snapshot": 2, "manifest-list": 1, "manifest": 1}
            file_io.forget()


@pytest.mark.parametrize("prefetch", [0, 4])
def test_while_catching_up_each_snapshot_costs_three_requests_and_none_twice(
    table: Table, file_io: FaultFileIO, prefetch: int
) -> None:
    ahead = 60
    scan = caught_up(table, file_io, prefetch)
    table.commit_each(range(2, ahead + 2))
    together = Meeting({f"snapshot-{number}" for number in range(40, 50)})
    file_io.wherever(together)
    assert snapshots(available(scan)) == list(range(2, ahead + 2))
    names = file_io.names()
    twice = {name: count for name, count in Counter(names).items() if count > 1}
    objects = [name for name in names if not name.startswith(("LATEST", "EARLIEST"))]
    wanted = 3 * ahead
    assert not [name for name in twice if name.startswith("manifest")]
    # Once more: the one before each of four windows, and the end of the last one.
    again = {name: count for name, count in twice.items() if name != f"snapshot-{ahead + 2}"}
    assert again == dict.fromkeys(["snapshot-2", "snapshot-3", "snapshot-4", f"snapshot-{ahead + 1}"], 2)
    assert names.count("snapshot-1") == 1
    assert len(objects) <= wanted + 8, kinds_of(objects)
    assert file_io.counts()["list"] == 0
    assert together.met
    scan.close()


def test_a_start_at_the_full_state_reads_its_manifests_once(table: Table, file_io: FaultFileIO) -> None:
    table.commit_each(range(2, 12))
    scan = table.builder(file_io).with_prefetch(0).new_streaming_scan()
    file_io.forget()
    plan = scan.plan()
    assert plan is not None and plan.kind == "full"
    twice = [name for name, count in Counter(file_io.names()).items() if count > 1]
    assert twice == []
    scan.close()


def test_a_save_is_one_get_and_one_put(table: Table, file_io: FaultFileIO) -> None:
    builder = table.builder(file_io, VirtualClock()).with_start("latest").with_prefetch(0).with_consumer_id("c")
    scan = builder.new_streaming_scan()
    assert available(scan) == []
    table.commit([2])
    assert scan.plan() is not None
    file_io.forget()
    assert scan.plan() is None
    assert kinds_of(file_io.names("read")) == {"consumer": 1, "snapshot": 1}
    assert file_io.counts() == {"read": 2, "write": 1}
    for _ in range(5):
        file_io.forget()
        assert scan.plan() is None
        assert len(file_io.calls) == 1
    scan.close()


def test_plans_ahead_are_bounded(table: Table, file_io: FaultFileIO) -> None:
    scan = caught_up(table, file_io, prefetch=3)
    table.commit_each(range(2, 12))
    stream = scan.stream_sync()
    assert next(stream).snapshot_id == 2
    queue = scan._driver.parts.get().prefetcher._queue
    while len(queue) < 3 or not all(each.future.done() for each in queue):
        queue[-1].future.result()
    assert [each.future.result().plan.snapshot_id for each in queue] == [3, 4, 5]  # type: ignore[union-attr]
    assert next(stream).snapshot_id == 3
    scan.close()


def test_two_scans_of_one_handle_share_manifests(table: Table, file_io: FaultFileIO) -> None:
    table.commit_each(range(2, 6))
    builder = table.builder(file_io).with_start(snapshot_id=1)
    first, second = builder.new_streaming_scan(), builder.new_streaming_scan()
    assert len(available(first)) == 5
    file_io.forget()
    assert len(available(second)) == 5
    assert not [name for name in file_io.names() if name.startswith("manifest")]
    first.close()
    second.close()


def test_lag_costs_one_listing_and_the_snapshots_that_are_not_known(table: Table, file_io: FaultFileIO) -> None:
    scan = caught_up(table, file_io)
    assert scan.lag().snapshots == 0
    assert file_io.counts() == {"list": 1}
    table.commit_each(range(2, 5))
    file_io.forget()
    assert (scan.lag().snapshots, scan.lag().rows) == (3, 3)
    assert file_io.counts() == {"list": 2, "read": 3}
    file_io.forget()
    assert scan.lag().snapshots == 3
    assert file_io.counts() == {"list": 1}
    file_io.forget()
    assert snapshots(available(scan)) == [2, 3, 4]
    # What lag has read may be of another history by now.
    assert {"snapshot-2", "snapshot-3", "snapshot-4"} <= set(file_io.names())
    scan.close()


def test_lag_far_behind_is_exact_or_unknown_at_a_bounded_cost(table: Table, file_io: FaultFileIO) -> None:
    def pretend(*numbers: int) -> None:
        for number in numbers:
            copy = json.dumps({**table.snapshot(1), "id": number})
            (table.path / "snapshot" / f"snapshot-{number}").write_text(copy)

    def measured() -> tuple[int | None, int | None, int]:
        file_io.forget()
        lag = scan.lag()
        assert lag.seconds is not None
        return lag.snapshots, lag.rows, file_io.counts().get("read", 0)

    scan = caught_up(table, file_io)
    pretend(*range(2, 602))
    assert [measured() for _ in range(4)] == [(600, None, 256), (600, None, 256), (600, 600, 88), (600, 600, 0)]
    pretend(*range(602, 2050))
    assert measured() == (2048, None, 256)
    pretend(2050)
    assert measured() == (2049, None, 0)
    scan.close()
