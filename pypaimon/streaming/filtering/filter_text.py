"""Filters as text, in a small part of SQL: `day = '2026-11-21' AND (v > 3 OR name IN ('a', 'b')) AND w IS NOT NULL`.

Comparisons are `=`, `<>`, `!=`, `<`, `<=`, `>`, `>=` of a column with a literal, `[NOT] IN (...)`, `IS [NOT] NULL` and
`[NOT] LIKE '...'` (`%` any text, `_` one character, `\\` before one that stands for itself);
`AND` binds tighter than `OR`. Text, dates and times are in single quotes (a quote in them is doubled). Column names
that are not plain words are in backquotes; fields of rows are `row.field`. Keywords may have any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.field_paths import find
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.paimon.filter_internals import Predicate
from pypaimon.streaming.paimon.internals import AtomicType, DataField, DataType

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>`[^`]+`)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"(?![\w.])|(?P<word>[^\W\d][\w.$]*)|(?P<mark><=|>=|<>|!=|[=<>(),]))"
)
_COMPARISONS = {
    "=": "equal",
    "<>": "notEqual",
    "!=": "notEqual",
    "<": "lessThan",
    "<=": "lessOrEqual",
    ">": "greaterThan",
    ">=": "greaterOrEqual",
}
_GRAMMAR = frozenset({"and", "or", "not", "in", "is", "like", "null", "true", "false"})
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "TIMESTAMP_LTZ": datetime.fromisoformat,
}
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})
_TEXTS = frozenset({"CHAR", "VARCHAR", "STRING"})


def parse_filter(text: str, fields: Sequence[DataField]) -> Predicate:
    """Parse a filter. Raises StreamConfigError if the text is not a filter, a column does not exist, or a literal does
    not fit its column.

    Args:
        fields: The columns that it may name. Literals are parsed for their types: a date column takes `'2026-11-21'`,
            a timestamp `'2026-11-21 08:30:00'` (in UTC, or with an offset, for local time zones).
    """
    return _Parser(text, fields).filter()


def is_text(kind: DataType) -> bool:
    """Whether values of a type can be matched with a pattern."""
    return isinstance(kind, AtomicType) and root(kind) in _TEXTS


def leaf_of(method: str, name: str, literals: list[Any] | None, fields: Sequence[DataField]) -> Predicate:
    top = next((index for index, field in enumerate(fields) if field.name == name), None)
    return Predicate(method, top, name, literals)


class _Parser:
    def __init__(self, text: str, fields: Sequence[DataField]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = self._split()
        self._position = 0

    def filter(self) -> Predicate:
        found = self._any()
        if self._tokens[self._position][0] != "end":
            raise self._wrong("AND, OR or the end")
        return found

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, position = [], 0
        while self._text[position:].strip():
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                at = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                rest = self._text[at : at + 20]
                raise StreamConfigError(f"filter {self._text!r}: cannot read {rest!r} at character {at + 1}")
            tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()
        return [*tokens, ("end", "", len(self._text))]

    def _word(self) -> str:
        kind, value, _ = self._tokens[self._position]
        return value.lower() if kind in ("word", "mark") else ""

    def _accept(self, *words: str) -> bool:
        here = self._position
        for word in words:
            if self._word() != word:
                self._position = here
                return False
            self._position += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong(word.upper())

    def _wrong(self, expected: str) -> StreamConfigError:
        _, value, at = self._tokens[self._position]
        found = f"{value!r} at character {at + 1}" if value else "the end"
        return StreamConfigError(f"filter {self._text!r}: expected {expected}, got {found}")

    def _any(self) -> Predicate:
        parts = [self._all()]
        while self._accept("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Predicate("or", None, None, parts)

    def _all(self) -> Predicate:
        parts = [self._one()]
        while self._accept("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Predicate("and", None, None, parts)

    def _one(self) -> Predicate:
        if self._accept("("):
            inner = self._any()
            self._expect(")")
            return inner
        name, kind = self._column()
        if self._accept("is"):
            method = "isNotNull" if self._accept("not") else "isNull"
            self._expect("null")
            return self._predicate(method, name, None)
        negated = self._accept("not")
        if self._accept("in"):
            return self._predicate("notIn" if negated else "in", name, self._list(name, kind))
        if self._accept("like"):
            if not is_text(kind):
                raise StreamConfigError(f"filter {self._text!r}: LIKE is for text, and {name} is {kind}")
            return self._predicate("notLike" if negated else "like", name, [self._literal(name, kind)])
        method = _COMPARISONS.get(self._word(), "")
        if negated or not method:
            raise self._wrong("IN or LIKE" if negated else "a comparison, IN, LIKE or IS")
        self._position += 1
        return self._predicate(method, name, [self._literal(name, kind)])

    def _predicate(self, method: str, name: str, literals: list[Any] | None) -> Predicate:
        return leaf_of(method, name, literals, self._fields)

    def _column(self) -> tuple[str, DataType]:
        kind, value, _ = self._tokens[self._position]
        if kind not in ("word", "quoted") or value.lower() in _GRAMMAR:
            raise self._wrong("a column")
        name = value.strip("`")
        found = find(name, self._fields)
        if found is None:
            known = ", ".join(field.name for field in self._fields)
            raise StreamConfigError(f"filter {self._text!r}: there is no column {name!r}; columns: {known}")
        self._position += 1
        return name, found[-1].type

    def _list(self, name: str, kind: DataType) -> list[Any]:
        self._expect("(")
        values = [self._literal(name, kind)]
        while self._accept(","):
            values.append(self._literal(name, kind))
        self._expect(")")
        return values

    def _literal(self, name: str, column: DataType) -> Any:
        kind, value, _ = self._tokens[self._position]
        wanted = root(column) if isinstance(column, AtomicType) else str(column)
        try:
            literal = self._value(kind, value, wanted)
        except StreamConfigError:
            raise
        except ValueError as error:
            raise StreamConfigError(
                f"filter {self._text!r}: {value} does not fit {name} ({wanted}): {error}"
            ) from error
        self._position += 1
        return literal

    def _value(self, kind: str, value: str, wanted: str) -> Any:
        if kind == "text":
            text = value[1:-1].replace("''", "'")
            if wanted not in _TEXTS and wanted not in _FROM_TEXT:
                raise ValueError("text in quotes is for text, dates and times")
            return _FROM_TEXT.get(wanted, str)(text)
        if kind == "number":
            if wanted not in _NUMBERS:
                raise ValueError("it is a number; text, dates and times need single quotes")
            return int(value) if re.fullmatch(r"[+-]?\d+", value) else Decimal(value)
        if self._word() in ("true", "false"):
            if wanted != "BOOLEAN":
                raise ValueError("it is a truth value")
            return self._word() == "true"
        if self._word() == "null":
            raise ValueError("nothing equals null; write IS NULL or IS NOT NULL")
        raise self._wrong("a number, a text in single quotes, TRUE or FALSE")
