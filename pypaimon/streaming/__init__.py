"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads.

Importing this package makes `new_stream_read_builder()` of every table class return `StreamReadBuilder` of this
package, and programs that import the classes of pypaimon's stream from their modules get ours (nothing else changes in
pypaimon, and its own modules keep its own classes). `stream_read_builder(table)` is the same without touching the
classes.
The rest is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.install import install

if TYPE_CHECKING:
    from pypaimon.streaming.apply_changes import DeltaTarget as DeltaTarget
    from pypaimon.streaming.apply_changes import DictTarget as DictTarget
    from pypaimon.streaming.apply_changes import DuckDBTarget as DuckDBTarget
    from pypaimon.streaming.apply_changes import IcebergTarget as IcebergTarget
    from pypaimon.streaming.apply_changes import PaimonTarget as PaimonTarget
    from pypaimon.streaming.apply_changes import ParquetTarget as ParquetTarget
    from pypaimon.streaming.apply_changes import PostgresTarget as PostgresTarget
    from pypaimon.streaming.apply_changes import SQLiteTarget as SQLiteTarget
    from pypaimon.streaming.apply_changes import Target as Target
    from pypaimon.streaming.apply_changes import apply_to_dict as apply_to_dict
    from pypaimon.streaming.apply_changes import is_to_apply as is_to_apply
    from pypaimon.streaming.apply_changes import last_changes as last_changes
    from pypaimon.streaming.apply_changes.copy_stream import copy_stream as copy_stream
    from pypaimon.streaming.apply_changes.copy_stream import copy_stream_sync as copy_stream_sync
    from pypaimon.streaming.apply_changes.replicate import replicate as replicate
    from pypaimon.streaming.apply_changes.replicate import replicate_async as replicate_async
    from pypaimon.streaming.apply_changes.replication import Replication as Replication
    from pypaimon.streaming.batches.batch import Batch as Batch
    from pypaimon.streaming.batches.batch import BlockingBatch as BlockingBatch
    from pypaimon.streaming.batches.batch_stream import BatchStream as BatchStream
    from pypaimon.streaming.batches.batch_stream import BlockingBatchStream as BlockingBatchStream
    from pypaimon.streaming.batches.run_forever import run_forever as run_forever
    from pypaimon.streaming.batches.run_forever import run_forever_async as run_forever_async
    from pypaimon.streaming.batches.stream_status import StreamStatus as StreamStatus
    from pypaimon.streaming.builder.builder import StreamReadBuilder as StreamReadBuilder
    from pypaimon.streaming.builder.builder import stream_read_builder as stream_read_builder
    from pypaimon.streaming.builder.read import StreamTableRead as StreamTableRead
    from pypaimon.streaming.builder.scan import AsyncStreamingTableScan as AsyncStreamingTableScan
    from pypaimon.streaming.compaction.background import Compactor as Compactor
    from pypaimon.streaming.compaction.background import compactor as compactor
    from pypaimon.streaming.compaction.compactor import compact as compact
    from pypaimon.streaming.compaction.reports import CompactedBucket as CompactedBucket
    from pypaimon.streaming.compaction.reports import CompactionReport as CompactionReport
    from pypaimon.streaming.compaction.reports import FileCount as FileCount
    from pypaimon.streaming.compaction.table_files import BucketFiles as BucketFiles
    from pypaimon.streaming.compaction.table_files import TableFiles as TableFiles
    from pypaimon.streaming.compaction.table_files import table_files as table_files
    from pypaimon.streaming.concurrency.clock import Clock as Clock
    from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo as ConsumerInfo
    from pypaimon.streaming.consumers.consumer_manager import ConsumerManager as ConsumerManager
    from pypaimon.streaming.consumers.consumer_manager import list_consumers as list_consumers
    from pypaimon.streaming.databases.builder import DatabaseStreamBuilder as DatabaseStreamBuilder
    from pypaimon.streaming.databases.builder import stream_database as stream_database
    from pypaimon.streaming.databases.copy import DatabaseTarget as DatabaseTarget
    from pypaimon.streaming.databases.copy import copy_database as copy_database
    from pypaimon.streaming.databases.duckdb_database import DuckDBDatabase as DuckDBDatabase
    from pypaimon.streaming.databases.events import DatabaseEvent as DatabaseEvent
    from pypaimon.streaming.databases.events import SchemaChanged as SchemaChanged
    from pypaimon.streaming.databases.events import TableAdded as TableAdded
    from pypaimon.streaming.databases.events import TableDropped as TableDropped
    from pypaimon.streaming.databases.events import TableFailed as TableFailed
    from pypaimon.streaming.databases.events import TableRecovered as TableRecovered
    from pypaimon.streaming.databases.events import TableRenamed as TableRenamed
    from pypaimon.streaming.databases.events import TableSkipped as TableSkipped
    from pypaimon.streaming.databases.lag import DatabaseLag as DatabaseLag
    from pypaimon.streaming.databases.lag import TableLag as TableLag
    from pypaimon.streaming.databases.paimon_database import PaimonDatabase as PaimonDatabase
    from pypaimon.streaming.databases.position import DatabasePosition as DatabasePosition
    from pypaimon.streaming.databases.position import TablePlace as TablePlace
    from pypaimon.streaming.databases.stream import BlockingDatabaseStream as BlockingDatabaseStream
    from pypaimon.streaming.databases.stream import BlockingTableBatch as BlockingTableBatch
    from pypaimon.streaming.databases.stream import DatabaseStream as DatabaseStream
    from pypaimon.streaming.databases.stream import TableBatch as TableBatch
    from pypaimon.streaming.errors import AssignmentLostError as AssignmentLostError
    from pypaimon.streaming.errors import ConsumerConflictError as ConsumerConflictError
    from pypaimon.streaming.errors import CorruptTableError as CorruptTableError
    from pypaimon.streaming.errors import EndOfScan as EndOfScan
    from pypaimon.streaming.errors import IOTimeoutError as IOTimeoutError
    from pypaimon.streaming.errors import NullColumnError as NullColumnError
    from pypaimon.streaming.errors import PaimonStreamError as PaimonStreamError
    from pypaimon.streaming.errors import PositionBeyondLatestError as PositionBeyondLatestError
    from pypaimon.streaming.errors import PositionExpiredError as PositionExpiredError
    from pypaimon.streaming.errors import SchemaChangedError as SchemaChangedError
    from pypaimon.streaming.errors import StoreError as StoreError
    from pypaimon.streaming.errors import StreamConfigError as StreamConfigError
    from pypaimon.streaming.errors import TableChangedError as TableChangedError
    from pypaimon.streaming.errors import TablesFailedError as TablesFailedError
    from pypaimon.streaming.errors import TargetError as TargetError
    from pypaimon.streaming.errors import UnsupportedFileError as UnsupportedFileError
    from pypaimon.streaming.errors import UnsupportedTableError as UnsupportedTableError
    from pypaimon.streaming.feeds.ray.ray_feed import RayFeed as RayFeed
    from pypaimon.streaming.feeds.ray.ray_feed import ray_dataset as ray_dataset
    from pypaimon.streaming.feeds.torch.torch_feed import TorchFeed as TorchFeed
    from pypaimon.streaming.group_streams.assignment import Assignment as Assignment
    from pypaimon.streaming.group_streams.batch import BlockingGroupBatch as BlockingGroupBatch
    from pypaimon.streaming.group_streams.batch import GroupBatch as GroupBatch
    from pypaimon.streaming.group_streams.builder import GroupStreamBuilder as GroupStreamBuilder
    from pypaimon.streaming.group_streams.stream import BlockingGroupStream as BlockingGroupStream
    from pypaimon.streaming.group_streams.stream import GroupStream as GroupStream
    from pypaimon.streaming.live_tables.live_table import BlockingLiveTable as BlockingLiveTable
    from pypaimon.streaming.live_tables.live_table import LiveTable as LiveTable
    from pypaimon.streaming.metadata.snapshots import Snapshot as Snapshot
    from pypaimon.streaming.metadata.snapshots import SnapshotManager as SnapshotManager
    from pypaimon.streaming.model.plan import Plan as Plan
    from pypaimon.streaming.model.plan import PlanKind as PlanKind
    from pypaimon.streaming.model.plan import SplitMode as SplitMode
    from pypaimon.streaming.model.plan import StreamSplit as StreamSplit
    from pypaimon.streaming.model.position import ChainBase as ChainBase
    from pypaimon.streaming.model.position import Phase as Phase
    from pypaimon.streaming.model.position import Position as Position
    from pypaimon.streaming.model.position import Unit as Unit
    from pypaimon.streaming.planning.follow_up import ChangelogFollowUpScanner as ChangelogFollowUpScanner
    from pypaimon.streaming.planning.follow_up import DeltaFollowUpScanner as DeltaFollowUpScanner
    from pypaimon.streaming.planning.follow_up import FollowUpScanner as FollowUpScanner
    from pypaimon.streaming.planning.follow_up import SnapshotFiles as SnapshotFiles
    from pypaimon.streaming.planning.follow_up import SnapshotReader as SnapshotReader
    from pypaimon.streaming.planning.incremental_diff import IncrementalDiffScanner as IncrementalDiffScanner
    from pypaimon.streaming.reading.blob import Blob as Blob
    from pypaimon.streaming.scanning.lag import Lag as Lag
    from pypaimon.streaming.scanning.metrics import ScanMetrics as ScanMetrics
    from pypaimon.streaming.telemetry import StreamMetrics as StreamMetrics
    from pypaimon.streaming.writing.builder import StreamWriteBuilder as StreamWriteBuilder
    from pypaimon.streaming.writing.builder import stream_write_builder as stream_write_builder
    from pypaimon.streaming.writing.changes.new_columns import SchemaChangeRefusedError as SchemaChangeRefusedError
    from pypaimon.streaming.writing.changes.records import BadChangeError as BadChangeError
    from pypaimon.streaming.writing.commit.commit_ledger import CommitUnknownError as CommitUnknownError
    from pypaimon.streaming.writing.commit.conflicts import CommitConflictError as CommitConflictError
    from pypaimon.streaming.writing.commit.reports import CommitFailedError as CommitFailedError
    from pypaimon.streaming.writing.commit.reports import CommitReport as CommitReport
    from pypaimon.streaming.writing.commit.strict_mode import StrictModeError as StrictModeError
    from pypaimon.streaming.writing.row_layout import BadRowError as BadRowError
    from pypaimon.streaming.writing.row_layout import SchemaMismatchError as SchemaMismatchError
    from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter as BlockingStreamWriter
    from pypaimon.streaming.writing.stream_writer import StreamWriter as StreamWriter
    from pypaimon.streaming.writing.writer_settings import WriterClosedError as WriterClosedError
    from pypaimon.streaming.writing.writer_settings import WriterConflictError as WriterConflictError

