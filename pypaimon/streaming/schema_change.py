"""Does a newer schema change what a stream reads (B20)."""

from __future__ import annotations

from collections.abc import Collection

from pypaimon.streaming.internals import DataField, TableSchema


def read_field_ids(schema: TableSchema, names: Collection[str] | None) -> frozenset[int] | None:
    """Ids of the columns with these names; None, for all columns, stays None."""
    if names is None:
        return None
    return frozenset(field.id for field in schema.fields if field.name in names)


def difference(old: TableSchema, new: TableSchema, ids: frozenset[int] | None) -> str | None:
    """What the newer schema changes among the columns that are read; None if nothing.

    Options, comments, and columns that are not read do not count.

    Args:
        old: The schema of the stream.
        new: The schema of a snapshot.
        ids: Ids of the columns that are read, or used by the filter; None for all columns, their order included.
    """
    if old.id == new.id:
        return None
    before = [field for field in old.fields if ids is None or field.id in ids]
    after = {field.id: field for field in new.fields if ids is None or field.id in ids}
    for field in before:
        other = after.get(field.id)
        if other is None:
            return f"column {field.name!r} was dropped"
        changed = _changed(field, other)
        if changed:
            return changed
    known = {field.id for field in before}
    added = [field.name for field in after.values() if field.id not in known]
    if added:
        return "columns were added: " + ", ".join(added)
    if ids is None and [field.id for field in before] != list(after):
        return "columns were reordered"
    return None


def _changed(old: DataField, new: DataField) -> str | None:
    if old.name != new.name:
        return f"column {old.name!r} was renamed to {new.name!r}"
    if old.type != new.type:
        return f"column {old.name!r} changed from {old.type} to {new.type}"
    return None
