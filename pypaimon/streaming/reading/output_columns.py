"""Records as the columns that a read gives out."""

from __future__ import annotations

import pyarrow as pa

from pypaimon.streaming.filtering import filters
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.options.views import ROWKIND
from pypaimon.streaming.reading.binlog import Packing
from pypaimon.streaming.reading.read_layout import Layout, ReadSettings
from pypaimon.streaming.reading.records import Records


def output_columns(records: Records, bound: Layout, settings: ReadSettings, schema: pa.Schema) -> list[pa.Array]:
    """The columns of some records, which may be fewer rows, or none.

    Args:
        records: As they were read.
        bound: What is given out of them.
        settings: Whether their row kinds are.
        schema: The columns that come out.
    """
    return _packed(records, bound, settings, schema) if bound.packed else _as_they_are(records, bound, settings)


def _as_they_are(records: Records, bound: Layout, settings: ReadSettings) -> list[pa.Array]:
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


def _packed(records: Records, bound: Layout, settings: ReadSettings, schema: pa.Schema) -> list[pa.Array]:
    """Rows of `$binlog`; the rows of the view themselves are all +I, as those of an audit log."""
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
