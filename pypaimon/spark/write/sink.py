"""`Sink`: the common part of stream and batch writes. It is pickled into the tasks and holds no live state."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.spark.errors import ErrorContext, readable
from pypaimon.spark.options.sink_options import SinkOptions, parse_sink
from pypaimon.spark.write.sink_table import load_sink_table, prepare_sink_table
from pypaimon.streaming.commit.cleanup import discard_unfinished, discarded_on_error
from pypaimon.streaming.commit.idempotent_commit import commit_batch, commit_once
from pypaimon.streaming.commit.request import Assumption, CommitReport, CommitRequest
from pypaimon.streaming.errors import CommitFailedError, PaimonStreamError, StreamConfigError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.commit_maintenance import maintenance_of
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.redaction import without_secrets
from pypaimon.streaming.writing.pending_rows import kind_column
from pypaimon.streaming.writing.pinned_schema import PinnedSchema
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.row_layout import RowLayout, TargetTable, row_layout
from pypaimon.streaming.writing.write_state import WriteState, write_state

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pypaimon.streaming.paimon.write_internals import CommitMessage

_LOG = StreamLog(__name__)
_USER_PREFIX = "spark-sink-"
_BATCH_SIZE = 65536
_LOOKS_EVERY, _MOST_SECONDS = 8, 30.0
"""Micro-batches of which one looks for what is due of maintenance, and how long that may hold it up."""


class KeyOwnersError(PaimonStreamError):
    """Two tasks wrote rows of the same primary key; nothing was committed."""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """What one task wrote.

    Attributes:
        buckets_of: Snapshot by which the rows were divided into a fixed number of buckets; None: they were not.
    """

    messages: tuple[CommitMessage, ...]
    rows: int
    pin: PinnedSchema
    buckets_of: int | None


@dataclass(frozen=True, slots=True)
class Sink:
    """One write of a DataFrame, or of one micro-batch.

    Attributes:
        streaming: Whether it is a micro-batch; an overwrite then replaces the whole table (output mode "complete").
        state: What tasks must know of existing files; None: each task reads it.
    """

    options: SinkOptions
    layout: RowLayout
    pin: PinnedSchema
    overwrite: bool
    streaming: bool
    state: WriteState | None = None

    @staticmethod
    def of(options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> Sink:
        """Check everything that can be checked before the first task.

        Raises:
            StreamConfigError: An option, or the table.
            UnsupportedTableError: The table cannot be written.
            SchemaMismatchError: The columns do not fit.
        """
        from pypaimon.spark.spark_versions import arrow_schema

        parsed = parse_sink(options)
        columns = arrow_schema(schema)
        table = prepare_sink_table(parsed, columns, overwrite)
        layout = row_layout(
            columns,
            TargetTable.of(table),
            kind_column=kind_column(table.options, parsed.row_kind_column),
            case_sensitive=parsed.case_sensitive,
            shown={field.name: field.dataType.simpleString() for field in schema},
            advice=" (option 'merge-schema' = 'true' would add it)",
        )
        return Sink(parsed, layout, PinnedSchema.of(table), overwrite, streaming)

    def for_tasks(self) -> Sink:
        """The same sink with the state of the table, read once here instead of by each task."""
        return self if self.state is not None else replace(self, state=write_state(self.pin.apply(self._table())))

    @property
    def identity(self) -> tuple[str | None, int]:
        """Query and batch of a write that must happen once; without a query it happens whenever it is run."""
        return self.options.query_id, self.options.batch_id or 0

    def write(self, batches: Iterator[pa.RecordBatch], query: str | None) -> TaskFiles:
        """Write the rows of one task; if that fails, delete what was written.

        Raises:
            BadRowError: A row does not fit the table.
            TableChangedError: The schema that the write was planned with is gone.
        """
        table = self.pin.apply(self._table())
        writer = RecordWriter(table, commit_user(query or "batch"), self.overwrite, self.state)
        rows = 0
        try:
            for each in batches:
                rows += each.num_rows
                writer.write(self.layout.align(each))
            messages, buckets_of = writer.prepare(), writer.buckets_of
        except BaseException:
            writer.abort()
            raise
        writer.close()
        return TaskFiles(tuple(messages), rows, self.pin, buckets_of)

    def commit_once(self, query: str, batch: int, tasks: Sequence[TaskFiles], origin: str | None = None) -> None:
        """Commit a batch of a query unless the table has it. Errors as those of `commit.commit_once`, and:

        Args:
            origin: Spark's id of the streaming query that counts the batches, where `query` is another name.

        Raises:
            KeyOwnersError: Two tasks wrote the same key.
            TableChangedError: The table was re-created meanwhile, or the schema that was written is gone.
        """
        table, schema_id = self._checked(tasks)
        request = CommitRequest(
            table,
            commit_user(query),
            batch,
            _messages(tasks),
            overwrite=self.overwrite,
            schema_id=schema_id,
            buckets_of=_buckets_of(tasks),
            ordered=self.streaming,
            origin=origin,
            assumption=Assumption(self.options.assume_committed, self.options.assume_missing),
            is_first_attempt=True,
        )
        report = commit_once(request)
        self._log(f"batch {batch} of query {query}", report, tasks)
        if not self.streaming or batch % _LOOKS_EVERY == 0:
            self._maintain(table, report)

    def commit_batch(self, tasks: Sequence[TaskFiles]) -> None:
        table, schema_id = self._checked(tasks)
        try:
            report = commit_batch(
                table, _messages(tasks), overwrite=self.overwrite, schema_id=schema_id, buckets_of=_buckets_of(tasks)
            )
        except CommitFailedError as error:
            if not error.retriable:
                raise
            again = "With the options 'query-id' and 'batch-id' a write may be repeated without looking."
            raise CommitFailedError(f"{error} {again}") from error
        self._log("write", report, tasks)
        self._maintain(table, report)

    def abort(self, tasks: Sequence[TaskFiles | None]) -> None:
        """Delete what was written, if some task has not finished."""
        finished = [task for task in tasks if task is not None]
        if not discard_unfinished(self._table(), tasks, _messages(finished)):
            text = "files of a failed commit are kept, because it may have succeeded"
            _LOG.warning("sink_files_kept", text, table=self.options.name)

    def _checked(self, tasks: Sequence[TaskFiles]) -> tuple[PaimonTable, int]:
        latest = table = self._table()
        with discarded_on_error(table, _messages(tasks)):
            if tasks:
                tasks[0].pin.check(latest)
                table = tasks[0].pin.apply(latest)
            check_owners(table, [task.messages for task in tasks])
        return table, latest.schema.id

    def _table(self) -> PaimonTable:
        table = load_sink_table(self.options)
        if self.streaming and self.overwrite:
            # With output mode `complete` a batch is the whole result: partitions that it lacks are empty.
            table = table.copy({option_keys.DYNAMIC_PARTITION_OVERWRITE.name: "false"})
        return table

    def _maintain(self, table: PaimonTable, report: CommitReport) -> None:
        if not self.options.maintains or report.snapshot_id is None or report.repeated:
            return
        try:
            # Spark ends this process soon, so there is no later commit to wait for.
            maintenance = maintenance_of(table)
        except StreamConfigError as error:
            # An option that was altered while the tasks wrote. The commit has succeeded all the same.
            _say(f"{self.options.name}: maintenance failed: {error}")
            return
        if maintenance is None:
            return
        maintenance.after_commit(report.snapshot_id)
        maintenance.close(timeout=_MOST_SECONDS)
        if maintenance.last_error is not None:
            _say(f"{self.options.name}: maintenance failed: {maintenance.last_error}")
        elif maintenance.last_report is not None:
            plan, dropped = maintenance.last_report.plan, maintenance.last_report.dropped_partitions
            text = f"snapshots={len(plan.snapshot_ids)} tags={len(plan.deleted_tags)} partitions={len(dropped)} "
            text += f"created_tags={len(plan.created_tags)} files={len(plan.files)}"
            _say(f"{self.options.name}: maintained; {text}")

    def _log(self, what: str, report: CommitReport, tasks: Sequence[TaskFiles]) -> None:
        written = report.written
        if report.repeated:
            state = "was in the table already, nothing added"
        elif report.snapshot_id is None:
            state = "had nothing to commit"
        else:
            state = "committed"
        _say(
            f"{self.options.name}: {what} {state}; snapshot={report.snapshot_id} "
            f"rowsIn={sum(task.rows for task in tasks)} rows={written.rows} files={written.files} "
            f"bytes={written.bytes}"
        )


def _say(text: str) -> None:
    # Spark's workers do not show what is logged below a warning.
    sys.stderr.write(without_secrets(f"pypaimon sink: {text}\n"))


class SinkWriter:
    """What the writers of streams and batches share."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def error_context(self) -> ErrorContext:
        return ErrorContext(self._sink.options.name)

    @readable
    def __getstate__(self) -> dict[str, Any]:
        """Prepare for the tasks: Spark pickles the writer before the first one begins."""
        self._sink = self._sink.for_tasks()
        return vars(self)


