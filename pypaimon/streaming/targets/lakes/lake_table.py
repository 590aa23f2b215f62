"""`LakeTable`: a table whose formats commit files, so that the rows of a plan are written at its end."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.types as types

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.normal_form import normal_table, normal_type
from pypaimon.streaming.targets.changes import GivenKeys, TargetKeys
from pypaimon.streaming.targets.plan_transactions import TransactionalTable, is_same_place
from pypaimon.streaming.targets.row_staging import PlanStaging
from pypaimon.streaming.targets.target_state import Saved

_SAME = (
    types.is_boolean,
    types.is_int32,
    types.is_int64,
    types.is_float32,
    types.is_float64,
    types.is_date32,
    types.is_decimal128,
    types.is_string,
    types.is_binary,
)
_LEAVE_OUT = "leave it out of the stream with with_projection(...)"
_Leaf = Callable[[Any], pa.DataType | None]


def fitted_to_delta(rows: pa.Table) -> pa.Table:
    """Rows in types of Delta, with the same values. Columns are nullable."""
    lower = Counter(name.lower() for name in rows.schema.names)
    same = [name for name in rows.schema.names if lower[name.lower()] > 1]
    if same:
        raise UnsupportedTableError(
            f"columns {same} differ only in case, which a Delta table cannot hold: leave all but one out of the stream "
            "with with_projection(...)"
        )
    return _fitted(rows, "a Delta table", lambda kind: kind if types.is_signed_integer(kind) else None)


def fitted_to_iceberg(rows: pa.Table) -> pa.Table:
    """Rows in types of Iceberg, with the same values. Columns are nullable."""
    paths = Counter(path for field in rows.schema for path in _paths(field, ""))
    if twice := [path for path, count in paths.items() if count > 1]:
        raise UnsupportedTableError(
            f"columns and fields {twice}: pyiceberg reads a dot in a name as the separator of a nested field, so that "
            f"two would have one name. Rename one, or {_LEAVE_OUT}."
        )

    def leaf(kind: Any) -> pa.DataType | None:
        if types.is_int8(kind) or types.is_int16(kind):
            return pa.int32()
        return pa.time64("us") if types.is_time(kind) and kind.unit != "ns" else None

    return _fitted(rows, "an Iceberg table", leaf)


def kept_by_iceberg(rows: pa.Table) -> pa.Table:
    """As `fitted_to_iceberg`, and refuses nulls that pyiceberg loses."""
    fitted = fitted_to_iceberg(rows)
    for field, column in zip(fitted.schema, fitted.columns, strict=True):
        if any(_has_lost_nulls(chunk) for chunk in column.chunks):
            raise StreamConfigError(
                f"column '{field.name}' of type {field.type} holds a null for a list or a map of rows, which pyiceberg "
                f"would make empty: {_LEAVE_OUT}, or the rows with with_filter(...)."
            )
    return fitted


def _paths(field: pa.Field, prefix: str) -> Iterator[str]:
    path = f"{prefix}{field.name}"
    yield path
    if types.is_struct(field.type):
        for inside in field.type:
            yield from _paths(inside, f"{path}.")


def _has_lost_nulls(array: pa.Array) -> bool:
    kind, valid = array.type, array.drop_null() if array.null_count else array
    if types.is_list(kind):
        return bool(array.null_count and types.is_struct(kind.value_type)) or _has_lost_nulls(valid.flatten())
    if types.is_map(kind):
        return bool(array.null_count and types.is_struct(kind.item_type)) or _has_lost_nulls(valid.items)
    return types.is_struct(kind) and any(_has_lost_nulls(each) for each in valid.flatten())


def has_times_without_zone(kind: Any) -> bool:
    if types.is_timestamp(kind):
        return kind.tz is None
    return any(has_times_without_zone(kind.field(number).type) for number in range(kind.num_fields))


def _fitted(rows: pa.Table, table: str, leaf: _Leaf) -> pa.Table:
    fields = []
    for field in rows.schema:
        kind = _type(normal_type(field.type), leaf)
        if kind is None:
            raise UnsupportedTableError(
                f"column '{field.name}' of type {field.type} cannot be written to {table}: {_LEAVE_OUT}"
            )
        fields.append(pa.field(field.name, kind))
    return normal_table(rows, pa.schema(fields))


def _type(kind: Any, leaf: _Leaf) -> pa.DataType | None:
    if types.is_timestamp(kind):
        # Delta and Iceberg have microseconds.
        return None if kind.unit == "ns" else pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_list(kind):
        element = _type(kind.value_type, leaf)
        return None if element is None else pa.list_(element)
    if types.is_map(kind):
        key, value = _type(kind.key_type, leaf), _type(kind.item_type, leaf)
        return None if key is None or value is None else pa.map_(key, value)
    if types.is_struct(kind):
        parts = [(part.name, _type(part.type, leaf)) for part in kind]
        return None if any(each is None for _, each in parts) else pa.struct(parts)
    return kind if any(is_of(kind) for is_of in _SAME) else leaf(kind)


T = TypeVar("T")


class LakeTable(TransactionalTable, Generic[T]):
    """A table whose newest commit of a plan notes the position.

    Attributes:
        keys: The key columns of the last batch; empty: rows are appended.
    """

    def __init__(self, where: str, keys: GivenKeys) -> None:
        self.where = where
        self.given_keys = TargetKeys(keys)
        self.keys: list[str] = []
        self._before: Saved | None = None
        self._plan: PlanStaging | None = None
        self._table: T | None = None
        self._position = ""

    def saved(self) -> Saved | None:
        with self._translated():
            return self._saved_in(self._load())

    def save(self, position: str, before: Saved | None) -> Saved | None:
        assert self._plan is not None
        with self._translated():
            # Loaded again, because another program may have committed since the plan began.
            self._table = self._load()
            if not is_same_place(self._saved_in(self._table), before):
                return None
            self._prepare(self._plan)
        self._position = position
        return self._plan.saved(position)

    def roll_back(self) -> None:
        """Drop the rows. Files that were written belong to no commit."""
        self._end()

    def _end(self) -> None:
        plan, self._plan, self._table = self._plan, None, None
        if plan is not None:
            plan.close()

    @abstractmethod
    def _load(self) -> T | None: ...

    @abstractmethod
    def _saved_in(self, table: T | None) -> Saved | None: ...

    @abstractmethod
    def _prepare(self, plan: PlanStaging) -> None: ...

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]: ...
