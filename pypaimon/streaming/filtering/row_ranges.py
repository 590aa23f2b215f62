"""Files of data evolution that hold columns of the same rows: those whose ranges of row ids overlap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.int64]


def row_ranges(first: _Numbers, count: _Numbers, apart: npt.NDArray[np.bool_]) -> _Numbers:
    """Number the ranges that files which overlap make together, from 0.

    Args:
        first: The first row id of each file, ascending as far as files are not set apart; -1 without row ids.
        count: Rows of each file.
        apart: Which files have nothing to do with the one before.
    """
    starts = np.ones(len(first), dtype=bool)
    # The last row id of the range so far, -1 without row ids.
    reach = -1
    for index, (begin, rows) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        if not apart[index] and 0 <= begin <= reach:
            starts[index] = False
            reach = max(reach, begin + rows - 1)
        else:
            reach = begin + rows - 1 if begin >= 0 else -1
    return np.cumsum(starts, dtype=np.int64) - 1
