"""Positions in ranges of which less is there than before, and ranges of tables with data evolution."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import (
    CorruptTableError,
    Plan,
    Position,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
)
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.options.between import between_of_arguments
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp, Limits
from support.stores.fault_file_io import FaultFileIO
from support.tables.planner_drive import Drive
from support.tables.streamed_table import Table, all_keys, available

pytestmark = pytest.mark.slow

EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)
EVOLUTION = {"data_evolution__enabled": "true", "row_tracking__enabled": "true"}


def six(warehouse: Path, **options: str) -> Table:
    """An append table of six snapshots."""
    return Table(warehouse, **options).commit_each(range(6))


def time_of(table: Table, snapshot_id: int) -> datetime:
    millis: int = table.snapshot(snapshot_id)["timeMillis"]
    return EPOCH + timedelta(milliseconds=millis)


def expire_snapshots(table: Table, earliest: int) -> None:
    """Let snapshots expire whose files tags keep."""
    for number in range(1, earliest):
        table.snapshot_path(number).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text(str(earliest))


def behind(builder: StreamReadBuilder, plans: int) -> Position:
    """The position behind so many plans of one unit."""
    with builder.copy().with_limits(max_splits=1).new_streaming_scan() as scan:
        for _ in range(plans):
            assert scan.plan() is not None
        position = scan.checkpoint()
    assert position is not None
    return position


class TestLessIsThere:
    def test_times_whose_snapshots_have_all_expired(self, tmp_path: Path) -> None:
        table = six(tmp_path)
        ends = time_of(table, 2), time_of(table, 5)
        inside, at_the_end = (behind(table.builder().with_range(*ends), plans) for plans in (1, 3))
        table.expire(6)
        assert all_keys(table.builder().with_range(*ends)) == []
        assert all_keys(table.builder().with_range(*ends).with_start(position=at_the_end)) == []
        with pytest.raises(PositionExpiredError, match="Snapshot 4 has expired"):
            all_keys(table.builder().with_range(*ends).with_start(position=inside))

    def test_a_difference_of_times_whose_snapshots_have_all_expired(self, tmp_path: Path) -> None:
        table = six(tmp_path)
        ends = time_of(table, 2), time_of(table, 5)
        inside = behind(table.builder().with_range(*ends, "diff"), 1)
        table.expire(6)
        with pytest.raises(PositionExpiredError, match="Snapshot 5 has expired"):
            all_keys(table.builder().with_range(*ends, "diff").with_start(position=inside))

    def test_an_automatic_tag_that_is_gone(self, tmp_path: Path) -> None:
        table = six(tmp_path)
        for name, number in (("2026-01-30", 3), ("2026-02-03", 6)):
            table.handle().create_tag(name, number)
        inside = behind(table.builder().with_range(None, "2026-02-03"), 1)
        table.handle().delete_tag("2026-02-03")
        with pytest.raises(StreamConfigError, match="does not belong to this range, which is empty"):
            all_keys(table.builder().with_range(None, "2026-02-03").with_start(position=inside))

    def test_a_position_of_another_table_where_nothing_is(self, tmp_path: Path) -> None:
        tables = [six(tmp_path / str(number)) for number in range(2)]
        inside = behind(tables[0].builder().with_range(2, 5), 1)
        with pytest.raises(TableChangedError, match="another table"):
            all_keys(tables[1].builder().with_range(EPOCH, EPOCH + timedelta(1)).with_start(position=inside))

    def test_times_of_which_a_rollback_took_the_last_snapshots(self, tmp_path: Path) -> None:
        table = six(tmp_path)
        ends = time_of(table, 2), time_of(table, 6)
        inside = behind(table.builder().with_range(*ends), 3)
        table.rollback(3)
        with pytest.raises(TableChangedError, match="rolled back, or is being dropped: it ends at snapshot 3"):
            all_keys(table.builder().with_range(*ends).with_start(position=inside))

    def test_splits_that_expire_before_they_are_read_are_not_advised_as_a_stream(self, tmp_path: Path) -> None:
        table = six(tmp_path)
        builder = table.builder().with_range(0, 2)
        with builder.new_streaming_scan() as scan:
            splits = [split for plan in available(scan) for split in plan.splits()]
        table.expire(4)
        for split in splits:
            Path(split.files[0].file_path).unlink()
        with pytest.raises(PositionExpiredError, match=r"read\. Choose a later snapshot"):
            builder.new_read().to_arrow(splits)

    @pytest.mark.parametrize("mode", ["delta", "diff"])
    def test_a_position_after_the_end(self, tmp_path: Path, mode: Any) -> None:
        table = six(tmp_path)
        builder = table.builder().with_range(2, 4, mode)
        with builder.new_streaming_scan() as scan:
            scan.restore(5)
            assert available(scan) == []
            scan.restore(6)
            with pytest.raises(StreamConfigError, match="does not belong to this range"):
                available(scan)


class TestFilesAreMissing:
    """Tags keep files, whatever has become of their snapshots."""

    @pytest.fixture
    def tagged(self, tmp_path: Path) -> Table:
        table = six(tmp_path)
        for name, number in (("two", 2), ("four", 4)):
            table.handle().create_tag(name, number)
        return table

    @staticmethod
    def lose(table: Table, manifest: bool, snapshot_id: int) -> str:
        """Delete the manifest list, or a data file, that a snapshot added."""
        if manifest:
            path = table.path / "manifest" / table.snapshot(snapshot_id)["deltaManifestList"]
        else:
            (path,) = (
                path
                for path in table.path.rglob("*.parquet")
                if pq.read_table(path)["k"].to_pylist() == [snapshot_id - 1]
            )
        path.unlink()
        return path.name

    @pytest.mark.parametrize("manifest", [True, False])
    @pytest.mark.parametrize("expired", [True, False])
    def test_of_tags_that_are_there_they_are_damage(self, tagged: Table, manifest: bool, expired: bool) -> None:
        lost = self.lose(tagged, manifest, 4)
        if expired:
            expire_snapshots(tagged, 6)
        with pytest.raises(CorruptTableError, match=f"{lost}.*is missing, though snapshot [24] needs it"):
            all_keys(tagged.builder().with_range("two", "four"))
        with pytest.raises(CorruptTableError, match=f"{lost}.*is missing, though snapshot 4 needs it"):
            all_keys(tagged.builder().with_start(tag="four", full=True).with_end(snapshot_id=4))

    @pytest.mark.parametrize(("gone", "number"), [("two", 2), ("four", 4)])
    def test_of_a_tag_that_is_gone_they_have_expired(self, tagged: Table, gone: str, number: int) -> None:
        """It went between finding the range and reading it."""
        between = between_of_arguments("two", "four", "auto", False)
        drive = Drive.of(tagged, Start(StartMode.BETWEEN), between=between)
        assert drive.step().plan is None
        self.lose(tagged, True, 4)
        expire_snapshots(tagged, 6)
        tagged.handle().delete_tag(gone)
        with pytest.raises(PositionExpiredError, match=f"Snapshot {number} has expired"):
            drive.step()

    @pytest.mark.parametrize("manifest", [True, False])
    def test_a_changelog_expires_though_a_tag_keeps_its_snapshot(self, tmp_path: Path, manifest: bool) -> None:
        table = Table(tmp_path, primary_key=True, bucket="1", changelog_producer="input").commit_each(range(4))
        table.handle().create_tag("three", 3)
        drive = Drive.of(table, Start(StartMode.FROM_SNAPSHOT, 2), catch_up=CatchUp.REPLAY)
        plans: list[Plan] = []
        while len(plans) < (1 if manifest else 2):
            plans += [step.plan for step in [drive.step()] if step.plan is not None]
        lost = [table.path / "manifest" / table.snapshot(3)["changelogManifestList"]]
        for path in lost if manifest else table.path.glob("bucket-0/changelog-*"):
            path.unlink()
        drive.planner._directory.manifests._cache = ManifestCache()
        drive.planner._builder.forget()
        expire_snapshots(table, 4)
        with pytest.raises(PositionExpiredError, match="Snapshot 3 has expired"):
            drive.step() if manifest else table.builder().new_read().to_arrow(plans[-1].splits())


class TestRangesFromTheBeginning:
    def position(self, table: Table) -> Position:
        position = behind(table.builder().with_range(0, 4), 1)
        assert (position.since, position.snapshot) == (0, 4)
        return position

    def test_a_position_in_another_one_is_refused_as_such(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        with pytest.raises(StreamConfigError, match="Give the range that the position was made with"):
            all_keys(table.builder().with_range(0, 5).with_start(position=self.position(table)))

    def test_what_has_expired_is_named(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        position = self.position(table)
        table.expire(3)
        with pytest.raises(PositionExpiredError, match="Snapshot 1 has expired"):
            all_keys(table.builder().with_range(2, 5).with_start(position=position))

    def test_a_position_without_a_range_says_which_it_needs(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        with pytest.raises(StreamConfigError, match=r"after snapshot 0, up to snapshot 4\. Give .* ids, tags or times"):
            all_keys(table.builder().with_start(position=self.position(table)).with_end(latest=True))


def test_a_position_between_tags_in_another_range_is_refused_as_such(tmp_path: Path) -> None:
    table = six(tmp_path)
    for name, number in (("two", 2), ("four", 4), ("six", 6)):
        table.handle().create_tag(name, number)
    inside = behind(table.builder().with_range("two", "four"), 1)
    expire_snapshots(table, 6)
    with pytest.raises(StreamConfigError, match="Give the range that the position was made with"):
        all_keys(table.builder().with_range("two", "six").with_start(position=inside))


class TestLag:
    @pytest.mark.parametrize("plans", [0, 1])
    def test_of_a_range_that_is_one_plan_all_of_it_is_left(self, tmp_path: Path, plans: int) -> None:
        """Nobody knows how many rows that is."""
        table = six(tmp_path)
        builder = table.builder().with_range(1, 4, "diff").with_limits(max_splits=1)
        with builder.new_streaming_scan() as scan:
            for _ in range(plans):
                assert scan.plan() is not None
            lag = scan.lag()
            assert (lag.snapshots, lag.rows, lag.latest) == (5, None, 6)
            assert lag.seconds is not None
            available(scan)
            lag = scan.lag()
            assert (lag.snapshots, lag.rows) == (2, 2)

    def test_of_a_position_that_was_handed_out(self, tmp_path: Path) -> None:
        """A stream of batches asks for it, as does who reports it."""
        table = six(tmp_path)
        with table.builder().with_range(1, 4, "diff").with_limits(max_splits=1).open_sync() as stream:
            next(stream)
            assert (stream.lag().snapshots, stream.lag().rows) == (5, None)

    def test_of_a_range_read_snapshot_by_snapshot(self, tmp_path: Path) -> None:
        builder = six(tmp_path).builder().with_range(1, 4)
        with builder.new_streaming_scan() as scan:
            scan.plan()
            assert (scan.lag().snapshots, scan.lag().rows) == (4, 4)


@pytest.mark.parametrize("kinds", [True, False])
def test_a_difference_is_not_gone_on_with_by_other_kinds(tmp_path: Path, kinds: bool) -> None:
    """The files of both states are in their order, or those of the later one alone."""
    table = Table(tmp_path)
    table.commit_files(range(4))
    table.commit_files(range(10, 13))
    inside = behind(table.builder().with_range(1, 2, "diff").with_include_row_kind(kinds), 1)
    goes_on = table.builder().with_range(1, 2, "diff").with_start(position=inside)
    assert len(all_keys(goes_on.copy().with_include_row_kind(kinds))) == 2
    with pytest.raises(TableChangedError, match="Resume with the settings of the position"):
        all_keys(goes_on.with_include_row_kind(not kinds))


class TestDataEvolution:
    def test_overwrites_are_read_or_refused_as_elsewhere(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        table.commit([9], overwrite=True)
        table.commit([10])
        found = {
            policy: all_keys(table.builder().with_range(4, 8).with_on_overwrite(policy)) for policy in ("skip", "read")
        }
        assert found == {"skip": [4, 5, 10], "read": [4, 5, 9, 10]}
        with pytest.raises(TableChangedError, match="overwrites data"):
            all_keys(table.builder().with_range(4, 8).with_on_overwrite("fail"))
        assert all_keys(table.builder().with_range(0, 6).with_on_overwrite("fail")) == [0, 1, 2, 3, 4, 5]

    def test_ranges_without_rows_are_empty(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        table.commit([9], overwrite=True)
        assert all_keys(table.builder().with_range(6, 7)) == []

    def test_a_range_that_limits_cut_is_planned_once(self, tmp_path: Path) -> None:
        table, file_io = six(tmp_path, **EVOLUTION), FaultFileIO()
        handle = table.handle(file_io)
        between = between_of_arguments(0, 6, "auto", False)
        drive = Drive(handle, Start(StartMode.BETWEEN), between=between, limits=Limits(max_splits=1))
        drive.directory.manifests = ManifestReader(drive.directory.store, handle.table_path, cache=ManifestCache(0))
        assert len(drive.run()) == 6
        asked = Counter(name for name in file_io.names() if name.startswith("manifest"))
        assert asked and set(asked.values()) == {1}

    def test_a_rollback_after_it_was_found(self, tmp_path: Path) -> None:
        table = six(tmp_path, **EVOLUTION)
        between = between_of_arguments(0, 6, "auto", False)
        drive = Drive.of(table, Start(StartMode.BETWEEN), between=between)
        assert drive.step().plan is None
        table.rollback(3)
        table.commit_each((13, 14, 15))
        with pytest.raises(TableChangedError, match="rolled back"):
            drive.step()
