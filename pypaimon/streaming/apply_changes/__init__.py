"""Applying batches of changes elsewhere, so that it holds what the table holds: a dict, DuckDB, another Paimon table.

`replicate(builder, target)` does all of it: the state first, then every change, from where the target stands.

Of several changes of one key in a batch the last one counts. `+I` and `+U` set a row, `-U` and `-D` take it away: a
`-U` alone comes where a filter leaves out what the row became. A full state replaces what the target held, at the start
of a stream and in its midst (`Batch.begins_state`), so a target belongs to one stream: each shard has one of its own.
"""

from pypaimon.streaming.apply_changes.changes import AnyBatch, last_changes
from pypaimon.streaming.apply_changes.copy_stream import copy_stream, copy_stream_sync
from pypaimon.streaming.apply_changes.delta_target import DeltaTarget
from pypaimon.streaming.apply_changes.dicts import DictTarget, apply_to_dict
from pypaimon.streaming.apply_changes.duckdb_target import DuckDBTarget
from pypaimon.streaming.apply_changes.iceberg_target import IcebergTarget
from pypaimon.streaming.apply_changes.paimon_target import PaimonTarget
from pypaimon.streaming.apply_changes.parquet_target import ParquetTarget
from pypaimon.streaming.apply_changes.postgres_target import PostgresTarget
from pypaimon.streaming.apply_changes.replicate import Target, replicate, replicate_async
from pypaimon.streaming.apply_changes.replication import Replication
from pypaimon.streaming.apply_changes.saved_position import is_to_apply
from pypaimon.streaming.apply_changes.sqlite_target import SQLiteTarget

__all__ = [
    "AnyBatch",
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
]
