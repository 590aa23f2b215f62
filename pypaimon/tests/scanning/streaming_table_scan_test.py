"""What a scan hands out: starts, bounds, follow-ups, shards, consumers, lag."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    EndOfScan,
    StreamConfigError,
    TableChangedError,
    list_consumers,
    stream_read_builder,
)
from support.corpus.cases import unpack
from support.stores.fault_file_io import Call, FaultFileIO
from support.stores.virtual_clock import VirtualClock
from support.tables.streamed_table import Table, available, keys, snapshots

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w")


def filled(table: Table, count: int) -> Table:
    return table.commit_each(range(1, count + 1))


@pytest.mark.parametrize(
    ("start", "kind"), [("latest-full", "full"), ("compacted-full", "full"), ("latest", "delta"), ("earliest", "delta")]
)
def test_an_empty_table_is_waited_for_and_its_first_commit_comes_once(table: Table, start: str, kind: str) -> None:
    builder = table.builder().with_start(start)
    scan, read = builder.new_streaming_scan(), builder.new_read()
    assert [scan.plan() for _ in range(3)] == [None] * 3
    assert scan.checkpoint() is None and scan.next_snapshot_id is None
    table.commit([1])
    plans = available(scan)
    assert [plan.kind for plan in plans] == [kind]
    table.commit([2])
    assert keys(read, plans + available(scan)) == [1, 2]
    scan.close()


@pytest.mark.parametrize(
    ("start", "wanted"),
    [({"mode": "earliest"}, [1, 2, 3, 4]), ({"mode": "latest"}, []), ({"mode": "latest-full"}, [4]),
     ({"snapshot_id": 3}, [3, 4]), ({"snapshot_id": 2, "full": True}, [2, 3, 4]), ({"snapshot_id": 5}, []),
     ({"timestamp": 0}, [1, 2, 3, 4]), ({"timestamp": 2**50}, [])],
)  # fmt: skip
def test_starts(table: Table, start: dict[str, object], wanted: list[int]) -> None:
    filled(table, 4)
    builder = table.builder().with_catch_up("replay").with_start(**start)  # type: ignore[arg-type]
    scan = builder.new_streaming_scan()
    assert snapshots(available(scan)) == wanted
    table.commit([5])
    assert snapshots(available(scan)) == [5]
    scan.close()


@pytest.mark.parametrize("end", [{"latest": True}, {"snapshot_id": 3}, {"timestamp": 0}])
def test_a_bound_ends_the_stream_cleanly(table: Table, end: dict[str, object]) -> None:
    filled(table, 3)
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_end(**end)  # type: ignore[arg-type]
    scan = builder.with_consumer_id("c").new_streaming_scan()
    found = [plan.snapshot_id for plan in scan.stream_sync()]
    assert found == ([] if "timestamp" in end else [1, 2, 3])
    for _ in range(2):
        with pytest.raises(EndOfScan):
            scan.plan()
    assert list(scan.stream_sync()) == []
    assert scan.committed() == (1 if "timestamp" in end else 4)
    table.commit([4])
    assert list(scan.stream_sync()) == []
    scan.close()


def test_the_latest_of_an_empty_table_ends_at_once(table: Table) -> None:
    with pytest.raises(EndOfScan):
        table.builder().with_end(latest=True).new_streaming_scan().plan()


def test_a_delay_holds_snapshots_back(table: Table) -> None:
    clock = VirtualClock()
    table.commit([1])
    clock.now = table.snapshot(1)["timeMillis"] / 1000
    builder = table.builder(clock=clock, **{"streaming.read.snapshot.delay": "10 s"}).with_start("earliest")
    scan = builder.new_streaming_scan()
    assert scan.plan() is None
    clock.now += 11
    assert snapshots(available(scan)) == [1]
    scan.close()


def test_overwrites_are_passed_over_read_or_refused(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    filled(table, 2)
    table.commit([30], overwrite=True)
    table.commit([4])
    table.commit([50], overwrite=True)
    read = table.builder().new_read()

    def scan(policy: str | None) -> AsyncStreamingTableScan:
        return table.builder().with_start("earliest").with_on_overwrite(policy).new_streaming_scan()

    assert keys(read, available(scan(None))) == [1, 2, 4]
    assert caplog.text.count("overwrites data") == 1 and "with_on_overwrite" in caplog.text
    caplog.clear()
    skipping = scan("skip")
    assert keys(read, available(skipping)) == [1, 2, 4]
    assert skipping.next_snapshot_id == 6 and "overwrites data" not in caplog.text
    assert keys(read, available(scan("read"))) == [1, 2, 30, 4, 50]
    failing = scan("fail")
    with pytest.raises(TableChangedError, match="Snapshot 3 overwrites"):
        available(failing)
    assert failing.next_snapshot_id == 3


@pytest.mark.parametrize("options", [{}, {"bucket": "3", "bucket_key": "k"}, {"primary_key": True, "bucket": "3"}])
def test_shards_are_disjoint_and_complete_from_the_first_plan_on(tmp_path: Path, options: dict[str, str]) -> None:
    table = Table(tmp_path / "w", **options)  # type: ignore[arg-type]
    for number in range(4):
        table.commit(range(number * 10, number * 10 + 10))
    for count in (1, 2, 3, 5):
        found: list[int] = []
        for index in range(count):
            builder = table.builder().with_start(snapshot_id=2, full=True).with_shard(index, count)
            found += keys(builder.new_read(), available(builder.new_streaming_scan()))
        assert sorted(found) == list(range(40))


def test_auto_confirms_when_the_next_plan_is_asked_for(table: Table) -> None:
    filled(table, 3)
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_consumer_id("c").with_prefetch(4)
    scan = builder.new_streaming_scan()
    saved = []
    for plan in scan.stream_sync():
        saved.append((plan.snapshot_id, scan.committed()))
        if plan.snapshot_id == 3:
            break
    assert saved == [(1, 1), (2, 2), (3, 3)]
    assert scan.plan() is None and scan.committed() == 4
    scan.close()


def test_manual_confirms_only_what_is_committed(table: Table) -> None:
    filled(table, 4)
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_consumer_id("c", commit="manual")
    scan = builder.new_streaming_scan()
    plans = available(scan)
    assert scan.committed() == 1
    scan.commit(plans[1])
    assert scan.committed() == 3
    scan.notify_checkpoint_complete(4)
    assert scan.committed() == 4
    scan.commit(plans[0])
    assert scan.committed() == 4
    with pytest.raises(StreamConfigError, match="only reached"):
        scan.commit(9)
    scan.close()
    assert snapshots(available(builder.new_streaming_scan())) == [4]


def test_snapshots_that_are_passed_over_move_the_consumer(table: Table) -> None:
    """Up to a plan that is not confirmed, and once in a poll interval."""
    clock = VirtualClock()
    filled(table, 1)
    builder = table.builder(clock=clock).with_start("latest").with_poll_interval_ms(1000)
    with builder.with_consumer_id("c", commit="manual").new_streaming_scan() as scan:
        assert (scan.plan(), scan.committed()) == (None, 2)
        saved = []
        for number in range(2, 6):
            table.commit([number], overwrite=True)
            if number == 5:
                table.commit([6])
            assert snapshots(available(scan)) == ([6] if number == 5 else [])
            for seconds in (0, 1):
                clock.now += seconds
                assert scan.plan() is None
                saved.append(scan.committed())
    assert saved == [2, 3, 3, 4, 4, 5, 5, 6]


@pytest.mark.parametrize("ends_by", ["bound", "stop"])
def test_a_clean_end_saves_at_once_what_was_passed_over(table: Table, ends_by: str) -> None:
    filled(table, 2)
    builder = table.builder(clock=VirtualClock()).with_start("earliest").with_catch_up("replay")
    if ends_by == "bound":
        builder.with_end(snapshot_id=3)
    with builder.with_consumer_id("c", commit="manual").new_streaming_scan() as scan:
        assert [plan and plan.snapshot_id for plan in (scan.plan(), scan.plan())] == [1, 2]
        scan.commit(3)
        table.commit([3], overwrite=True)
        if ends_by == "stop":
            assert (scan.plan(), scan.plan(), scan.committed()) == (None, None, 3)
            scan.stop()
        assert available(scan) == []
        assert scan.committed() == 4


def test_the_first_full_read_is_fenced_until_it_is_confirmed(table: Table) -> None:
    filled(table, 3)
    scan = table.builder().with_consumer_id("c").new_streaming_scan()
    plan = scan.plan()
    assert plan is not None and plan.kind == "full"
    files = {path.name for path in (table.path / "consumer").iterdir()}
    assert files == {"consumer-c.first-plan"}
    assert scan.plan() is None
    assert {path.name for path in (table.path / "consumer").iterdir()} == {"consumer-c"}
    scan.close()


def test_progress_is_saved_on_the_branch_that_is_read(table: Table) -> None:
    filled(table, 2)
    for directory in ("schema", "snapshot"):
        shutil.copytree(table.path / directory, table.path / "branch" / "branch-b" / directory)
    branch = table.catalog.get_table(f"{table.name}$branch_b")
    with stream_read_builder(branch).with_consumer_id("c").new_streaming_scan() as scan:
        assert snapshots(available(scan)) == [2]
        assert scan.committed() == 3
    assert list(table.path.rglob("consumer-*")) == [table.path / "branch" / "branch-b" / "consumer" / "consumer-c"]
    assert ([each.next_snapshot for each in list_consumers(branch)], list_consumers(table.handle())) == ([3], [])


@pytest.mark.parametrize("change", ["expiry", "rollback"])
@pytest.mark.parametrize("prefetch", [0, 4])
@pytest.mark.parametrize("times", [1, 3])
def test_a_first_plan_that_is_gone_before_its_fence_stands_is_found_again(
    table: Table, prefetch: int, change: str, times: int
) -> None:
    """Between finding the snapshot and writing the fence others commit, and take what was found."""
    filled(table, 3)
    file_io = FaultFileIO()
    fences: list[int] = []

    def meanwhile(call: Call) -> Any:
        if call.kind == "write" and call.name.endswith(".first-plan"):
            fences.append(table.latest())
            if len(fences) <= times:
                if change == "rollback":
                    table.rollback(table.latest() - 1)
                table.commit([10 * table.latest() + len(fences)])
                if change == "expiry":
                    table.expire(table.latest())
        return call.answer()

    file_io.wherever(meanwhile)
    builder = table.builder(file_io).with_catch_up("replay").with_prefetch(prefetch).with_consumer_id("c")
    scan, read = builder.new_streaming_scan(), builder.new_read()
    first = scan.plan()
    assert first is not None and first.kind == "full" and first.snapshot_id == table.latest()
    assert len(fences) == times + 1
    fence = table.path / "consumer" / "consumer-c.first-plan"
    assert json.loads(fence.read_text())["nextSnapshot"] == table.latest()
    table.commit([1000])
    found = keys(read, [first, *available(scan)])
    assert found == table_keys(table)
    assert {path.name for path in fence.parent.iterdir()} == {"consumer-c"}
    scan.close()


def table_keys(table: Table) -> list[int]:
    """The keys that the table holds now, in the order of its files."""
    reader = table.builder().new_read()
    with table.builder().new_streaming_scan() as scan:
        return keys(reader, available(scan))


def test_without_a_consumer_id_nothing_can_be_committed(table: Table) -> None:
    scan = table.builder().new_streaming_scan()
    for call in (scan.committed, lambda: scan.commit(1)):
        with pytest.raises(StreamConfigError, match="with_consumer_id"):
            call()


def test_lag_is_exact_on_a_known_history(table: Table) -> None:
    for number in range(1, 5):
        table.commit(range(number * 10, number * 10 + number))
    clock = VirtualClock(table.snapshot(4)["timeMillis"] / 1000 + 5)
    builder = table.builder(clock=clock).with_start(snapshot_id=2).with_catch_up("replay").with_consumer_id("c")
    scan = builder.new_streaming_scan()
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.earliest, lag.latest, lag.committed, lag.bytes) == (3, 9, 1, 4, None, None)
    plan = scan.plan()
    assert plan is not None
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.committed) == (2, 7, 2)
    assert lag.seconds == pytest.approx(clock.now - table.snapshot(3)["timeMillis"] / 1000)
    available(scan)
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.seconds, lag.committed) == (0, 0, 0.0, 5)
    scan.close()
    table.commit([50])
    # Before its first plan, a scan with a consumer lags from where that is.
    again = builder.new_streaming_scan().lag()
    assert (again.snapshots, again.rows, again.committed) == (1, 1, 5)
    full = table.builder().new_streaming_scan().lag()
    assert (full.snapshots, full.rows) == (1, 11)


def test_lag_after_a_commit_of_a_faster_clock_is_zero(table: Table) -> None:
    """A writer's clock may be ahead of ours; seconds are never negative."""
    table.commit([1])
    clock = VirtualClock(table.snapshot(1)["timeMillis"] / 1000 - 60)
    lag = table.builder(clock=clock).with_start(snapshot_id=1).new_streaming_scan().lag()
    assert (lag.snapshots, lag.rows, lag.seconds) == (1, 1, 0.0)


