"""Messages of Maxwell's daemon about changes of MySQL, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pypaimon.streaming.cdc.change_records import Declared, Event, Row, UnreadableError, needed_row, row_of
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

_NO_ROWS = ("bootstrap-start", "bootstrap-complete", "database-create", "database-alter", "table-create", "table-alter")
_LOSES_ROWS = ("table-drop", "database-drop")


class MaxwellJson:
    """Messages of Maxwell: `type` is insert, update, delete or bootstrap-insert, `old` has the old values of updates.

    They do not declare types. The start and end of a bootstrap, and statements that do not change rows, are skipped.
    Statements that drop tables are refused.
    """

    silent = Declared()

    def read(self, record: Row) -> Event:
        kind = record.get("type")
        if kind in ("insert", "bootstrap-insert"):
            return Event([(INSERT, needed_row(record, "data"))])
        if kind == "delete":
            # TiCDC puts the deleted row into 'old', and leaves out 'data'.
            row = row_of(record, "data") or row_of(record, "old") or needed_row(record, "data")
            return Event([(DELETE, row)])
        if kind == "update":
            after = needed_row(record, "data")
            return Event([(UPDATE_BEFORE, {**after, **needed_row(record, "old")}), (UPDATE_AFTER, after)])
        if kind in _NO_ROWS:
            return Event([])
        if kind in _LOSES_ROWS:
            raise UnreadableError(f"{kind} does not change single rows: overwrite the target, or write to another one")
        raise UnreadableError(f"expected insert, update, delete or bootstrap-insert, got {kind!r}", "type")

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """See `ChangeFormat`. Nothing, because the messages do not declare types."""
        return {}
