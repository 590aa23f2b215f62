"""Which batches of a query are in a table: those that are, are not written again; no other is taken for one of them."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.ledger import CommitLedger, IdRanges, LedgerRecord, QueryReusedError
from pypaimon.streaming.commit.request import Assumption, CommitReport, CommitRequest
from pypaimon.streaming.errors import BatchOrderError, CommitFailedError, CommitUnknownError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import every, examples
from support.spark.sink_world import World, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SNAPSHOTS = 1001


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def named(
    world: World,
    batch: int,
    *,
    file_io: MortalFileIO | None = None,
    origin: str | None = None,
    assumption: Assumption | None = None,
) -> CommitReport:
    """A batch write that names its batch."""
    return commit_once(
        CommitRequest(
            PaimonTable(world.table(file_io)),
            "query",
            batch,
            write(world.table(), world.rows_of(batch), "query", False),
            assumption=assumption or Assumption(),
            ordered=False,
            origin=origin,
        )
    )


def batches(world: World) -> list[int]:
    """Batches whose rows are in the table, each as often as it is."""
    return [key for key, value in world.rows() if value == 0]


def snapshots(world: World) -> list[dict[str, Any]]:
    paths = (world.path / "snapshot").glob("snapshot-*")
    return sorted((json.loads(path.read_bytes()) for path in paths), key=lambda snapshot: int(snapshot["id"]))


def record_of(world: World) -> Path:
    return world.path / "consumer" / "sink-query"


@settings(max_examples=examples(24))
@given(st.lists(st.integers(0, 8), min_size=1, max_size=10), st.sets(st.integers(0, 9)))
def test_named_batches_are_written_once_each_in_any_order(ids: list[int], expiries: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world, done = World(Path(directory)), set[int]()
        for index, batch in enumerate(ids):
            assert named(world, batch).repeated == (batch in done)
            done.add(batch)
            assert batches(world) == sorted(done)
            if index in expiries:
                world.expire()


@pytest.mark.parametrize("step", every(3, range(1, 24, 2)))
def test_named_batches_of_two_jobs_at_the_same_time_are_both_written(world: World, step: int) -> None:
    named(world, 0)
    file_io = MortalFileIO()
    file_io.interruption = (step, lambda: named(world, 20240102) and None)
    named(world, 20240101, file_io=file_io)
    assert (file_io.interruption is None) == (step <= file_io.steps)
    assert batches(world) == [0, 20240101, *([20240102] if file_io.interruption is None else [])]
    assert all(named(world, batch).repeated for batch in batches(world))


@pytest.mark.parametrize("step", every(3, range(1, 13)))
def test_what_another_job_has_recorded_meanwhile_is_kept(world: World, step: int) -> None:
    """Its snapshots may have expired before the record is written here, or before this job publishes."""

    def meanwhile() -> None:
        for batch in (20, 21):
            named(world, batch)
        world.other()
        world.expire()

    named(world, 1)
    file_io = MortalFileIO()
    file_io.interruption = (step, meanwhile)
    with suppress(CommitFailedError):
        named(world, 2, file_io=file_io)
    assert file_io.interruption is None
    assert all(named(world, batch).repeated for batch in (1, 20, 21))
    named(world, 2)
    assert [batch for batch in batches(world) if batch >= 0] == [1, 2, 20, 21]


def test_a_batch_of_a_stream_that_is_older_than_what_is_there_is_refused(world: World) -> None:
    world.attempt(0, MortalFileIO())
    world.attempt(5, MortalFileIO())
    assert world.attempt(0, MortalFileIO()).repeated and world.attempt(5, MortalFileIO()).repeated
    with pytest.raises(BatchOrderError, match=r"Commit 3 of 'query' is not in the table, but the later commit 5"):
        world.attempt(3, MortalFileIO())
    assert batches(world) == [0, 5]


@pytest.mark.parametrize("step", every(3, range(2, 24, 3)))
def test_a_batch_of_a_stream_never_lands_after_a_later_one(world: World, step: int) -> None:
    """A driver that was replaced publishes at last; for the one that replaced it the batch had no rows."""
    world.attempt(0, MortalFileIO())
    file_io = MortalFileIO()
    file_io.interruption = (step, lambda: world.attempt(2, MortalFileIO()) and None)
    table = world.table(file_io)
    messages = write(world.table(), world.rows_of(1), "query", False)
    try:
        commit_once(CommitRequest(PaimonTable(table), "query", 1, messages))
    except BatchOrderError:
        assert batches(world) == [0, 2]
    else:
        # It was published before the other one came, or that one never came.
        assert batches(world) == ([0, 1] if file_io.interruption else [0, 1, 2])
    assert [each["commitIdentifier"] for each in snapshots(world)] == sorted(batches(world))


def test_batches_of_another_stream_under_the_same_name_are_refused(world: World) -> None:
    for batch in range(3):
        named(world, batch, origin="first")
    for batch in (0, 2, 7):
        with pytest.raises(QueryReusedError, match=rf"Commit {batch} of 'query' comes from another origin"):
            named(world, batch, origin="second")
    assert batches(world) == [0, 1, 2]
    assert named(world, 1, origin="first").repeated
    assert not named(world, 7, origin="first").repeated


def test_a_batch_that_no_stream_counted_hides_no_other_stream(world: World) -> None:
    """A job that writes an earlier day again under the name of the stream."""
    named(world, 7, origin="first")
    named(world, 3)
    with pytest.raises(QueryReusedError, match="Commit 7 of 'query' comes from another origin"):
        named(world, 7, origin="second")
    assert batches(world) == [3, 7]


@pytest.mark.parametrize("step", every(3, range(1, 14, 2)))
def test_of_two_streams_that_begin_under_one_name_at_the_same_time_one_is_refused(world: World, step: int) -> None:
    file_io, refused = MortalFileIO(), list[int]()

    def begin_another() -> None:
        try:
            named(world, 0, origin="second")
        except QueryReusedError:
            refused.append(2)

    file_io.interruption = (step, begin_another)
    try:
        named(world, 0, file_io=file_io, origin="first")
    except QueryReusedError:
        refused.append(1)
    assert (file_io.interruption is None) == (step <= file_io.steps)
    assert len(refused) == (1 if file_io.interruption is None else 0) and batches(world) == [0]


def test_a_record_of_an_older_release_knows_only_the_last_batch(world: World) -> None:
    for batch in (3, 5):
        named(world, batch)
    value = json.loads(record_of(world).read_bytes())
    old = {"version": 1, "first": value["first"] + 1, "committed": 5, "attempt": 5}
    record_of(world).write_text(json.dumps(old))
    assert named(world, 5).repeated
    for batch in (3, 4):
        with pytest.raises(CommitUnknownError, match="its record does not reach back that far"):
            named(world, batch)
    assert not named(world, 6).repeated
    assert named(world, 3, assumption=Assumption(committed=3)).repeated
    assert named(world, 3).repeated
    assert not named(world, 4, assumption=Assumption(missing=4)).repeated
    assert batches(world) == [3, 4, 5, 6]


@pytest.mark.parametrize(("overtaken", "expires"), [(False, False), (True, False), (True, True)])
def test_batches_that_a_rollback_took_back_are_not_taken_for_written(
    world: World, overtaken: bool, expires: bool
) -> None:
    for batch in range(4):
        named(world, batch)
    world.table().create_tag("early", 2)
    world.table().rollback_to(2)
    if overtaken:
        for _ in range(4):
            world.other()
    if expires:
        world.expire()
    with pytest.raises(CommitUnknownError, match="the table was rolled back to before snapshot 3"):
        named(world, 3)
    assert not named(world, 4).repeated
    assert [batch for batch in batches(world) if batch >= 0] == [0, 1, 4]


@pytest.mark.parametrize("step", every(3, range(1, 15)))
def test_what_a_job_found_before_a_rollback_is_not_recorded_after_it(world: World, step: int) -> None:
    """Another job has gone on over the new history, further than this one had looked."""

    def meanwhile() -> None:
        world.table().rollback_to(1)
        assert not named(world, 1, assumption=Assumption(missing=1)).repeated
        for _ in range(4):
            world.other()
        named(world, 7)

    for batch in range(3):
        named(world, batch)
    world.table().create_tag("early", 1)
    file_io = MortalFileIO()
    file_io.interruption = (step, meanwhile)
    with suppress(CommitFailedError, CommitUnknownError):
        named(world, 3, file_io=file_io)
    assert file_io.interruption is None
    with pytest.raises(CommitUnknownError):
        named(world, 2)
    named(world, 2, assumption=Assumption(missing=2))
    assert {0, 1, 2, 7} <= set(batches(world))


def test_a_commit_that_was_begun_before_that_of_an_earlier_batch_is_not_forgotten(world: World) -> None:
    """What became of it is not known once the snapshots are gone that would tell."""
    for steps in range(60):
        with pytest.raises(Killed):
            named(world, 5, file_io=MortalFileIO(steps))
        if (world.path / "consumer" / "consumer-query").exists():
            break
    assert batches(world) == []
    named(world, 3)
    world.other()
    world.other()
    world.expire(by_force=True)
    with pytest.raises(CommitUnknownError, match="snapshot 2, which must be examined, is gone"):
        named(world, 5)
    assert not named(world, 6).repeated


def test_a_query_that_is_new_to_a_table_looks_at_its_last_snapshots_only(world: World) -> None:
    named(world, 0)
    home = world.path / "snapshot"
    (value,) = snapshots(world)
    for number in range(2, SNAPSHOTS + 1):
        (home / f"snapshot-{number}").write_text(json.dumps({**value, "id": number, "commitUser": "somebody"}))
    (home / "LATEST").write_text(str(SNAPSHOTS))
    directory = TableDirectory.of(world.table())
    assert not CommitLedger(directory, "new").status(17).batches.ranges
    assert directory.store.requests["read"] <= 40 and directory.store.requests.get("list", 0) == 0
    asked = MortalFileIO()
    messages = write(world.table(), world.rows_of(17), "new", False)
    report = commit_once(CommitRequest(PaimonTable(world.table(asked)), "new", 17, messages))
    assert report.snapshot_id == SNAPSHOTS + 1
    assert asked.steps <= 80


def test_a_removed_record_is_made_again_from_the_last_snapshots(world: World) -> None:
    for batch in range(3):
        named(world, batch)
    record_of(world).unlink()
    assert named(world, 2).repeated and named(world, 1).repeated
    assert not named(world, 3).repeated
    assert batches(world) == [0, 1, 2, 3]


def test_a_record_of_many_ranges_stays_small_and_what_it_forgets_is_unknown(world: World) -> None:
    named(world, 10**6)
    value = json.loads(record_of(world).read_bytes())
    ranges = [[2 * number, 2 * number] for number in range(4096)]
    record_of(world).write_text(json.dumps({**value, "batches": ranges}))
    assert named(world, 0).repeated
    named(world, 2 * 10**6)
    found = CommitLedger(TableDirectory.of(world.table()), "query").read()
    assert found is not None and len(found.batches.ranges) == 4096 and found.unknown == 0
    with pytest.raises(CommitUnknownError):
        named(world, 0)
    assert named(world, 2).repeated and not named(world, 1).repeated


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 3}', '{"version": 2, "first": 1, "attempt": true, "batches": []}',
     '{"version": 2, "first": 1, "attempt": 1, "batches": [[3, 2]]}',
     '{"version": 2, "first": 1, "attempt": 1, "batches": [[1, 2], [3, 4]]}'],
)  # fmt: skip
def test_a_damaged_record_is_an_error(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a record|numbers are missing|expected ranges|ranges overlap|is True|Expecting value"
    ):
        LedgerRecord.from_json(text.encode())


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(1, 5))
def test_sets_of_batches(some: set[int], more: set[int], count: int) -> None:
    ids = IdRanges.of(some).union(more)
    assert {each for each in range(32) if each in ids} == some | more
    assert ids.greatest == max(some | more, default=None)
    assert IdRanges.from_pairs(json.loads(json.dumps(ids.pairs()))) == ids
    kept, left_out = ids.newest(count)
    assert {each for each in some | more if each in kept or (left_out is not None and each <= left_out)} == some | more
    assert len(kept.ranges) <= count
