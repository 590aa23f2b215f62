"""What a change record is: JSON as it came, the rows that it changes, and what it says of their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

from pypaimon.streaming.errors import PaimonStreamError

Row = Mapping[str, Any]
"""Values as JSON has them, by column; numbers with a fraction are `Decimal`, so that no digit is lost."""

Record = bytes | str | Mapping[str, Any] | None
"""A record as a topic holds it, or parsed already; None: a tombstone."""

_DECODER = json.JSONDecoder(parse_float=Decimal)


class BadChangeError(PaimonStreamError, ValueError):
    """A change record that cannot become rows of the table. Nothing of the call was written.

    Attributes:
        record: Which record of the call, from 1.
        column: The column, or field of the record, that is at fault; None: the record as a whole.
    """

    def __init__(self, record: int, column: str | None, detail: str) -> None:
        self.record = record
        self.column = column
        self.detail = detail
        super().__init__(f"Change record {record}{f', column {column!r}' if column is not None else ''}: {detail}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.record, self.column, self.detail)


class UnreadableError(ValueError):
    """What is wrong with a record, for those who know its number.

    Attributes:
        column: The column or field that is at fault, None for the record.
    """

    def __init__(self, detail: str, column: str | None = None) -> None:
        self.column = column
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a record says of a column.

    Attributes:
        type: Paimon's type that holds all its values, as text; None: it says nothing.
        unit: What whole numbers count that stand for a moment or a time of day: `d`, `ms`, `us` or `ns` since midnight
            or 1970; None: it does not say.
        scale: Digits behind the point, where a decimal comes as base64 of its unscaled value; None: it does not.
        latin: Whether bytes come as text, one character for each, and not as base64.
        clock: Which moments are clocks on the wall, in a zone that nobody says: `numbers`, or `all`, also where their
            text ends with a zone. None: text says it, and numbers count from 1970 in the column's own sense.
    """

    type: str | None = None
    unit: str | None = None
    scale: int | None = None
    latin: bool = False
    clock: Literal["numbers", "all"] | None = None


class Event(NamedTuple):
    """What one record says.

    Attributes:
        changes: Row kinds (codes of `model.row_kinds`) and rows, in their order. Old rows stand before new ones.
        types: What it says of the types, for `ChangeFormat.declared`; equal of records with equal types.
    """

    changes: list[tuple[int, Row]]
    types: Any = None


class ChangeFormat(Protocol):
    """How one system writes changes down.

    Attributes:
        silent: What holds of a column of which nothing is said.
    """

    silent: Declared

    def read(self, record: Row) -> Event:
        """What a record says; no changes if it is about something else than rows.

        Raises:
            UnreadableError: It is none of this format, or changes rows in a way that cannot be told row by row.
        """

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """What `Event.types` says of the columns, by name."""


def parsed(record: Record) -> Row | None:
    """A record as an object; None for a tombstone.

    Raises:
        UnreadableError: It is no JSON object.
    """
    if record is None or isinstance(record, Mapping):
        return record
    if not isinstance(record, (str, bytes, bytearray, memoryview)):
        raise UnreadableError(f"expected bytes, str, a mapping or None, got {type(record).__name__}")
    try:
        text = record if isinstance(record, str) else bytes(record).decode()
        found = _DECODER.decode(text.strip())
    except UnicodeDecodeError as error:
        raise UnreadableError(f"it is no text in UTF-8 ({error})") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is no JSON ({error})") from None
    if found is not None and not isinstance(found, dict):
        raise UnreadableError(f"expected a JSON object, got {type(found).__name__}")
    return found


def row_of(record: Row, field: str) -> Row | None:
    """The row in a field of a record; None if there is none.

    Raises:
        UnreadableError: Something else is there.
    """
    row = record.get(field)
    if row is not None and not isinstance(row, Mapping):
        raise UnreadableError(f"expected an object of columns, got {type(row).__name__}", field)
    return row


def needed_row(record: Row, field: str) -> Row:
    """As `row_of`, and it must be there."""
    row = row_of(record, field)
    if row is None:
        raise UnreadableError("the row is missing", field)
    return row
