"""Ctrl-C at any line of a call: the same stream goes on, nothing is lost, repeated, or confirmed too early."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pypaimon.streaming import ConsumerManager, EndOfScan, StreamReadBuilder
from pypaimon.streaming.io import workers
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.workers import Worker
from support.crash.interrupted_call import LIBRARY, Interrupt
from support.samples import SOAK, is_drawn
from support.tables.streamed_table import Table
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

COMMITS = 3
ONE_IN = 1 if SOAK else 40
"""Each line is in the sample of one in so many commits."""
LONG = 600
"""Seconds after which a call counts as one that does not come back."""


class Stream:
    """One face of a stream: how to ask for the next, what it gives, how it is closed."""

    def __init__(self, face: str, builder: StreamReadBuilder) -> None:
        self.face = face
        if face == "batches":
            self._batches = builder.open_sync(batch_bytes=1, on_progress=lambda status: None)
            self.close: Callable[[], None] = self._batches.close
            return
        self._read = builder.new_read()
        self._scan = builder.with_prefetch(3 if face == "loop" else 0).new_streaming_scan()
        self._loop = self._scan.stream_sync()
        self.close = self._scan.close

    def next(self) -> Any:
        """A plan or batch; None for no answer yet. The end is `StopIteration` or `EndOfScan`."""
        if self.face == "batches":
            return next(self._batches)
        return self._scan.plan() if self.face == "plan" else next(self._loop)

    def keys(self, found: Any) -> list[int]:
        data = found.data if self.face == "batches" else self._read.to_arrow(found.splits())
        keys: list[int] = data["k"].to_pylist()
        return keys

    def confirms(self, found: Any) -> int:
        """The most that this one allows to be saved."""
        if self.face == "batches" and not found.is_last:
            return int(found.snapshot_id)
        return int(found.snapshot_id) + 1


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Snapshot n with the keys 10 n and 10 n + 1."""
    table = Table(tmp_path_factory.mktemp("interrupts") / "w")
    for number in range(1, COMMITS + 1):
        table.commit([number * 10, number * 10 + 1])
    return table


@pytest.mark.parametrize("face", ["loop", "plan", "batches"])
def test_interrupted_at_any_line_a_stream_continues(table: Table, face: str) -> None:
    wanted = [number * 10 + each for number in range(1, COMMITS + 1) for each in (0, 1)]
    lines = Interrupt()
    assert followed(table, face, lines) == (wanted, COMMITS + 1)
    assert len(lines.seen) > 100
    for line, count in lines.seen.items():
        if not is_drawn(f"{face} {line.removeprefix(LIBRARY)}", ONE_IN):
            continue
        # The second time, where there is one: what opens a stream is over by then.
        outcome: list[Any] = []
        interrupt = Interrupt(line, min(count, 2))
        thread = threading.Thread(target=follow, args=(table, face, interrupt, outcome), daemon=True)
        thread.start()
        thread.join(LONG)
        assert outcome == [(wanted, COMMITS + 1)], f"interrupted at {line}: nothing, if it hangs or fails"


def follow(table: Table, face: str, interrupt: Interrupt, outcome: list[Any]) -> None:
    outcome.append(followed(table, face, interrupt))


def followed(table: Table, face: str, interrupt: Interrupt) -> tuple[list[int], int | None]:
    """Follow a table to its end; the keys in order, and what is saved at last."""
    consumers = ConsumerManager(table.handle().file_io, str(table.path))
    consumers.delete_consumer("c")
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_end(snapshot_id=COMMITS)
    stream = Stream(face, builder.with_poll_interval_ms(1).with_consumer_id("c"))
    keys: list[int] = []
    allowed = 1
    try:
        while True:
            try:
                found = interrupt.call(stream.next)
            except KeyboardInterrupt:
                found = None
            saved = consumers.consumer("c")
            assert saved is None or saved.next_snapshot <= allowed, f"saved {saved} after {keys}"
            if found is not None:
                keys += stream.keys(found)
                allowed = max(allowed, stream.confirms(found))
    except (StopIteration, EndOfScan):
        saved = consumers.consumer("c")
        return keys, None if saved is None else saved.next_snapshot
    finally:
        stream.close()


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread of another test is spare, and those of this one stay so until it ends."""
    until(lambda: not any(isinstance(each, Worker) for each in threading.enumerate()))
    monkeypatch.setattr(workers, "SPARE_SECONDS", LONG)
    yield
    for worker in list(workers._spares):
        worker.ask_to_end()


@pytest.mark.parametrize("has_spare", [False, True])
@pytest.mark.usefixtures("no_workers")
def test_interrupted_at_any_line_a_pool_of_one_thread_continues(has_spare: bool) -> None:
    """Some lines are run only if there is a spare thread, others only if there is none: the test decides that."""
    for _ in range(2):  # the first pool of a process does more
        lines = submitted(None, has_spare)
    assert lines.seen
    for line in lines.seen:
        assert submitted(line, has_spare).has_come, f"not interrupted at {line}"


def submitted(line: str | None, has_spare: bool) -> Interrupt:
    """Submit a call to a new pool, interrupted at a line, and again."""
    if has_spare and not workers._spares:
        other = IOPool(1, LONG)
        assert other.submit(int).result(LONG) == 0
        other.close()
        until(lambda: len(workers._spares) == 1)
    assert len(workers._spares) == has_spare
    pool, interrupt = IOPool(1, LONG), Interrupt(line, 1)
    # What the garbage collector finalizes is not part of the call.
    gc.disable()
    try:
        interrupt.call(lambda: pool.submit(int))
    except KeyboardInterrupt:
        pass
    finally:
        gc.enable()
    assert pool.submit(int).result(LONG) == 0, line
    until(lambda: not pool.threads)
    assert pool.hanging == 0, line
    pool.close()
    alive = [each for each in threading.enumerate() if isinstance(each, Worker)]
    until(lambda: set(workers._spares) == set(alive))
    while len(workers._spares) > has_spare:
        workers._spares[0].ask_to_end()
    until(lambda: sum(isinstance(each, Worker) for each in threading.enumerate()) == has_spare)
    return interrupt
