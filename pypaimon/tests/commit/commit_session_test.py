"""A writer that goes on commits with fewer requests, and loses no guarantee: deaths, twins, rollbacks, expiry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pypaimon import Schema

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.ledger import CommitLedger
from pypaimon.streaming.commit.request import CommitReport, CommitRequest
from pypaimon.streaming.commit.session import MOST_AHEAD, MOST_SECONDS, CommitSession
from pypaimon.streaming.errors import CommitFailedError, CommitUnknownError
from pypaimon.streaming.io.object_reads import SWITCH
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.spark.sink_world import COLUMNS, World, write
from support.stores.s3_server import S3Server, forget_clients

pytestmark = [pytest.mark.server, pytest.mark.soak]

STEP = 1 if SOAK else 4
"""Between the requests at which a session dies."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Writer:
    """A process that goes on: one handle, one session."""

    def __init__(self, world: World, user: str = "query", clock: Callable[[], float] | None = None) -> None:
        self.world, self.user = world, user
        self.file_io = MortalFileIO()
        self.table = world.table(self.file_io)
        self.session = CommitSession() if clock is None else CommitSession(clock)

    def commit(self, identifier: int, **settings: Any) -> CommitReport:
        messages = write(self.world.table(), self.world.rows_of(identifier), self.user, False)
        return commit_once(
            CommitRequest(PaimonTable(self.table), self.user, identifier, messages, **settings), self.session
        )


def identifiers(world: World) -> list[int]:
    """Those that are in the table, each as often as it is."""
    return sorted(key for key, value in world.rows() if value == 0)


def record_of(world: World) -> Any:
    return CommitLedger(TableDirectory.of(world.table()), "query").read()


def test_a_commit_of_one_small_file_costs_six_requests(server: S3Server) -> None:
    catalog = server.catalog("commits")
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS), False)
    table, session, found = catalog.get_table("db.t"), CommitSession(), list[list[tuple[str, str]]]()
    forget_clients()
    for identifier in range(7):
        messages = write(table, [(identifier, 0)], "query", False)
        with server.asked() as asked:
            commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages), session)
        found.append(asked)
    manifests = [("PUT", "manifest")] * 3
    published = [("GET", "snapshot"), ("PUT", "snapshot"), ("PUT", "snapshot")]
    assert [(method, path.split("/t/")[1].split("/")[0]) for method, path in found[6]] == [*manifests, *published]
    # The ledger is written with the commits 0, 1, 3, 7, 15 and so on, then with every 64th one.
    # The first one of a process probes the bucket, by four requests.
    assert [len(each) for each in found] == [4 + 11, 9, 6, 9, 6, 6, 6]


def test_without_the_extra_fast_the_ledger_costs_no_requests_for_its_directory(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    catalog = server.catalog("commits_by_file_io")
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS), False)
    table, session = catalog.get_table("db.t"), CommitSession()
    for identifier in range(4):  # it is written with the last one
        messages = write(table, [(identifier, 0)], "query", False)
        with server.asked() as asked:
            commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages), session)
    looks = [f"{method} {path.split('/t/')[1]}" for method, path in asked if method in ("GET", "HEAD")]
    assert [each for each in looks if "snapshot" not in each] == ["HEAD consumer/sink-query", "GET consumer/sink-query"]


def test_record_and_fence_are_written_ever_less_often(world: World) -> None:
    writer, written, before = Writer(world), list[int](), None
    for identifier in range(140):
        writer.commit(identifier)
        if (now := record_of(world)) != before:
            written.append(identifier)
        before = now
    assert written == [0, 1, 3, 7, 15, 31, 63, 127]
    assert identifiers(world) == list(range(140))


def test_record_and_fence_are_written_again_after_a_while(world: World) -> None:
    now = 0.0
    writer = Writer(world, clock=lambda: now)
    for identifier in range(5):
        writer.commit(identifier)
    before = record_of(world)
    now = MOST_SECONDS - 1
    writer.commit(5)
    assert record_of(world) == before
    now = MOST_SECONDS
    writer.commit(6)
    assert record_of(world).first == 7