def commit_user(query: str) -> str:
    """Commit user, and id of the consumer that pins a query's snapshots. The same after each restart of the query."""
    return _USER_PREFIX + query


def task_property(name: str) -> str | None:
    """A property that Spark sets for the running task; None if it is not set."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _messages(tasks: Sequence[TaskFiles]) -> list[CommitMessage]:
    return [message for task in tasks for message in task.messages]


def _buckets_of(tasks: Sequence[TaskFiles]) -> int | None:
    """The oldest snapshot by which rows were divided into buckets."""
    return min((task.buckets_of for task in tasks if task.buckets_of is not None), default=None)


def check_owners(table: PaimonTable, tasks: Sequence[Sequence[CommitMessage]]) -> None:
    """Refuse a batch in which two tasks wrote the same key. Reads the keys of buckets that several tasks wrote.

    Tasks number their rows independently, so Paimon cannot know which of two rows is the newer one without a
    `sequence.field`. `repartition_by_bucket` gives each bucket to one task, and then nothing is read.
    """
    if not table.is_primary_key_table or option_keys.SEQUENCE_FIELD.set_as(table.options):
        return
    if not merge_engine(table.schema).depends_on_order:
        return
    buckets: dict[tuple[Any, ...], dict[int, list[DataFileMeta]]] = {}
    for number, messages in enumerate(tasks):
        for message in messages:
            owners = buckets.setdefault((tuple(message.partition), message.bucket), {})
            owners.setdefault(number, []).extend(message.new_files)
    for owners in buckets.values():
        if len(owners) > 1:
            _check_bucket(table, owners)


def _check_bucket(table: PaimonTable, owners: dict[int, list[DataFileMeta]]) -> None:
    directory, fields = table.new_directory(), table.key_fields
    keys = [
        pa.Table.from_batches([batch]).append_column("_task", pa.repeat(pa.scalar(number), batch.num_rows))
        for number, files in owners.items()
        for file in files
        for batch in read_file(
            directory, file, fields, schema_id=table.schema.id, system_columns=(), batch_size=_BATCH_SIZE
        )
    ]
    names = [field.name for field in fields]
    owned = pa.concat_tables(keys).group_by(names).aggregate([("_task", "min"), ("_task", "max")])
    shared = owned.filter(pc.not_equal(owned["_task_min"], owned["_task_max"]))
    if shared.num_rows:
        key = {name: shared[name][0].as_py() for name in names}
        raise KeyOwnersError(
            f"{shared.num_rows} keys, such as {key}, came from more than one task, so that chance would decide which "
            "row is the newer one. Give the rows of a key to one task, in their order: "
            "pypaimon.spark.repartition_by_bucket(df, options). Or let a column decide: set 'sequence.field'."
        )
