"""Files of a plan that expire while `open()` reads it: the stream goes on where `with_on_expired` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import BlockingBatchStream, CorruptTableError, PositionExpiredError
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp
from pypaimon.streaming.stream_types import PlanKind
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.planner_drive import Drive
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

KEYS = [1, 2, 3]
NEXT = 6


class Expiring(FaultFileIO):
    """The state of three commits is overwritten, and expires, when the n-th of its data files is asked for."""

    def __init__(self, table: Table, number: int) -> None:
        super().__init__()
        self._table = table
        self._number = number
        self._reads = 0
        self.wherever(self._expire)

    def _expire(self, call: Call) -> object:
        if call.path.endswith(".parquet"):
            self._reads += 1
            if self._reads == self._number:
                old = list(self._table.path.rglob("*.parquet"))
                self._table.commit([10, 11], overwrite=True)
                self._table.commit([12])
                self._table.expire(self._table.latest() - 1)
                for path in old:
                    path.unlink()
        return call.answer()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(KEYS)


@pytest.mark.parametrize("policy", ["full", "earliest"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_full_state_takes_the_place_of_one_that_expired_while_it_was_read(
    table: Table, number: int, policy: str
) -> None:
    builder = table.builder(Expiring(table, number)).with_on_expired(policy).with_end(snapshot_id=5)
    held: list[int] = []
    given = []
    with builder.open_sync(batch_bytes=1) as stream:
        for batch in stream:
            held = batch.data["k"].to_pylist() + ([] if batch.begins_state else held)
            given.append(batch.begins_state)
    assert sorted(held) == [10, 11, 12]
    assert given.count(True) == (1 if number == 1 else 2)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_changes_continue_at_the_earliest_or_latest_snapshot(table: Table, number: int) -> None:
    for policy, wanted in (("earliest", [12]), ("latest", [])):
        other = table.copy(table.path.parents[2] / policy)
        builder = other.builder(Expiring(other, number)).with_start("earliest").with_catch_up("replay")
        builder.with_on_expired(policy).with_end(snapshot_id=5)
        with builder.open_sync(read_ahead_bytes=0) as stream:
            found = [key for batch in stream for key in batch.data["k"].to_pylist()]
        assert found == [*KEYS[: number - 1], *wanted]


class CommittingLater(Expiring):
    """And one more commit comes once the stream has gone on behind the latest snapshot."""

    stream: BlockingBatchStream | None = None

    def _expire(self, call: Call) -> object:
        position = self.stream and self.stream.scan.checkpoint()
        is_poll = position and position.snapshot == NEXT and call.path.endswith(f"snapshot-{NEXT}")
        if is_poll and self._table.latest() < NEXT:
            self._table.commit([20])
        return super()._expire(call)


@pytest.mark.parametrize("number", [1, 2])
def test_changes_in_the_place_of_a_full_state_do_not_begin_one(table: Table, number: int) -> None:
    files = CommittingLater(table, number)
    builder = table.builder(files).with_on_expired("latest").with_poll_interval_ms(1).with_end(snapshot_id=NEXT)
    with builder.open_sync(batch_bytes=1) as stream:
        files.stream = stream
        found = [(batch.begins_state, batch.data["k"].to_pylist()) for batch in stream]
    assert found == ([(False, [20])] if number == 1 else [(True, [1]), (False, [20])])


def test_progress_continues_after_a_plan_that_expired(table: Table) -> None:
    files = CommittingLater(table, 2)
    builder = table.builder(files).with_start("earliest").with_catch_up("replay").with_on_expired("latest")
    builder.with_consumer_id("etl", commit="manual").with_poll_interval_ms(1).with_end(snapshot_id=NEXT)
    with builder.open_sync() as stream:
        files.stream = stream
        first, last = stream
        first.commit()
        assert (first.snapshot_id, last.snapshot_id) == (1, NEXT)
    # What was not confirmed comes again.
    with builder.copy().open_sync() as again:
        assert [key for batch in again for key in batch.data["k"].to_pylist()] == [20]


def test_by_default_it_is_an_error_and_stays_one(table: Table) -> None:
    with table.builder(Expiring(table, 2)).open_sync(batch_bytes=1) as stream:
        assert next(stream).data["k"].to_pylist() == [1]
        for _ in range(2):
            with pytest.raises(PositionExpiredError):
                next(stream)


@pytest.mark.parametrize("kind", [PlanKind.OVERWRITE, PlanKind.NET], ids=str)
def test_the_earliest_snapshot_is_gone_on_at_unless_it_is_what_could_not_be_read(
    tmp_path: Path, kind: PlanKind
) -> None:
    """What is to be retracted is gone, the snapshot of the plan is the earliest that is left."""
    table = Table(tmp_path / "w", primary_key=True, bucket="1")
    table.commit([1, 2])
    first = list(table.path.rglob("*.parquet"))
    table.commit([2, 3], overwrite=True)
    if kind is PlanKind.NET:
        table.snapshot_path(2).write_text(json.dumps(table.snapshot(2) | {"commitKind": "COMPACT"}))
        table.commit([4])
    files = FaultFileIO()

    def expire(call: Call) -> object:
        if call.path.endswith(".parquet") and first:
            table.expire(table.latest())
            while first:
                first.pop().unlink()
        return call.answer()

    files.wherever(expire)
    builder = table.builder(files).with_start(snapshot_id=2).with_end(snapshot_id=table.latest()).with_catch_up("net")
    builder.with_on_overwrite("read").with_on_expired("earliest")
    with builder.open_sync(read_ahead_bytes=0) as stream:
        if kind is PlanKind.OVERWRITE:
            with pytest.raises(PositionExpiredError, match=r"with on_expired='latest' \| 'full'"):
                next(stream)
        else:
            assert [batch.data["k"].to_pylist() for batch in stream] == [[4]]


@pytest.mark.parametrize("kind", [PlanKind.OVERWRITE, PlanKind.NET], ids=str)
def test_what_is_to_be_retracted_expires_with_the_snapshot_before(tmp_path: Path, kind: PlanKind) -> None:
    """The snapshot of the plan still stands."""
    table = Table(tmp_path / "w", primary_key=True, bucket="1")
    table.commit([1, 2])
    table.commit([2, 3], overwrite=True)
    if kind is PlanKind.NET:
        # A compaction takes files away too.
        table.snapshot_path(2).write_text(json.dumps(table.snapshot(2) | {"commitKind": "COMPACT"}))
    table.commit([4])
    start = Start(StartMode.FROM_SNAPSHOT, snapshot_id=2)
    drive = Drive.of(table, start, catch_up=CatchUp.NET, read_overwrite=True)
    plan = drive.run()[0]
    assert plan.kind is kind
    (lost,) = plan.splits()[0].before_files
    Path(lost.file_path).unlink()
    with pytest.raises(CorruptTableError, match=f"{lost.file_name}.*snapshot 1 needs it"):
        drive.rows([plan])
    table.expire(2)
    with pytest.raises(PositionExpiredError, match="Snapshot 1 has expired"):
        drive.rows([plan])


@pytest.mark.parametrize("tagged", [1, 2, None], ids=["a tag of an earlier one", "a tag of it", "no tag"])
def test_an_overwrite_needs_the_files_of_the_snapshot_before_and_not_the_snapshot(
    tmp_path: Path, tagged: int | None
) -> None:
    """As in Java, which looks at the snapshot before for deletion vectors alone."""
    table = Table(tmp_path, primary_key=True, bucket="1").commit_each([1])
    table.commit([("-D", 9, "nobody")])
    if tagged is not None:
        table.handle().create_tag("kept", tagged)
    table.commit([2], overwrite=True)
    table.expire(3)
    builder = table.builder().with_start(snapshot_id=3).with_on_overwrite("read").with_end(latest=True)
    found = []
    if tagged is None:
        with builder.open_sync() as stream, pytest.raises(PositionExpiredError, match="Snapshot 3 overwrites rows"):
            next(stream)
        return
    with builder.open_sync() as stream:
        found = [row for batch in stream for row in batch.data.select(["_row_kind", "k"]).to_pylist()]
    assert found == [{"_row_kind": "-D", "k": 1}, {"_row_kind": "+I", "k": 2}]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_an_overwrite_that_removes_no_file_needs_the_snapshot_before_for_deletion_vectors_alone(
    tmp_path: Path, vectors: str
) -> None:
    table = Table(tmp_path, primary_key=True, bucket="1", **{"deletion-vectors.enabled": vectors})
    table.commit_each([1, 2])
    table.snapshot_path(2).write_text(json.dumps(table.snapshot(2) | {"commitKind": "OVERWRITE"}))
    table.expire(2)
    builder = table.builder().with_start(snapshot_id=2).with_on_overwrite("read").with_end(latest=True)
    with builder.open_sync() as stream:
        if vectors == "true":
            with pytest.raises(PositionExpiredError, match="Snapshot 2 overwrites rows"):
                next(stream)
            return
        found = [row for batch in stream for row in batch.data.select(["_row_kind", "k"]).to_pylist()]
    assert [(row["_row_kind"], row["k"]) for row in found] == [("-D", 1), ("+I", 1), ("+I", 2)]


def test_what_no_tag_keeps_of_an_overwritten_state_is_an_error_of_its_reader(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True, bucket="1").commit_each([1])
    table.handle().create_tag("another", 1)
    table.commit([3])
    gone = set(table.data_files())
    table.commit([2], overwrite=True)
    table.expire(3)
    for path in gone:
        path.unlink()
    builder = table.builder().with_start(snapshot_id=3).with_on_overwrite("read").with_end(latest=True)
    with builder.open_sync() as stream, pytest.raises(PositionExpiredError, match="Snapshot 2 has expired"):
        next(stream)


@pytest.mark.parametrize("keep_from", [1, 3], ids=["its snapshot is there", "its snapshot has expired"])
def test_a_schema_that_is_missing_is_damage_whatever_files_may_be_lost(tmp_path: Path, keep_from: int) -> None:
    table = Table(tmp_path, **{"scan.ignore-lost-files": "true", "scan.ignore-corrupt-files": "true"}).commit_each([1])
    table.catalog.alter_table(table.name, [SchemaChange.add_column("later", AtomicType("INT"))], False)
    table.commit([2], table=None)
    builder = table.builder().with_start("earliest").with_end(latest=True)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        (table.path / "schema" / "schema-0").rename(table.path / "schema-0")
        if keep_from > 1:
            table.commit([3], table=table._writer)
            table.expire(keep_from)
        with pytest.raises(CorruptTableError, match="schema-0"):
            builder.new_read().to_arrow(plan.splits())
