"""`PendingRows`: rows that were written to a table and are not committed yet.

It matches them with the table's columns and passes them to the `RecordWriter` of the commit, which divides them into
buckets and puts them into files. For that it must know what the table holds already: the greatest sequence number, and
the buckets of keys. A writer that makes one commit after the other keeps this knowledge, and reads the table again only
if another writer has committed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import KeyIndexes, TableState
from pypaimon.streaming.commit.request import Overwrite
from pypaimon.streaming.commit.session import LastCommit
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.normal_form import normal_type
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.writing.dynamic_buckets import BucketAssigner
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.row_layout import RowLayout, TargetTable, row_layout
from pypaimon.streaming.writing.write_state import WriteState, write_state


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of a writer."""

    user: str
    kind_column: str | None = None  # Column of row kinds; None: `_row_kind`, if the table lacks a column of that name
    overwrite: Overwrite = False  # Which existing rows each commit replaces, as `CommitRequest.overwrite`
    memory_limit: int | None = None  # Bytes of rows that may be held in memory; None: the table's `write-buffer-size`
    is_named: bool = False  # Whether the program chose the commit user, so that a later writer may continue under it
    maintains: bool = False  # Whether commits are followed by maintenance, unless the table is `write-only`


def kind_column(options: TableOptions, given: str | None) -> str | None:
    """The column of row kinds, from the settings or the table's option. Raises StreamConfigError if they differ."""
    of_table = option_keys.ROWKIND_FIELD.of(options)
    if of_table is not None and given not in (None, of_table):
        raise StreamConfigError(
            f"with_row_kind_column: got {given!r}, but the table's option 'rowkind.field' names '{of_table}'; leave it "
            "out.",
            option="with_row_kind_column",
        )
    return of_table or given


def check_watermark(watermark: int | None) -> None:
    """Raise StreamConfigError unless a watermark is a number or None."""
    if watermark is not None and (isinstance(watermark, bool) or not isinstance(watermark, int)):
        raise StreamConfigError(f"commit: a watermark is a number of epoch milliseconds, got {watermark!r}.")


