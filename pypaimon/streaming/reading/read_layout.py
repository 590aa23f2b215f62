"""What a read gives out and what it must read for that: projection and filter, bound to field ids and to one schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import SchemaChangedError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.filtering.field_paths import Path, find, ids_of, rebound, rebound_filter
from pypaimon.streaming.internals import ArrayType, DataField, DataType, RowType, TableSchema
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.blob_types import holds_blobs, is_blob, is_blob_collection
from pypaimon.streaming.model.system_columns import SYSTEM_TYPES
from pypaimon.streaming.options import views
from pypaimon.streaming.options.blob_storage import BlobStorage
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_SIZE, Unmatched
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.options.views import LOGS, ROWKIND, ROWKIND_FIELD, View
from pypaimon.streaming.reading.nested_columns import narrowed, requested

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How splits become rows.

    Attributes:
        schema: The schema to read with.
        projection: Columns to give out, in this order, fields of rows as `row.field`; None: all.
        output_names: What those of the projection are called; None: as they are, fields of rows `row_field`.
        nested: Whether fields of rows stay inside of them, instead of coming out as columns of their own.
        predicate: Which rows; names are those of `schema`, fields of rows as `row.field`.
        own_filter: The part of `predicate` that was given to the read; the rest of it is what the table's options say.
        unmatched: What becomes of records of an upsert stream that do not match: a -D with their values, or nothing.
        include_row_kind: Whether the first column is `_row_kind`.
        view: `audit_log`, `binlog`, `row_tracking`, `ro`, or None for the table itself.
        batch_size: Rows per batch read, at most.
        blob_descriptors: Whether descriptors come out in place of blobs; None: as the table's options say.
        blob_places: Where stored descriptors may point, besides the table's directory; None: its whole file system.
    """

    schema: TableSchema
    projection: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    nested: bool = False
    predicate: Predicate | None = None
    own_filter: Predicate | None = None
    unmatched: Unmatched = Unmatched.DELETE
    include_row_kind: bool = True
    view: View | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    blob_descriptors: bool | None = None
    blob_places: tuple[str, ...] | None = None

    @property
    def gives_descriptors(self) -> bool:
        """Whether descriptors come out in place of blobs."""
        if self.blob_descriptors is not None:
            return self.blob_descriptors
        return OptionValues(self.schema.options).boolean("blob-as-descriptor", False)


@dataclass(frozen=True, slots=True)
class Output:
    """A column that is given out.

    Attributes:
        path: Names from the top column down.
        ids: The field ids of `path`.
        name: Its name.
        type: Its type, nullable where a row around it is.
    """

    path: tuple[str, ...]
    ids: tuple[int, ...]
    name: str
    type: DataType

    @property
    def is_rowkind(self) -> bool:
        """Whether it is the column `rowkind` of a log, whatever it is called; a table may have one of that name."""
        return self.ids == (ROWKIND_FIELD.id,)

    def take(self, batch: pa.RecordBatch) -> pa.Array:
        """The column out of a batch as it was read."""
        array = batch.column(self.path[0])
        for name in self.path[1:]:
            array = pc.struct_field(array, name)
        return narrowed(array, self.type)


@dataclass(frozen=True)
class Layout:
    """A read of one schema.

    Attributes:
        schema: The schema.
        fields: What is read from files, in the order of the schema: rows hold only the fields that are needed.
        system_columns: System columns that are read behind the fields.
        outputs: What is given out.
        request: The columns that are given out, with the rows that fields are in.
        predicate: The filter, but for `on_rowkind`.
        on_keys: Its AND-parts on key and partition columns alone.
        on_values: The rest of it.
        on_rowkind: AND-parts on the column `rowkind` of an audit log alone.
        packed: Whether columns come out as arrays (`binlog`).
    """

    schema: TableSchema
    fields: tuple[DataField, ...]
    system_columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    request: tuple[DataField, ...]
    predicate: Predicate | None
    on_keys: Predicate | None
    on_values: Predicate | None
    on_rowkind: Predicate | None
    packed: bool = False

    @cached_property
    def traits(self) -> TableTraits:
        """The kind of the table."""
        return TableTraits.of(self.schema)

    @cached_property
    def blobs(self) -> Mapping[str, DataType]:
        """The columns that are given out with blobs in place of their cells, by name."""
        given = [output for output in self.outputs if holds_blobs(output.type)]
        if not given:
            return {}
        storage = BlobStorage.of(self.schema)
        unresolved = frozenset() if storage.resolves_views else storage.views
        return {output.name: output.type for output in given if output.path[0] not in unresolved}

    @property
    def with_rowkind(self) -> bool:
        """Whether the column `rowkind` of an audit log is needed."""
        return self.on_rowkind is not None or any(output.is_rowkind for output in self.outputs)

    @property
    def filtered_columns(self) -> set[str]:
        """The names of all columns that the filter looks at."""
        parts = [part for part in (self.predicate, self.on_rowkind) if part is not None]
        return set().union(*map(filters.columns_of, parts))

    def reading(self, columns: Collection[str]) -> Layout:
        """The same, but these columns are read too, and wholly."""
        read = {field.name: field for field in self.fields}
        fields = ((field if field.name in columns else read.get(field.name)) for field in self.schema.fields)
        return replace(self, fields=tuple(field for field in fields if field is not None))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns that are given out."""
        return _arrow([DataField(output.ids[-1], output.name, self._given_out(output)) for output in self.outputs])

    def is_array(self, output: Output) -> bool:
        """Whether a column comes out as arrays: those of the table do, in a `binlog`."""
        return self.packed and output.path[0] not in (*SYSTEM_TYPES, ROWKIND)

    def _given_out(self, output: Output) -> DataType:
        return ArrayType(True, _nullable(output.type)) if self.is_array(output) else output.type

    def outputs_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns that are given out, of a batch as it was read."""
        return [output.take(batch) for output in self.outputs]


