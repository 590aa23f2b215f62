"""`read_changes`: change records become rows with kinds; `to_arrow`: these become columns of a table's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa

from pypaimon.streaming.cdc.change_records import ChangeFormat, ChangeRecord, Declared, Row, UnreadableError, parsed
from pypaimon.streaming.cdc.change_values import BadValueError, Reading, column_of
from pypaimon.streaming.cdc.debezium_json import DebeziumJson, UnavailableValue
from pypaimon.streaming.cdc.mysql_json import CanalJson, MaxwellJson
from pypaimon.streaming.errors import BadChangeError, StreamConfigError
from pypaimon.streaming.model.column_names import GivenNames
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, NAMES, UPDATE_BEFORE
from pypaimon.streaming.model.time_zone import time_zone as zone_of_name
from pypaimon.streaming.paimon.internals import DataField

ChangeFormatName = Literal["debezium-json", "canal-json", "maxwell-json"]
TimeUnit = Literal["ms", "us", "ns"]

V = TypeVar("V")


@dataclass(slots=True)
class ChangeRows:
    """Consecutive rows whose records declare the same types.

    Attributes:
        declared: What the records declare about the columns, by name.
        silent: What applies to the other columns.
        kinds: Codes of row kinds, one for each row.
        rows: Values as in JSON, by column.
        records: The number of the record of each row, from 1.
        names: All columns of the rows.
    """

    declared: Mapping[str, Declared]
    silent: Declared
    kinds: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)

    def says_of(self, name: str) -> Declared:
        return self.declared.get(name, self.silent)

    def values(self, name: str) -> list[Any]:
        """The values of a column; None if a row lacks it."""
        return [row.get(name) for row in self.rows]


def format_of(name: str, placeholder: str | None) -> ChangeFormat:
    """A format of change records.

    Args:
        placeholder: Debezium's `unavailable.value.placeholder`; None: its default.
    """
    if name not in get_args(ChangeFormatName):
        expected = ", ".join(map(repr, get_args(ChangeFormatName)))
        raise StreamConfigError(f"format: expected {expected}, got {name!r}")
    if name == "debezium-json":
        try:
            return DebeziumJson(UnavailableValue() if placeholder is None else UnavailableValue(placeholder))
        except ValueError as error:
            raise StreamConfigError(
                f"unavailable_value_placeholder: {error}, got {placeholder!r}", option="unavailable_value_placeholder"
            ) from error
    if placeholder is not None:
        raise StreamConfigError(
            f"unavailable_value_placeholder: expected None for {name!r}, which has no placeholders",
            option="unavailable_value_placeholder",
        )
    return CanalJson() if name == "canal-json" else MaxwellJson()


def reading_of(time_unit: str | None, time_zone: str | None) -> Reading:
    if time_unit is not None and time_unit not in get_args(TimeUnit):
        raise StreamConfigError(f"time_unit: expected 'ms', 'us' or 'ns', got {time_unit!r}", option="time_unit")
    try:
        return Reading(time_unit, None if time_zone is None else zone_of_name(time_zone))
    except ValueError as error:
        raise StreamConfigError(f"time_zone: {error}", option="time_zone") from error


def read_changes(
    records: Iterable[ChangeRecord],
    form: str,
    keys: Sequence[str],
    placeholder: str | None = None,
    columns: Sequence[str] = (),
) -> list[ChangeRows]:
    """The rows of change records, in their order, with the names of columns as the table spells them.

    An update of the key becomes a delete and an insert, so that the old row is removed even if -U is ignored.

    Args:
        placeholder: As of `format_of`.
        columns: The columns of the table. Others keep the names that they have.

    Raises:
        BadChangeError: A record cannot be read; the message says which one and why.
    """
    reader, spelling = format_of(form, placeholder), _Spelling(columns)
    found: list[ChangeRows] = []
    types: Any = None
    for number, record in enumerate(records, 1):
        try:
            content = parsed(record)
            if content is None:
                continue
            event = reader.read(content)
            changes = [(kind, spelling.of_table(row)) for kind, row in event.changes]
            if changes and (not found or event.types != types):
                types = event.types
                found.append(ChangeRows(spelling.of_table(reader.declared(types)), reader.silent))
        except UnreadableError as error:
            raise BadChangeError(number, error.column, str(error)) from None
        for kind, row in _kept_apart(changes, keys):
            now = found[-1]
            now.kinds.append(kind)
            now.rows.append(row)
            now.records.append(number)
            if row.keys() != now.names.keys():
                now.names.update(dict.fromkeys(row))
    return found


def to_arrow(changes: ChangeRows, fields: Sequence[DataField], reading: Reading, kind_column: str | None) -> pa.Table:
    """Rows in the types of a table: its columns, followed by the row kinds.

    Columns that all rows lack, and columns that the table lacks, are left out.

    Args:
        kind_column: Name of the column of row kinds; None: the table has no primary key.

    Raises:
        BadChangeError: A value does not fit, or the table accepts only inserts.
    """
    columns, names = [], []
    for each in fields:
        if each.name not in changes.names or each.name == kind_column:
            continue
        if each.default_value is not None:
            _check_complete(changes, each)
        try:
            columns.append(column_of(changes.values(each.name), each.type, changes.says_of(each.name), reading))
        except BadValueError as error:
            record = changes.records[error.index]
            raise BadChangeError(record, each.name, str(error), advice=error.advice, option=error.option) from error
        except ValueError as error:
            raise BadChangeError(changes.records[0], each.name, str(error)) from error
        names.append(each.name)
    if kind_column is not None:
        columns.append(pa.array(NAMES).take(pa.array(changes.kinds, pa.int8())))
        names.append(kind_column)
    else:
        _check_inserts(changes)
    return pa.Table.from_arrays(columns, names)


class _Spelling:
    """Gives the columns of rows the names that a table has for them.

    Names match as those of rows that a writer is given (`GivenNames`).
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = dict.fromkeys(columns)
        self._renamed: dict[tuple[str, ...], Mapping[str, str]] = {}

    def of_table(self, row: Mapping[str, V]) -> Mapping[str, V]:
        """Raises UnreadableError if several columns mean one of the table."""
        if row.keys() <= self._columns.keys():
            return row
        names = tuple(row)
        renamed = self._renamed.get(names)
        if renamed is None:
            try:
                renamed = self._renamed[names] = GivenNames(names, self._columns).renamed(self._columns)
            except ValueError as error:
                raise UnreadableError(str(error)) from None
        return {renamed.get(name, name): value for name, value in row.items()} if renamed else row


def _kept_apart(changes: list[tuple[int, Row]], keys: Sequence[str]) -> Iterable[tuple[int, Row]]:
    if len(changes) < 2 or not keys or changes[0][0] != UPDATE_BEFORE:
        return changes
    found = []
    for (old_kind, old), (new_kind, new) in zip(changes[::2], changes[1::2], strict=True):
        moved = any(old.get(key) != new.get(key) for key in keys)
        found += [(DELETE, old), (INSERT, new)] if moved else [(old_kind, old), (new_kind, new)]
    return found


def _check_inserts(changes: ChangeRows) -> None:
    for kind, record in zip(changes.kinds, changes.records, strict=True):
        if kind != INSERT:
            raise BadChangeError(
                record,
                None,
                f"it changes a row ({NAMES[kind]}), and rows can only be appended to a table without a primary key",
            )


def _check_complete(changes: ChangeRows, column: DataField) -> None:
    for row, record in zip(changes.rows, changes.records, strict=True):
        if column.name not in row:
            raise BadChangeError(record, column.name, "the row lacks it, and its default value is not filled in here")
