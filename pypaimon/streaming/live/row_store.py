"""`RowStore`: holds the rows of a live table; and how rows change when the columns of their table do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch, refuse_other_keys
from pypaimon.streaming.errors import SchemaChangedError, StreamConfigError, UnsupportedContentError
from pypaimon.streaming.files.casts import CastError
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.paimon.internals import DataField, TableSchema

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    from pypaimon.streaming.live.row_order import RowRange


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of a table that rows show.

    Attributes:
        snapshot_id: The last snapshot whose changes are included; None: the table had none.
        commit_time: When it was committed (aware, UTC); None: there is no snapshot.
    """

    snapshot_id: int | None = None
    commit_time: datetime | None = None


class RowStore(Protocol):
    """Rows by key. One thread applies plans. Any thread may read meanwhile, and sees each plan as a whole or not."""

    @property
    def table_version(self) -> TableVersion: ...

    @property
    def held(self) -> HeldColumns: ...

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def lookup_keys(self) -> LookupKeys: ...

    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def get(self, key: Any) -> dict[str, Any] | None: ...

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order; a row of nulls for a key without a row."""

    def between(self, wanted: RowRange) -> pa.Table:
        """The rows in a range, in order."""

    def to_arrow(self) -> pa.Table:
        """All rows, in no order."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows of the version that is published when this is called, batch by batch."""

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection in which the rows are a view of this name."""

    def apply(self, batch: BlockingBatch, table_version: TableVersion | None) -> RowStore:
        """Apply a batch of a plan.

        Args:
            table_version: Publish the rows as this version. None: readers do not see the changes yet.
        """

    def load(self, rows: pa.Table) -> RowStore:
        """Add rows of new keys; `publish` lets readers see them."""

    def publish(self, table_version: TableVersion) -> None:
        """Let readers see all that was applied, as a version of the table."""


@dataclass(frozen=True)
class HeldColumns:
    """The columns of the rows of a live table.

    Attributes:
        schema: Paimon's schema that the rows were read with.
        arrow: Arrow's schema of the rows.
        fields: The fields of the table that the columns are, by the names of the columns. A projection may name a
            column like another one of the table, and keeps its names when columns of the table exchange theirs.
    """

    schema: TableSchema
    arrow: pa.Schema
    fields: Mapping[str, DataField]

    @staticmethod
    def of(batch: BlockingBatch) -> HeldColumns:
        return HeldColumns(batch.schema, batch.rows.schema, batch._fields)

    @cached_property
    def keys(self) -> LookupKeys:
        """The primary key. Raises StreamConfigError if its columns are not there under their own names."""
        names = self.schema.primary_keys
        if missing := [key for key in names if key not in self.arrow.names]:
            raise StreamConfigError(
                f"{', '.join(missing)} of the primary key is not read: a live table needs the whole key, each column "
                "under its own name"
            )
        refuse_other_keys(self.schema, self.fields)
        return LookupKeys(names, [self.arrow.field(key).type for key in names])

    def are_in(self, other: HeldColumns) -> bool:
        """Whether other columns include these, as the same fields, nested ones included, and of the same types."""
        return all(
            name in other.arrow.names
            and self.arrow.field(name).equals(other.arrow.field(name))
            and _identity(self.fields.get(name)) == _identity(other.fields.get(name))
            for name in self.arrow.names
        )

    def are(self, other: HeldColumns) -> bool:
        """Whether other columns are these, in the same order."""
        return self.arrow.equals(other.arrow) and self.are_in(other)

    def convert(self, rows: pa.Table, wanted: HeldColumns) -> pa.Table:
        """Convert rows of these columns to others of a newer schema, as a batch read does.

        Raises:
            SchemaChangedError: A value cannot be cast to the new type of its column, or other columns are read.
        """
        held, fields = {field.id for field in self.fields.values()}, []
        for name in wanted.arrow.names:
            field = wanted.fields.get(name)
            # Rows have no values of columns that the table had and they have not. Later ones are null in them.
            if field is None or (field.id not in held and field.id <= self.schema.highest_field_id):
                raise self._refused(wanted, f"column {name!r}")
            fields.append(field)
        try:
            zone = zone_of(wanted.schema.options)
            columns = map_columns(rows.schema, list(self.fields.values()), fields, exact=False, zone=zone)
            batches = [
                pa.RecordBatch.from_arrays([column.read(batch) for column in columns], wanted.arrow.names)
                for batch in rows.to_batches()
            ]
            return pa.Table.from_batches(batches).cast(wanted.arrow) if batches else wanted.arrow.empty_table()
        except (CastError, UnsupportedContentError, pa.ArrowInvalid) as error:
            raise self._refused(wanted, str(error)) from error

    def _refused(self, wanted: HeldColumns, what: str) -> SchemaChangedError:
        return SchemaChangedError(self.schema.id, wanted.schema.id, f"a live table cannot follow: {what}")


def _identity(field: DataField | None) -> object:
    # Unlike the text of a type, its dictionary has the ids of nested fields.
    return None if field is None else (field.id, field.type.to_dict())


class LookupKeys:
    """Checks and converts keys.

    Args:
        names: The columns.
        kinds: Their types.
        is_primary: Whether they are the primary key of the table; for errors.
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[pa.DataType], is_primary: bool = True) -> None:
        self._is_primary = is_primary
        self.names = list(names)
        self.kinds = list(kinds)
        self._python = [_plain_type(kind) for kind in kinds]
        self._ranges = [_range(kind) for kind in kinds]

    def values(self, key: Any) -> Sequence[Any]:
        """The values of one key: a value, or a tuple or dict for several columns."""
        if isinstance(key, Mapping):
            if key.keys() != set(self.names):
                raise self._refused(f"a dict of {list(key)}")
            return [key[name] for name in self.names]
        if len(self.names) == 1:
            return [key]
        if not isinstance(key, (tuple, list)) or len(key) != len(self.names):
            raise self._refused(repr(key))
        return key

    def plain(self, values: Sequence[Any]) -> list[int | bytes] | None:
        """The values as integers and bytes, which need no Arrow; None if any has another Python type."""
        plain: list[int | bytes] = []
        for value, python, (least, most) in zip(values, self._python, self._ranges, strict=True):
            if type(value) is not python:
                return None
            if python is int and not least <= value <= most:
                raise self._refused(repr(tuple(values)))
            try:
                plain.append(value.encode() if python is str else value)
            except UnicodeEncodeError as error:
                raise self._refused(repr(tuple(values))) from error
        return plain

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """The values of one key as columns, converted as in `fitted`."""
        return self._cast(lambda: [_values([value]) for value in values])

    def fitted(self, keys: Any) -> list[pa.Array]:
        """Many keys as columns of the key's types."""
        return self._cast(lambda: self._given(keys))

    def _cast(self, given: Callable[[], list[pa.Array]]) -> list[pa.Array]:
        try:
            return [_fitted(each, kind) for each, kind in zip(given(), self.kinds, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, StreamConfigError):
                raise
            raise self._refused(f"keys that do not fit ({error})") from error

    def _given(self, keys: Any) -> list[pa.Array]:
        if isinstance(keys, (pa.Table, pa.RecordBatch)):
            if any(keys.schema.names.count(name) != 1 for name in self.names):
                raise self._refused(f"columns {keys.schema.names}")
            return [_array(keys.column(name)) for name in self.names]
        if len(self.names) > 1:
            raise self._refused("one column" if isinstance(keys, (pa.Array, pa.ChunkedArray)) else type(keys).__name__)
        if isinstance(keys, (pa.Array, pa.ChunkedArray)):
            return [_array(keys)]
        if isinstance(keys, (str, bytes, Mapping)):
            raise self._refused(f"{keys!r} for many keys")
        return [_array(_values(keys))]

    def _refused(self, given: str) -> StreamConfigError:
        key = ", ".join(f"{name} {kind}" for name, kind in zip(self.names, self.kinds, strict=True))
        ways = "a value" if len(self.names) == 1 else "a tuple or a dict"
        if not self._is_primary:
            return StreamConfigError(f"rows are looked up by ({key}), and not {given}: give {ways}")
        return StreamConfigError(
            f"the key of the table is ({key}), and not {given}: give {ways} for one key, and for many an Arrow table "
            f"with these columns{', or an array' if len(self.names) == 1 else ''}"
        )


def _values(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, list) and any(getattr(value, "nanosecond", 0) for value in values):
        zones = {getattr(value, "tzinfo", None) is not None for value in values if value is not None}
        if len(zones) > 1:
            raise TypeError("times with and without a time zone")
        return pa.array(values, pa.timestamp("ns", "UTC" if zones == {True} else None))
    return pa.array(values)


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain_type(kind: pa.DataType) -> type[Any] | None:
    if pa.types.is_integer(kind):
        return int
    return str if pa.types.is_string(kind) else bytes if pa.types.is_binary(kind) else None


def _range(kind: pa.DataType) -> tuple[int, int]:
    half = 1 << (kind.bit_width - 1) if pa.types.is_integer(kind) else 0
    return -half, half - 1


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == kind:
        return column
    given, wanted = _family(column.type), _family(kind)
    if given not in (wanted, "null", *_ALSO.get(wanted, ())):
        raise TypeError(f"{column.type} for {kind}")
    if (given, wanted) == ("integer", "decimal"):
        # Arrow casts 64-bit integers only to decimals that can hold all of them.
        column = column.cast(pa.decimal256(76, kind.scale))
    return column.cast(kind)


_ALSO = {"integer": ("float",), "decimal": ("integer",), "float": ("integer",)}
"""Other families that keys are cast from, if nothing is lost."""


def _family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with time zone"
    return next((family for family, is_one in _FAMILIES.items() if is_one(kind)), str(kind))


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "null": pa.types.is_null,
    "integer": pa.types.is_integer,
    "decimal": pa.types.is_decimal,
    "float": pa.types.is_floating,
    "text": lambda kind: str(kind) in ("string", "large_string", "string_view"),
    "bytes": lambda kind: "binary" in str(kind),
    "date": pa.types.is_date,
    "time": pa.types.is_time,
}
