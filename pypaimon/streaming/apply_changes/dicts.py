"""`apply_to_dict`: rows by key, in memory."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from pypaimon.streaming.apply_changes.changes import AnyBatch, last_changes


def apply_to_dict(batch: AnyBatch, state: MutableMapping[Any, dict[str, Any]], keys: str | Sequence[str]) -> None:
    """Bring a dict of rows up to date. A full state replaces what it holds: the batch that begins one empties it first.

    Args:
        batch: Changes, in order.
        state: Rows by key; by the value of the column, or by a tuple if several columns are the key.
        keys: The key column, or several.

    Raises:
        StreamConfigError: A key column is not in the batch.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    sets, removals = last_changes(batch, names)
    if batch.begins_state:
        state.clear()
    for row in removals.select(names).to_pylist():
        state.pop(_key(row, keys), None)
    for row in sets.to_pylist():
        state[_key(row, keys)] = row


def _key(row: dict[str, Any], keys: str | Sequence[str]) -> Any:
    return row[keys] if isinstance(keys, str) else tuple(row[key] for key in keys)
