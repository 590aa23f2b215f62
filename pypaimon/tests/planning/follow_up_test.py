"""A follow-up scanner of the user's own: which snapshots are read, which files of them, and all that is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    ChangelogFollowUpScanner,
    DeltaFollowUpScanner,
    FollowUpScanner,
    Plan,
    Position,
    StreamConfigError,
)
from pypaimon.streaming.install import paimon_class
from pypaimon.streaming.stream_types import PlanKind, Snapshot, SnapshotReader
from support.tables.streamed_table import Table, available, keys

PaimonChangelogScanner = paimon_class("pypaimon.read.scanner.changelog_follow_up_scanner")
PaimonDeltaScanner = paimon_class("pypaimon.read.scanner.delta_follow_up_scanner")
PaimonFollowUpScanner: Any = paimon_class("pypaimon.read.scanner.follow_up_scanner")

pytestmark = pytest.mark.slow


class Even(PaimonFollowUpScanner):
    """As somebody who knows only pypaimon writes it."""

    def should_scan(self, snapshot: Any) -> bool:
        return snapshot.id % 2 == 0


class EvenOfOurs(FollowUpScanner):
    def should_scan(self, snapshot: Snapshot) -> bool:
        return snapshot.id % 2 == 0


class Both(FollowUpScanner):
    """Changelog where there is some, else what was added."""

    def should_scan(self, snapshot: Snapshot) -> bool:
        return True

    def scan(self, snapshot: Snapshot, snapshot_reader: SnapshotReader) -> Any:
        return snapshot_reader.changelog() if snapshot.id % 2 else snapshot_reader.delta()


class BothUnrelated:
    """The same without a base class."""

    should_scan = Both.should_scan
    scan = Both.scan


class AlwaysChangelog(FollowUpScanner):
    kind = PlanKind.CHANGELOG

    def should_scan(self, snapshot: Snapshot) -> bool:
        return True


class Wrong(FollowUpScanner):
    def should_scan(self, snapshot: Snapshot) -> bool:
        return True

    def scan(self, snapshot: Snapshot, snapshot_reader: SnapshotReader) -> Any:
        return [snapshot]


class Broken(FollowUpScanner):
    """Fails at snapshot 6 until it is mended, in the method that is named."""

    def __init__(self, method: str) -> None:
        self.method: str | None = method

    def should_scan(self, snapshot: Snapshot) -> bool:
        self._fail("should_scan", snapshot)
        return True

    def scan(self, snapshot: Snapshot, snapshot_reader: SnapshotReader) -> Any:
        self._fail("scan", snapshot)
        return snapshot_reader.delta()

    def _fail(self, method: str, snapshot: Snapshot) -> None:
        if snapshot.id == 6 and self.method == method:
            raise KeyError("a bug of the user's own")


@pytest.fixture
def append(tmp_path: Path) -> Table:
    return Table(tmp_path / "a").commit_each(range(1, 21))


@pytest.fixture
def changelog(tmp_path: Path) -> Table:
    return Table(tmp_path / "c", primary_key=True, changelog_producer="input").commit_each(range(1, 7))


def followed(table: Table, scanner: Any, **given: Any) -> list[Plan]:
    """The plans from snapshot 1 on, by the constructor."""
    with AsyncStreamingTableScan(table.handle(), follow_up_scanner=scanner, **given) as scan:
        scan.next_snapshot_id = 1
        return available(scan)


def ids_and_kinds(plans: list[Plan]) -> list[tuple[int, str]]:
    return [(plan.snapshot_id, plan.kind.value) for plan in plans]


@pytest.mark.parametrize("scanner", [Even(), EvenOfOurs()])
def test_a_scanner_of_the_users_own_decides_what_is_read_and_nothing_is_collapsed(append: Table, scanner: Any) -> None:
    plans = followed(append, scanner, diff_threshold=2)
    assert ids_and_kinds(plans) == [(number, "delta") for number in range(2, 21, 2)]
    read = append.builder().new_read()
    assert [keys(read, [plan]) for plan in plans] == [[number] for number in range(2, 21, 2)]


def test_the_builder_takes_it_too(append: Table) -> None:
    builder = append.builder().with_start("earliest").with_end(latest=True)
    with builder.copy().with_follow_up_scanner(Even()).new_streaming_scan() as scan:
        assert [plan.snapshot_id for plan in scan.stream_sync()] == list(range(2, 21, 2))
    with builder.with_follow_up_scanner(Even()).with_follow_up_scanner(None).new_streaming_scan() as scan:
        assert keys(append.builder().new_read(), available(scan)) == list(range(1, 21)), "None: the table's own rule"


@pytest.mark.parametrize(
    ("scanner", "kind"),
    [
        (PaimonDeltaScanner(), "delta"),
        (DeltaFollowUpScanner(), "delta"),
        (PaimonChangelogScanner(), "changelog"),
        (ChangelogFollowUpScanner(), "changelog"),
    ],
)
def test_scanners_of_both_libraries_read_their_own_files(changelog: Table, scanner: Any, kind: str) -> None:
    assert ids_and_kinds(followed(changelog, scanner)) == [(number, kind) for number in range(1, 7)]


@pytest.mark.parametrize("scanner", [Both(), BothUnrelated()])
def test_scan_chooses_the_files_of_each_snapshot(changelog: Table, scanner: Any) -> None:
    plans = followed(changelog, scanner)
    assert ids_and_kinds(plans) == [(number, "changelog" if number % 2 else "delta") for number in range(1, 7)]
    read = changelog.builder().new_read()
    assert [keys(read, [plan]) for plan in plans] == [[number] for number in range(1, 7)]


def test_a_snapshot_without_changelog_makes_no_plan_of_it(append: Table) -> None:
    with AsyncStreamingTableScan(append.handle(), follow_up_scanner=AlwaysChangelog()) as scan:
        scan.next_snapshot_id = 1
        assert available(scan) == []
        assert scan.next_snapshot_id == 21
        scan.next_snapshot_id = 1
        assert scan.lag().rows == 0


def test_limits_and_positions_inside_a_snapshot_stay(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    table.commit_files(range(10, 14))
    table.commit_files(range(20, 24))
    builder = table.builder().with_follow_up_scanner(Even()).with_limits(max_splits=1)
    read = builder.new_read()
    seen: list[int] = []
    position: Position | None = None
    for _ in range(4):
        with builder.new_streaming_scan() as scan:
            scan.restore(1 if position is None else Position.from_json(position.to_json()))
            plan = scan.plan()
            assert plan is not None
            assert (plan.snapshot_id, len(plan.splits())) == (2, 1)
            seen += keys(read, [plan])
            position = scan.checkpoint()
    assert sorted(seen) == [10, 11, 12, 13]
    with builder.new_streaming_scan() as scan:
        scan.restore(position)
        assert available(scan) == [], "of snapshot 3 nothing is read"


def test_the_lag_counts_the_rows_that_it_reads(append: Table) -> None:
    with AsyncStreamingTableScan(append.handle(), follow_up_scanner=Even()) as scan:
        scan.next_snapshot_id = 1
        lag = scan.lag()
    assert (lag.snapshots, lag.rows) == (20, 10)


@pytest.mark.parametrize("method", ["should_scan", "scan"])
def test_an_error_in_it_comes_out_as_it_is_in_its_turn_and_the_stream_continues(append: Table, method: str) -> None:
    """Though several snapshots are looked at ahead of time."""
    scanner = Broken(method)
    with AsyncStreamingTableScan(append.handle(), follow_up_scanner=scanner) as scan:
        scan.next_snapshot_id = 1
        found = []
        with pytest.raises(KeyError, match="a bug of the user's own"):
            while (plan := scan.plan()) is not None:
                found.append(plan.snapshot_id)
        assert found == [1, 2, 3, 4, 5]
        scanner.method = None
        found += [plan.snapshot_id for plan in available(scan)]
    assert found == list(range(1, 21))


def test_what_it_returns_is_checked(append: Table) -> None:
    with pytest.raises(StreamConfigError, match=r"Wrong.scan: expected the result of snapshot_reader.delta\(\)"):
        followed(append, Wrong())


def test_a_scanner_that_is_invalid_or_cannot_be_combined_is_refused(append: Table, changelog: Table) -> None:
    with pytest.raises(StreamConfigError, match="should_scan"):
        append.builder().with_follow_up_scanner(Even)  # type: ignore[arg-type]
    with pytest.raises(StreamConfigError, match="should_scan"):
        append.builder().with_follow_up_scanner("delta")  # type: ignore[arg-type]
    with pytest.raises(StreamConfigError, match="with_catch_up"):
        changelog.builder().with_follow_up_scanner(Even()).with_catch_up("net").new_streaming_scan()
