"""A training loop that keeps rows and the loader's state in SQLite, in a process that is killed at a step."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pypaimon import CatalogFactory

from support.crash.steps import Steps

WORKERS = 4
_FORK = multiprocessing.get_context("fork")


def start(warehouse: Path, database: Path, loop: int = 0, worker: int = 0) -> BaseProcess:
    """Read what is there of `db.t`, and end.

    Args:
        loop: At which step of the loop all are killed; 0: at none.
        worker: At which file that a worker opens all are killed; 0: at none.
    """
    process = _FORK.Process(target=_train, args=(warehouse, database, loop, worker))
    process.start()
    return process


def rows_in(database: Path) -> list[int]:
    """The keys that were kept, each as often as it came."""
    with sqlite3.connect(database) as connection:
        return [key for (key,) in connection.execute("SELECT k FROM rows ORDER BY k")]


def _train(warehouse: Path, database: Path, loop: int, worker: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from pypaimon.streaming import stream_read_builder
    from pypaimon.streaming.feeds import TorchFeed

    os.setpgid(0, 0)
    steps = Steps(loop, _kill_all)
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS rows (k INTEGER)")
    connection.execute("CREATE TABLE IF NOT EXISTS state (value TEXT)")
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.t")
    feed = TorchFeed(stream_read_builder(table).with_end(latest=True), batch_rows=7)
    loader: Any = StatefulDataLoader(
        feed, batch_size=None, num_workers=WORKERS, multiprocessing_context="fork", worker_init_fn=_dying(worker)
    )
    for (state,) in connection.execute("SELECT value FROM state"):
        loader.load_state_dict(json.loads(state))
    for batch in loader:
        steps()
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO rows VALUES (?)", [(key,) for key in batch["k"].tolist()])
        connection.execute("DELETE FROM state")
        connection.execute("INSERT INTO state VALUES (?)", [json.dumps(loader.state_dict())])
        steps()
        connection.execute("COMMIT")


def _kill_all() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _dying(number: int) -> Callable[[int], None]:
    """Has a worker kill all at one of the files that it opens."""

    def begin(worker: int) -> None:
        steps = Steps(number if worker == number % WORKERS else 0, _kill_all)

        def on_event(event: str, _: tuple[Any, ...]) -> None:
            if event == "open":
                steps()

        sys.addaudithook(on_event)

    return begin
