"""The planner on its own: histories that could lose, repeat or invent rows, or wait for ever."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CorruptTableError,
    Position,
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    TableChangedError,
)
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp, Limits, OnExpired, OnOverwrite
from pypaimon.streaming.planning.planner_state import ReadingFull
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.stream_types import PlanKind
from support.models.table import Record
from support.stores.fault_file_io import Call, FaultFileIO
from support.stores.virtual_clock import VirtualClock
from support.tables.crafted_table import CraftedTable
from support.tables.planner_drive import EARLIEST, LATEST, Drive
from support.tables.streamed_table import Table, snapshots

pytestmark = pytest.mark.slow

DAY = 86_400_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w")


def amended(table: Table, snapshot_id: int, **fields: Any) -> None:
    """Rewrite fields of a snapshot file."""
    snapshot = table.snapshot(snapshot_id) | fields
    table.snapshot_path(snapshot_id).write_text(json.dumps(snapshot))


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the local time zone of this process."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


def committed_at(table: Table, snapshot_id: int) -> int:
    millis: int = table.snapshot(snapshot_id)["timeMillis"]
    return millis


class TestStart:
    @pytest.mark.parametrize("start", [LATEST, EARLIEST, Start(StartMode.LATEST_FULL)])
    def test_the_first_commit_of_an_empty_table_comes_once(self, table: Table, start: Start) -> None:
        drive = Drive.of(table, start)
        assert [drive.step().idle for _ in range(3)] == [True] * 3
        assert drive.position is None
        table.commit([1])
        assert drive.keys() == [1]
        assert drive.keys() == []

    def test_the_snapshot_before_is_known_from_the_start(self, table: Table) -> None:
        table.commit_each(range(5))
        drive = Drive.of(table, LATEST)
        assert drive.run() == []
        assert drive.position is not None and drive.position.fingerprint is not None
        table.rollback(2)
        for key in range(10, 15):
            table.commit([key, key + 100])
        with pytest.raises(TableChangedError, match="rolled back: snapshot 5"):
            drive.run()

    @pytest.mark.parametrize("state", ["at_snapshot", "at"])
    def test_a_saved_position_beyond_the_next_snapshot_is_an_error_at_once(self, table: Table, state: str) -> None:
        table.commit([1])
        drive = Drive.of(table)
        position = Position(drive.directory.identity, 3)
        drive.state = drive.at_snapshot(3) if state == "at_snapshot" else drive.planner.at(position)
        assert drive.position == position
        with pytest.raises(PositionBeyondLatestError):
            drive.run()

    def test_a_position_beyond_the_table_is_not_an_end(self, table: Table) -> None:
        """A stream that ends at the latest snapshot has not come to its end where the table was rolled back."""
        table.commit_each(range(3))
        position = Position(Drive.of(table).directory.identity, 4)
        drive = Drive.of(table, position, end=End(latest=True))
        assert (drive.keys(), drive.state.ended) == ([], True)
        table.rollback(2)
        with pytest.raises(PositionBeyondLatestError):
            Drive.of(table, position, end=End(latest=True)).run()

    def test_a_position_of_a_recreated_table_is_not_an_end(self, table: Table) -> None:
        table.commit([1])
        position = Position(Drive.of(table).directory.identity, 2)
        table.recreate()
        with pytest.raises(TableChangedError, match="another table"):
            Drive.of(table, position, end=End(latest=True)).run()

    def test_on_an_empty_table_a_position_at_snapshot_1_waits_and_a_later_one_is_an_error(self, table: Table) -> None:
        drive = Drive.of(table)
        drive.state = drive.planner.at(Position(drive.directory.identity, 2))
        with pytest.raises(PositionBeyondLatestError, match=r"latest snapshot \(None\)"):
            drive.run()
        drive.state = drive.planner.at(Position(drive.directory.identity, 1))
        assert [drive.step().idle for _ in range(18)][1:] == [True] * 17
        table.commit([1])
        assert drive.keys() == [1]

    @pytest.mark.parametrize("mode", [StartMode.FROM_SNAPSHOT, StartMode.FROM_SNAPSHOT_FULL])
    def test_on_an_empty_table_a_start_at_any_snapshot_waits_for_the_first_commit(
        self, table: Table, mode: StartMode
    ) -> None:
        drive = Drive.of(table, Start(mode, snapshot_id=5))
        assert [drive.step().idle for _ in range(18)] == [True] * 18

    def test_a_position_of_another_table_is_refused(self, table: Table, tmp_path: Path) -> None:
        table.commit([1])
        with pytest.raises(TableChangedError, match="another table"):
            Drive.of(table, Position("another", 1)).run()

    @pytest.mark.parametrize("start", [Start(StartMode.FROM_SNAPSHOT, snapshot_id=3), LATEST])
    def test_a_stream_can_begin_after_a_damaged_snapshot(self, table: Table, start: Start) -> None:
        table.commit_each(range(3))
        table.snapshot_path(2).write_text('{"id": 2,')
        drive = Drive.of(table, start)
        drive.run()
        drive.state = drive.at_snapshot(3)
        assert drive.keys() == [2]

    def test_a_tag_whose_next_snapshot_is_gone_is_an_error_at_the_first_poll_after_its_state(
        self, table: Table
    ) -> None:
        table.commit_each(range(2))
        table.handle().create_tag("t", 1)
        table.commit_each(range(2, 5))
        for number in range(1, 4):
            table.snapshot_path(number).unlink()
        (table.path / "snapshot" / "EARLIEST").write_text("4")
        drive = Drive.of(table, Start(StartMode.FROM_TAG, tag="t", full=True))
        assert drive.step().plan is None
        assert drive.step().plan is not None
        with pytest.raises(PositionExpiredError) as raised:
            drive.step()
        assert (raised.value.wanted, raised.value.earliest) == (2, 4)


@pytest.mark.new_files
class TestFilesByCreationTime:
    """A start by file creation time chooses files for as long as the stream lives, however it goes on."""

    @pytest.fixture
    def start(self, table: Table) -> Start:
        table.commit([0])
        return Start(StartMode.FROM_FILE_CREATION_TIME, millis=committed_at(table, 1) + DAY)

    @pytest.mark.parametrize("mode", [CatchUp.AUTO, CatchUp.REPLAY])
    def test_far_behind(self, table: Table, start: Start, mode: CatchUp) -> None:
        drive = Drive.of(table, start, catch_up=mode)
        assert drive.keys() == []
        table.commit_each(range(20))
        assert drive.keys() == []

    @pytest.mark.parametrize("saved", [int, Position])
    def test_restarted(self, table: Table, start: Start, saved: type) -> None:
        first = Drive.of(table, start)
        first.run()
        table.commit([1])
        position = first.position
        assert position is not None
        again = Drive.of(table, start)
        planner = again.planner
        again.state = planner.at(position) if saved is Position else again.at_snapshot(position.snapshot)
        assert again.keys() == first.keys() == []

    @pytest.mark.parametrize("restarted", [False, True])
    def test_changes_since_a_creation_timestamp_are_whole(self, table: Table, restarted: bool) -> None:
        """Their files were made before they were committed."""
        table.commit_each(range(3))
        since = committed_at(table, 2) + DAY
        for number in (2, 3):
            amended(table, number, timeMillis=since)
        drive = Drive.of(table, Start(StartMode.FROM_CREATION_TIMESTAMP, millis=since))
        if restarted:
            drive.state = drive.at_snapshot(2)
        assert drive.keys() == [1, 2]

    @pytest.mark.parametrize("mode", [StartMode.FROM_FILE_CREATION_TIME, StartMode.FROM_CREATION_TIMESTAMP])
    def test_resumed_inside_the_first_plan(self, tmp_path: Path, mode: StartMode) -> None:
        table = Table(tmp_path / "w", bucket="4", bucket_key="k")
        table.commit(range(20))
        start = Start(mode, millis=0)
        first = Drive.of(table, start, limits=Limits(max_splits=1))
        while (plan := first.step().plan) is None:
            pass
        later = Start(mode, millis=committed_at(table, 1) + DAY)
        again = Drive.of(table, later)
        again.state = again.planner.at(plan.position)
        assert again.keys() == []

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
    def test_manifests_hold_the_local_time(self, tmp_path: Path, local_zone: Callable[[str], None], zone: str) -> None:
        local_zone(zone)
        table = Table(tmp_path / "w").commit_each([1])
        for offset, wanted in ((-60_000, [1]), (60_000, [])):
            start = Start(StartMode.FROM_FILE_CREATION_TIME, millis=committed_at(table, 1) + offset)
            assert Drive.of(table, start).keys() == wanted
        assert Drive.of(table, Start(StartMode.FROM_FILE_CREATION_TIME, millis=1 << 60)).keys() == []


class TestEnd:
    def test_a_commit_between_finding_the_end_and_the_first_plan(self, table: Table) -> None:
        table.commit([1])
        drive = Drive.of(table, end=End(latest=True))
        drive.state = replace(drive.state, end_id=1)
        table.commit([2])
        assert drive.keys() == [1, 2]
        table.commit([3])
        assert drive.run() == []
        assert drive.state.ended

    def test_a_first_plan_beyond_a_chosen_end_is_refused(self, table: Table) -> None:
        table.commit_each(range(3))
        with pytest.raises(StreamConfigError, match="beyond the end at snapshot 2"):
            Drive.of(table, end=End(snapshot_id=2)).run()
        assert Drive.of(table, EARLIEST, end=End(snapshot_id=2)).keys() == [0, 1]

    def test_an_empty_table_has_been_read_wholly(self, table: Table) -> None:
        assert Drive.of(table, end=End(latest=True)).step().state.ended
        drive = Drive.of(table, end=End(millis=1000), millis=1000)
        assert not drive.step().state.ended
        drive.millis = 1001
        assert drive.step().state.ended

    def test_the_first_later_commit_ends_it_whatever_follows(self, table: Table) -> None:
        table.commit_each(range(4))
        first = committed_at(table, 1)
        for snapshot_id, offset in ((2, 1), (3, 50), (4, 2)):
            amended(table, snapshot_id, timeMillis=first + offset)
        drive = Drive.of(table, EARLIEST, end=End(millis=first + 10))
        assert drive.keys() == [0, 1]
        assert drive.state.ended
        drive = Drive.of(table, EARLIEST, end=End(millis=first + DAY), millis=first)
        assert drive.keys() == [0, 1, 2, 3]
        assert not drive.state.ended
        drive.millis = first + DAY + 1
        assert drive.keys() == []
        assert drive.state.ended

    @pytest.mark.parametrize("bound", ["watermark", "millis"])
    def test_a_restart_after_the_last_plan_hands_out_no_more(self, table: Table, bound: str) -> None:
        table.commit_each((1, 2))
        amended(table, 1, watermark=100)
        time = committed_at(table, 1)
        settings = {"end_watermark": 50} if bound == "watermark" else {"end": End(millis=time - 1)}
        start = Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=1)
        drive = Drive.of(table, start, **settings)
        assert drive.keys() == [1]
        assert drive.state.ended
        for state in (drive.planner.at(drive.position), drive.at_snapshot(2)):  # type: ignore[arg-type]
            again = Drive.of(table, start, **settings)
            again.state = state
            assert again.keys() == []
            assert again.state.ended

    def test_an_end_that_was_rolled_back_is_not_waited_for_silently(self, table: Table) -> None:
        table.commit_each(range(6))
        drive = Drive.of(table, EARLIEST, end=End(latest=True), limits=Limits(max_splits=1))
        while drive.position is None or drive.position.snapshot != 4:
            drive.step()
        table.rollback(3)
        drive.state = replace(drive.state, ahead=())
        error = drive.polls_until_error(TableChangedError)
        assert "snapshot 6" in str(error)


class TestFollow:
    @pytest.mark.parametrize("kind", ["COMPACT", "ANALYZE"])
    def test_what_is_passed_over_moves_the_position(self, table: Table, kind: str) -> None:
        table.commit([1])
        drive = Drive.of(table)
        assert drive.keys() == [1]
        table.commit([2])
        amended(table, 2, commitKind=kind)
        table.commit([3])
        amended(table, 3, commitKind=kind)
        assert drive.run() == []
        assert drive.position is not None and drive.position.snapshot == 4

    @pytest.mark.parametrize("kind", ["APPEND", "COMPACT", "OVERWRITE", "ANALYZE"])
    def test_a_changelog_is_read_of_whatever_kind_its_snapshot_is(self, tmp_path: Path, kind: str) -> None:
        table = Table(tmp_path / "w", primary_key=True, changelog_producer="input").commit_each([1])
        drive = Drive.of(table)
        assert drive.keys() == [1]
        table.commit([2])
        amended(table, 2, commitKind=kind)
        assert drive.keys() == [2]

    def test_files_that_an_append_removes_are_not_read(self, tmp_path: Path) -> None:
        table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=0, options={"bucket": "-1"})
        key = table.columns.named("k").id
        first, second = (table.file((None, 0), [Record("+I", (None, each), each, {key: each})]) for each in (1, 2))
        table.commit("APPEND", [first])
        drive = Drive(table.handle())
        assert drive.keys() == [1]
        table.commit("APPEND", [second], [first])
        assert drive.keys() == [2]

    def test_a_failed_step_changed_nothing(self, table: Table) -> None:
        table.commit([1])
        drive = Drive.of(table)
        drive.run()
        table.commit([2])
        missing = table.path / "manifest" / table.snapshot(2)["deltaManifestList"]
        content = missing.read_bytes()
        missing.unlink()
        for _ in range(3):
            with pytest.raises(CorruptTableError, match=missing.name):
                drive.run()
        missing.write_bytes(content)
        assert drive.keys() == [2]

    def test_a_schema_that_is_missing_is_a_damaged_table(self, table: Table) -> None:
        table.commit([1])
        drive = Drive.of(table)
        drive.run()
        table.catalog.alter_table(table.name, [SchemaChange.add_column("x", AtomicType("STRING"))], False)
        table.write(pa.table({"k": [2], "v": ["b"], "x": ["c"]}), table=table.handle())
        (table.path / "schema" / "schema-1").unlink()
        with pytest.raises(CorruptTableError, match="schema-1"):
            drive.run()

    def test_what_is_rolled_back_while_it_is_held_back_never_comes_out(self, table: Table) -> None:
        table.commit([0])
        drive = Drive.of(table, delay_ms=DAY, millis=committed_at(table, 1))
        assert drive.keys() == [0]
        table.commit([1])
        assert drive.keys() == []
        table.rollback(1)
        table.commit([2])
        drive.millis += 2 * DAY
        assert drive.keys() == [2]

    def test_a_snapshot_that_was_replaced_while_a_limit_had_cut_it(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "w", primary_key=True, bucket="4").commit_each([0])
        table.commit(range(20))
        drive = Drive.of(table, Start(StartMode.FROM_SNAPSHOT, snapshot_id=2), limits=Limits(max_splits=1))
        while drive.step().plan is None:
            pass
        table.rollback(1)
        table.commit_each((3, 4))
        for ahead in (drive.state.ahead, ()):
            drive.state = replace(drive.state, ahead=ahead)
            with pytest.raises(TableChangedError, match="rolled back: snapshot 2"):
                drive.run()

    @pytest.mark.parametrize("anew", [[2], []], ids=["replaced", "gone"])
    def test_a_snapshot_that_was_rolled_back_while_it_was_read(self, table: Table, anew: list[int]) -> None:
        table.commit([0])
        file_io = FaultFileIO()
        drive = Drive(table.handle(file_io))
        drive.run()
        table.commit([1])
        manifests = table.snapshot(2)["deltaManifestList"]

        def rolled_back(call: Call) -> Any:
            if call.name == manifests and table.latest() == 2:
                (table.path / "manifest" / manifests).unlink()
                table.rollback(1)
                table.commit_each(anew)
            return call.answer()

        file_io.wherever(rolled_back)
        with pytest.raises(TableChangedError, match=r"was rolled back.* snapshot 2"):
            drive.run()
        assert drive.keys() == anew

    @pytest.mark.parametrize(
        ("policy", "wanted"), [("earliest", [2, 3]), ("latest", []), ("full", [0, 1, 2, 3])], ids=str
    )
    def test_an_expired_position_continues_as_chosen(self, table: Table, policy: str, wanted: list[int]) -> None:
        table.commit_each(range(4))
        table.expire(3)
        drive = Drive.of(table, Position(Drive.of(table).directory.identity, 1), on_expired=OnExpired(policy))
        assert drive.keys() == wanted
        table.commit([4])
        assert drive.keys() == [4]

    def test_a_first_plan_of_the_earliest_snapshot_is_not_that_of_the_latest(self, table: Table) -> None:
        table.commit([0])
        drive = Drive.of(table, on_expired=OnExpired.EARLIEST)
        drive.step()
        assert isinstance(drive.state, ReadingFull) and drive.state.snapshot.id == 1
        table.commit_each((1, 2, 3))
        table.expire(3)
        while not isinstance(drive.state, ReadingFull) or drive.state.snapshot.id != 3:
            drive.step()
        assert drive.step().plan is not None
        assert drive.planner.known_idle(drive.state) is None
        assert drive.keys() == [3]

    def test_an_expired_position_is_an_error_by_default(self, table: Table) -> None:
        table.commit_each(range(4))
        table.expire(3)
        drive = Drive.of(table, Position(Drive.of(table).directory.identity, 2))
        with pytest.raises(PositionExpiredError) as caught:
            drive.run()
        assert (caught.value.wanted, caught.value.earliest, caught.value.latest) == (2, 3, 4)

    def test_a_few_snapshots_behind_cost_no_more_than_their_replay(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "w").commit_each([0])
        names = []
        for mode in (CatchUp.AUTO, CatchUp.REPLAY):
            file_io = FaultFileIO()
            drive = Drive(table.handle(file_io), LATEST, catch_up=mode)
            drive.run()
            table.commit_each(range(7))
            file_io.forget()
            assert len(drive.run()) == 7
            names.append(Counter(name.split("-")[0] for name in file_io.names()))
        assert names[0] == names[1]

    def test_an_idle_poll_of_a_net_catch_up_is_one_request(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "w", primary_key=True).commit_each([0])
        file_io = FaultFileIO()
        drive = Drive(table.handle(file_io), LATEST, catch_up=CatchUp.NET)
        drive.run()
        file_io.forget()
        drive.run()
        assert file_io.names() == ["snapshot-2"]


class TestOverwrites:
    @pytest.fixture
    def drive_of(self, table: Table) -> Any:
        table.commit([1])
        table.commit([2], overwrite=True)
        table.commit([3])
        return lambda **settings: Drive.of(table, EARLIEST, **settings)

    def test_passed_over_with_one_warning(self, drive_of: Any, caplog: pytest.LogCaptureFixture) -> None:
        drive = drive_of()
        with caplog.at_level(logging.WARNING):
            assert drive.keys() == [1, 3]
        assert caplog.text.count("with_on_overwrite") == 1

    def test_passed_over_by_choice(self, drive_of: Any, caplog: pytest.LogCaptureFixture) -> None:
        assert drive_of(on_overwrite=OnOverwrite.SKIP).keys() == [1, 3]
        assert "with_on_overwrite" not in caplog.text

    def test_read(self, drive_of: Any) -> None:
        drive = drive_of(read_overwrite=True, on_overwrite=OnOverwrite.READ)
        plans = drive.run()
        assert drive.keys(plans) == [1, 2, 3]
        assert plans[1].kind is PlanKind.OVERWRITE

    def test_what_it_did_is_read_and_not_its_changelog(self, tmp_path: Path) -> None:
        options = {"bucket": "1", "changelog-producer": "input"}
        table = CraftedTable(tmp_path, keyed=True, partitioned=False, buckets=1, options=options)
        key = table.columns.named("k").id
        files = [table.file((None, 0), [Record("+I", (None, each), each, {key: each})]) for each in (1, 2, 3)]
        table.commit("APPEND", files[:1], changelog=files[:1])
        table.commit("OVERWRITE", files[1:2], files[:1], changelog=files[2:])
        drive = Drive(table.handle(), Start(StartMode.FROM_SNAPSHOT, snapshot_id=2), read_overwrite=True)
        assert [row[:2] for row in drive.rows(drive.run())] == [("-D", 1), ("+I", 2)]

    @pytest.mark.parametrize("policy", OnExpired)
    def test_rows_that_are_gone_cannot_be_taken_back(self, tmp_path: Path, policy: OnExpired) -> None:
        table = Table(tmp_path / "w", primary_key=True)
        table.commit([0, 1])
        table.commit([1, 2], overwrite=True)
        table.expire(2)
        drive = Drive.of(table, EARLIEST, read_overwrite=True, on_expired=policy)
        if policy in (OnExpired.FAIL, OnExpired.EARLIEST):
            for _ in range(2):
                with pytest.raises(PositionExpiredError, match=r"Snapshot 1 has expired.*Snapshot 2 over") as caught:
                    drive.run()
                # Neither the earliest snapshot nor a consumer whose next one it is would help.
                assert "with on_expired='latest' | 'full'" in str(caught.value)
                assert "'earliest'" not in str(caught.value) and "consumer" not in str(caught.value)
                assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        else:
            assert drive.keys() == ([1, 2] if policy is OnExpired.FULL else [])

    def test_refused_after_the_rows_before_it(self, drive_of: Any) -> None:
        drive = drive_of(on_overwrite=OnOverwrite.FAIL)
        assert drive.keys([drive.step().plan or drive.step().plan]) == [1]
        for _ in range(2):
            with pytest.raises(TableChangedError, match="overwrites data"):
                drive.run()


@pytest.mark.parametrize("options", [{}, {"bucket": "3", "bucket_key": "k"}, {"primary_key": True, "bucket": "3"}])
@pytest.mark.parametrize("max_splits", [1, 2])
def test_a_restart_after_any_plan_repeats_and_loses_nothing(
    tmp_path: Path, options: dict[str, Any], max_splits: int
) -> None:
    table = Table(tmp_path / "w", **options)
    for start in range(0, 24, 6):
        table.commit(range(start, start + 6))
    first = Drive.of(table, Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=2), limits=Limits(max_splits=max_splits))
    plans = first.run()
    assert snapshots(plans) == sorted(snapshots(plans))
    assert sorted(first.keys(plans)) == list(range(24))
    for number, plan in enumerate(plans, start=1):
        again = Drive.of(table, Position.from_json(plan.position.to_json()))
        assert again.rows(again.run()) == first.rows(plans[number:])


@pytest.mark.parametrize(("seconds", "first"), [(5.0, 1), (5.1, 2)])
@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_latest_snapshot_that_has_waited_too_long_is_read_again(
    table: Table, seconds: float, first: int, is_bounded: bool
) -> None:
    table.commit([1])
    clock, latest = VirtualClock(), TableDirectory.of(table.handle()).snapshots.get(1)
    builder = table.builder(clock=clock)
    if is_bounded:
        builder.with_end(latest=True)
    _, _, reader = open_chunks(resolved(builder).with_latest(latest, clock.now), 1 << 20)
    table.commit([2])
    clock.now += seconds
    try:
        chunk = reader.look()
        assert chunk is not None and chunk.plan.snapshot_id == first
        assert chunk.plan.kind is PlanKind.FULL
        if is_bounded:
            with pytest.raises(EndOfScan):
                reader.look()
    finally:
        reader.close()
