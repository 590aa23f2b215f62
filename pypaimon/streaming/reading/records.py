"""`Records`: rows with their row kinds; `RecordFilter`: which of them come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering import filters
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.arrow_types import one_batch
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.model.row_kinds import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.options.read_scope import ROWKIND
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings


@dataclass(frozen=True, slots=True)
class Records:
    """Records with their row kinds."""

    batch: pa.RecordBatch
    kinds: pa.Array | None = None  # The row kinds as int8 codes; None: all +I

    def keep(self, mask: pa.Array) -> Records:
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
        """The records that come out, in batches that are never empty. If they are `upserts`, which replace the row
        before, one that does not match comes out as a delete.
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


def output_columns(records: Records, bound: ReadLayout, settings: ReadSettings, schema: pa.Schema) -> list[pa.Array]:
    """The output columns of some records, which may have fewer rows or none."""
    return _packed(records, bound, settings, schema) if bound.packed else _as_they_are(records, bound, settings)


def _as_they_are(records: Records, bound: ReadLayout, settings: ReadSettings) -> list[pa.Array]:
    batch, kinds = records.batch, records.kinds
    if bound.with_rowkind:
        batch = batch.append_column(ROWKIND, _names(kinds, batch.num_rows))
        if bound.on_rowkind is not None:
            batch = batch.filter(filters.mask(bound.on_rowkind, batch))
    if settings.view == "audit_log":
        kinds = None
    columns = bound.outputs_of(batch)
    if settings.include_row_kind:
        columns.insert(0, _names(kinds, batch.num_rows))
    return columns


def _packed(records: Records, bound: ReadLayout, settings: ReadSettings, schema: pa.Schema) -> list[pa.Array]:
    """Rows of `$binlog`. Their own row kinds are all +I, as in an audit log."""
    packing = Packing.of(records)
    rowkind = row_kinds.to_names(pa.array(packing.kinds))
    columns = [_names(None, len(rowkind))] if settings.include_row_kind else []
    for output in bound.outputs:
        if output.is_rowkind:
            columns.append(rowkind)
        elif bound.is_array(output):
            columns.append(packing.arrays(output.take(records.batch), schema.field(len(columns)).type))
        else:
            columns.append(packing.last(output.take(records.batch)))
    if bound.on_rowkind is None:
        return columns
    wanted = filters.mask(bound.on_rowkind, pa.RecordBatch.from_arrays([rowkind], names=[ROWKIND]))
    return [column.filter(wanted) for column in columns]


def _names(kinds: pa.Array | None, length: int) -> pa.Array:
    return row_kinds.constant(row_kinds.INSERT, length) if kinds is None else row_kinds.to_names(kinds)


@dataclass(frozen=True, slots=True)
class Packing:
    """Which adjacent records make one row of `$binlog`; follows Java's `BinlogTable`."""

    offsets: npt.NDArray[np.int32]  # Where each row begins among the records, and where the last one ends
    kinds: npt.NDArray[np.int8]

    @staticmethod
    def of(records: Records) -> Packing:
        """Pack each -U with the +U right after it."""
        codes = _codes(records)
        pairs = np.flatnonzero((codes[:-1] == UPDATE_BEFORE) & (codes[1:] == UPDATE_AFTER))
        begins = np.delete(np.arange(len(codes), dtype=np.int32), pairs + 1)
        return Packing(np.append(begins, np.int32(len(codes))), np.delete(codes, pairs))

    def arrays(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(self.offsets), values, type=kind)

    def last(self, values: pa.Array) -> pa.Array:
        return values.take(pa.array(self.offsets[1:] - 1))


def unbroken(records: Iterable[Records]) -> Iterator[Records]:
    """The same records, cut so that only the last batch may end with -U, because its +U may be the next record."""
    held: Records | None = None
    for each in records:
        if held is not None:
            each = _joined(held, each)
        held = None
        if _codes(each)[-1] == UPDATE_BEFORE:
            each, held = _parted(each, each.batch.num_rows - 1)
        if each.batch.num_rows:
            yield each
    if held is not None:
        yield held


def _codes(records: Records) -> npt.NDArray[np.int8]:
    if records.kinds is None:
        return np.full(records.batch.num_rows, INSERT, dtype=np.int8)
    codes: npt.NDArray[np.int8] = records.kinds.to_numpy(zero_copy_only=False)
    return codes


def _parted(records: Records, row: int) -> tuple[Records, Records]:
    batch, kinds = records.batch, pa.array(_codes(records))
    return Records(batch.slice(0, row), kinds.slice(0, row)), Records(batch.slice(row), kinds.slice(row))


def _joined(first: Records, second: Records) -> Records:
    return Records(one_batch([first.batch, second.batch]), pa.array(np.concatenate([_codes(first), _codes(second)])))
