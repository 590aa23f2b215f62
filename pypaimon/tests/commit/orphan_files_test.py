"""A request of a commit fails at every place: files that no snapshot can name are deleted, all others are kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder
from pypaimon.streaming.commit.idempotent_commit import commit_batch, commit_once
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import MortalFileIO
from support.spark.sink_world import COLUMNS, World, write

pytestmark = pytest.mark.slow

DUE = {"num-sorted-run.compaction-trigger": "2", "compaction.min.file-num": "2"}
LAST = 200

Change = Callable[[World, MortalFileIO], Any]


def by_writer(world: World, file_io: MortalFileIO) -> None:
    messages = write(world.table(), [(7, 7)], "query", False)
    commit_once(CommitRequest(PaimonTable(world.table(file_io)), "query", 7, messages, is_first_attempt=True))


def by_batch(world: World, file_io: MortalFileIO) -> None:
    messages = write(world.table(), [(7, 7)], "query", False)
    commit_batch(PaimonTable(world.table(file_io)), messages, overwrite=False)


def by_overwrite(world: World, file_io: MortalFileIO) -> None:
    messages = write(world.table(), [(7, 7)], "query", True)
    commit_batch(PaimonTable(world.table(file_io)), messages, overwrite=True)


def by_stream_writer(world: World, file_io: MortalFileIO) -> None:
    with stream_write_builder(world.table(file_io)).with_commit_user("stream").open_sync() as writer:
        writer.write(pa.table({"id": [7], "v": [7]}, COLUMNS))
        writer.commit()


def by_compaction(world: World, file_io: MortalFileIO) -> None:
    compact(world.table(file_io).copy(DUE), full=True)


CHANGES = [by_writer, by_batch, by_overwrite, by_stream_writer, by_compaction]


@pytest.mark.parametrize("error", [PermissionError(13, "refused"), KeyboardInterrupt()], ids=["refused", "interrupted"])
@pytest.mark.parametrize(
    ("change", "keyed"),
    [
        *((change, change in (by_stream_writer, by_compaction)) for change in CHANGES),
        *(
            pytest.param(change, change in (by_writer, by_batch, by_overwrite), marks=pytest.mark.nightly)
            for change in CHANGES
        ),
    ],
)
def test_a_request_fails_at_every_place(tmp_path: Path, change: Change, error: BaseException, keyed: bool) -> None:
    world = World(tmp_path, keyed=keyed)
    for _ in range(3):
        world.run()
    before, latest = files(world), world.latest()

    def fail() -> None:
        raise error

    for number in count(1):
        file_io, text = MortalFileIO(), ""
        file_io.interruption = (number, fail)
        try:
            change(world, file_io)
        except (PaimonStreamError, OSError, KeyboardInterrupt) as raised:
            text = str(raised)
        if world.latest() == latest and "may have been committed" not in text:
            assert files(world) == before, (number, text)
        if world.latest() > latest:
            # The request that failed came after the commit, or there are no more requests, or a retry got through.
            assert world.live_files() <= world.data_files()
            break
    assert 3 < number < LAST


def files(world: World) -> set[str]:
    return world.data_files() | {path.name for path in (world.path / "manifest").iterdir()}