_EXPORTS = {
    "apply_changes": (
        "DeltaTarget",
        "DictTarget",
        "DuckDBTarget",
        "IcebergTarget",
        "PaimonTarget",
        "ParquetTarget",
        "PostgresTarget",
        "Replication",
        "SQLiteTarget",
        "Target",
        "apply_to_dict",
        "copy_stream",
        "copy_stream_sync",
        "is_to_apply",
        "last_changes",
        "replicate",
        "replicate_async",
    ),
    "batches.batch": ("Batch", "BlockingBatch"),
    "batches.batch_stream": ("BatchStream", "BlockingBatchStream"),
    "batches.run_forever": ("run_forever", "run_forever_async"),
    "batches.stream_status": ("StreamStatus",),
    "builder.builder": ("StreamReadBuilder", "stream_read_builder"),
    "builder.read": ("StreamTableRead",),
    "builder.scan": ("AsyncStreamingTableScan",),
    "compaction.background": ("Compactor", "compactor"),
    "compaction.compactor": ("compact",),
    "compaction.reports": ("CompactedBucket", "CompactionReport", "FileCount"),
    "compaction.table_files": ("BucketFiles", "TableFiles", "table_files"),
    "concurrency.clock": ("Clock",),
    "consumers.consumer_manager": ("ConsumerInfo", "ConsumerManager", "list_consumers"),
    "databases.builder": ("DatabaseStreamBuilder", "stream_database"),
    "databases.copy": ("DatabaseTarget", "copy_database"),
    "databases.duckdb_database": ("DuckDBDatabase",),
    "databases.events": (
        "DatabaseEvent",
        "SchemaChanged",
        "TableAdded",
        "TableDropped",
        "TableFailed",
        "TableRecovered",
        "TableRenamed",
        "TableSkipped",
    ),
    "databases.lag": ("DatabaseLag", "TableLag"),
    "databases.paimon_database": ("PaimonDatabase",),
    "databases.position": ("DatabasePosition", "TablePlace"),
    "databases.stream": ("BlockingDatabaseStream", "BlockingTableBatch", "DatabaseStream", "TableBatch"),
    "errors": (
        "AssignmentLostError",
        "ConsumerConflictError",
        "CorruptTableError",
        "EndOfScan",
        "IOTimeoutError",
        "NullColumnError",
        "PaimonStreamError",
        "PositionBeyondLatestError",
        "PositionExpiredError",
        "SchemaChangedError",
        "StoreError",
        "StreamConfigError",
        "TableChangedError",
        "TablesFailedError",
        "TargetError",
        "UnsupportedFileError",
        "UnsupportedTableError",
    ),
    "feeds.ray.ray_feed": ("RayFeed", "ray_dataset"),
    "feeds.torch.torch_feed": ("TorchFeed",),
    "group_streams.assignment": ("Assignment",),
    "group_streams.batch": ("BlockingGroupBatch", "GroupBatch"),
    "group_streams.builder": ("GroupStreamBuilder",),
    "group_streams.stream": ("BlockingGroupStream", "GroupStream"),
    "live_tables.live_table": ("BlockingLiveTable", "LiveTable"),
    "metadata.snapshots": ("Snapshot", "SnapshotManager"),
    "model.plan": ("Plan", "PlanKind", "SplitMode", "StreamSplit"),
    "model.position": ("ChainBase", "Phase", "Position", "Unit"),
    "planning.follow_up": (
        "ChangelogFollowUpScanner",
        "DeltaFollowUpScanner",
        "FollowUpScanner",
        "SnapshotFiles",
        "SnapshotReader",
    ),
    "planning.incremental_diff": ("IncrementalDiffScanner",),
    "reading.blob": ("Blob",),
    "scanning.lag": ("Lag",),
    "scanning.metrics": ("ScanMetrics",),
    "telemetry": ("StreamMetrics",),
    "writing.builder": ("StreamWriteBuilder", "stream_write_builder"),
    "writing.changes.new_columns": ("SchemaChangeRefusedError",),
    "writing.changes.records": ("BadChangeError",),
    "writing.commit.commit_ledger": ("CommitUnknownError",),
    "writing.commit.conflicts": ("CommitConflictError",),
    "writing.commit.reports": ("CommitFailedError", "CommitReport"),
    "writing.commit.strict_mode": ("StrictModeError",),
    "writing.row_layout": ("BadRowError", "SchemaMismatchError"),
    "writing.stream_writer": ("BlockingStreamWriter", "StreamWriter"),
    "writing.writer_settings": ("WriterClosedError", "WriterConflictError"),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


install()

__all__ = sorted(["install", *_MODULES])