def layout(settings: ReadSettings) -> Layout:
    """Bind settings to their own schema.

    Raises:
        StreamConfigError: A column of the projection or the filter is not there, or the filter cannot be applied.
        UnsupportedTableError: A column has a type that Arrow cannot hold, or blobs deep inside of it.
    """
    fields = views.fields(settings.schema, settings.view)
    names = settings.projection if settings.projection is not None else [field.name for field in fields]
    return _layout(settings, fields, [_resolve(name, fields) for name in names])


def _named(outputs: list[Output], request: Sequence[DataField], settings: ReadSettings) -> list[Output]:
    """What is given out for the columns of the projection, as it is asked for."""
    if settings.nested:
        return [_output((field,)) for field in request]
    if settings.output_names is None:
        return outputs
    return [replace(output, name=name) for output, name in zip(outputs, settings.output_names, strict=True)]


def follow(settings: ReadSettings, schema: TableSchema) -> Layout:
    """Bind settings to a newer schema: by field ids, so that renamed columns are found, under their new name.

    Without a projection all columns of the newer schema come out.

    Raises:
        SchemaChangedError: A column that is projected, or that the filter looks at, is gone, or has a type now that the
            filter does not suit.
    """
    projection = settings.projection
    if projection is not None:
        projection = tuple(rebound(name, settings.schema, schema) for name in projection)
    predicate = rebound_filter(settings.predicate, settings.schema, schema)
    try:
        return layout(replace(settings, schema=schema, projection=projection, predicate=predicate))
    except StreamConfigError as error:
        raise SchemaChangedError(settings.schema.id, schema.id, str(error)) from error


def _layout(settings: ReadSettings, fields: Sequence[DataField], outputs: list[Output]) -> Layout:
    schema, predicate = settings.schema, settings.predicate
    paths = [output.path for output in outputs]
    request = requested(fields, paths)
    given_out = _named(outputs, request, settings)
    if predicate is not None:
        paths += [_resolve(name, fields).path for name in sorted(filters.columns_of(predicate))]
    # Without any column a batch could not say how many rows it has.
    used = _pruned(fields, paths) or schema.fields[:1]
    _check_blobs(used, predicate)
    if predicate is not None:
        filters.check(predicate, _arrow(used))
    on_rowkind, predicate = filters.split_and(predicate, [ROWKIND] if settings.view in LOGS else [])
    on_keys, on_values = filters.split_and(predicate, [*schema.partition_keys, *schema.primary_keys])
    stored = tuple(field for field in used if field.name not in SYSTEM_TYPES and field.id != ROWKIND_FIELD.id)
    system_columns = tuple(field.name for field in used if field.name in SYSTEM_TYPES)
    packed = settings.view == "binlog"
    return Layout(
        schema,
        stored,
        system_columns,
        tuple(given_out),
        tuple(request),
        predicate,
        on_keys,
        on_values,
        on_rowkind,
        packed,
    )


def _check_blobs(fields: Sequence[DataField], predicate: Predicate | None) -> None:
    """Blobs are columns, or elements of arrays and maps that are; what is fetched last, no filter can look at."""
    for field in fields:
        known = is_blob(field.type) or is_blob_collection(field.type)
        if holds_blobs(field.type) and not known:
            raise UnsupportedTableError(
                f"Columns with blobs deep inside of them cannot be streamed: {field.name} {field.type}.",
                advice="Leave such columns out with with_projection(...).",
                option="with_projection",
            )
        if known and predicate is not None and filters.compares(predicate, field.name):
            raise StreamConfigError(f"a filter may ask whether blobs are null, and nothing else of {field.name}")


def _arrow(fields: Sequence[DataField]) -> pa.Schema:
    try:
        return arrow_schema(fields)
    except ValueError as error:
        raise UnsupportedTableError(f"the table cannot be read as Arrow: {error}") from error


def _resolve(name: str, fields: Sequence[DataField]) -> Output:
    path = find(name, fields)
    if path is None:
        raise StreamConfigError(f"there is no column {name!r}; columns are {[field.name for field in fields]}")
    return _output(path)


def _output(path: Path) -> Output:
    nullable = any(field.type.nullable for field in path)
    names = tuple(field.name for field in path)
    last = path[-1].type
    return Output(names, ids_of(path), "_".join(names), last if not nullable else _nullable(last))


def _nullable(data_type: DataType) -> DataType:
    if data_type.nullable:
        return data_type
    changed = copy(data_type)
    changed.nullable = True
    return changed


def _pruned(fields: Sequence[DataField], paths: Sequence[Sequence[str]]) -> list[DataField]:
    """The fields on the paths; a row that is only passed through keeps the fields that are needed."""
    result = []
    for field in fields:
        tails = [path[1:] for path in paths if path[0] == field.name]
        if not tails:
            continue
        if all(tails):
            inner = RowType(field.type.nullable, _pruned(field.type.fields, tails))
            field = DataField(field.id, field.name, inner, field.description, field.default_value)
        result.append(field)
    return result
