"""Change records to rows as plain Python, for tests of their formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pypaimon.streaming.cdc.change_reader import read_changes, reading_of, to_arrow
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.paimon.internals import AtomicType, DataField


def fields(**types: str) -> list[DataField]:
    """Columns of a table: names and types as text."""
    return [
        DataField(number, name, AtomicType(kind.removesuffix(" NOT NULL"), not kind.endswith("NOT NULL")))
        for number, (name, kind) in enumerate(types.items())
    ]


def changed(
    records: Iterable[Any],
    form: str,
    columns: Sequence[DataField],
    keys: Sequence[str] = ("id",),
    time_unit: str | None = None,
    time_zone: str | None = None,
    placeholder: str | None = None,
) -> list[tuple[Any, ...]]:
    """Rows as tuples: the kind, then the columns of the table that the rows have."""
    reading = reading_of(time_unit, time_zone)
    rows = []
    for changes in read_changes(records, form, keys, placeholder):
        for row in to_arrow(changes, columns, reading, ROW_KIND).to_pylist():
            kind = row.pop(ROW_KIND)
            rows.append((kind, *row.values()))
    return rows
