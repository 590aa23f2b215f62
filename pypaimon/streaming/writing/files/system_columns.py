"""The system columns of records in primary-key files: key, sequence number, row kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pypaimon.streaming.model.system_columns import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND


class RecordBuilder:
    """Numbers the rows of one bucket in the order in which they are written."""

    def __init__(self, keys: Sequence[str], next_number: int) -> None:
        self._keys = tuple(keys)
        self._next = next_number

    def records_of(self, rows: pa.Table) -> pa.Table:
        """The records: `_KEY_<k>` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the columns of the table.

        Args:
            rows: The columns of the table, and `_VALUE_KIND` (int8).
        """
        numbers = pa.array(np.arange(self._next, self._next + rows.num_rows, dtype=np.int64))
        self._next += rows.num_rows
        return numbered(rows.append_column(SEQUENCE_NUMBER, numbers), self._keys)


def numbered(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The records of numbered rows, with the columns in the order of files.

    Args:
        rows: The columns of the table, `_VALUE_KIND` (int8) and `_SEQUENCE_NUMBER` (int64).
    """
    values = rows.drop_columns([VALUE_KIND, SEQUENCE_NUMBER])
    copies = [values.schema.field(name).with_name(KEY_PREFIX + name) for name in keys]
    system = [pa.field(SEQUENCE_NUMBER, pa.int64(), False), pa.field(VALUE_KIND, pa.int8(), False)]
    columns = (values[name] for name in keys)
    return pa.Table.from_arrays(
        [*columns, rows[SEQUENCE_NUMBER], rows[VALUE_KIND], *values.columns],
        schema=pa.schema([*copies, *system, *values.schema]),
    )
