"""Driving the planner directly: step by step, over real tables, with a clock of the test; plans of crafted tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions, options_of_table
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState, Step
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans
from pypaimon.streaming.reading.read_layout import ReadSettings
from support.models.table import Record
from support.stores.fault_file_io import SCHEME, FaultFileIO
from support.tables.crafted_table import CraftedTable, WrittenFile
from support.tables.stream_files import read_of
from support.tables.streamed_table import Row, Table, rows

LATEST, LATEST_FULL, EARLIEST = Start(StartMode.LATEST), Start(StartMode.LATEST_FULL), Start(StartMode.EARLIEST)


class Drive:
    """A stream without its shells: a planner, and the state that the steps lead to.

    Attributes:
        planner: Of a fresh handle, whose retries do not pause.
        millis: What the clock shows; late enough for every bound and delay, unless set.
    """

    def __init__(
        self, handle: Any, start: Start | Position = LATEST_FULL, millis: int = 1 << 42, **settings: Any
    ) -> None:
        if isinstance(start, Position):
            start = Start(StartMode.FROM_POSITION, position=start)
        self.millis = millis
        self.directory = TableDirectory.of(handle)
        self.directory.store._common.sleep = lambda _: None
        schema = handle.table_schema
        options = StreamOptions(start=start, **settings)
        self.planner = Planner(self.directory, schema, options, None, lambda: self.millis)
        self.state: PlannerState = self.planner.initial()
        self._read = read_of(self.directory, ReadSettings(schema=schema))

    @staticmethod
    def of(table: Table, start: Start | Position = LATEST_FULL, **settings: Any) -> Drive:
        return Drive(table.handle(), start, **settings)

    def step(self) -> Step:
        taken = self.planner.step(self.state)
        self.state = taken.state
        return taken

    def run(self) -> list[Plan]:
        """All plans until nothing new is there, or the end."""
        plans = []
        while not self.state.ended:
            taken = self.step()
            plans += [] if taken.plan is None else [taken.plan]
            if taken.idle:
                break
        return plans

    def polls_until_error(self, kind: type[Exception], most: int = 20) -> Exception:
        """The error that polling an idle stream comes to, within a bounded number of polls."""
        for _ in range(most):
            try:
                taken = self.step()
            except kind as error:
                return error
            assert taken.plan is None
        raise AssertionError(f"no {kind.__name__} within {most} polls")

    def at_snapshot(self, snapshot_id: int) -> PlannerState:
        """The state at a snapshot id, which unlike a saved position does not know the snapshot before."""
        return self.planner.at(Position(self.directory.identity, snapshot_id))

    @property
    def position(self) -> Position | None:
        return self.planner.position(self.state)

    def rows(self, plans: Sequence[Plan]) -> list[Row]:
        return [row for plan in plans for row in rows(self._read, plan)]

    def keys(self, plans: Sequence[Plan] | None = None) -> list[int]:
        """The keys of plans, of those that are there now by default."""
        return [key for _, key, _ in self.rows(self.run() if plans is None else plans)]


class CraftedPlans:
    """A crafted table, whose files have one row each, and plans of it that keep no manifest."""

    def __init__(self, table: CraftedTable) -> None:
        self.table = table
        self._sequence = 0

    def file(self, place: tuple[str, int]) -> WrittenFile:
        self._sequence += 1
        ids = {column.name: column.id for column in self.table.columns.columns}
        values = {ids["k"]: self._sequence, ids["p"]: place[0], ids["v"]: "v", ids["n"]: 1}
        return self.table.file(place, [Record("+I", (place[0], self._sequence), self._sequence, values)])

    def plans(self, file_io: FaultFileIO, **options: Any) -> SnapshotPlans:
        handle = self.table.handle()
        handle.file_io, handle.table_path = file_io, SCHEME + str(handle.table_path)
        store = Store(file_io, sleep=lambda seconds: None)
        directory = TableDirectory(handle, store, ManifestReader(store, handle.table_path, cache=ManifestCache(0)))
        return SnapshotPlans(directory, handle.table_schema, replace(options_of_table(handle.table_schema), **options))
