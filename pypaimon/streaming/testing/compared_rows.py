"""Compares rows of a target with expected ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pypaimon.streaming.testing.table_changes import Rows


def difference(expected: Rows, found: Rows) -> tuple[Rows, Rows]:
    """The missing rows, and the surplus rows."""
    extra = [_comparable(row) for row in found]
    missing = []
    for wanted in map(_comparable, expected):
        if wanted in extra:
            extra.remove(wanted)
        else:
            missing.append(wanted)
    return missing, extra


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that are not null. NaN is replaced by its name, because it is not equal to itself."""
    values = {name: value for name, value in row.items() if value is not None}
    return {name: "NaN" if isinstance(value, float) and value != value else value for name, value in values.items()}


def shown(rows: Rows) -> str:
    """Some rows, for an error."""
    if not rows:
        return "none that is missing there"
    return ", ".join(map(str, rows[:3])) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
