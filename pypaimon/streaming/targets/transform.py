"""`BatchTransform`: what a copy does to the rows of a stream before its target gets them.

A transform works row by row and keeps kinds and keys. So the target holds the transformed rows of one snapshot of the
table, exactly once, wherever plans are cut into batches or repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from pypaimon.streaming.batches.batch import BatchRows
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.arguments import a_name, shown
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.targets.changes import AnyBatch, default_keys, has_keyed_rows, last_changes
from pypaimon.streaming.targets.target_state import SourceTable

B = TypeVar("B", bound=BatchRows)


class Step(Protocol):
    """One of the transforms that follow each other."""

    def _schema_after(self, schema: TableSchema) -> TableSchema:
        """The schema of the table as the target sees it."""

    def _batch(self, batch: AnyBatch, schema: TableSchema) -> AnyBatch:
        """The batch with other rows.

        Args:
            schema: `_schema_after` of the schema of the batch.
        """


@dataclass(frozen=True)
class SoftDeletes:
    """A transform with which deleted rows stay in the target, marked by a column of booleans.

    A deleted row has the values of its delete record. Rows that were deleted before the copy begins, or before it
    begins again with the state, are not in the target.

    Attributes:
        column: The name of the column: true for a deleted row.
    """

    column: str = "is_deleted"

    def _schema_after(self, schema: TableSchema) -> TableSchema:
        return schema

    def _batch(self, batch: AnyBatch, schema: TableSchema) -> AnyBatch:
        rows, removed = last_changes(batch, _keys_of("SoftDeletes", batch))
        _refuse_taken("SoftDeletes", [self.column], rows)
        rows = pa.concat_tables([_with_constant(rows, self.column, False), _with_constant(removed, self.column, True)])
        return batch._with_rows(_with_kinds(rows, batch), schema, batch._own | {self.column})


@dataclass(frozen=True)
class RowVersions:
    """A transform with which the target holds every version of a row, for a slowly changing dimension of type 2.

    Each version is a row of the target: the key is that of the table and `version`, the snapshot that wrote it. The
    next version of the key says until when it was valid. A delete is a version with `is_deleted`. Of several changes of
    a key in one snapshot the last one counts.

    Attributes:
        version: Name of the column with the snapshot (BIGINT).
        valid_from: Name of the column with its commit time (UTC).
        is_deleted: Name of the column that is true if the key was deleted.
    """

    version: str = "version"
    valid_from: str = "valid_from"
    is_deleted: str = "is_deleted"

    def _schema_after(self, schema: TableSchema) -> TableSchema:
        keyed = copy(schema)
        keyed.primary_keys = [*schema.primary_keys, self.version]
        return keyed

    def _batch(self, batch: AnyBatch, schema: TableSchema) -> AnyBatch:
        keys = _keys_of("RowVersions", batch)
        names = [self.version, self.valid_from, self.is_deleted]
        _refuse_taken("RowVersions", names, batch.rows)
        if batch.begins_state and batch.plan_before is not None:
            raise StreamConfigError(
                "RowVersions: the stream begins with the state of the table again, which would replace all versions. "
                "Copy the table into another target from here on.",
                advice="An overwrite of the table, or with_on_expired('full'), begins with the state again.",
            )
        if batch.kind is PlanKind.NET:
            raise StreamConfigError(
                "RowVersions: with_catch_up('net') reads several snapshots as one, so that versions would be missing; "
                "leave it out."
            )
        rows, removed = last_changes(batch, keys)
        marked = [_with_constant(rows, self.is_deleted, False), _with_constant(removed, self.is_deleted, True)]
        rows = _with_constant(pa.concat_tables(marked), self.version, batch.snapshot_id)
        moment = pa.scalar(batch.commit_time, pa.timestamp("ms", "UTC"))
        rows = rows.append_column(self.valid_from, pa.repeat(moment, rows.num_rows))
        return batch._with_rows(_with_kinds(rows, batch), schema, batch._own.union(names))


Part = Mapping[str, str] | Callable[[pa.Table], pa.Table] | SoftDeletes | RowVersions
Transform = Part | Sequence[Part]


class BatchTransform:
    """The transforms of a copy, one after the other. Thread-safe, as far as the functions are.

    Args:
        call: The call and argument that errors name.
        given: A mapping of new names by old ones, a function of an Arrow table, `SoftDeletes` or `RowVersions`, or a
            sequence of these. None: rows stay as they are.
        replaces: Whether a state may replace what the target holds.
    """

    def __init__(self, call: str, given: Transform | None, *, replaces: bool = False) -> None:
        parts = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
        self._steps = [_step(call, part) for part in parts]
        if replaces and any(isinstance(step, RowVersions) for step in self._steps):
            raise StreamConfigError(
                f"{call}: transform: with replace=True the state of the table could replace all versions of "
                "RowVersions(); leave replace out."
            )
        self._known: tuple[TableSchema, list[TableSchema]] | None = None

    def apply_to(
        self, apply: Callable[[Any], None], take_back: Callable[[], None] = lambda: None
    ) -> Callable[[Any], None]:
        """A function that applies transformed batches to a target.

        Args:
            take_back: Called if a transform raises, which may be inside a plan.
        """

        def changed(batch: AnyBatch) -> AnyBatch:
            try:
                return self.of(batch)
            except BaseException:
                take_back()
                raise

        return (lambda batch: apply(changed(batch))) if self._steps else apply

    def of(self, batch: B) -> B:
        changed = cast(AnyBatch, batch)
        for step, schema in zip(self._steps, self._schemas(batch.schema), strict=True):
            changed = step._batch(changed, schema)
        return cast(B, changed)

    def of_source(self, source: SourceTable) -> SourceTable:
        """The source as the target sees it."""
        schemas = self._schemas(source.schema)
        return SourceTable(source.table, schemas[-1], source.scope, source.keyed) if schemas else source

    def _schemas(self, schema: TableSchema) -> list[TableSchema]:
        # Targets compare schemas by identity, so each is made once.
        known = self._known
        if known is None or known[0] is not schema:
            schemas = list(accumulate(self._steps, lambda now, step: step._schema_after(now), initial=schema))[1:]
            self._known = known = schema, schemas
        return known[1]


def _step(call: str, part: Any) -> Step:
    if isinstance(part, (SoftDeletes, RowVersions)):
        kind = type(part).__name__
        names = [a_name(f"{kind}: {each.name}", getattr(part, each.name)) for each in fields(part)]
        if len(set(names)) < len(names):
            raise StreamConfigError(f"{kind}: give its columns different names, not {names}")
        return part
    if isinstance(part, Mapping):
        names = list(part.values())
        if not all(isinstance(name, str) and name for name in [*part, *names]) or len(set(names)) < len(names):
            raise StreamConfigError(f"{call}: transform: expected new names by old ones, all different, got {part!r}")
        return _NewNames(call, dict(part))
    if callable(part) and not isinstance(part, type):
        return _RowFunction(call, part)
    raise StreamConfigError(
        f"{call}: transform: expected a function of an Arrow table, a mapping of new names by old ones, SoftDeletes(), "
        f"RowVersions(), or a list of these, got {shown(part)}"
    )


class _NewNames:
    """Columns with other names. They remain the columns of their table, so that a target follows them."""

    def __init__(self, call: str, names: Mapping[str, str]) -> None:
        self._call = call
        self._names = names

    def _schema_after(self, schema: TableSchema) -> TableSchema:
        renamed = copy(schema)
        renamed.primary_keys = self._renamed(schema.primary_keys)
        renamed.partition_keys = self._renamed(schema.partition_keys)
        renamed.fields = []
        for field in schema.fields:
            renamed.fields.append(now := copy(field))
            now.name = self._names.get(field.name, field.name)
        return renamed

    def _batch(self, batch: AnyBatch, schema: TableSchema) -> AnyBatch:
        names = batch.data.schema.names
        if missing := [name for name in self._names if name not in names or name == ROW_KIND]:
            raise StreamConfigError(
                f"{self._call}: transform renames {missing}, and the rows have columns {batch.rows.schema.names}."
            )
        data = batch.data.rename_columns(_all_different(self._call, self._renamed(names)))
        return batch._with_rows(data, schema, frozenset(self._renamed(batch._own)), self._names)

    def _renamed(self, names: Any) -> list[str]:
        return [self._names.get(name, name) for name in names]


class _RowFunction:
    """A function of the user, whose result is checked: with it a target must hold one row for each row of the table."""

    def __init__(self, call: str, function: Callable[[pa.Table], pa.Table]) -> None:
        self._call = call
        self._function = function

    def _schema_after(self, schema: TableSchema) -> TableSchema:
        return schema

    def _batch(self, batch: AnyBatch, schema: TableSchema) -> AnyBatch:
        given, made = batch.data, self._function(batch.data)
        if not isinstance(made, pa.Table):
            raise self._refusal(f"returned {shown(made)}; it has to return an Arrow table")
        names = _all_different(self._call, made.schema.names)
        if untyped := [field.name for field in made.schema if pa.types.is_null(field.type)]:
            raise self._refusal(f"returned columns without a type, {untyped}: cast them")
        self._check_kinds(batch, made)
        for key in default_keys(batch):
            if key not in given.schema.names:
                continue
            if key not in names:
                raise self._refusal(
                    f"dropped the key column '{key}'. Keep it; to rename it, give a mapping, {{'{key}': 'new_name'}}"
                )
            if not _are_equal(given[key], made[key]):
                raise self._refusal(f"changed the key column '{key}'; it may change the other columns only")
        # A column that was changed may not follow its table's column any more.
        kept = {
            each.name for each in given.schema if each.name in names and made.schema.field(each.name).type == each.type
        }
        own = frozenset(name for name in names if name not in kept or name in batch._own) - {ROW_KIND}
        return batch._with_rows(made, schema, own)

    def _check_kinds(self, batch: AnyBatch, made: pa.Table) -> None:
        given = batch.data
        has_kinds = ROW_KIND in given.schema.names
        if has_kinds != (ROW_KIND in made.schema.names):
            raise self._refusal(f"{'dropped' if has_kinds else 'added'} the column {ROW_KIND}; row kinds have to stay")
        # Rows that are only added may become fewer or more.
        if not has_kinds and not has_keyed_rows(batch):
            return
        if made.num_rows != given.num_rows:
            raise self._refusal(
                f"made {made.num_rows} rows of {given.num_rows}: a row that it leaves out would stay in the target as "
                "it was. Each row has to stay; to leave out rows use with_filter(...)"
            )
        if has_kinds and not made[ROW_KIND].equals(given[ROW_KIND]):
            raise self._refusal(f"changed the kinds of rows in {ROW_KIND}, or their order; both have to stay")

    def _refusal(self, what: str) -> StreamConfigError:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return StreamConfigError(f"{self._call}: transform {name} {what}.")


def _keys_of(what: str, batch: AnyBatch) -> list[str]:
    if keys := default_keys(batch):
        return keys
    raise StreamConfigError(f"{what}: rows of a table without a primary key are not changed or deleted; leave it out.")


def _refuse_taken(what: str, names: Sequence[str], rows: pa.Table) -> None:
    if taken := [name for name in names if name in rows.schema.names]:
        raise StreamConfigError(f"{what}: the rows have columns {taken} already; give it other names.")


def _all_different(call: str, names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise StreamConfigError(f"{call}: transform: several columns have the names {twice}.")
    return names


def _with_constant(rows: pa.Table, name: str, value: bool | int) -> pa.Table:
    return rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))


def _with_kinds(rows: pa.Table, batch: AnyBatch) -> pa.Table:
    """Rows that are set, with a kind if the stream has kinds."""
    if ROW_KIND not in batch.data.schema.names:
        return rows
    kind = "+I" if batch.kind is PlanKind.FULL else "+U"
    field = batch.data.schema.field(ROW_KIND)
    return rows.add_column(0, field, pa.repeat(pa.scalar(kind), rows.num_rows).cast(field.type))


def _are_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != other.type:
        return False
    if pa.types.is_floating(one.type):
        # NaN differs from itself; its bits do not.
        kind = pa.int32() if pa.types.is_float32(one.type) else pa.int64()
        one, other = (pa.chunked_array([chunk.view(kind) for chunk in each.chunks], kind) for each in (one, other))
    return bool(one.equals(other))
