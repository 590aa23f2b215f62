"""`mostly_distinct`: the columns of a file whose values hardly repeat, for which a dictionary costs time and bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_PIECES = 16
_PIECE_ROWS = 256
# Of a column with 100,000 values, each as frequent as any other, a sample of 4,096 rows holds 98 % different ones.
_SHARE = 0.97


def mostly_distinct(data: pa.Table) -> set[str]:
    """The columns, none of nested types, in a sample of which nearly every value is another one.

    Args:
        data: Rows, in the order in which they are stored. Those that are looked at are spread over all of them.
    """
    step = max(_PIECE_ROWS, data.num_rows // _PIECES)
    sample = pa.concat_tables([data.slice(start, _PIECE_ROWS) for start in range(0, data.num_rows or 1, step)])
    return {name for name in data.column_names if _is_mostly_distinct(sample[name])}


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return False
    values = len(column) - column.null_count
    return bool(pc.count_distinct(column).as_py() > _SHARE * values)
