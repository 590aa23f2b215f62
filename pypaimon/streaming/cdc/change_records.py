"""Change records: the JSON of a message, the rows that it changes, and what it declares about their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

Row = Mapping[str, Any]
"""Values as in JSON, by column. Numbers with a fraction are `Decimal`, so that no digit is lost."""

ChangeRecord = bytes | str | Mapping[str, Any] | None
"""A record as in a topic, or parsed; None: a tombstone."""

_DECODER = json.JSONDecoder(parse_float=Decimal)


class UnreadableError(ValueError):
    """What is wrong with a record. The reader, which knows the number of the record, turns it into `BadChangeError`.

    Attributes:
        column: The column or field that is wrong; None: the record as a whole.
    """

    def __init__(self, detail: str, column: str | None = None) -> None:
        self.column = column
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a record declares about a column.

    Attributes:
        type: The Paimon type that holds all its values, as text; None: not declared.
        unit: Unit of integers that are timestamps or times of day: `d`, `ms`, `us` or `ns` since 1970 or midnight;
            None: not declared.
        scale: Scale of decimals that are written as base64 of their unscaled value; None: they are not.
        latin: Whether bytes are written as text, one character each, instead of base64.
        clock: Which times are local times of an undeclared zone: `numbers`, or `all`, even if their text ends with a
            zone. None: the text decides, and numbers count from 1970 as the column does.
    """

    type: str | None = None
    unit: str | None = None
    scale: int | None = None
    latin: bool = False
    clock: Literal["numbers", "all"] | None = None


class Event(NamedTuple):
    """The content of one record.

    Attributes:
        changes: Row kinds (codes of `model.row_kinds`) and rows, in their order. Old rows come before new ones.
        types: What it declares about types, for `ChangeFormat.declared`. Records with equal types have equal values.
    """

    changes: list[tuple[int, Row]]
    types: Any = None


class ChangeFormat(Protocol):
    silent: Declared

    def read(self, record: Row) -> Event:
        """The content of a record. It has no changes if the record is not about rows.

        Raises:
            UnreadableError: The record has another format, or changes rows in a way that it does not list row by row.
        """

    def declared(self, types: Any) -> Mapping[str, Declared]: ...


def parsed(record: ChangeRecord) -> Row | None:
    """A record as an object; None for a tombstone.

    Raises:
        UnreadableError: It is not a JSON object.
    """
    if record is None or isinstance(record, Mapping):
        return record
    if not isinstance(record, (str, bytes, bytearray, memoryview)):
        raise UnreadableError(f"expected bytes, str, a mapping or None, got {type(record).__name__}")
    try:
        text = record if isinstance(record, str) else bytes(record).decode()
        found = _DECODER.decode(text.strip())
    except UnicodeDecodeError as error:
        raise UnreadableError(f"it is not text in UTF-8 ({error})") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON ({error})") from None
    if found is not None and not isinstance(found, dict):
        raise UnreadableError(f"expected a JSON object, got {type(found).__name__}")
    return found


def row_of(record: Row, field: str) -> Row | None:
    """The row in a field of a record; None if the field is missing.

    Raises:
        UnreadableError: The field is not a row.
    """
    row = record.get(field)
    if row is not None and not isinstance(row, Mapping):
        raise UnreadableError(f"expected an object of columns, got {type(row).__name__}", field)
    return row


def needed_row(record: Row, field: str) -> Row:
    """The row in a field of a record, which must not be missing."""
    row = row_of(record, field)
    if row is None:
        raise UnreadableError("the row is missing", field)
    return row
