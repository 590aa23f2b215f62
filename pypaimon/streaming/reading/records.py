"""`Records`: rows with their row kinds; `RecordFilter`: which of them come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering import filters
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.read_layout import ReadLayout


@dataclass(frozen=True, slots=True)
class Records:
    """Records with their row kinds."""

    batch: pa.RecordBatch
    kinds: pa.Array | None = None  # The row kinds as int8 codes; None: all +I

    def keep(self, mask: pa.Array) -> Records:
        """The records for which the mask is true."""
        if mask.true_count == len(mask):
            return self
        return Records(self.batch.filter(mask), None if self.kinds is None else self.kinds.filter(mask))


def adding(kinds: pa.Array) -> pa.Array:
    """A mask of the records that insert or update a row."""
    return pc.is_in(kinds, value_set=pa.array([row_kinds.INSERT, row_kinds.UPDATE_AFTER], pa.int8()))


class RecordFilter:
    """The filter of a read."""

    def __init__(self, layout: ReadLayout, unmatched: Unmatched) -> None:
        self._layout = layout
        self._unmatched = unmatched

    def kept(self, records: Iterable[Records], *, upserts: bool) -> Iterator[Records]:
        """The records that come out, in batches that are never empty.

        Args:
            upserts: Whether they replace the row before, so that one that does not match comes out as a delete.
        """
        keep = self._upserts if upserts else self._exact
        for each in records:
            kept = keep(each)
            if kept.batch.num_rows:
                yield kept

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that match, in batches that are never empty."""
        for records in self.kept((Records(batch) for batch in batches), upserts=False):
            yield records.batch

    def _exact(self, records: Records) -> Records:
        if self._layout.predicate is None:
            return records
        return records.keep(filters.mask(self._layout.predicate, records.batch))

    def _upserts(self, records: Records) -> Records:
        """Filter records that replace the row before: one that does not match must delete it, not leave it."""
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
        """The same batch with null for the blobs of some rows, as stored deletes have them."""
        for field in self._layout.fields:
            if holds_blobs(field.type):
                index = batch.schema.get_field_index(field.name)
                column = batch.column(index)
                cleared = pc.if_else(rows, pa.scalar(None, column.type), column)
                batch = batch.set_column(index, batch.schema.field(index), cleared)
        return batch
