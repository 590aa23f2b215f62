"""`RecordFilter`: which records come out, as the filter of a read says, and what becomes of those that do not match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering import filters
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.blob_types import holds_blobs
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.read_layout import Layout
from pypaimon.streaming.reading.records import Records


class RecordFilter:
    """The filter of a read.

    Args:
        layout: What is read, with the filter.
        unmatched: What becomes of records of an upsert stream that do not match.
    """

    def __init__(self, layout: Layout, unmatched: Unmatched) -> None:
        self._layout = layout
        self._unmatched = unmatched

    def kept(self, records: Iterable[Records], *, upserts: bool) -> Iterator[Records]:
        """Those that come out, in batches that are never empty.

        Args:
            records: All of them.
            upserts: Whether they replace what was there, so that one that does not match comes out as a delete.
        """
        keep = self._upserts if upserts else self._exact
        for each in records:
            kept = keep(each)
            if kept.batch.num_rows:
                yield kept

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that match, in batches that are never empty."""
        for records in self.kept((Records(batch) for batch in batches), upserts=False):
            yield records.batch

    def _exact(self, records: Records) -> Records:
        if self._layout.predicate is None:
            return records
        return records.keep(filters.mask(self._layout.predicate, records.batch))

    def _upserts(self, records: Records) -> Records:
        """Filter records that replace what was there: one that does not match must take it away, not leave it."""
        if self._layout.on_keys is not None:
            records = records.keep(filters.mask(self._layout.on_keys, records.batch))
        if self._layout.on_values is None:
            return records
        matches = filters.mask(self._layout.on_values, records.batch)
        if self._unmatched is Unmatched.DROP:
            return records.keep(matches)
        kinds = records.kinds
        if kinds is None:
            kinds = pa.repeat(pa.scalar(row_kinds.INSERT, pa.int8()), records.batch.num_rows)
        kinds = pc.if_else(matches, kinds, pa.scalar(row_kinds.DELETE, pa.int8()))
        return Records(self._without_blobs(records.batch, pc.invert(matches)), kinds)

    def _without_blobs(self, batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
        """The same with null for the blobs of some rows, as deletes that are stored have them."""
        for field in self._layout.fields:
            if holds_blobs(field.type):
                index = batch.schema.get_field_index(field.name)
                column = batch.column(index)
                cleared = pc.if_else(rows, pa.scalar(None, column.type), column)
                batch = batch.set_column(index, batch.schema.field(index), cleared)
        return batch
