"""`ReadScope`: which rows of a table a stream reads, as a value that a target saves and compares; and the views.

The columns of the system tables `$audit_log`, `$binlog`, `$row_tracking` and `$ro` follow Java's rules:
docs/java-semantics.md#system-tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.paimon.internals import AtomicType, DataField, SpecialFields, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

View = Literal["audit_log", "binlog", "row_tracking", "ro"]

VIEWS: tuple[View, ...] = ("audit_log", "binlog", "row_tracking", "ro")
LOGS: tuple[View, ...] = ("audit_log", "binlog")
"""Views that have the row kind in a column."""

ROWKIND = "rowkind"
ROWKIND_FIELD = DataField(2147483643, ROWKIND, AtomicType("STRING"))


def view_fields(schema: TableSchema, view: View | None) -> list[DataField]:
    """All columns of a view, as Java's `AuditLogTable`, `RowTrackingTable` and `ReadOptimizedTable` have them.

    The columns of `binlog` are those of `audit_log`, which a filter uses. They come out as arrays.

    Args:
        view: The view, or None for the table itself.
    """
    if view in LOGS:
        numbered = option_keys.TABLE_READ_SEQUENCE_NUMBER_ENABLED.of(schema.options)
        added = [ROWKIND_FIELD, SpecialFields.SEQUENCE_NUMBER] if numbered else [ROWKIND_FIELD]
        return [*added, *schema.fields]
    if view == "row_tracking":
        return [*schema.fields, SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER]
    return list(schema.fields)


_PROBED = 1024
"""Buckets for which a bucket filter of the user is called."""

_SYMBOLS = {
    "equal": "=",
    "notEqual": "<>",
    "lessThan": "<",
    "lessOrEqual": "<=",
    "greaterThan": ">",
    "greaterOrEqual": ">=",
}


@dataclass(frozen=True, slots=True)
class ReadScope:
    """Which rows of a table a stream reads. Two streams with equal scopes read the same rows.

    Attributes:
        filter: The filter, with the ids of fields in the place of their names (`#2 > 5`), so that it stays what it is
            when a column is renamed. Empty: every row.
        part: The shard or the buckets. Empty: all of them.
        view: The view, such as `audit_log`. Empty: the table itself.
    """

    filter: str = ""
    part: str = ""
    view: str = ""

    @staticmethod
    def of(options: StreamOptions, schema: TableSchema, view: View | None) -> ReadScope:
        """The scope of a stream.

        Args:
            options: The settings of the stream, over the options of the table.
            schema: The schema that the stream reads with.
        """
        ids = {field.name: f"#{field.id}" for field in schema.fields}
        condition = "" if options.predicate is None else _condition(options.predicate, ids)
        return ReadScope(condition, _part(options), view or "")

    def difference(self, now: ReadScope, schema: TableSchema) -> str | None:
        """The difference of another scope as the text of an error; None if they are equal.

        Args:
            now: The other scope.
            schema: Has the names of the fields in filters.
        """
        names = {f"#{field.id}": field.name for field in schema.fields}
        for what, before, after, none in (
            ("filter", _named(self.filter, names), _named(now.filter, names), "no filter"),
            ("part of the table", self.part, now.part, "the whole table"),
            ("view", self.view, now.view, "the table itself"),
        ):
            if before != after:
                return f"another {what}: {before or none} was read before, and {after or none} is read now"
        return None

    def to_value(self) -> dict[str, str]:
        """The scope as JSON value for `from_value`."""
        return {name: text for name, text in asdict(self).items() if text}

    @staticmethod
    def from_value(value: Any) -> ReadScope:
        """The scope that `to_value` was called on."""
        return ReadScope(**value)


def _condition(predicate: Predicate, ids: dict[str, str]) -> str:
    literals = list(predicate.literals or [])
    if predicate.method in ("and", "or"):
        # Equal filters may name their conditions in another order.
        parts = sorted({_condition(part, ids) for part in _flat(predicate)})
        return parts[0] if len(parts) == 1 else "(" + f" {predicate.method} ".join(parts) + ")"
    name, dot, inside = str(predicate.field).partition(".")
    given = [_literal(each) for each in literals]
    if predicate.method in ("in", "notIn"):
        given.sort()
    method = _SYMBOLS.get(predicate.method, predicate.method)
    return f"{ids.get(name, name)}{dot}{inside} {method} {', '.join(given)}".rstrip()


def _literal(value: Any) -> str:
    """A value as text; numbers of numpy are those of Python."""
    plain = getattr(value, "item", None)
    return repr(plain() if callable(plain) else value)


def _flat(predicate: Predicate) -> Iterator[Predicate]:
    for part in predicate.literals or []:
        if part.method == predicate.method:
            yield from _flat(part)
        else:
            yield part


def _named(condition: str, names: dict[str, str]) -> str:
    return re.sub(r"#\d+", lambda found: names.get(found[0], found[0]), condition)


def _part(options: StreamOptions) -> str:
    if options.shard is not None:
        return f"shard {options.shard[0]} of {options.shard[1]}"
    if options.bucket_filter is None:
        return ""
    return f"buckets {_buckets(options.bucket_filter)}"


def _buckets(is_read: Callable[[int], bool]) -> str:
    chosen = getattr(is_read, "__self__", None)
    if isinstance(chosen, frozenset):
        return ", ".join(map(str, sorted(chosen)))
    found = [bucket for bucket in range(_PROBED) if _is_read(is_read, bucket)]
    return f"by a function ({hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]})"


def _is_read(is_read: Callable[[int], bool], bucket: int) -> bool:
    try:
        return bool(is_read(bucket))
    except Exception:  # noqa: BLE001 (a filter of the user may accept only buckets that exist)
        return False
