"""Messages of Maxwell's daemon about MySQL's changes as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pypaimon.streaming.cdc.records import Declared, Event, Row, UnreadableError, needed_row, row_of
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

_NO_ROWS = (
    "bootstrap-start",
    "bootstrap-complete",
    "database-create",
    "database-alter",
    "table-create",
    "table-alter",
)
_LOSES_ROWS = ("table-drop", "database-drop")


class MaxwellJson:
    """Messages of Maxwell: `type` is insert, update, delete or bootstrap-insert, `old` what an update changed.

    They say nothing of types. Where a bootstrap begins and ends, and statements that change no row, are passed over;
    those that drop tables are refused.
    """

    silent = Declared()

    def read(self, record: Row) -> Event:
        """What a message says. See `ChangeFormat`."""
        kind = record.get("type")
        if kind in ("insert", "bootstrap-insert"):
            return Event([(INSERT, needed_row(record, "data"))])
        if kind == "delete":
            # TiCDC has the deleted row in 'old', and no 'data'.
            row = row_of(record, "data") or row_of(record, "old") or needed_row(record, "data")
            return Event([(DELETE, row)])
        if kind == "update":
            after = needed_row(record, "data")
            return Event([(UPDATE_BEFORE, {**after, **needed_row(record, "old")}), (UPDATE_AFTER, after)])
        if kind in _NO_ROWS:
            return Event([])
        if kind in _LOSES_ROWS:
            raise UnreadableError(f"{kind} is no change of single rows: overwrite the target, or write to another one")
        raise UnreadableError(f"expected insert, update, delete or bootstrap-insert, got {kind!r}", "type")

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """Nothing: the messages do not tell types."""
        return {}
