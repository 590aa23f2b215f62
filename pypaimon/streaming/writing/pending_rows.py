"""`PendingRows`: rows that were written to a table and are not committed yet.

It matches them with the table's columns and passes them to the `RecordWriter` of the commit, which divides them into
buckets and puts them into files. For that it must know what the table holds already: the greatest sequence number, and
the buckets of keys. A writer that makes one commit after the other keeps this knowledge, and reads the table again only
if another writer has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import KeyIndexes
from pypaimon.streaming.commit.request import Overwrite
from pypaimon.streaming.commit.session import LastCommit
from pypaimon.streaming.commit.table_state import TableState
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.writing.arrow_input import arrow_input, narrowed_schema
from pypaimon.streaming.writing.dynamic_buckets.bucket_assigner import BucketAssigner
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.routing import check_date_range
from pypaimon.streaming.writing.row_layout import RowLayout, TargetTable, row_layout
from pypaimon.streaming.writing.write_state import WriteState, write_state
from pypaimon.streaming.writing.writer_settings import WriterSettings, kind_column

_WHOLE_TABLE = {option_keys.DYNAMIC_PARTITION_OVERWRITE.name: "false"}


class PendingRows:
    """Rows in memory, files that are open, and files that are finished. Not for several threads.

    Attributes:
        table: The table, with the schema that is written.
        kind_column: Column of row kinds, or None.
        buckets_of: The oldest snapshot from which rows took their number of buckets; None: they have no such number.
    """

    def __init__(self, table: PaimonTable, settings: WriterSettings) -> None:
        self.table = table
        self.kind_column = kind_column(table.options, settings.kind_column)
        self.buckets_of: int | None = None
        self._settings = settings
        self._replaces_table = False
        self._layout: tuple[pa.Schema, RowLayout] | None = None
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
        """The table with the options of this commit."""
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

    def aligned(self, data: Any) -> Iterable[pa.RecordBatch]:
        """The rows in the table's columns. Rows that are in memory are all checked before the first one is returned.

        Raises:
            SchemaMismatchError: The columns do not fit.
            BadRowError: A row does not fit.
        """
        given = arrow_input(data)
        layout = self._layout_of(given.schema)
        aligned = (self._checked(layout.align(batch)) for batch in given.batches)
        return list(aligned) if given.in_memory else aligned

    def write(self, batch: pa.RecordBatch, last: LastCommit | None) -> None:
        """Write aligned rows.

        Args:
            last: The newest commit of the writer.
        """
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
        """The commit was made.

        Args:
            snapshot: Id of its snapshot.
            replaced: Whether it removed existing files.
        """
        if replaced:
            self._forget_state()
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

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        check_date_range(batch, self.table)
        return batch

    def _layout_of(self, given: pa.Schema) -> RowLayout:
        known = self._layout
        if known is None or not known[0].equals(given):
            target = TargetTable.of(self.table)
            narrowed = narrowed_schema(given, self.table.fields)
            known = self._layout = given, row_layout(narrowed, target, kind_column=self.kind_column)
        return known[1]

    # What the table holds

    def _known_state(self, last: LastCommit | None) -> WriteState:
        """What decides the sequence numbers and the buckets of new rows."""
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
        """Whether there is a snapshot after `_base`. One request if `_base` is a commit of this writer.

        The consumer of the writer keeps the snapshots from its own commit on, so the next one cannot have expired.
        """
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
    """The latest snapshot as it is in the store now."""
    directory.snapshots.forget()
    return directory.snapshots.get_latest_snapshot()


def _advanced(state: WriteState, messages: Sequence[CommitMessage]) -> WriteState:
    """The state after files of this writer."""
    numbers = [file.max_sequence_number for message in messages for file in message.new_files]
    return replace(state, sequence=max([state.sequence, *numbers]))
