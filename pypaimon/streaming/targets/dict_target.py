"""Rows by key in memory: `DictTarget`, and `apply_to_dict` for a dict of your own."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from math import isnan, nan
from typing import Any, ClassVar

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.former_names import FormerNames
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_batch, needed
from pypaimon.streaming.targets.changes import AnyBatch, default_keys, key_columns, last_changes, refuse_hidden_kinds
from pypaimon.streaming.targets.target import is_to_apply
from pypaimon.streaming.targets.target_state import Saved, SavedState, SourceTable, refuse_another_source


class DictTarget(FormerNames):
    """A dict of rows that follows a stream, in memory only.

    Args:
        keys: The key column, or several; default: the primary key of the table.

    Attributes:
        rows: Rows by key: by the value of the key column, or by a tuple of several.

    Raises:
        StreamConfigError: The keys are not names of columns.
    """

    _former_names: ClassVar = {"position": "load_position"}

    def __init__(self, keys: str | Sequence[str] | None = None) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self._keys = keys if keys is None or isinstance(keys, str) else key_columns(keys)
        self._position: Position | None = None
        self._saved: Saved | None = None
        self._passes_over = False

    def load_position(self) -> Position | None:
        """Where a stream continues. None: the dict holds nothing yet, or a part of a state."""
        return self._position

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch.

        Raises:
            StreamConfigError: A key column is not in the batch or holds -0.0, the keys do not contain the primary key,
                there are none, the batch does not continue where the dict stands, or its stream reads other rows of the
                table than the dict holds.
            TableChangedError: The table was rolled back.
        """
        if a_batch("DictTarget: batch", batch).is_first:
            refuse_hidden_kinds(batch)
            if self._position is not None:
                refuse_another_source(self._saved, SourceTable.of_batch(batch), None)
            self._passes_over = not is_to_apply(batch, self._position)
        if self._passes_over:
            return
        if batch.begins_state:
            self._position = None
        apply_to_dict(batch, self.rows, self._keys_of(batch))
        if batch.is_last:
            self._position = batch.plan_after
            state = SavedState.of(batch, [(name, "") for name in batch.rows.schema.names], None)
            self._saved = Saved(self._position.to_json(), state.to_json())

    def _keys_of(self, batch: AnyBatch) -> str | Sequence[str]:
        if self._keys is not None:
            return self._keys
        names = default_keys(batch)
        if not names:
            raise StreamConfigError("The table has no primary key, by which a dict holds its rows: give the keys.")
        return names[0] if len(names) == 1 else names


def apply_to_dict(batch: AnyBatch, state: MutableMapping[Any, dict[str, Any]], keys: str | Sequence[str]) -> None:
    """Bring a dict of rows up to date. A full state replaces what it holds: the batch that begins one empties it first.

    Args:
        batch: Changes, in order.
        state: Rows by key: by the value of the key column, or by a tuple of several.
        keys: The key column, or several.

    Raises:
        StreamConfigError: A key column is not in the batch or holds -0.0, or they do not contain the primary key.
    """
    names = key_columns(keys)
    needed("apply_to_dict: state", state, "a dict", "clear", "pop")
    sets, removals = last_changes(batch, names)
    if batch.begins_state:
        state.clear()
    for row in removals.select(names).to_pylist():
        state.pop(_key(row, keys), None)
    for row in sets.to_pylist():
        state[_key(row, keys)] = row


def _key(row: dict[str, Any], keys: str | Sequence[str]) -> Any:
    return _value(row[keys]) if isinstance(keys, str) else tuple(_value(row[key]) for key in keys)


def _value(value: Any) -> Any:
    # A dict finds a NaN only as the same object.
    return nan if isinstance(value, float) and isnan(value) else value
