"""Change records of MySQL as Canal and Maxwell write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from pypaimon.streaming.cdc.change_records import Declared, Event, Row, UnreadableError, needed_row, row_of
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

_LOSES_ROWS = ("TRUNCATE", "ERASE", "RENAME")
_MYSQL_TYPE = re.compile(r"([a-z]+)\s*(?:\((\d+)(?:\s*,\s*(\d+))?\))?(.*)", re.DOTALL)
_SIGNED = {"tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INT", "int": "INT", "bigint": "BIGINT"}
_UNSIGNED = {"tinyint": "SMALLINT", "smallint": "INT", "mediumint": "INT", "int": "BIGINT", "bigint": "DECIMAL(20, 0)"}
_ALIASES = {"integer": "int", "numeric": "decimal", "dec": "decimal"}
_PLAIN = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "real": "DOUBLE",
    "date": "DATE",
    "year": "INT",
    "bit": "DECIMAL(20, 0)",
}
_MOST_DIGITS = 38


class CanalJson:
    """Messages of Canal: `type` is INSERT, UPDATE or DELETE, `data` has the rows, `old` the old values of updates.

    Values are text, bytes one character each. Statements that do not change rows (`isDdl`) are skipped. Those that
    remove rows (TRUNCATE, ERASE, RENAME) are refused.
    """

    silent = Declared(latin=True)

    def read(self, record: Row) -> Event:
        kind = str(record.get("type", "")).upper()
        if kind in _LOSES_ROWS:
            raise UnreadableError(f"{kind} does not change single rows: overwrite the target, or write to another one")
        if record.get("isDdl") is True or kind in ("CREATE", "ALTER", "CINDEX", "DINDEX", "QUERY"):
            return Event([])
        if kind not in ("INSERT", "UPDATE", "DELETE"):
            raise UnreadableError(f"expected INSERT, UPDATE or DELETE, got {record.get('type')!r}", "type")
        rows = _rows(record, "data")
        if rows is None:
            raise UnreadableError("the rows are missing", "data")
        types = record.get("mysqlType")
        if kind != "UPDATE":
            code = INSERT if kind == "INSERT" else DELETE
            return Event([(code, row) for row in rows], types)
        old = _rows(record, "old")
        if old is None or len(old) != len(rows):
            raise UnreadableError("an update needs what each row of 'data' held before", "old")
        changes: list[tuple[int, Row]] = []
        for before, after in zip_longest(old, rows):
            changes += [(UPDATE_BEFORE, {**after, **before}), (UPDATE_AFTER, after)]
        return Event(changes, types)

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """See `ChangeFormat`. From the types of MySQL."""
        if not isinstance(types, Mapping):
            return {}
        return {name: Declared(_paimon_type(str(each)), latin=True) for name, each in types.items()}


def _rows(record: Row, field: str) -> list[Row] | None:
    rows = record.get(field)
    if rows is None:
        return None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UnreadableError("expected a list of objects of columns", field)
    return rows


def _paimon_type(mysql_type: str) -> str:
    match = _MYSQL_TYPE.match(mysql_type.strip().lower())
    if match is None:
        return "STRING"
    name, first, second, rest = match.groups()
    name = _ALIASES.get(name, name)
    if name in _SIGNED:
        return (_UNSIGNED if "unsigned" in rest or "zerofill" in rest else _SIGNED)[name]
    if name == "decimal":
        digits, scale = int(first or 10), int(second or 0)
        return f"DECIMAL({digits}, {scale})" if digits <= _MOST_DIGITS else "STRING"
    if name in ("datetime", "timestamp"):
        return f"TIMESTAMP({int(first or 0)})"
    if name == "varbinary" or name.endswith(("blob", "binary")):
        return "BYTES"
    # TIME of MySQL is from -838 to 838 hours, which only text can hold.
    return _PLAIN.get(name, "STRING")


_NO_ROWS = ("bootstrap-start", "bootstrap-complete", "database-create", "database-alter", "table-create", "table-alter")
_DROPS = ("table-drop", "database-drop")


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
        if kind in _DROPS:
            raise UnreadableError(f"{kind} does not change single rows: overwrite the target, or write to another one")
        raise UnreadableError(f"expected insert, update, delete or bootstrap-insert, got {kind!r}", "type")

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """See `ChangeFormat`. Nothing, because the messages do not declare types."""
        return {}