def test_lag_that_is_not_known_is_not_zero(table: Table) -> None:
    filled(table, 4)
    scan = table.builder().with_start(snapshot_id=2).with_catch_up("replay").new_streaming_scan()
    assert scan.plan() is not None
    table.expire(4)
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.seconds, lag.earliest) == (2, None, None, 4)
    scan.restore(9)
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.seconds, lag.latest) == (None, None, None, 4)
    scan.close()
    limited = table.builder().with_start(snapshot_id=4, full=True).with_limits(max_splits=1).new_streaming_scan()
    table.commit([5])
    assert (limited.lag().snapshots, limited.lag().rows) == (2, 5)
    assert limited.plan() is not None
    assert (limited.lag().snapshots, limited.lag().rows) == (2, None)
    resumed = table.builder().with_start(position=limited.checkpoint()).new_streaming_scan()
    # The snapshot of the full plan is not one of those after it.
    assert (resumed.lag().snapshots, resumed.lag().rows) == (2, None)
    limited.close()
    resumed.close()


def test_lag_of_a_table_with_a_stray_snapshot_takes_no_longer(table: Table) -> None:
    filled(table, 2)
    with table.builder().with_start(snapshot_id=1).new_streaming_scan() as scan:
        assert scan.plan() is not None
        stray = json.dumps({**table.snapshot(2), "id": 10**15})
        (table.path / "snapshot" / f"snapshot-{10**15}").write_text(stray)
        lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.latest) == (10**15 - 1, None, 10**15)


