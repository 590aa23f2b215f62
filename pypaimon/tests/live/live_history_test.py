"""Over random histories a live table is, at each snapshot, what a batch read of the table gives."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import BlockingLiveTable, compact
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.table_changes import TableChanges
from support.samples import SOAK
from support.tables.handles import batch_read, write_by_pypaimon
from support.tables.live_tables import check, in_order, often

pytestmark = [pytest.mark.slow, pytest.mark.soak]

BUDGET = settings(
    max_examples=300 if SOAK else 2, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
STEPS = ["commit", "commit", "commit", "alter", "empty", "compact", "overwrite", "rescale", "restart", "expire"]


class History:
    """A table, two live tables of it, in memory and on disk, and what changes the table."""

    def __init__(self, directory: str, producer: str, max_splits: int | None, drawn: int) -> None:
        self.table = SmallTable(
            directory, options={"changelog-producer": producer, "num-sorted-run.stop-trigger": "99"}
        )
        self._complete = producer == "lookup"
        self._max_splits = max_splits
        self._random = Random(drawn)
        self._changes = TableChanges(self.table, True, self._random)
        self._place = Path(directory) / "place"
        self._place.mkdir()
        self._stack = ExitStack()
        self.lives: list[BlockingLiveTable] = []

    def step(self, kind: str) -> None:
        if kind in ("overwrite", "rescale"):
            if self._complete:
                return
            if kind == "rescale":
                self.table.alter(SchemaChange.set_option("bucket", str(self._random.randint(1, 4))))
            self._overwrite()
        elif kind == "compact":
            compact(self.table.table, full=True)
        elif kind == "restart":
            self.close()
            self.open()
        elif kind == "expire":
            self.table.expire()
        elif kind == "alter":
            # Columns change with the next rows.
            self._changes.alter()
            self._changes.commit()
        else:
            getattr(self._changes, kind)()
        if self._complete:
            compact(self.table.table, full=True)
        self.look()

    def look(self) -> None:
        """Make sure that all of them are as the table."""
        snapshot = self.table.table.snapshot_manager().get_latest_snapshot()
        expected = batch_read(self.table.table)
        for live in self.lives:
            if snapshot is not None:
                live.wait_for(snapshot.id)
                assert live.snapshot_id == snapshot.id
                assert live.as_of == datetime.fromtimestamp(snapshot.time_millis / 1000, timezone.utc)
            check(live, self.table.table, expected)
        assert in_order(expected) == in_order(self._changes.rows())

    def open(self) -> None:
        builder = often(self.table.table)
        if self._max_splits is not None:
            builder = builder.with_limits(max_splits=self._max_splits)
        for limit in (1 << 30, self._random.choice([0, 3_000])):
            opened = builder.open_live_sync(memory_limit_bytes=limit, directory=self._place)
            self.lives.append(self._stack.enter_context(opened))

    def close(self) -> None:
        self._stack.close()
        self.lives.clear()

    def _overwrite(self) -> None:
        """Some rows stay as they are, others go."""
        kept = [row for row in self._changes.rows() if self._random.random() < 0.7]
        write_by_pypaimon(self.table.table, pa.Table.from_pylist(kept, schema=self.table._columns()), overwrite=True)
        self._changes._rows = kept


@BUDGET
@given(
    producer=st.sampled_from(["none", "input", "lookup"]),
    max_splits=st.sampled_from([None, 1]),
    steps=st.lists(st.sampled_from(STEPS), min_size=8, max_size=14),
    drawn=st.integers(0, 2**32),
)
def test_it_is_a_batch_read_at_each_snapshot(
    producer: str, max_splits: int | None, steps: list[str], drawn: int
) -> None:
    with TemporaryDirectory() as directory:
        history = History(directory, producer, max_splits, drawn)
        history.open()
        try:
            history.look()
            for kind in ("commit", *steps):
                history.step(kind)
        finally:
            history.close()
