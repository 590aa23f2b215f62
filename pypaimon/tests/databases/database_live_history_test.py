"""Random lives of databases while one stream reads them, from a store that fails now and then: each row comes once."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from commit_seed import how_to_repeat, seeded
from databases import Database, Doors, keys
from fault_file_io import RESET, UNAVAILABLE, Call, FaultFileIO

from pypaimon.streaming import BlockingDatabaseStream

HISTORIES = 150 if os.environ.get("SOAK") else 2
NAMES = ("a", "b", "c", "d")
LONG = 120
"""Seconds after which rows count as lost."""


class Reader(threading.Thread):
    """Takes what comes, until it is told to end."""

    def __init__(self, stream: BlockingDatabaseStream) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._lock = threading.Condition()
        self.rows: Counter[int] = Counter()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for batch in self._stream:
                with self._lock:
                    self.rows.update(keys(batch))
                    self._lock.notify_all()
        except Exception as error:  # noqa: BLE001 - the test tells it
            self.error = error

    def has_all(self, wanted: set[int]) -> bool:
        """Whether these rows come."""
        with self._lock:
            return self._lock.wait_for(lambda: self.error is not None or wanted <= self.rows.keys(), LONG)


class History:
    """What is done to a database, by chance."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self._database = database
        self._chance = chance
        self._number = 0
        self.rows: dict[str, set[int]] = {}
        self.steps: list[str] = []

    def step(self) -> None:
        name, other = self._chance.sample(NAMES, 2)
        what = self._chance.choice(["write", "write", "write", "create", "create", "drop", "rename", "replace", "swap"])
        there = name in self.rows
        if what == "create" and not there:
            self._create(name)
        elif what == "write" and there:
            self._write(name)
        elif what == "drop" and there:
            self._database.drop(name)
            del self.rows[name]
        elif what == "replace" and there:
            self._database.drop(name)
            self._create(name)
        elif what in ("rename", "swap") and there and other not in self.rows:
            self._database.rename(name, other)
            self.rows[other] = self.rows.pop(name)
            if what == "swap":
                self._create(name)
        else:
            return
        self.steps.append(f"{what} {name} {other}")

    def _create(self, name: str) -> None:
        self._database.create(name)
        self.rows[name] = set()
        for _ in range(self._chance.choice([0, 1, 3])):
            self._write(name)

    def _write(self, name: str) -> None:
        added = range(self._number, self._number + self._chance.choice([1, 2, 500]))
        self._number = added.stop
        self._database.write(name, *added)
        self.rows[name].update(added)


@pytest.mark.parametrize("number", range(HISTORIES))
def test_each_row_comes_once(tmp_path: Path, number: int) -> None:
    chance = seeded(f"live history {number}")
    database = Database(tmp_path / "w")
    history = History(database, chance)
    for _ in range(chance.choice([0, 5])):
        history.step()
    files = FaultFileIO()
    rate = chance.choice([0.0, 0.02, 0.1])
    often = random.Random(chance.random())

    def now_and_then(call: Call) -> object:
        # Of data files on a local disk errors are damage.
        if often.random() < rate and not call.name.endswith(".parquet"):
            raise often.choice([RESET, UNAVAILABLE])
        return call.answer()

    files.wherever(now_and_then)
    builder = database.stream(catalog=Doors(database.catalog, files))
    if chance.random() < 0.5:
        builder.with_start("earliest")
    elif chance.random() < 0.5:
        builder.with_consumer_id("etl")
    told: list[object] = []
    settings = {"read_ahead_bytes": chance.choice([0, 1 << 20]), "batch_bytes": chance.choice([1, 1 << 20])}
    with builder.on_event(told.append).open_sync(**settings) as stream:
        reader = Reader(stream)
        reader.start()
        for _ in range(chance.choice([6, 15])):
            history.step()
            if chance.random() < 0.5:
                reader.has_all(set().union(*history.rows.values()))
        files.wherever(None)
        wanted = set().union(*history.rows.values())
        complete = reader.has_all(wanted)
        text = f"{how_to_repeat()}, history {number}: {history.steps}, {settings}, {told}, failed {stream.failed}"
        assert reader.error is None, text
        assert complete, f"lost {sorted(wanted - reader.rows.keys())[:5]}: {text}"
        twice = [key for key, count in reader.rows.items() if count > 1]
        assert not twice, f"twice {twice[:5]}: {text}"
        assert not stream.failed, text
