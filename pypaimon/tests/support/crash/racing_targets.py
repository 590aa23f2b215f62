"""Two processes whose targets begin to fill one table at the same time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from pypaimon import CatalogFactory

from pypaimon.streaming import PaimonStreamError, stream_read_builder
from pypaimon.streaming.targets import Target
from support.crash.killed_target import IMPORTED

_FORKS = multiprocessing.get_context("forkserver")


def race(warehouse: Path, opened: Callable[[], Target], *, is_killed: bool) -> list[str]:
    """Have two processes find an empty target, and fill it; the first is at its last batch when the other one begins.

    Args:
        warehouse: Has the table.
        opened: Opens the target; it is pickled.
        is_killed: Whether the first process is killed there, or comes to its end.

    Returns:
        How each ended that was not killed: `done`, or the name of the error.
    """
    _FORKS.set_forkserver_preload(IMPORTED)
    pairs = [_FORKS.Pipe() for _ in range(2)]
    processes = [_FORKS.Process(target=_fill, args=(there, warehouse, opened), daemon=True) for _, there in pairs]
    (first, _), (second, _) = pairs
    for process, (here, there) in zip(processes, pairs, strict=True):
        process.start()
        there.close()
        assert here.recv() == "found nothing"
    first.send("go on")
    assert first.recv() == "began"
    second.send("go on")
    if is_killed:
        processes[0].kill()
        processes[0].join()
        outcomes = []
    else:
        first.send("go on")
        outcomes = [first.recv()]
    outcome = second.recv()
    if outcome == "began":
        second.send("go on")
        outcome = second.recv()
    for process in processes:
        process.join()
    return [*outcomes, outcome]


def _fill(pipe: Connection, warehouse: Path, opened: Callable[[], Target]) -> None:
    source = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.small")
    target = opened()
    assert target.load_position() is None
    with stream_read_builder(source).with_end(latest=True).open_sync(batch_bytes=1) as stream:
        *batches, last = stream
    assert batches and batches[0].is_first and not batches[-1].is_last
    pipe.send("found nothing")
    try:
        pipe.recv()
        for batch in batches:
            target.apply(batch)
        pipe.send("began")
        pipe.recv()
        target.apply(last)
    except PaimonStreamError as error:
        pipe.send(type(error).__name__)
    else:
        pipe.send("done")
