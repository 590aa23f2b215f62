"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads.

Importing this package makes `new_stream_read_builder()` of every table class return `StreamReadBuilder` of this package
(and nothing else changes in pypaimon). `stream_read_builder(table)` is the same without touching the classes.
"""

from pypaimon.streaming.builder import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.clock import Clock
from pypaimon.streaming.consumer import ConsumerInfo, ConsumerManager, list_consumers
from pypaimon.streaming.errors import (
    ConsumerConflictError,
    CorruptTableError,
    EndOfScan,
    IOTimeoutError,
    PaimonStreamError,
    PositionBeyondLatestError,
    PositionExpiredError,
    SchemaChangedError,
    StoreError,
    StreamConfigError,
    TableChangedError,
    UnsupportedTableError,
)
from pypaimon.streaming.follow_up import ChangelogFollowUpScanner, DeltaFollowUpScanner, FollowUpScanner
from pypaimon.streaming.incremental_diff import IncrementalDiffScanner
from pypaimon.streaming.install import install
from pypaimon.streaming.lag import Lag
from pypaimon.streaming.metrics import ScanMetrics
from pypaimon.streaming.plan import Plan, PlanKind, SplitMode, StreamSplit
from pypaimon.streaming.position import Phase, Position, Unit
from pypaimon.streaming.read import StreamTableRead
from pypaimon.streaming.scan import AsyncStreamingTableScan
from pypaimon.streaming.snapshots import Snapshot, SnapshotManager

install()

__all__ = [
    "AsyncStreamingTableScan",
    "ChangelogFollowUpScanner",
    "Clock",
    "ConsumerConflictError",
    "ConsumerInfo",
    "ConsumerManager",
    "CorruptTableError",
    "DeltaFollowUpScanner",
    "EndOfScan",
    "FollowUpScanner",
    "IOTimeoutError",
    "IncrementalDiffScanner",
    "Lag",
    "PaimonStreamError",
    "Phase",
    "Plan",
    "PlanKind",
    "Position",
    "PositionBeyondLatestError",
    "PositionExpiredError",
    "ScanMetrics",
    "SchemaChangedError",
    "Snapshot",
    "SnapshotManager",
    "SplitMode",
    "StoreError",
    "StreamConfigError",
    "StreamReadBuilder",
    "StreamSplit",
    "StreamTableRead",
    "TableChangedError",
    "Unit",
    "UnsupportedTableError",
    "install",
    "list_consumers",
    "stream_read_builder",
]
