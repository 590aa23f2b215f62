"""`SavedState`: what a target saves with its position, and whether a stream may continue from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.read_scope import ReadScope
from pypaimon.streaming.paimon.internals import AtomicType, TableSchema
from pypaimon.streaming.targets.changes import AnyBatch, has_keyed_rows

BEGIN_AGAIN = "drop the target's table, or give a target of one table replace=True, so that the state replaces it"


@dataclass(frozen=True, slots=True)
class Saved:
    """What was saved with the rows, as text.

    Attributes:
        position: The position up to which the target holds the table, from `Position.to_json`. Empty: the target has
            made its table before there were rows.
        columns: The rest, from `SavedState.to_json`, or None.
    """

    position: str
    columns: str | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column that rows are written to.

    Attributes:
        field_id: Id of the field of the Paimon table; None for a column without a field.
        types: Paimon's types of the column and its nested fields, by path. Empty if an older release wrote it.
    """

    field_id: int | None
    name: str
    type: str
    inside: dict[str, int]
    types: dict[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> int | str:
        """What stays when the column is renamed: the id of its field, otherwise its name."""
        return self.name if self.field_id is None else self.field_id


@dataclass(frozen=True, slots=True)
class SavedState:
    """Describes the rows of a target. The position, which names the table and its history, is saved with it.

    Attributes:
        highest_field_id: The highest field id of the Paimon table at that time. Fields with higher ids were added
        later.
        columns: The columns that were written to.
        scope: Which rows of the table were read. None if an older release wrote it.
        keys: The fields of the target's key, by id or name. None if an older release wrote it.
    """

    highest_field_id: int
    columns: tuple[Column, ...]
    scope: ReadScope | None = None
    keys: tuple[int | str, ...] | None = None

    def to_json(self) -> str:
        """The state as text. Older releases read the part that they know."""
        value: dict[str, Any] = {
            "highest": self.highest_field_id,
            "columns": [[each.field_id, each.name, each.type, each.inside] for each in self.columns],
            "types": [each.types for each in self.columns],
        }
        if self.scope is not None:
            value["scope"] = self.scope.to_value()
        if self.keys is not None:
            value["keys"] = list(self.keys)
        return json.dumps(value)

    @staticmethod
    def from_json(text: str) -> SavedState:
        """Read the text of `to_json`, of this or an older release."""
        try:
            value = json.loads(text)
            # Older releases saved no types.
            types = value.get("types") or [{}] * len(value["columns"])
            columns = tuple(Column(*[*each, of]) for each, of in zip(value["columns"], types, strict=True))
            scope, keys = value.get("scope"), value.get("keys")
            return SavedState(
                value["highest"],
                columns,
                None if scope is None else ReadScope.from_value(scope),
                None if keys is None else tuple(keys),
            )
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise StreamConfigError(
                f"the columns that are saved with the position are damaged: {text[:100]!r}. Drop the table: its "
                "position() is None then, and a stream that begins with the state fills it again."
            ) from error

    @staticmethod
    def of(batch: AnyBatch, described: Sequence[tuple[str, str]], keys: Sequence[str] | None) -> SavedState:
        """The state of a target that holds the rows of a batch.

        Args:
            keys: The key columns of the target. None if the target does not save its keys.
        """
        source = SourceTable.of_batch(batch)
        fields = batch._fields
        columns = []
        for name, kind in described:
            found = fields.get(name)
            inside = {} if found is None else dict(_inside(found.type, ""))
            types = {} if found is None else dict(_types(found.type, ""))
            columns.append(Column(None if found is None else int(found.id), name, kind, inside, types))
        key_ids = None if keys is None else source.ids(keys)
        return SavedState(int(batch.schema.highest_field_id), tuple(columns), source.scope, key_ids)


@dataclass(frozen=True, slots=True)
class SourceTable:
    table: str
    schema: TableSchema
    scope: ReadScope
    keyed: bool

    @staticmethod
    def of_batch(batch: AnyBatch) -> SourceTable:
        return SourceTable(batch.plan_after.table, batch.schema, batch._scope, has_keyed_rows(batch))

    def ids(self, names: Sequence[str]) -> tuple[int | str, ...]:
        """The ids of columns; the name of a column without a field."""
        ids = {each.name: int(each.id) for each in self.schema.fields}
        return tuple(ids.get(name, name) for name in names)


def refuse_another_source(saved: Saved | None, source: SourceTable, keys: Sequence[str] | None) -> None:
    """Refuse a stream that cannot continue from what a target has saved.

    Args:
        saved: What the target has saved, or None.
        keys: The key columns of the target. None if the target does not save its keys.
    """
    if saved is None or not saved.position:
        return
    position = Position.from_json(saved.position)
    if position.table != source.table:
        raise StreamConfigError(
            f"The stream reads table {source.table!r}, and the target holds rows of table {position.table!r}.",
            advice=f"Give each table a target of its own. If the table was dropped and recreated, {BEGIN_AGAIN}.",
            option="replace",
        )
    if saved.columns is None:
        return
    state = SavedState.from_json(saved.columns)
    what = None if state.scope is None else state.scope.difference(source.scope, source.schema)
    if what is None and None not in (state.keys, keys):
        what = _other_keys(state, source, keys or ())
    if what is not None:
        raise StreamConfigError(
            f"The stream does not continue what the target holds: {what}. Rows would be missing or left over.",
            advice=f"Read as before, give it a target of its own, or {BEGIN_AGAIN}.",
            option="replace",
        )


def is_made_for(saved: Saved, batch: AnyBatch, keys: Sequence[str]) -> bool:
    """Whether a table without rows has the columns and keys of a batch."""
    known = SavedState.from_json(saved.columns or "")
    kinds = {column.name: column.type for column in known.columns}
    return known == SavedState.of(batch, [(name, kinds.get(name, "")) for name in batch.rows.schema.names], keys)


def is_another_source(
    saved: Saved | None, source: SourceTable, keys: Sequence[str] | None, *, may_replace: bool
) -> bool:
    """Whether a target holds something else than a stream reads, and may replace it."""
    try:
        refuse_another_source(saved, source, keys)
    except StreamConfigError:
        if not may_replace:
            raise
        return True
    return False


def refuse_others_rows(where: str) -> StreamConfigError:
    return StreamConfigError(
        f"{where} holds rows already that this target has not written, which the state of the table would replace.",
        advice="Give the target another table, empty this one, or give the target replace=True.",
        option="replace",
    )


def is_of_older_release(columns: str | None) -> bool:
    """Whether an older release saved a state. It may be in another place, under the name that the caller gave."""
    try:
        return columns is None or "scope" not in json.loads(columns)
    except (ValueError, TypeError):
        return False


def refuse_two_positions(where: str, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise StreamConfigError(
            f"{where}: positions of it are saved as {' and as '.join(map(repr, names))}, so that rows may be "
            "there twice.",
            advice=f"Remove all but one from the table of positions, or {BEGIN_AGAIN}.",
            option="replace",
        )


def _other_keys(state: SavedState, source: SourceTable, keys: Sequence[str]) -> str | None:
    before, now = state.keys or (), source.ids(keys)
    # Their order does not matter: rows are found by all of them.
    if set(before) == set(now):
        return None
    names: dict[int | str, str] = {int(each.id): each.name for each in source.schema.fields}
    shown = [names.get(each, str(each)) for each in before]
    return f"another key: {shown or 'no key'} was the target's before, and {list(keys) or 'no key'} is now"


def field_ids(schema: TableSchema) -> set[int]:
    """The ids of all columns, and of all fields inside of them."""
    ids = {int(each.id) for each in schema.fields}
    return ids.union(*(dict(_inside(each.type, "")).values() for each in schema.fields))


def _inside(kind: Any, path: str) -> Iterator[tuple[str, int]]:
    for each in getattr(kind, "fields", ()):
        yield f"{path}.{each.name}", int(each.id)
    for inner, inner_path in _parts(kind, path):
        yield from _inside(inner, inner_path)


def _types(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, AtomicType):
        yield path, str(kind.type).upper()
    for inner, inner_path in _parts(kind, path):
        yield from _types(inner, inner_path)


def _parts(kind: Any, path: str) -> Iterator[tuple[Any, str]]:
    for each in getattr(kind, "fields", ()):
        yield each.type, f"{path}.{each.name}"
    for part in ("element", "key", "value"):
        if hasattr(kind, part):
            yield getattr(kind, part), f"{path}[{part}]"
