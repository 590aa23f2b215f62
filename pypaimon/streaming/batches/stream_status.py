"""`StreamStatus`: the counters and the position of a stream of batches, as one plain value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.metrics import ScanMetrics


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Counters since the stream was opened, and current gauges. Of a group, they count what this member reads.

    Attributes:
        batches: Batches given to the caller.
        rows: Rows in them.
        bytes: Bytes of them in memory.
        rows_by_kind: Rows by kind (`+I`, `-U`, `+U`, `-D`).
        snapshot_id: Snapshot of the last batch, None before the first.
        commit_time: When that was committed (aware, UTC).
        watermark: Its watermark, epoch milliseconds.
        position: `position` of the last batch: where a stream of its table, or of its slots, continues after it.
        read_ahead_bytes: Bytes of prefetched rows; of a database with those of the last batch, which is held until the
            next one is requested.
        lag: The lag that `stream.lag()` measured last; None before. Of a database, that of all tables together, without
            the snapshots of any one table.
        scan: Counters of the scans below: plans, polls, requests. Of a group or a database, of all scans so far.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    rows_by_kind: Mapping[str, int] = field(default_factory=dict)
    snapshot_id: int | None = None
    commit_time: datetime | None = None
    watermark: int | None = None
    position: Position | None = None
    read_ahead_bytes: int = 0
    lag: Lag | None = None
    scan: ScanMetrics = field(default_factory=ScanMetrics)

    def __repr__(self) -> str:
        if not self.batches:
            return f"StreamStatus(no batch yet, {self.read_ahead_bytes} bytes read ahead)"
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.rows_by_kind.items())) or "of no kind"
        lag = "not measured" if self.lag is None else f"{self.lag.snapshots} snapshots"
        return (
            f"StreamStatus({self.rows} rows ({kinds}) in {self.batches} batches, {self.bytes} bytes, "
            f"up to snapshot {self.snapshot_id} of {self.commit_time}, lag {lag}, "
            f"{self.read_ahead_bytes} bytes read ahead)"
        )

    def with_chunk(self, chunk: BatchChunk) -> StreamStatus:
        """The status after one more batch."""
        data, plan = chunk.data, chunk.plan
        assert data is not None
        rows_by_kind = dict(self.rows_by_kind)
        for kind, count in _counted(data):
            rows_by_kind[kind] = rows_by_kind.get(kind, 0) + count
        # Not `replace`: it is slow, and this runs for each batch.
        return StreamStatus(
            batches=self.batches + 1,
            rows=self.rows + data.num_rows,
            bytes=self.bytes + data.nbytes,
            rows_by_kind=rows_by_kind,
            snapshot_id=plan.snapshot_id,
            commit_time=plan.commit_time,
            watermark=plan.watermark,
            position=chunk.position,
        )

    def with_scan(self, metrics: ScanMetrics, read_ahead_bytes: int, lag: Lag | None) -> StreamStatus:
        """The status with the current counters of the scan and the measured lag."""
        return replace(self, scan=metrics, read_ahead_bytes=read_ahead_bytes, lag=lag)


def _counted(data: pa.Table) -> Iterable[tuple[str, int]]:
    if not data.num_rows:
        return []
    if ROW_KIND not in data.schema.names:
        return [("+I", data.num_rows)]
    return [(each["values"], each["counts"]) for each in pc.value_counts(data.column(ROW_KIND)).to_pylist()]