_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 1 << 28
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class ArrowInput:
    """Rows that a writer was given."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]  # The rows. If they are not in memory, they are read while this is iterated.
    in_memory: bool  # Whether all rows are in memory, so that they can be checked before the first one is written


def arrow_input(data: Any) -> ArrowInput:
    """The data that a writer is given, as Arrow record batches. Raises StreamConfigError if the data are of another
    type, or hold values for which Arrow lacks a type.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a `Batch` of a stream, or
            anything else with `__arrow_c_stream__` or `__arrow_c_array__`.
    """
    if isinstance(data, Batch | BlockingBatch):
        data = data.data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if _is_frame(data, "pandas"):
        data = _of_pandas(data)
    elif _is_frame(data, "polars"):
        data = data.to_arrow()
    if isinstance(data, pa.Table):
        return ArrowInput(data.schema, _pieces(data.to_batches(max_chunksize=_CHUNK_ROWS)), in_memory=True)
    if not isinstance(data, pa.RecordBatchReader):
        data = _reader(data)
    return ArrowInput(data.schema, _pieces(data), in_memory=False)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = max(1, batch.num_rows * _CHUNK_BYTES // max(_CHUNK_BYTES, _bytes_of(batch)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _bytes_of(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        # Arrow cannot count the bytes of views that are used.
        return int(batch.get_total_buffer_size())


def narrowed_schema(schema: pa.Schema, fields: Sequence[Any]) -> pa.Schema:
    """The given columns, with integer types narrowed to those of the table's columns.

    Numbers of pandas, polars and Python are 64 bits wide by default. Each value is checked when it is written.
    """
    types = {field.name: arrow_type(field.type) for field in fields}
    # Names match if they differ only in case.
    folded = {name.lower(): kind for name, kind in types.items()}
    targets = [types.get(field.name, folded.get(field.name.lower())) for field in schema]
    given = [normal_type(field.type) for field in schema]
    kinds = [_narrowed(one, other) for one, other in zip(given, targets, strict=True)]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


def _narrowed(given: pa.DataType, target: pa.DataType | None) -> pa.DataType:
    is_wider = given in _INTEGERS and target in _INTEGERS and _INTEGERS.index(target) < _INTEGERS.index(given)
    return target if is_wider else given


def _is_frame(data: Any, library: str) -> bool:
    # A caller that has a DataFrame has imported its library.
    module = sys.modules.get(library)
    frame = getattr(module, "DataFrame", None)
    return frame is not None and isinstance(data, frame)


def _of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        # Two columns of one name, numbers of more than 64 bits, or values of several types in a column.
        raise StreamConfigError(f"the DataFrame cannot be converted to Arrow: {error}") from error


def _reader(data: Any) -> pa.RecordBatchReader:
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
    raise StreamConfigError(
        "expected a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a batch of a stream "
        f"or anything with __arrow_c_stream__, got {type(data).__name__}. For rows in Python: "
        "pyarrow.Table.from_pylist(rows)."
    )


_WHOLE_TABLE = {option_keys.DYNAMIC_PARTITION_OVERWRITE.name: "false"}


class PendingRows:
    """Rows in memory, files that are open, and files that are finished. Not for several threads."""

    def __init__(self, table: PaimonTable, settings: WriterSettings) -> None:
        self.table = table
        self.kind_column = kind_column(table.options, settings.kind_column)  # Column of row kinds, or None
        # The oldest snapshot from which rows took their number of buckets; None: they have no such number
        self.buckets_of: int | None = None
        self._settings = settings
        self._replaces_table = False
        self._layout: tuple[pa.Schema, bool, RowLayout] | None = None
        self._records: RecordWriter | None = None
        self._finished: list[CommitMessage] = []
        # What the table holds: `_state` is that of snapshot `_base`, with the rows that were written since.
        self._state: WriteState | None = None
        self._base = 0
        self._assigner: BucketAssigner | None = None

    @property
    def has_rows(self) -> bool:
        return self._records is not None or bool(self._finished)

    @property
    def has_pending(self) -> bool:
        return self.has_rows or self._replaces_table

    @property
    def overwrite(self) -> Overwrite:
        """Which existing rows they replace, as `CommitRequest.overwrite`."""
        return True if self._replaces_table else self._settings.overwrite

    @property
    def table_to_write(self) -> PaimonTable:
        return self.table.copy(_WHOLE_TABLE) if self._replaces_table else self.table

    @property
    def key_indexes(self) -> KeyIndexes:
        """The index files from which rows got their buckets, in a table with dynamic ones."""
        return {} if self._assigner is None else self._assigner.read

    def replace_table(self) -> bool:
        """Have the commit replace everything that the table holds. Returns whether it holds rows."""
        latest = _latest_snapshot(self.table.new_directory())
        self._replaces_table = latest is not None and latest.total_record_count != 0
        return self._replaces_table

    def aligned(self, data: Any, *, keeps_nulls: bool = False) -> Iterable[pa.RecordBatch]:
        """The rows in the table's columns, as `row_layout` says. Rows that are in memory are all checked before the
        first one is returned. Raises SchemaMismatchError if the columns do not fit, BadRowError if a row does not fit.
        """
        given = arrow_input(data)
        layout = self._layout_of(given.schema, keeps_nulls)
        aligned = map(layout.align, given.batches)
        return list(aligned) if given.in_memory else aligned

    def write(self, batch: pa.RecordBatch, last: LastCommit | None) -> None:
        if not batch.num_rows:
            return
        if self._records is None:
            if self._finished and self.table.traits.snapshot_ordering:
                raise UnsupportedTableError(
                    "The table has 'sequence.snapshot-ordering', and rows of one commit would be written under two of "
                    "its schemas, so that of two rows of one key neither would be the newer one. Commit before its "
                    "columns change."
                )
            state = self._known_state(last)
            if self.buckets_of is None and self.table.bucket_mode == BucketMode.HASH_FIXED:
                self.buckets_of = self._base
            self._records = RecordWriter(
                self.table_to_write,
                self._settings.user,
                self.overwrite is not False,
                state,
                self._settings.memory_limit,
                self._assigner,
            )
        self._records.write(batch)

    def change_table(self, table: PaimonTable) -> None:
        """Write under another schema of the table. Earlier rows stay under theirs, and all are committed together."""
        self._finish()
        self.table = table
        self._layout = None

    def messages(self) -> list[CommitMessage]:
        """Finish the files. Returns pypaimon's commit messages, which belong to the caller once it calls `taken`."""
        self._finish()
        if self._finished and self._assigner is not None:
            self._finished += self._assigner.messages()
        return self._finished

    def taken(self) -> None:
        """The files belong to a commit now."""
        self._finished = []
        self._replaces_table = False
        self.buckets_of = None

    def note_committed(self, snapshot: int, *, replaced: bool) -> None:
        if replaced:
            self._forget_state()
        # Another writer has committed in between.
        elif snapshot != self._base + 1:
            self._state = None
        if self._assigner is not None:
            self._assigner.note_committed()
        self._base = snapshot

    def note_left_out(self) -> None:
        """The commit was in the table already, so these rows are not."""
        self._forget_state()

    def discard(self) -> None:
        """Delete the files that no commit was tried with."""
        self._forget_state()
        records, self._records = self._records, None
        messages = self._finished
        self.taken()
        if records is not None:
            records.abort()
        if messages:
            discard(self.table, messages)

    # The table's columns

    def _layout_of(self, given: pa.Schema, keeps_nulls: bool) -> RowLayout:
        known = self._layout
        if known is not None and known[0].equals(given) and known[1] is keeps_nulls:
            return known[2]
        target = TargetTable.of(self.table)
        narrowed = narrowed_schema(given, self.table.fields)
        layout = row_layout(narrowed, target, kind_column=self.kind_column, keeps_nulls=keeps_nulls)
        self._layout = given, keeps_nulls, layout
        return layout

    # What the table holds

    def _known_state(self, last: LastCommit | None) -> WriteState:
        mode = self.table.bucket_mode
        if mode not in (BucketMode.HASH_FIXED, BucketMode.HASH_DYNAMIC):
            return WriteState()
        replaces = self.overwrite is not False
        if mode == BucketMode.HASH_DYNAMIC and (self._assigner is None or self._assigner.replaces != replaces):
            self._assigner, self._state = BucketAssigner(self.table, replaces=replaces), None
        directory = self.table.new_directory()
        if self._state is None or self._others_have_committed(directory, last):
            latest = _latest_snapshot(directory)
            self._base = 0 if latest is None else latest.id
            self._state = _advanced(write_state(self.table), self._finished)
            if self._assigner is not None:
                self._assigner.follow(TableState(directory, latest).index)
        return self._state

    def _others_have_committed(self, directory: TableDirectory, last: LastCommit | None) -> bool:
        """Whether there is a snapshot after `_base`. One request if `_base` is a commit of this writer."""
        # The writer's consumer keeps the snapshots from its own commit on, so the next one cannot have
        # expired.
        if last is not None and last.snapshot == self._base:
            return directory.snapshots.refreshed(self._base + 1) is not None
        latest = _latest_snapshot(directory)
        return (0 if latest is None else latest.id) != self._base

    def _forget_state(self) -> None:
        self._assigner, self._state = None, None

    def _finish(self) -> None:
        if self._records is None:
            return
        messages = self._records.prepare()
        self._finished += messages
        self._records = None
        if self._state is not None:
            self._state = _advanced(self._state, messages)


def _latest_snapshot(directory: TableDirectory) -> Snapshot | None:
    directory.snapshots.forget()
    return directory.snapshots.get_latest_snapshot()


def _advanced(state: WriteState, messages: Sequence[CommitMessage]) -> WriteState:
    numbers = [file.max_sequence_number for message in messages for file in message.new_files]
    return replace(state, sequence=max([state.sequence, *numbers]))