def test_lag_reaches_back_to_the_long_lived_changelogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table whose snapshots 7 to 11 are left as changelogs alone."""
    warehouse = unpack("java-2.1") / "decoupled_lookup" / "wh"
    builder = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t").new_stream_read_builder()
    files = sorted((warehouse / "d.db" / "t").glob("*/*[a-z]-[0-9]*"))
    counts = {
        int(path.name.rpartition("-")[2]): json.loads(path.read_text()).get("changelogRecordCount", 0)
        for path in files
        if path.parent.name in ("snapshot", "changelog")
    }
    assert (min(counts), max(counts)) == (7, 14)
    reader = builder.new_streaming_scan()
    for position in (7, 9, 12, 14, 15):
        reader.restore(position)
        lag = reader.lag()
        unread = [counts[number] for number in range(position, 15)]
        assert (lag.snapshots, lag.rows, lag.earliest) == (len(unread), sum(unread), 7)
    reader.restore(6)
    assert (reader.lag().snapshots, reader.lag().rows) == (9, None)
    reader.close()
    # One measurement asks for so many of both kinds together, the oldest among them; two are for the position.
    monkeypatch.setattr("pypaimon.streaming.scanning.lag._MOST_FETCHED", 4)
    reader = builder.new_streaming_scan()
    reader.restore(7)
    measured = []
    for _ in range(3):
        before = reader.metrics.requests.get("read", 0)
        lag = reader.lag()
        measured.append((lag.rows, lag.seconds is not None, reader.metrics.requests["read"] - before))
    assert measured == [(None, True, 6), (sum(counts.values()), True, 6), (sum(counts.values()), True, 2)]
    reader.close()


def test_an_empty_table_has_no_lag(table: Table) -> None:
    scan = table.builder().new_streaming_scan()
    lag = scan.lag()
    assert (lag.snapshots, lag.rows, lag.seconds, lag.earliest, lag.latest) == (0, 0, 0.0, None, None)
    scan.restore(3)
    assert scan.lag().snapshots is None
    scan.close()


def test_metrics_count_what_was_handed_out(table: Table) -> None:
    filled(table, 3)
    scan = table.builder().with_start("earliest").with_catch_up("replay").new_streaming_scan()
    available(scan)
    metrics = scan.metrics
    assert (metrics.plans, metrics.splits, metrics.records, metrics.idle_polls) == (3, 3, 3, 1)
    assert metrics.bytes > 0 and metrics.requests["read"] > 9 and metrics.abandoned_requests == 0
    scan.close()


@pytest.mark.parametrize(
    ("start", "overwrites", "wanted"),
    [
        ("earliest", "skip", [100, None, 300, 500]),
        ("earliest", "read", [100, None, 300, 300, 500]),
        ("latest-full", "skip", [500]),
    ],
)
def test_the_watermark_is_that_of_the_last_plan_that_was_handed_out(
    table: Table, start: str, overwrites: str, wanted: list[int | None]
) -> None:
    """Whatever was made ahead; what an overwrite did moves it as little as in Java."""
    filled(table, 3)
    table.commit([40], overwrite=True)
    table.commit([5])
    for number, watermark in enumerate((100, None, 300, 400, 500), start=1):
        table.snapshot_path(number).write_text(json.dumps(table.snapshot(number) | {"watermark": watermark}))
    builder = table.builder().with_start(start).with_catch_up("replay").with_on_overwrite(overwrites)
    with builder.with_end(latest=True).new_streaming_scan() as scan:
        assert scan.watermark is None
        assert [scan.watermark for _ in scan.stream_sync()] == wanted


def test_a_bad_snapshot_ahead_holds_nothing_back(table: Table) -> None:
    filled(table, 40)
    table.snapshot_path(30).write_text("{}")
    scan = table.builder().with_start("earliest").with_catch_up("replay").new_streaming_scan()
    found = []
    with pytest.raises(OSError, match="snapshot-30"):
        while True:
            plan = scan.plan()
            found += [plan.snapshot_id] if plan else []
    assert found == list(range(1, 30))
    scan.close()


def test_polls_begin_at_even_times_however_long_each_takes(tmp_path: Path) -> None:
    table, clock, file_io = Table(tmp_path), VirtualClock(), FaultFileIO()
    table.commit([1])
    begun: list[float] = []

    def slow(call: Call) -> Any:
        if call.name == "snapshot-2":
            begun.append(clock.now)
            clock.now += 0.3
        return call.answer()

    file_io.wherever(slow)
    builder = table.builder(file_io, clock).with_start("earliest").with_poll_interval_ms(1000).with_prefetch(0)
    with builder.new_streaming_scan() as scan:
        clock.on_wait = lambda: scan.stop() if len(begun) > 4 else None
        assert [plan.snapshot_id for plan in scan.stream_sync()] == [1]
    # The first look is part of the step before.
    assert [later - earlier for earlier, later in pairwise(begun[1:])] == pytest.approx([1.0] * (len(begun) - 2))
