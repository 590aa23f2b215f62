"""The answer to publishing a batch is lost: its files stay while a snapshot may name them, and it is there once."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.commit.idempotent_commit import commit_batch, commit_once
from pypaimon.streaming.commit.request import CommitReport, CommitRequest
from pypaimon.streaming.errors import CommitFailedError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import MortalFileIO
from support.spark.sink_world import World, write
from support.stores.lossy_store import SCHEME, Answer, LossyStore, lossy_links

ANSWERS: tuple[Answer, ...] = ("error", "no")
KINDS: dict[str, dict[str, bool]] = {"append": {}, "upsert": {"keyed": True}, "complete": {"overwrite": True}}
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}


@pytest.fixture(params=KINDS)
def world(request: Any, tmp_path: Path) -> World:
    return World(tmp_path, **KINDS[request.param])


def in_store(world: World, store: LossyStore, retries: int = 2) -> Any:
    """The table as one that lies in an object store."""
    table = world.table(store).copy({**QUICK, "commit.max-retries": str(retries)})
    table.table_path = f"{SCHEME}{world.path}"
    return table


def commit(world: World, table: Any, batch: int = 0) -> CommitReport:
    messages = write(world.table(), world.rows_of(batch), "query", world.overwrite)
    return commit_once(CommitRequest(PaimonTable(table), "query", batch, messages, overwrite=world.overwrite))


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_commit_whose_answer_was_lost_is_found_and_reported_as_what_it_is(world: World, answer: Answer) -> None:
    report = commit(world, in_store(world, LossyStore(answer), retries=0))
    assert (report.snapshot_id, report.repeated) == (1, False)
    world.observe()
    assert world.latest() == 1 and world.data_files() == world.live_files()


@pytest.mark.parametrize("answer", ANSWERS)
def test_files_stay_while_nobody_can_look_and_a_restart_finds_the_batch(world: World, answer: Answer) -> None:
    with pytest.raises(CommitFailedError, match="may have been committed all the same; its files are kept"):
        commit(world, in_store(world, LossyStore(answer, blind=True)))
    assert world.rows() == world.after(0)
    report = world.attempt(0, MortalFileIO())
    assert (report.snapshot_id, report.repeated) == (1, True)
    world.check()
    assert world.data_files() == world.live_files()


@pytest.mark.parametrize("answer", ANSWERS)
def test_files_stay_where_a_snapshot_may_come_to_be_there_later(world: World, answer: Answer) -> None:
    """A PUT that was given up may take effect at any time, also over the snapshot of another writer."""
    with pytest.raises(CommitFailedError, match="may have been committed all the same"):
        commit(world, in_store(world, LossyStore(answer, effective=False)))
    assert world.data_files() and world.latest() == 0
    written = world.data_files()
    assert not world.attempt(0, MortalFileIO()).repeated
    world.check()
    assert world.data_files() - world.live_files() == written


def test_files_stay_where_another_driver_committed_the_batch_and_ours_may_still_come(world: World) -> None:
    class Raced(LossyStore):
        def rename(self, src: str, dst: str) -> bool:
            if "/snapshot/snapshot-" in dst:
                world.attempt(0, MortalFileIO())
            return super().rename(src, dst)

    assert commit(world, in_store(world, Raced("error", effective=False, left=1))).repeated
    world.check()
    assert len(world.data_files() - world.live_files()) == len(world.live_files())


def test_a_link_that_was_made_and_reported_as_a_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with lossy_links(monkeypatch):
        report = commit(world, world.table().copy({"commit.max-retries": "0"}))
    assert (report.snapshot_id, report.repeated) == (1, False)
    world.check()
    assert world.data_files() == world.live_files()


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_batch_write_is_published_once(world: World, answer: Answer) -> None:
    messages = write(world.table(), world.rows_of(0), "query", world.overwrite)
    report = commit_batch(PaimonTable(in_store(world, LossyStore(answer))), messages, overwrite=world.overwrite)
    assert report.snapshot_id == 1
    assert world.rows() == world.after(0) and world.latest() == 1


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_batch_write_whose_outcome_is_unknown_says_how_to_find_out(world: World, answer: Answer) -> None:
    messages = write(world.table(), world.rows_of(0), "query", world.overwrite)
    text = r"may have been committed all the same; its files are kept\. Look for a snapshot .* before you write again"
    with pytest.raises(CommitFailedError, match=text) as failed:
        commit_batch(
            PaimonTable(in_store(world, LossyStore(answer, effective=False))), messages, overwrite=world.overwrite
        )
    assert "restart" not in str(failed.value)
    assert world.data_files()


def test_a_batch_that_pypaimon_finds_itself_is_reported_with_its_snapshot(tmp_path: Path) -> None:
    """Nobody could look right after the answer was lost; the attempt after it sees the snapshot."""
    world = World(tmp_path)

    class Recovering(LossyStore):
        def new_output_stream(self, path: str) -> Any:
            self.blind = self.blind and "/manifest/" not in path
            return super().new_output_stream(path)

        def exists(self, path: str) -> bool:
            if "/snapshot/" in path and self._has_lost:
                self.blind = False
            return bool(super().exists(path))

    report = commit(world, in_store(world, Recovering("no", blind=True, left=1)))
    assert (report.snapshot_id, report.repeated) == (1, False)
    names = [json.loads(path.read_bytes())["commitIdentifier"] for path in (world.path / "snapshot").glob("snapshot-*")]
    assert names == [0] and world.data_files() == world.live_files()


def test_a_store_that_fails_is_not_taken_for_an_expiry(tmp_path: Path) -> None:
    """An answer was lost, and then nobody could look at the snapshot before for a moment."""

    class Failing(LossyStore):
        looks = 0

        def new_input_stream(self, path: str) -> Any:
            # pypaimon looks first, then we do.
            self.looks += self._has_lost and path.endswith("/snapshot-1")
            if self.looks == 2:
                self.looks += 1
                raise PermissionError(errno.EACCES, "nobody may look", path)
            return super().new_input_stream(path)

    world = World(tmp_path)
    world.run()
    messages = write(world.table(), world.rows_of(1), "query", False)
    store = Failing("error", effective=False, left=1)
    assert commit_batch(PaimonTable(in_store(world, store)), messages, overwrite=False).snapshot_id == 2
    assert store.looks > 2 and world.rows() == world.after(1)


def test_files_of_a_batch_that_came_too_late_are_deleted(tmp_path: Path) -> None:
    """Other jobs of the query went on, and what they published has expired before it could be looked at."""
    world = World(tmp_path)
    world.run()

    class Late(MortalFileIO):
        def new_output_stream(self, path: str) -> Any:
            if "/manifest/" in path and world.next_batch == 1:
                world.next_batch = 2
                world.attempt(2, MortalFileIO(), user="other")
                world.attempt(3, MortalFileIO(), user="other")
                world.expire(by_force=True)
            return super().new_output_stream(path)

    with pytest.raises(CommitFailedError, match=r"expired meanwhile.* It was not committed, and its files are deleted"):
        world.attempt(1, Late())
    assert world.data_files() - world.live_files() == set()
