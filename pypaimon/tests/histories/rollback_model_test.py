"""Random rollbacks, repairs and tables made anew under several readers of one old handle: each sees one history.

Each commit knows the one before it, so all histories are a tree. What a reader is given must be a way down this tree:
the whole way to a commit, then one child after the other. An error is right only where its last commit has been rolled
back, and a reader without one must come to the newest commit.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pypaimon.streaming import (
    Plan,
    PositionBeyondLatestError,
    PositionExpiredError,
    SnapshotManager,
    StreamReadBuilder,
    TableChangedError,
)
from pypaimon.streaming.spec.spec_builder import resolved, set_spec
from pypaimon.streaming.stream_types import PlanKind
from support.samples import SOAK
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

POLLS = 40
CHANGED = (TableChangedError, PositionBeyondLatestError, PositionExpiredError)
READERS = st.fixed_dictionaries(
    {
        "start": st.sampled_from(["earliest", "latest-full", "latest"]),
        "catch_up": st.sampled_from(["auto", "replay"]),
        "prefetch": st.sampled_from([0, 4]),
    }
)


class History:
    """A table, and all commits that it ever had.

    Attributes:
        line: Its commits now, by snapshot; each is its key.
    """

    def __init__(self, warehouse: Path) -> None:
        self.table = Table(warehouse)
        self.line: list[int] = []
        self.before: dict[int, int | None] = {}
        self._numbers = itertools.count(1)
        self._key_of_file: dict[str, int] = {}

    def commit(self) -> None:
        key = next(self._numbers)
        known = self._files()
        self.table.commit([key])
        (name,) = self._files() - known
        self._key_of_file[name] = key
        self.before[key] = self.line[-1] if self.line else None
        self.line.append(key)

    def _files(self) -> set[str]:
        return {path.name for path in self.table.path.glob("bucket-*/*")}

    def roll_back(self, kept: int) -> None:
        if self.line:
            kept = kept % len(self.line) + 1
            self.table.rollback(kept)
            del self.line[kept:]

    def recount(self, total: int) -> None:
        """A repair of the latest snapshot's total."""
        if self.line:
            path = self.table.snapshot_path(len(self.line))
            path.write_text(json.dumps(json.loads(path.read_text()) | {"totalRecordCount": total}))

    def make_anew(self) -> None:
        self.table.drop()
        self.table.create()
        self.table._writer = self.table.handle()
        self.line = []

    def keys(self, plan: Plan) -> list[int]:
        """Its commits, without reading its files, some of which may be gone by now."""
        return [self._key_of_file[file.file_name] for split in plan.splits() for file in split.files]

    def way_to(self, key: int | None) -> list[int]:
        way = []
        while key is not None:
            way.append(key)
            key = self.before[key]
        return way[::-1]


class Reader:
    """A stream on a handle that may be older than the table is."""

    def __init__(self, history: History, builder: StreamReadBuilder) -> None:
        self._history = history
        self.builder = builder
        self.scan = builder.new_streaming_scan()
        self.last: int | None = None

    def step(self) -> bool:
        try:
            plan = self.scan.plan()
        except CHANGED as error:
            self._check_error(error)
            self.again()
            return True
        if plan is None:
            return False
        keys = self._history.keys(plan)
        if plan.kind is PlanKind.FULL:
            assert sorted(keys) == sorted(self._history.way_to(max(keys))), keys
            self.last = max(keys)
            return True
        for key in keys:
            assert self.last in (None, self._history.before[key]), f"{key} after {self.last}"
            self.last = key
        return True

    def _check_error(self, error: Exception) -> None:
        at = self.scan.checkpoint()
        passed = 0 if at is None else at.snapshot - 1
        gone = self.last is not None and self.last not in self._history.line
        # A stream that has read nothing yet stands behind a snapshot all the same.
        table = self.builder.table
        now = SnapshotManager(table.file_io, table.table_path).try_get(passed) if passed else None
        gone = gone or (at is not None and now is not None and at.fingerprint not in (None, now.fingerprint))
        assert gone or passed > len(self._history.line) or self._is_of_another_table(), error

    def _is_of_another_table(self) -> bool:
        return resolved(self.builder).identity != resolved(self._history.table.builder()).identity

    def again(self) -> None:
        """Begin anew: at the start, with another scan of the same builder, or of another builder of the same handle."""
        self.scan.close()
        if self._is_of_another_table():
            self.builder = set_spec(StreamReadBuilder(self.builder.table), resolved(self.builder).spec)
        self.scan = self.builder.new_streaming_scan()
        self.last = None

    def catch_up(self) -> None:
        """Until nothing is new for so long that a stream must have found out what is wrong."""
        idle = 0
        while idle < POLLS:
            idle = 0 if self.step() else idle + 1
        assert self.last in (None, *self._history.line[-1:]), f"it stands behind {self.last}: {self._history.line}"


class Rollbacks(RuleBasedStateMachine):
    """A table whose history changes, and its readers."""

    @initialize(commits=st.integers(0, 10), readers=st.lists(READERS, min_size=1, max_size=3))
    def create(self, commits: int, readers: list[dict[str, object]]) -> None:
        """A table, and readers that share one handle of it."""
        self.directory = tempfile.TemporaryDirectory()
        self.history = History(Path(self.directory.name) / "w")
        handle = self.history.table.handle()
        for _ in range(commits):
            self.history.commit()
        self.readers = []
        for chosen in readers:
            builder = StreamReadBuilder(handle)
            for name, value in chosen.items():
                getattr(builder, f"with_{name}")(value)
            self.readers.append(Reader(self.history, builder))

    @rule(commits=st.sampled_from([1, 1, 2, 9]))
    def commit(self, commits: int) -> None:
        for _ in range(commits):
            self.history.commit()

    @rule(kept=st.integers(0, 30), more=st.integers(0, 3))
    def roll_back(self, kept: int, more: int) -> None:
        """A rollback that is overtaken by as many commits, of as many rows, or by some more; or not at all."""
        length = len(self.history.line)
        self.history.roll_back(kept)
        if more:
            for _ in range(length - len(self.history.line) + more - 1):
                self.history.commit()

    @rule(total=st.integers(0, 100))
    def repair(self, total: int) -> None:
        """Totals that do not fit."""
        self.history.recount(total)

    @rule(commits=st.sampled_from([0, 1, 5, 10]))
    def make_anew(self, commits: int) -> None:
        self.history.make_anew()
        for _ in range(commits):
            self.history.commit()

    @rule(number=st.integers(0, 2), steps=st.integers(1, 4))
    def step(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.readers[number % len(self.readers)].step()

    @rule(number=st.integers(0, 2))
    def catch_up(self, number: int) -> None:
        self.readers[number % len(self.readers)].catch_up()

    @rule(number=st.integers(0, 2))
    def again(self, number: int) -> None:
        self.readers[number % len(self.readers)].again()

    def teardown(self) -> None:
        """At the end every reader gets all that is there."""
        try:
            for reader in getattr(self, "readers", []):
                reader.catch_up()
        finally:
            for reader in getattr(self, "readers", []):
                reader.scan.close()
            self.directory.cleanup()


def test_every_reader_sees_one_history() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Rollbacks,
        settings=settings(
            max_examples=320 if SOAK else 5,
            stateful_step_count=9,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
