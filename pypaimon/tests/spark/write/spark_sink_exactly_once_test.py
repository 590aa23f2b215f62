"""Each batch is in the table exactly once, whatever dies, expires or comes in between. Without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.ledger import CommitLedger
from pypaimon.streaming.commit.request import Assumption, CommitRequest
from pypaimon.streaming.errors import CommitUnknownError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, every, sample_seed
from support.spark.sink_world import OTHER, World, applied, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 500 if SOAK else 5
STEP = 1 if SOAK else 3
"""Between the requests at which a driver dies."""
KINDS: dict[str, dict[str, bool]] = {"append": {}, "upsert": {"keyed": True}, "complete": {"overwrite": True}}


@pytest.fixture(params=KINDS)
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    return World(tmp_path, **KINDS[kind])


def test_a_death_at_every_request_and_then_a_restart(kind: str, tmp_path: Path) -> None:
    for death in range(sample_seed() % STEP, 60, STEP):
        world = World(tmp_path / str(death), **KINDS[kind])
        world.run()
        try:
            world.attempt(1, MortalFileIO(death))
            break
        except Killed:
            world.check()
        world.other()
        world.expire()
        world.run()
        world.check()
    assert 10 < death < 60 - STEP


def test_a_batch_that_spark_had_not_logged_is_recognised(world: World) -> None:
    world.run()
    world.run(logged=False)
    world.other()
    assert world.attempt(1, MortalFileIO()).repeated
    world.check()


def test_files_of_a_repeated_batch_are_deleted_and_those_of_its_commit_are_not(world: World) -> None:
    world.run(logged=False)
    on_disk = world.data_files()
    world.attempt(0, MortalFileIO())
    assert world.data_files() == on_disk == world.live_files()


def test_record_and_fence_are_there_before_the_first_commit(tmp_path: Path) -> None:
    for death in range(sample_seed() % STEP, 60, STEP):
        world = World(tmp_path / str(death))
        try:
            world.attempt(0, MortalFileIO(death))
            break
        except Killed:
            consumers = {path.name for path in (world.path / "consumer").glob("*") if not path.name.startswith(".")}
            assert world.latest() == 0 or consumers == {"consumer-query", "sink-query"}
    assert world.latest() == 1


def test_expiry_keeps_what_shows_whether_the_batch_was_committed(world: World) -> None:
    world.run(logged=False)
    for _ in range(3):
        world.other()
        world.expire()
    assert world.attempt(0, MortalFileIO()).repeated
    assert (world.path / "snapshot" / "snapshot-1").exists()


def test_a_lost_commit_is_an_error_that_says_so_and_never_a_second_commit(world: World) -> None:
    world.run()
    world.run(logged=False)
    world.other()
    world.expire(by_force=True)
    before = world.rows()
    with pytest.raises(
        CommitUnknownError, match=r"Commit 1 of 'query' may be in the table or not.*snapshot 2.*Look whether its rows"
    ):
        world.attempt(1, MortalFileIO())
    assert world.rows() == before
    assert world.attempt(1, MortalFileIO(), assumption=Assumption(committed=1)).repeated
    assert world.rows() == before


def test_a_new_batch_continues_although_snapshots_were_deleted_by_force(world: World) -> None:
    world.run()
    world.run()
    world.other()
    world.expire(by_force=True)
    world.run()
    world.check()


def test_a_batch_that_is_known_to_be_missing_is_committed(world: World) -> None:
    world.run()
    steps = 0
    while (world.latest(), CommitLedger(TableDirectory.of(world.table()), "query").read().attempt) != (1, 1):  # type: ignore[union-attr]
        world.run(steps)
        steps += 1
    world.other()
    world.other()
    world.expire(by_force=True)
    with pytest.raises(CommitUnknownError):
        world.attempt(1, MortalFileIO())
    world.attempt(1, MortalFileIO(), assumption=Assumption(missing=1))
    world.check()
    assert world.done


@pytest.mark.parametrize("step", every(3, range(1, 15)))
def test_two_drivers_of_one_query_commit_a_batch_once(tmp_path: Path, step: int) -> None:
    world = World(tmp_path)
    world.run()
    world.run(meanwhile=(step, world.twin))
    world.check()
    world.run()
    world.check()


@pytest.mark.parametrize("step", every(3, range(1, 15, 2)))
def test_another_writer_in_the_middle_of_a_commit(kind: str, step: int, tmp_path: Path) -> None:
    world = World(tmp_path, **KINDS[kind])
    world.run()
    file_io = MortalFileIO()
    file_io.interruption = (step, world.other)
    world.attempt(1, file_io)
    batch, others = world.rows_of(1), [row for row in world.rows() if row[0] == OTHER]
    # An overwrite replaces what was committed before it, and leaves what came after; all others keep both.
    assert len(others) == 1 or (world.overwrite and not others)
    before = [] if world.overwrite else world.rows_of(0)
    assert [row for row in world.rows() if row[0] != OTHER] == applied(before, batch, world.keyed)


def test_two_queries_of_one_table_do_not_know_of_each_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    for batch in range(3):
        for query in ("one", "two"):
            assert not world.attempt(batch, MortalFileIO(), user=query).repeated
    for query in ("one", "two"):
        assert world.attempt(2, MortalFileIO(), user=query).repeated
    assert len(world.rows()) == 3 * 2 * 2


def test_an_empty_batch_commits_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = world.table()
    report = commit_once(CommitRequest(PaimonTable(table), "query", 0, []))
    assert report.snapshot_id is None and not report.repeated and world.latest() == 0


def test_an_empty_overwrite_empties_the_table(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    commit_once(
        CommitRequest(PaimonTable(world.table()), "query", 1, write(world.table(), [], "query", True), overwrite=True)
    )
    assert world.rows() == []


Step = Callable[[World], None]


def _steps() -> st.SearchStrategy[Step]:
    point = st.integers(0, 30)
    return st.one_of(
        st.just(lambda world: world.run()),
        point.map(lambda steps: lambda world: world.run(steps)),
        st.just(lambda world: world.run(logged=False)),
        st.just(lambda world: world.other()),
        st.just(lambda world: world.expire()),
        st.just(lambda world: world.expire(by_force=True)),
        point.map(lambda step: lambda world: world.run(meanwhile=(step, world.twin))),
        st.tuples(point, point).map(lambda at: lambda world: world.run(at[1], meanwhile=(at[0], world.twin))),
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), st.lists(_steps(), max_size=8))
def test_any_sequence_of_failures(kind: str, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), **KINDS[kind])
        for step in steps:
            step(world)
            world.check()
        world.run()
        world.check()
