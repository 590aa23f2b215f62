"""`$binlog`: an update as one row: the columns are arrays, `[before, after]` of an update and one element otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.model.row_kinds import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.reading.records import Records


@dataclass(frozen=True, slots=True)
class Packing:
    """Which neighbouring records make one row; follows Java's `BinlogTable`.

    Attributes:
        offsets: Where each row begins among the records, and where the last one ends.
        kinds: The row kinds of the rows, as codes: +U for a packed update.
    """

    offsets: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int8]

    @staticmethod
    def of(records: Records) -> Packing:
        """Pack each -U with the +U right behind it."""
        codes = _codes(records)
        pairs = np.flatnonzero((codes[:-1] == UPDATE_BEFORE) & (codes[1:] == UPDATE_AFTER))
        begins = np.delete(np.arange(len(codes), dtype=np.int32), pairs + 1)
        return Packing(np.append(begins, np.int32(len(codes))), np.delete(codes, pairs))

    def arrays(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """A column of records as one of rows, of a list type."""
        return pa.ListArray.from_arrays(pa.array(self.offsets), values, type=kind)

    def last(self, values: pa.Array) -> pa.Array:
        """The value of the last record of each row."""
        return values.take(pa.array(self.offsets[1:] - 1))


def unbroken(records: Iterable[Records]) -> Iterator[Records]:
    """The same records, cut so that no batch but the last one ends with -U: its +U may be the next record."""
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
