"""For Bytewax: a source whose position is part of the dataflow's recovery."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from pypaimon.streaming.errors import EndOfScan, PaimonStreamError, StreamConfigError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.read_builder import StreamReadBuilder

with naming_extra(__name__, {"bytewax": "bytewax"}):
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition


class PaimonSource(FixedPartitionedSource[pa.Table, str]):  # type: ignore[misc, unused-ignore]
    """A table as items of Arrow tables, with `_row_kind`: its state, then each change, until the builder's end.

    An item is a whole plan, usually a snapshot; `builder.with_limits(max_bytes=...)` cuts those that do not fit in
    memory. Recovery continues after the last item of the epoch that was saved.

    Args:
        builder: What to read, without a consumer id.
        shards: Into how many partitions to divide the table, for several workers. Recovery needs the same number.
        poll_interval: Seconds until an idle partition looks again, also after a failure that may pass.
    """

    def __init__(self, builder: StreamReadBuilder, shards: int = 1, poll_interval: float = 1.0) -> None:
        self._builder = builder.copy()
        self._shards = at_least(1, "PaimonSource: shards", shards)
        self._pause = timedelta(seconds=poll_interval)

    def list_parts(self) -> list[str]:
        """The shards."""
        return [str(index) for index in range(self._shards)]

    def build_part(self, step_id: str, for_part: str, resume_state: str | None) -> _Shard:
        """A stream of one shard, at its position."""
        builder = self._builder.copy()
        if self._shards > 1:
            builder.with_shard(int(for_part), self._shards)
        # With another number a shard has other rows, of which its position says nothing.
        shards, _, position = (resume_state or f"{self._shards} ").partition(" ")
        if shards != str(self._shards):
            raise StreamConfigError(
                f"PaimonSource: the recovery store is of shards={shards}, not {self._shards}",
                advice="Give that number, or begin with a new recovery store.",
            )
        if position:
            builder.with_start(position=position)
        return _Shard(builder, self._pause, shards, position)


class _Shard(StatefulSourcePartition[pa.Table, str]):  # type: ignore[misc, unused-ignore]
    def __init__(self, builder: StreamReadBuilder, pause: timedelta, shards: str, position: str) -> None:
        self._stream = builder.open_sync()
        self._pause = pause
        self._shards = shards
        self._position = position
        self._plan: list[pa.Table] = []
        self._awake: datetime | None = None

    def next_batch(self) -> Iterable[pa.Table]:
        """The next plan, if it is there."""
        self._awake = None
        try:
            batch = self._stream.poll(timeout=0)
        except EndOfScan:
            raise StopIteration from None
        except PaimonStreamError as error:
            if not error.retriable:
                raise
            batch = None
        if batch is None:
            self._awake = datetime.now(timezone.utc) + self._pause
            return []
        self._plan.append(batch.data)
        if not batch.is_last:
            return []
        # A position inside a plan would repeat its first rows.
        self._position = batch.plan_after.to_json()
        plan, self._plan = pa.concat_tables(self._plan), []
        return [plan]

    def next_awake(self) -> datetime | None:
        """When to look again."""
        return self._awake

    def snapshot(self) -> str:
        """The number of shards, and the position after the last item."""
        return f"{self._shards} {self._position}"

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
