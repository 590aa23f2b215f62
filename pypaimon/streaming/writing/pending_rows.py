"""`PendingRows`: what was written to a table and not committed: gathered, aligned, and cut into files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.time_zone import zone_of_table
from pypaimon.streaming.write_internals import BucketMode
from pypaimon.streaming.writing.arrow_input import arrow_input, narrowed_schema
from pypaimon.streaming.writing.blob_forms import blob_forms
from pypaimon.streaming.writing.commit.conflicts import KeyIndexes
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.exactly_once import Overwrite
from pypaimon.streaming.writing.commit.last_commit import LastCommit
from pypaimon.streaming.writing.key_years import check_years, keys_with_years
from pypaimon.streaming.writing.known_state import KnownState, latest_snapshot
from pypaimon.streaming.writing.record_writer import RecordWriter, orders_by_snapshot
from pypaimon.streaming.writing.row_layout import RowLayout, row_layout
from pypaimon.streaming.writing.writable_tables import kind_rules
from pypaimon.streaming.writing.writer_settings import WriterSettings, kind_column

_WHOLE_TABLE = {"dynamic-partition-overwrite": "false"}


class PendingRows:
    """Rows that wait in memory, files that are open, and files that are ready. Not for several threads.

    Args:
        table: pypaimon's table.
        settings: What the writer was told.

    Attributes:
        table: pypaimon's table, with the schema that is written.
        kind_column: Column of row kinds, or None.
    """

    def __init__(self, table: Any, settings: WriterSettings) -> None:
        self.table = table
        self.kind_column = kind_column(table, settings.kind_column)
        self._settings = settings
        self._state = KnownState()
        self._replaces = False
        self._layout: tuple[pa.Schema, RowLayout] | None = None
        self._records: RecordWriter | None = None
        self._finished: list[Any] = []
        self._buckets_of: int | None = None

    @property
    def has_rows(self) -> bool:
        """Whether rows were taken."""
        return self._records is not None or bool(self._finished)

    @property
    def any(self) -> bool:
        """Whether there is something to commit."""
        return self.has_rows or self._replaces

    @property
    def overwrites(self) -> Overwrite:
        """Whether they replace what is there, and of which partitions."""
        return True if self._replaces else self._settings.overwrite

    @property
    def table_to_write(self) -> Any:
        """The table with the options of this commit."""
        return self.table.copy_without_time_travel(_WHOLE_TABLE) if self._replaces else self.table

    def replace_table(self) -> bool:
        """They replace all that the table holds. Whether it holds rows."""
        latest = latest_snapshot(TableDirectory.of(self.table))
        self._replaces = latest is not None and latest.total_record_count != 0
        return self._replaces

    def aligned(self, data: Any) -> Iterable[pa.RecordBatch]:
        """Rows as the table has them. Of what is in memory every row is checked before the first one is handed out.

        Raises:
            SchemaMismatchError: The columns do not fit.
            BadRowError: A row does not fit.
        """
        given = arrow_input(data)
        layout = self._layout_of(given.schema)
        aligned = (self._checked(layout.align(batch)) for batch in given.batches)
        return list(aligned) if given.in_memory else aligned

    def take(self, batch: pa.RecordBatch, last: LastCommit | None) -> None:
        """Take aligned rows.

        Args:
            batch: They.
            last: The newest commit of the writer.
        """
        if not batch.num_rows:
            return
        if self._records is None:
            if self._finished and orders_by_snapshot(self.table):
                raise UnsupportedTableError(
                    "The table has 'sequence.snapshot-ordering', and rows of one commit would be written under two of "
                    "its schemas, so that of one key none would be the newer one. Commit before its columns change."
                )
            replaces = self.overwrites is not False
            state = self._state.of(self.table, last, self._finished, replaces=replaces)
            if self._buckets_of is None and self.table.bucket_mode() == BucketMode.HASH_FIXED:
                self._buckets_of = self._state.base
            self._records = RecordWriter(
                self.table_to_write,
                self._settings.user,
                replaces,
                state,
                self._settings.memory_limit,
                self._state.assigner,
            )
        self._records.write(batch)

    def go_on_with(self, table: Any) -> None:
        """Write under another schema of the table; what was written is committed with what comes, each in its own."""
        self._finish()
        self.table = table
        self._layout = None

    def messages(self) -> list[Any]:
        """Finish the files: pypaimon's commit messages, whose files are the caller's from `taken` on."""
        self._finish()
        if self._finished and self._state.assigner is not None:
            self._finished += self._state.assigner.messages()
        return self._finished

    @property
    def key_indexes(self) -> KeyIndexes:
        """The index files that decided their buckets, in a table with dynamic ones."""
        return {} if self._state.assigner is None else self._state.assigner.read

    @property
    def buckets_of(self) -> int | None:
        """The oldest snapshot by which some were divided into a fixed number of buckets; None: they were not."""
        return self._buckets_of

    def taken(self) -> None:
        """The files belong to a commit now."""
        self._finished = []
        self._replaces = False
        self._buckets_of = None

    def note_committed(self, snapshot: int, *, replaced: bool) -> None:
        """The commit came about; see `KnownState.note_committed`."""
        self._state.note_committed(snapshot, replaced=replaced)

    def note_left_out(self) -> None:
        """The commit was in the table already."""
        self._state.forget()

    def discard(self) -> None:
        """Delete the files that no commit was tried with."""
        self._state.forget()
        records, self._records = self._records, None
        messages = self._finished
        self.taken()
        if records is not None:
            records.abort()
        if messages:
            discard(self.table, messages)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        check_years(batch, keys_with_years(self.table), self.table.identifier.get_full_name())
        return batch

    def _layout_of(self, given: pa.Schema) -> RowLayout:
        known = self._layout
        if known is None or not known[0].equals(given):
            layout = row_layout(
                narrowed_schema(given, self.table.fields),
                self.table.fields,
                kind_rules(self.table),
                table=self.table.identifier.get_full_name(),
                zone=zone_of_table(self.table),
                kind_column=self.kind_column,
                blobs=blob_forms(self.table.table_schema),
            )
            known = self._layout = given, layout
        return known[1]

    def _finish(self) -> None:
        """What was written becomes files that are ready to be committed."""
        if self._records is None:
            return
        messages = self._records.prepare()
        self._finished += messages
        self._records = None
        self._state.note_finished(messages)
