"""Records as the output columns of a read, also those of `$audit_log` and `$binlog`.

In `$binlog` an update is one row: the columns are arrays, `[before, after]` of an update and one element otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.filtering import filters
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.row_kinds import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.options.read_scope import ROWKIND
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings
from pypaimon.streaming.reading.records import Records


def output_columns(records: Records, bound: ReadLayout, settings: ReadSettings, schema: pa.Schema) -> list[pa.Array]:
    """The output columns of some records, which may have fewer rows or none.

    Args:
        records: The records as they were read.
        bound: The columns to give out.
        settings: Whether row kinds are a column.
        schema: The Arrow schema of the output.
    """
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
    """Which adjacent records make one row of `$binlog`; follows Java's `BinlogTable`.

    Attributes:
        offsets: Where each row begins among the records, and where the last one ends.
        kinds: The row kinds of the rows as codes: +U for a packed update.
    """

    offsets: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int8]

    @staticmethod
    def of(records: Records) -> Packing:
        """Pack each -U with the +U right after it."""
        codes = _codes(records)
        pairs = np.flatnonzero((codes[:-1] == UPDATE_BEFORE) & (codes[1:] == UPDATE_AFTER))
        begins = np.delete(np.arange(len(codes), dtype=np.int32), pairs + 1)
        return Packing(np.append(begins, np.int32(len(codes))), np.delete(codes, pairs))

    def arrays(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """A column of records as a list column of rows."""
        return pa.ListArray.from_arrays(pa.array(self.offsets), values, type=kind)

    def last(self, values: pa.Array) -> pa.Array:
        """The value of the last record of each row."""
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
    (batch,) = pa.Table.from_batches([first.batch, second.batch]).combine_chunks().to_batches()
    return Records(batch, pa.array(np.concatenate([_codes(first), _codes(second)])))
