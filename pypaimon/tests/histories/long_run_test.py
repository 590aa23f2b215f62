"""Weeks of following in short: memory, threads, file handles and tasks stay as they are."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import logging
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from pypaimon.streaming import AsyncStreamingTableScan, Plan, StreamTableRead
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.store import CONCURRENCY
from pypaimon.streaming.io.workers import Worker
from pypaimon.streaming.metadata import snapshot_files
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from support.samples import SOAK
from support.stores.fault_file_io import Call, FaultFileIO
from support.stores.virtual_clock import VirtualClock
from support.tables.streamed_table import Table, available
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class RepeatedCommits:
    """Commits the latest snapshot of a table again and again, with a new manifest list and manifest each time.

    All commits add the same file.

    Args:
        keep: The number of snapshots that expiry leaves.
    """

    def __init__(self, table: Table, keep: int) -> None:
        self._table = table
        self._keep = keep
        self._latest = self._earliest = table.latest()
        self._snapshot = table.snapshot(self._latest)
        self._manifests = table.path / "manifest"
        with (self._manifests / self._snapshot["deltaManifestList"]).open("rb") as file:
            reader = fastavro.reader(file)
            self._schema: Any = reader.writer_schema
            (self._listed,) = reader
        self._manifest = (self._manifests / self._listed["_FILE_NAME"]).read_bytes()
        self._files: dict[int, list[Path]] = {}

    def add(self, count: int) -> None:
        """Make `count` commits, then expire old ones."""
        for _ in range(count):
            self._commit_next()
        snapshots = self._table.path / "snapshot"
        (snapshots / "LATEST").write_text(str(self._latest))
        while self._latest - self._earliest >= self._keep:
            for path in (self._table.snapshot_path(self._earliest), *self._files.pop(self._earliest, ())):
                path.unlink()
            self._earliest += 1
        (snapshots / "EARLIEST").write_text(str(self._earliest))

    def _commit_next(self) -> None:
        self._latest += 1
        listing = self._manifests / f"manifest-list-{uuid.uuid4()}-1"
        manifest = self._manifests / f"manifest-{uuid.uuid4()}-0"
        self._files[self._latest] = [manifest, listing]
        manifest.write_bytes(self._manifest)
        out = io.BytesIO()
        fastavro.writer(out, self._schema, [{**self._listed, "_FILE_NAME": manifest.name}])
        listing.write_bytes(out.getvalue())
        self._snapshot["totalRecordCount"] += 1
        self._snapshot["timeMillis"] += 1
        self._snapshot.pop("uuid", None)
        changes = {
            "id": self._latest,
            "commitIdentifier": self._latest,
            "deltaManifestList": listing.name,
            "deltaManifestListSize": len(out.getvalue()),
        }
        temporary = self._table.path / "snapshot" / ".next"
        temporary.write_text(json.dumps(self._snapshot | changes))
        temporary.rename(self._table.snapshot_path(self._latest))


SNAPSHOTS, POLLS = (10_000, 100_000) if SOAK else (384, 1_920)
EPOCHS = 16
ROUND = 8
"""Snapshots between two times that the stream has caught up."""
NOISE = 150
"""Blocks by which the same state differs from one time to the next."""
BLOCKS_OF_A_THREAD = 64
"""What an idle thread of a pool holds, about."""
THREADS = 3 + CONCURRENCY
"""One for the steps, two for the scan, and at most as many as requests may be in flight."""


@dataclass(frozen=True)
class Size:
    """What this process holds.

    Attributes:
        blocks: Pieces of memory that Python's objects take.
        resident: Bytes of the process, Arrow's included.
        tasks: Most tasks of an event loop that were left.
    """

    snapshots: int
    blocks: int
    resident: int
    threads: int
    files: int
    tasks: int


class Follower:
    """A stream that is driven in every way in turn, and counts what comes."""

    def __init__(self, scan: AsyncStreamingTableScan, read: StreamTableRead, file_io: FaultFileIO) -> None:
        self.scan = scan
        self.found: int | None = None
        self.tasks = 0
        self._read = read
        self._file_io = file_io

    def forget_requests(self) -> None:
        """The list of what was asked is not the stream's."""
        self._file_io.forget()

    def take(self, number: int, count: int) -> None:
        """Hand out so many plans, in the way of this round."""
        (self._by_steps, self._by_loop, self._by_async_loop, self._through_errors)[number % 4](count)
        if number % 16 == 1:
            assert self.scan.lag().snapshots == 0
        if number % 16 == 2:
            self.scan.restore(self.scan.checkpoint())

    def _by_steps(self, count: int) -> None:
        self._got(available(self.scan), count)

    def _by_loop(self, count: int) -> None:
        with self.scan.stream_sync() as stream:
            self._got([next(stream) for _ in range(count)], count)

    def _by_async_loop(self, count: int) -> None:
        async def take() -> list[Plan]:
            plans: list[Plan] = []
            async with self.scan.stream() as stream:
                while len(plans) < count:
                    waiting = asyncio.ensure_future(stream.__anext__())
                    await asyncio.sleep(0)
                    if len(plans) % 2:
                        waiting.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        plans.append(await waiting)
                await self._read.to_arrow_async(plans[-1].splits())
                await self.scan.lag_async()
            self.tasks = max(self.tasks, len(asyncio.all_tasks()) - 1)
            return plans

        self._got(asyncio.run(take()), count)

    def _through_errors(self, count: int) -> None:
        self._file_io.wherever(_reset)
        with pytest.raises(StoreError):
            while True:
                self._got(available(self.scan), None)
        self._file_io.wherever(None)
        self._got(available(self.scan), None)

    def _got(self, plans: list[Plan], count: int | None) -> None:
        assert count is None or len(plans) == count
        for plan in plans:
            assert self.found is None or plan.snapshot_id == self.found + 1
            self.found = plan.snapshot_id