def test_the_fence_follows_where_others_commit_much(world: World) -> None:
    writer = Writer(world)
    for identifier in range(5):
        writer.commit(identifier)
    for _ in range(MOST_AHEAD):
        world.other()
    writer.commit(5)
    writer.commit(6)
    assert record_of(world).first == 5 + MOST_AHEAD + 2


@pytest.mark.parametrize("identifier", [1, 2, 3])
def test_a_death_at_every_request_of_a_session_and_then_a_restart(tmp_path: Path, identifier: int) -> None:
    for death in range(sample_seed() % STEP, 40, STEP):
        world = World(tmp_path / str(death))
        writer = Writer(world)
        for each in range(identifier):
            writer.commit(each)
        writer.file_io.steps_left = death
        try:
            writer.commit(identifier)
        except Killed:
            done = identifier in identifiers(world)
            world.other()
            world.expire()
            assert world.attempt(identifier, MortalFileIO()).repeated == done
            assert identifiers(world)[1:] == list(range(identifier + 1))
        else:
            break
    assert 5 <= death < 40 - STEP


def test_after_a_death_nothing_is_committed_twice_though_snapshots_were_deleted_by_force(world: World) -> None:
    writer = Writer(world)
    for identifier in range(10):
        writer.commit(identifier)
    for _ in range(2):
        world.other()
    world.expire(by_force=True)
    assert world.attempt(6, MortalFileIO()).repeated
    for identifier in (7, 9):
        with pytest.raises(CommitUnknownError):
            world.attempt(identifier, MortalFileIO())
    # It was reserved, and never begun: that nobody knows, so it is asked for.
    with pytest.raises(CommitUnknownError):
        world.attempt(10, MortalFileIO())
    assert not world.attempt(15, MortalFileIO()).repeated


@pytest.mark.parametrize("step", range(1, 6))
def test_a_twin_of_the_writer_takes_over(world: World, step: int) -> None:
    writer = Writer(world)
    for identifier in range(5):
        writer.commit(identifier)
    writer.file_io.interruption = (writer.file_io.steps + step, lambda: world.attempt(5, MortalFileIO()) and None)
    # The fifth request is the hint, behind the snapshot.
    assert writer.commit(5).repeated == (step < 5)
    assert writer.file_io.interruption is None
    assert identifiers(world) == list(range(6))
    for identifier in range(6, 9):
        assert not writer.commit(identifier).repeated
    assert identifiers(world) == list(range(9))
    assert writer.commit(7).repeated


def test_other_commits_in_between_cost_a_look_and_no_failed_attempt(world: World) -> None:
    writer, left = Writer(world), list[int]()
    for identifier in range(6):
        writer.commit(identifier)
        world.other()
        names = {path.name for path in (world.path / "manifest").glob("manifest-*")}
        left.append(len(names))
    # A data manifest and two lists for each snapshot: none is left of a failed attempt.
    assert left[-1] == 3 * world.latest()


@pytest.mark.parametrize("regrown", [0, 5])
def test_a_rollback_between_two_commits_is_seen(world: World, regrown: int) -> None:
    writer = Writer(world)
    for identifier in range(5):
        writer.commit(identifier)
    world.table().create_tag("early", 2)
    world.table().rollback_to(2)
    for _ in range(regrown):
        world.other()
    with suppress(CommitFailedError):
        writer.commit(5)
    with pytest.raises(CommitUnknownError, match="the table was rolled back"):
        writer.commit(4)
    assert [each for each in identifiers(world) if 0 <= each < 5] == [0, 1]
    names = sorted(int(path.name.rpartition("-")[2]) for path in (world.path / "snapshot").glob("snapshot-*"))
    assert names == list(range(1, len(names) + 1))


def test_a_record_that_was_written_meanwhile_is_found(world: World) -> None:
    writer = Writer(world)
    for identifier in (0, 1, 2):
        writer.commit(identifier, ordered=False)
    for identifier in (20, 21):
        world.attempt(identifier, MortalFileIO())
        world.other()
    world.expire()
    writer.commit(3, ordered=False)
    assert all(world.attempt(each, MortalFileIO()).repeated for each in (0, 1, 2, 3, 20, 21))
