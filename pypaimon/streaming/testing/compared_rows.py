"""Rows that are there against those that should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pypaimon.streaming.testing.table_changes import Rows


def difference(expected: Rows, found: Rows) -> tuple[Rows, Rows]:
    """Rows that are missing, and rows that are too many."""
    extra = [_comparable(row) for row in found]
    missing = []
    for wanted in map(_comparable, expected):
        if wanted in extra:
            extra.remove(wanted)
        else:
            missing.append(wanted)
    return missing, extra


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that are not null. A NaN is equal to itself alone, so its name stands for it."""
    values = {name: value for name, value in row.items() if value is not None}
    return {name: "NaN" if isinstance(value, float) and value != value else value for name, value in values.items()}


def shown(rows: Rows) -> str:
    """Some rows, as an error says them."""
    if not rows:
        return "none that is missing there"
    return ", ".join(map(str, rows[:3])) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