def _reset(_: Call) -> None:
    # An error of its own each time: one that is raised again keeps where it was raised before.
    raise ConnectionResetError(104, "connection reset by peer")


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the short form what is cached is bounded tightly, so that the bounds are reached."""
    if not SOAK:
        monkeypatch.setattr(snapshot_files, "_CACHED_SNAPSHOTS", 64)
        monkeypatch.setattr(ManifestCache.__init__, "__defaults__", (1 << 20,))


@pytest.fixture
def no_log() -> Iterator[None]:
    """pytest holds every line that is logged, whatever the level of a logger above it: that is no growth of ours."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def no_idle_threads() -> None:
    """Those of other tests would end during this one, and take their memory with them."""
    until(lambda: not any(isinstance(thread, Worker) for thread in threading.enumerate()))


def test_weeks_of_following_leave_everything_as_it_is(
    tmp_path: Path, small_caches: None, no_log: None, no_idle_threads: None
) -> None:
    table = Table(tmp_path / "w").commit_each([0])
    commits = RepeatedCommits(table, keep=3 * ROUND)
    file_io = FaultFileIO()
    builder = table.builder(file_io, VirtualClock()).with_start("latest").with_catch_up("replay").with_consumer_id("c")
    follower = Follower(builder.new_streaming_scan(), builder.new_read(), file_io)
    scan = follower.scan
    assert scan.plan() is None
    rounds = SNAPSHOTS // ROUND
    sizes = []
    before = threading.active_count()
    for number in range(rounds):
        commits.add(ROUND)
        follower.take(number, ROUND)
        for _ in range(POLLS // rounds):
            assert scan.plan() is None
        follower.forget_requests()
        if (number + 1) % (rounds // EPOCHS) == 0:
            sizes.append(size_of(follower))
    print(*sizes, sep="\n")
    assert grown_by_polls(follower) < NOISE
    assert scan.metrics.plans == SNAPSHOTS and scan.metrics.idle_polls >= POLLS
    # The first half fills the caches.
    settled, last = sizes[EPOCHS // 2], sizes[-1]
    # The least of several, without what the threads take that happen to be there. In the short form some caches still
    # fill, about a block per snapshot; whatever is kept of a snapshot is more. Python 3.12's pathlib keeps each file
    # name for good: two or three blocks per snapshot, in the table's writer too.
    quarter = EPOCHS // 4
    third, fourth = (
        min(size.blocks - BLOCKS_OF_A_THREAD * size.threads for size in some)
        for some in (sizes[-2 * quarter : -quarter], sizes[-quarter:])
    )
    per_snapshot = 4 if sys.version_info[:2] == (3, 12) else 0.05 if SOAK else 2
    assert fourth - third < NOISE + per_snapshot * SNAPSHOTS // 4
    assert last.resident - settled.resident < (16 << 20)
    assert max(size.threads for size in sizes) <= before + THREADS
    assert max(size.files for size in sizes) <= sizes[0].files + 2
    assert max(size.tasks for size in sizes) == 0
    scan.close()


def grown_by_polls(follower: Follower) -> int:
    """Blocks that are left of polls that found nothing."""
    blocks = []
    for _ in range(2):
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        for _ in range(POLLS // 4):
            assert follower.scan.plan() is None
        follower.forget_requests()
    gc.collect()
    return sys.getallocatedblocks() - blocks[1]


def size_of(follower: Follower) -> Size:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(os.listdir("/proc/self/fd"))
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    return Size(
        follower.scan.metrics.plans, sys.getallocatedblocks(), resident, threading.active_count(), files, follower.tasks
    )
