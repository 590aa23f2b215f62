"""What pypaimon's own tests of its stream ask of the public names, asked of ours under those names.

Its cases, on tables that are there: pypaimon's tests make them with mocks of classes that ours does not have.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pypaimon.consumer.consumer import Consumer
from pypaimon.read.plan import Plan
from pypaimon.read.scanner.changelog_follow_up_scanner import ChangelogFollowUpScanner
from pypaimon.read.scanner.delta_follow_up_scanner import DeltaFollowUpScanner
from pypaimon.read.scanner.follow_up_scanner import FollowUpScanner
from pypaimon.read.scanner.incremental_diff_scanner import IncrementalDiffScanner
from pypaimon.read.stream_read_builder import StreamReadBuilder
from pypaimon.read.streaming_table_scan import AsyncStreamingTableScan

import pypaimon.streaming
from pypaimon.streaming import ConsumerManager, StreamConfigError
from pypaimon.streaming.install import install, paimon_class
from support.tables.streamed_table import Table, available, expire, keys, snapshots

pytestmark = pytest.mark.slow

KINDS = ("APPEND", "COMPACT", "OVERWRITE", "EXPIRE", "ANALYZE")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Snapshot n holds the key n; 3 is an overwrite."""
    table = Table(tmp_path)
    for number in range(1, 6):
        table.commit([number], overwrite=number == 3)
    return table


def first_plan(scan: AsyncStreamingTableScan) -> Any:
    async def first() -> Any:
        return await anext(scan.stream())

    return asyncio.run(asyncio.wait_for(first(), 60))


def test_the_names_of_pypaimons_stream_are_ours(table: Table) -> None:
    classes = (
        *(AsyncStreamingTableScan, StreamReadBuilder, IncrementalDiffScanner),
        *(FollowUpScanner, DeltaFollowUpScanner, ChangelogFollowUpScanner),
    )
    assert all(each is getattr(pypaimon.streaming, each.__name__) for each in classes)
    assert type(table.handle().new_stream_read_builder()) is StreamReadBuilder
    install()
    own = paimon_class("pypaimon.read.stream_read_builder")
    assert own is not StreamReadBuilder and issubclass(StreamReadBuilder, own)
    assert type(own(table.handle()).new_streaming_scan()) is paimon_class("pypaimon.read.streaming_table_scan")


