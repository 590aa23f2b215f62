"""A literal that is finer than its column: statistics keep the files whose rows the filter keeps."""

from __future__ import annotations

from datetime import datetime, time, timezone
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.predicate import Predicate

from pypaimon.streaming.filtering.filters import mask
from pypaimon.streaming.filtering.statistics import ColumnStats, may_hold
from pypaimon.streaming.paimon.internals import AtomicType, PyarrowFieldParser

MOMENT = datetime(2026, 1, 1, 10, 0, 0, 123456)
LITERALS: dict[str, Any] = {
    **{f"TIMESTAMP({precision})": MOMENT for precision in (0, 1, 3, 4, 6)},
    **{
        f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE": MOMENT.replace(tzinfo=timezone.utc)
        for precision in (0, 1, 3, 4, 6)
    },
    "TIMESTAMP": MOMENT,
    "TIMESTAMP WITH LOCAL TIME ZONE": MOMENT.replace(tzinfo=timezone.utc),
    "TIME": time(10, 0, 0, 123456),
    "TIME(3)": time(10, 0, 0, 123456),
}


@pytest.mark.parametrize("kind", LITERALS)
@pytest.mark.parametrize("method", ["equal", "in", "lessOrEqual", "greaterOrEqual", "between"])
def test_a_file_of_what_the_literal_stands_for_is_kept(kind: str, method: str) -> None:
    data_type, literal = AtomicType(kind), LITERALS[kind]
    arrow = PyarrowFieldParser.from_paimon_type(data_type)
    fine = pa.array([literal], pa.time64("us") if kind.startswith("TIME(") or kind == "TIME" else None)
    stored = fine.cast(arrow, safe=False)
    predicate = Predicate(method, None, "t", [literal] * (2 if method == "between" else 1))
    assert mask(predicate, pa.RecordBatch.from_arrays([stored], ["t"])).to_pylist() == [True]
    stats = ColumnStats(stored, stored, nulls=pa.array([0]), rows=pa.array([1]))
    assert may_hold(predicate, stats, data_type).tolist() == [True]
