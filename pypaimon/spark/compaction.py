"""`compact` and `rescale`: rewrite a table in the tasks of a Spark session."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.spark.errors import ErrorContext, readable_errors
from pypaimon.spark.options.sink_options import SinkOptions, parse_sink
from pypaimon.spark.write.sink_table import load_sink_table
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.index_rewrite import IndexTaskPicker
from pypaimon.streaming.compaction.materialization import MaterializationTaskPicker
from pypaimon.streaming.compaction.partition_rescale import RescaleTaskPicker, rescale_partitions
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.sort_order import sort_request
from pypaimon.streaming.compaction.task_pickers import NewPicker, sort_picker, task_picker
from pypaimon.streaming.compaction.tasks import CompactionTask, Done, TaskPicker
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.writing.pinned_schema import PinnedSchema

if TYPE_CHECKING:
    from pyspark import sql
else:
    sql = LazyModule("pyspark.sql")


def compact(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    order_by: str | Sequence[str] | None = None,
    strategy: str = "auto",
    dry_run: bool = False,
) -> CompactionReport:
    """Compact the buckets of a table that are due by its options, one task per bucket, part of one, or partition
    with postponed rows. Blocks.

    The driver reads the metadata, plans and commits; the tasks read and write the data files. Queries that
    write the table meanwhile are not held up. Arguments and report are those of `pypaimon.streaming.compact`. Only
    files of a task that Spark gave up (its executor was lost) are left over, which Paimon's
    `remove_orphan_files` deletes.

    Args:
        spark: The session, classic or Spark Connect. Its executors need this package.
        options: Those of the sink: `table` and `warehouse`, or `path`; options of the table are laid over it.
        full: Compact every bucket whole, even if it is not due.
        partition: Values of some or all partition columns, as in a writer's `with_overwrite`: compact only partitions
            with these values. None: all.
        where: A condition on partition columns: compact only partitions that match.
        partition_idle_time: Compact only partitions without files younger than this. None: all.
        order_by: Columns by which all rows of each partition are sorted, one task per partition. None: what is due.
        strategy: How they are sorted by several columns.
        dry_run: Write nothing; the report says what would be compacted.

    Raises:
        UnsupportedTableError: A table of this kind cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CorruptTableError: A file is damaged or missing. Earlier commits stay; nothing else was committed.
        CommitFailedError: A commit failed (retriable).
        StoreError: The store failed (retriable).
    """
    with readable_errors(ErrorContext.of(options)):
        new_picker = sort_picker(sort_request("compact", order_by, strategy))
    chosen = partition, where, partition_idle_time
    return _run(spark, options, new_picker, chosen, full=full, dry_run=dry_run)


def rescale(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    buckets: int,
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    dry_run: bool = False,
) -> CompactionReport:
    """Divide the rows of partitions into another number of buckets, one task per partition. Blocks.

    The driver reads the metadata, plans and commits, as in `compact`. What happens, report and errors are those of
    `pypaimon.streaming.compaction.rescale`. Alter the table's option `bucket` first, and stop the queries that write
    the table, because writers refuse partitions with another number.

    Args:
        spark: As `compact` takes it.
        options: As `compact` takes them.
        buckets: The number of buckets.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        dry_run: Write nothing; the report says which buckets would be replaced.
    """
    with readable_errors(ErrorContext.of(options)):
        parsed = parse_sink({key.lower(): value for key, value in options.items()})
        table = load_sink_table(parsed)
        return rescale_partitions(
            table,
            at_least(1, "buckets", buckets),
            ChosenPartitions(table, partition, where, partition_idle_time),
            dry_run=dry_run,
            compacting=_Tasks(spark, parsed, task_picker),
            dividing=_Tasks(spark, parsed, partial(RescaleTaskPicker, count=buckets)),
        )


def materialize_deletion_vectors(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    dry_run: bool = False,
) -> CompactionReport:
    """Drop the deleted rows from the files of a table with data evolution, one task per new file. Blocks.

    What happens, report and errors are those of `pypaimon.streaming.compaction.materialize_deletion_vectors`.

    Args:
        spark: As `compact` takes it.
        options: As `compact` takes them.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        dry_run: Write nothing; the report says which files would be replaced.
    """
    chosen = partition, where, partition_idle_time
    return _run(spark, options, MaterializationTaskPicker, chosen, dry_run=dry_run)


def rewrite_file_index(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    dry_run: bool = False,
) -> CompactionReport:
    """Give data files the file indexes that the table's options ask for, some files in each task. Blocks.

    What happens, report and errors are those of `pypaimon.streaming.compaction.rewrite_file_index`.

    Args:
        spark: As `compact` takes it.
        options: As `compact` takes them.
        full: Make the indexes of all files again, not only of those that have others than they should.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        dry_run: Write nothing; the report says which files would get other indexes.
    """
    chosen = partition, where, partition_idle_time
    return _run(spark, options, IndexTaskPicker, chosen, full=full, dry_run=dry_run)


def _run(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    new_picker: NewPicker | None,
    chosen: tuple[Mapping[str, Any] | None, str | None, float | timedelta | None],
    *,
    full: bool = False,
    dry_run: bool,
) -> CompactionReport:
    """Execute the tasks of a picker (None: what is due). `chosen`: which partitions, as of `ChosenPartitions`."""
    with readable_errors(ErrorContext.of(options)):
        parsed = parse_sink({key.lower(): value for key, value in options.items()})
        table = load_sink_table(parsed)
        workers = _Tasks(spark, parsed, new_picker or task_picker)
        compaction = Compaction(
            table, ChosenPartitions(table, *chosen), full=full, workers=workers, new_picker=new_picker
        )
        return compaction.run(dry_run=dry_run)


class _Tasks:
    commit_bytes = 64 << 30

    def __init__(self, spark: sql.SparkSession, options: SinkOptions, new_picker: NewPicker) -> None:
        self._spark = spark
        self._options = options
        self._new_picker = new_picker

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        rows = [(number, pickle.dumps(each.lean())) for number, each in enumerate(tasks)]
        parts = self._spark.createDataFrame(rows, "number int, work binary").repartition(len(rows))
        task = _Task(self._options, PinnedSchema.of(table), self._new_picker)
        errors = []
        for number, outcome in parts.mapInArrow(task, "number int, outcome binary").collect():
            found = pickle.loads(bytes(outcome))
            if isinstance(found, Exception):
                errors.append(found)
            else:
                done(tasks[number], found)
        if errors:
            raise errors[0]


@dataclass(frozen=True)
class _Task:
    """Compacts the parts that one task is given.

    An error is returned as an outcome, so that the driver learns which files the other tasks wrote and deletes them.
    """

    options: SinkOptions
    pin: PinnedSchema
    new_picker: NewPicker

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: TaskPicker | None = None
        for batch in batches:
            for number, work in zip(batch["number"], batch["work"], strict=True):
                try:
                    found = found or self._picker()
                    outcome: Any = found.execute(pickle.loads(work.as_py()))
                except Exception as error:  # noqa: BLE001 - the driver raises it
                    outcome = error
                columns = [pa.array([number.as_py()], pa.int32()), pa.array([pickle.dumps(outcome)], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "outcome"])

    def _picker(self) -> TaskPicker:
        table = self.pin.apply(load_sink_table(self.options))
        return self.new_picker(table, FileReader(table, table.new_directory(), lambda: None))