@pytest.mark.parametrize("early", ["pypaimon.read.stream_read_builder", "sys"])
def test_the_names_are_ours_whenever_pypaimons_modules_are_imported(early: str) -> None:
    program = f"""
import {early}
import pypaimon.streaming
import pypaimon.table.file_store_table, sys
ours = ("pypaimon.streaming.spec", "pypaimon.streaming.read_builder")
assert not any(name.startswith(ours) for name in sys.modules), "more is imported than is used"
from pypaimon.read.stream_read_builder import StreamReadBuilder
import pypaimon.read.streaming_table_scan as module
assert StreamReadBuilder is pypaimon.streaming.StreamReadBuilder
assert module.AsyncStreamingTableScan is pypaimon.streaming.AsyncStreamingTableScan
try:
    module.NoSuchName
except AttributeError:
    print("ours")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.stderr) == ("ours\n", "")


# ---- the builder ----


def test_setters_return_the_builder_and_keep_what_they_are_given(table: Table) -> None:
    builder = StreamReadBuilder(table.handle())
    same = builder.with_poll_interval_ms(500).with_bucket_filter(lambda bucket: bucket % 2 == 0)
    assert same is builder and builder.with_include_row_kind(True) is builder
    assert builder.new_streaming_scan().poll_interval == 0.5
    assert builder.new_read().include_row_kind


@pytest.mark.parametrize(("chosen", "read"), [([0, 2, 4], [0, 2, 4]), ([5], [5])])
def test_with_buckets_reads_these_buckets_alone(tmp_path: Path, chosen: list[int], read: list[int]) -> None:
    table = Table(tmp_path, bucket="6", bucket_key="k")
    table.commit(range(40))
    plans = available(StreamReadBuilder(table.handle()).with_buckets(chosen).new_streaming_scan())
    assert sorted({split.bucket for plan in plans for split in plan.splits()}) == read


def test_with_buckets_of_none_is_refused_as_it_would_never_read_a_row(table: Table) -> None:
    with pytest.raises(StreamConfigError, match="the list is empty"):
        StreamReadBuilder(table.handle()).with_buckets([])


@pytest.mark.parametrize(("given", "seen"), [(lambda bucket: bucket % 2 == 0, [0, 2, 4]), (None, [0, 1, 2, 3, 4, 5])])
def test_a_bucket_filter_of_the_constructor_holds(tmp_path: Path, given: Any, seen: list[int]) -> None:
    table = Table(tmp_path, bucket="6", bucket_key="k")
    table.commit(range(40))
    plans = available(AsyncStreamingTableScan(table=table.handle(), bucket_filter=given))
    assert sorted({split.bucket for plan in plans for split in plan.splits()}) == seen


# ---- the scan ----


def test_the_first_plan_is_the_state_and_the_next_snapshot_the_one_after(table: Table) -> None:
    scan = AsyncStreamingTableScan(table.handle())
    assert scan.next_snapshot_id is None
    plan = first_plan(scan)
    assert isinstance(plan, Plan) and scan.next_snapshot_id == 6
    assert keys(StreamReadBuilder(table.handle()).new_read(), [plan]) == [3, 4, 5]


def test_the_blocking_stream_gives_plans(table: Table) -> None:
    for plan in AsyncStreamingTableScan(table.handle()).stream_sync():
        assert isinstance(plan, Plan)
        break


def test_commits_that_append_nothing_are_passed_over(table: Table) -> None:
    scan = AsyncStreamingTableScan(table.handle())
    scan.next_snapshot_id = 3
    assert first_plan(scan).snapshot_id == 4
    assert scan.next_snapshot_id == 5


def test_settings_of_the_constructor_are_properties(table: Table) -> None:
    builder = StreamReadBuilder(table.handle())
    predicate = builder.new_predicate_builder().greater_than("k", 3)
    scanner = DeltaFollowUpScanner()
    given = AsyncStreamingTableScan(table.handle(), predicate, 500, scanner)
    assert (given.predicate, given.poll_interval, given.follow_up_scanner) == (predicate, 0.5, scanner)
    usual = AsyncStreamingTableScan(table.handle())
    assert (usual.predicate, usual.poll_interval) == (None, 1.0)


@pytest.mark.parametrize(
    ("producer", "expected"),
    [("none", DeltaFollowUpScanner), *((each, ChangelogFollowUpScanner) for each in ("input", "lookup"))],
)
def test_the_follow_up_scanner_is_that_of_the_changelog_producer(tmp_path: Path, producer: str, expected: Any) -> None:
    table = Table(tmp_path, primary_key=True, changelog_producer=producer)
    assert type(AsyncStreamingTableScan(table.handle()).follow_up_scanner) is expected


def test_it_waits_for_a_snapshot_that_is_not_there_yet(table: Table) -> None:
    scan = AsyncStreamingTableScan(table.handle(), poll_interval_ms=10)
    scan.next_snapshot_id = 6

    async def found() -> Any:
        waiting = asyncio.ensure_future(anext(scan.stream()))
        await asyncio.to_thread(table.commit, [6])
        return await asyncio.wait_for(waiting, 60)

    assert asyncio.run(found()).snapshot_id == 6


def test_plans_are_the_same_with_and_without_prefetching(table: Table) -> None:
    found = []
    for prefetch in (True, False):
        scan = AsyncStreamingTableScan(table.handle(), prefetch_enabled=prefetch, diff_threshold=100)
        scan.next_snapshot_id = 1
        plans = available(scan)
        found.append((snapshots(plans), keys(StreamReadBuilder(table.handle()).new_read(), plans)))
    assert found[0] == found[1] == ([1, 2, 4, 5], [1, 2, 4, 5])


def test_far_behind_it_catches_up_in_few_plans(tmp_path: Path) -> None:
    table = Table(tmp_path).commit_each(range(1, 31))
    scan = AsyncStreamingTableScan(table.handle(), prefetch_enabled=False)
    scan.next_snapshot_id = 5
    plans = available(scan)
    assert scan.next_snapshot_id == 31 and len(plans) < 13
    assert keys(StreamReadBuilder(table.handle()).new_read(), plans) == list(range(5, 31))


def test_a_consumer_is_where_the_stream_continues(table: Table) -> None:
    ConsumerManager(table.handle().file_io, table.handle().table_path).reset_consumer("mine", Consumer(next_snapshot=4))
    scan = AsyncStreamingTableScan(table.handle(), consumer_id="mine")
    assert scan.next_snapshot_id is None
    assert first_plan(scan).snapshot_id == 4
    assert scan.next_snapshot_id == 5


def test_a_plan_is_saved_when_the_next_one_is_asked_for(table: Table) -> None:
    manager = ConsumerManager(table.handle().file_io, table.handle().table_path)
    builder = StreamReadBuilder(table.handle()).with_consumer_id("mine")
    scan = builder.new_streaming_scan()
    assert scan.plan() is not None and manager.consumer("mine") is None
    assert scan.plan() is None
    saved = manager.consumer("mine")
    assert saved is not None and saved.next_snapshot == 6


def test_without_a_consumer_id_nothing_is_saved(table: Table) -> None:
    scan = StreamReadBuilder(table.handle()).new_streaming_scan()
    assert scan.plan() is not None and scan.plan() is None
    assert not (table.path / "consumer").exists()


def test_a_plan_may_be_made_by_hand() -> None:
    plan = pypaimon.streaming.Plan([])
    assert isinstance(plan, Plan) and plan.splits() == [] and plan.snapshot_id is None
    assert pypaimon.streaming.Plan([], 7).snapshot_id == 7
    assert "of no stream" in repr(plan)
    with pytest.raises(StreamConfigError, match="This plan has no position"):
        _ = plan.position


# ---- which snapshots are read ----


def test_a_follow_up_scanner_is_abstract() -> None:
    with pytest.raises(TypeError):
        FollowUpScanner()  # type: ignore[abstract]


@pytest.mark.parametrize("kind", KINDS)
def test_the_delta_scanner_reads_appends_alone(kind: str) -> None:
    snapshot: Any = SimpleNamespace(commit_kind=kind)
    assert DeltaFollowUpScanner().should_scan(snapshot) is (kind == "APPEND")


@pytest.mark.parametrize(("manifest_list", "is_read"), [("changelog-manifest", True), (None, False), ("", False)])
def test_the_changelog_scanner_reads_whatever_has_a_changelog(manifest_list: str | None, is_read: bool) -> None:
    snapshot: Any = SimpleNamespace(changelog_manifest_list=manifest_list, commit_kind="COMPACT")
    assert ChangelogFollowUpScanner().should_scan(snapshot) is is_read


# ---- what differs between two snapshots ----


def test_the_difference_is_what_was_added(table: Table) -> None:
    scanner = IncrementalDiffScanner(table.handle())
    assert {entry.file.file_name for entry in scanner.compute_diff(4, 5)} == {_file_of(scanner, 5)}
    assert scanner.compute_diff(5, 5) == []
    # What was there before and is gone is no difference.
    assert {entry.file.file_name for entry in scanner.compute_diff(2, 3)} == {_file_of(scanner, 3)}
    plan = scanner.scan(3, 5)
    assert isinstance(plan, Plan)
    assert keys(StreamReadBuilder(table.handle()).new_read(), [plan]) == [4, 5]


def _file_of(scanner: IncrementalDiffScanner, key: int) -> str:
    """The file that snapshot `key` added: the keys of the files are those of their snapshots."""
    (name,) = {entry.file.file_name for entry in scanner.compute_diff(key - 1, key)}
    return name


# ---- consumers and snapshots ----


def test_consumers_are_kept_by_branch(tmp_path: Path, table: Table) -> None:
    handle = table.handle()
    main, branch = (ConsumerManager(handle.file_io, handle.table_path, name) for name in (None, "branch1"))
    assert main.consumer("id1") is None and main.min_next_snapshot() is None and main.list_all_ids() == []
    for name, number in (("id1", 5), ("id2", 8)):
        main.reset_consumer(name, Consumer(number))
    assert main.min_next_snapshot() == 5 and main.consumers() == {"id1": 5, "id2": 8}
    assert branch.consumer("id1") is None
    branch.reset_consumer("id1", Consumer(7))
    assert [each.min_next_snapshot() for each in (main, branch)] == [5, 7]


def test_the_next_snapshot_that_is_read_is_found(table: Table) -> None:
    manager = pypaimon.streaming.SnapshotManager(table.handle().file_io, table.handle().table_path)
    append = DeltaFollowUpScanner().should_scan
    snapshot, next_id, passed = manager.find_next_scannable(3, append)
    assert snapshot is not None and (snapshot.id, next_id, passed) == (4, 5, 1)
    assert manager.find_next_scannable(6, append) == (None, 6, 0)
    assert manager.find_next_scannable(3, lambda _: False) == (None, 6, 3)


def test_the_earliest_snapshot_is_found_though_the_hint_is_old(table: Table) -> None:
    expire(table.path, 4)
    (table.path / "snapshot" / "EARLIEST").write_text("1")
    manager = pypaimon.streaming.SnapshotManager(table.handle().file_io, table.handle().table_path)
    earliest = manager.try_get_earliest_snapshot()
    assert earliest is not None and earliest.id == 4
