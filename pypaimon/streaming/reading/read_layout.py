"""`ReadLayout`: the columns that a read gives out and those that it must read, bound to one schema by field ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import SchemaChangedError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.filtering.field_paths import Path, find, ids_of, rebound, rebound_filter
from pypaimon.streaming.metadata.history import ReaderKind
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.data_types import holds_blobs, is_blob, is_blob_collection
from pypaimon.streaming.model.system_columns import SYSTEM_TYPES
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.read_scope import LOGS, ROWKIND, ROWKIND_FIELD, View, view_fields
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_SIZE, Unmatched
from pypaimon.streaming.options.table_traits import BlobStorage, TableTraits
from pypaimon.streaming.paimon.internals import ArrayType, DataField, DataType, RowType, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How splits become rows."""

    schema: TableSchema
    projection: tuple[str, ...] | None = None  # Output columns in this order, fields of rows as `row.field`; None: all
    # Names of the output columns; None: their own names, for fields of rows `row_field`
    output_names: tuple[str, ...] | None = None
    nested: bool = False  # Whether fields of rows stay inside of their rows instead of becoming columns
    predicate: Predicate | None = None  # The filter, with names of `schema` and fields of rows as `row.field`
    # The part of `predicate` that was given to the read. The rest comes from the table's options.
    own_filter: Predicate | None = None
    # What records of an upsert stream become that do not match: a -D with their values, or nothing
    unmatched: Unmatched = Unmatched.DELETE
    include_row_kind: bool = True  # Whether the first column is `_row_kind`
    view: View | None = None  # `audit_log`, `binlog`, `row_tracking`, `ro`, or None for the table itself
    batch_size: int = DEFAULT_BATCH_SIZE
    # Whether descriptors come out in place of blobs; None: as in the table's options
    blob_descriptors: bool | None = None
    # Where stored descriptors may point, in addition to the table's directory; None: its whole file system
    blob_places: tuple[str, ...] | None = None
    reader: ReaderKind = ReaderKind.STREAM  # Who is advised after a file has expired

    @property
    def gives_descriptors(self) -> bool:
        if self.blob_descriptors is not None:
            return self.blob_descriptors
        return option_keys.BLOB_AS_DESCRIPTOR.of(self.schema.options)


@dataclass(frozen=True, slots=True)
class Output:
    """An output column."""

    path: tuple[str, ...]
    ids: tuple[int, ...]
    name: str
    type: DataType

    @property
    def is_rowkind(self) -> bool:
        """Whether this is the column `rowkind` of a log, by its id, because a table may have a column of that name."""
        return self.ids == (ROWKIND_FIELD.id,)

    def take(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self.path[0])
        for name in self.path[1:]:
            array = pc.struct_field(array, name)
        return narrowed(array, self.type)


@dataclass(frozen=True)
class ReadLayout:
    """A read of one schema."""

    schema: TableSchema
    # The fields to read from files, in the order of the schema; rows hold only the fields that are needed
    fields: tuple[DataField, ...]
    system_columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    request: tuple[DataField, ...]
    predicate: Predicate | None  # The filter without `on_rowkind`
    on_keys: Predicate | None
    on_values: Predicate | None
    on_rowkind: Predicate | None  # AND-parts on the column `rowkind` of an audit log alone
    packed: bool = False  # Whether columns come out as arrays (`binlog`)

    @cached_property
    def traits(self) -> TableTraits:
        return TableTraits.of(self.schema)

    @cached_property
    def blobs(self) -> Mapping[str, DataType]:
        """The types of the output columns with blobs in place of cells, by name."""
        given = [output for output in self.outputs if holds_blobs(output.type)]
        if not given:
            return {}
        storage = BlobStorage.of(self.schema)
        unresolved = frozenset() if storage.resolves_views else storage.views
        return {output.name: output.type for output in given if output.path[0] not in unresolved}

    @property
    def with_rowkind(self) -> bool:
        return self.on_rowkind is not None or any(output.is_rowkind for output in self.outputs)

    @property
    def filtered_columns(self) -> set[str]:
        parts = [part for part in (self.predicate, self.on_rowkind) if part is not None]
        return set().union(*map(filters.columns_of, parts))

    def reading(self, columns: Collection[str]) -> ReadLayout:
        """The same layout, which also reads these columns completely."""
        read = {field.name: field for field in self.fields}
        fields = ((field if field.name in columns else read.get(field.name)) for field in self.schema.fields)
        return replace(self, fields=tuple(field for field in fields if field is not None))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return _arrow([DataField(output.ids[-1], output.name, self.given_out(output)) for output in self.outputs])

    @cached_property
    def output_fields(self) -> dict[str, DataField]:
        """The columns of the table, and fields of its rows, by the names with which they come out."""
        columns = {field.id: field for field in self.schema.fields}
        found = {}
        for output in self.outputs:
            if (column := columns.get(output.ids[0])) is not None:
                description = column.description if len(output.ids) == 1 else None
                found[output.name] = DataField(output.ids[-1], output.name, output.type, description)
        return found

    def is_array(self, output: Output) -> bool:
        """Whether a column comes out as arrays, as the table's own columns do in a `binlog`."""
        return self.packed and output.path[0] not in (*SYSTEM_TYPES, ROWKIND)

    def given_out(self, output: Output) -> DataType:
        """The type with which a column comes out."""
        return ArrayType(True, _nullable(output.type)) if self.is_array(output) else output.type

    def outputs_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [output.take(batch) for output in self.outputs]


def schema_key(schema: TableSchema) -> tuple[int, int]:
    """A key of a schema that also differs between two schemas with one id, before and after a rollback."""
    return schema.id, schema.time_millis


def layout(settings: ReadSettings) -> ReadLayout:
    """Bind settings to their own schema. Raises StreamConfigError if a column of the projection or the filter does not
    exist, or the filter cannot be applied.
    """
    fields = view_fields(settings.schema, settings.view)
    names = settings.projection if settings.projection is not None else [field.name for field in fields]
    return _layout(settings, fields, [_resolve(name, fields) for name in names])


def _named(outputs: list[Output], request: Sequence[DataField], settings: ReadSettings) -> list[Output]:
    if settings.nested:
        return [_output((field,)) for field in request]
    if settings.output_names is None:
        return outputs
    return [replace(output, name=name) for output, name in zip(outputs, settings.output_names, strict=True)]


def follow(settings: ReadSettings, schema: TableSchema) -> ReadLayout:
    """Bind settings to a newer schema by field ids, so that renamed columns are found under their new name.

    Without a projection all columns of the newer schema come out. Raises SchemaChangedError if a column of the
    projection or the filter is gone, or its new type does not suit the filter.
    """
    projection = settings.projection
    if projection is not None:
        projection = tuple(rebound(name, settings.schema, schema) for name in projection)
    predicate = rebound_filter(settings.predicate, settings.schema, schema)
    try:
        return layout(replace(settings, schema=schema, projection=projection, predicate=predicate))
    except StreamConfigError as error:
        raise SchemaChangedError(settings.schema.id, schema.id, str(error)) from error


def _layout(settings: ReadSettings, fields: Sequence[DataField], outputs: list[Output]) -> ReadLayout:
    schema, predicate = settings.schema, settings.predicate
    paths = [output.path for output in outputs]
    request = requested(fields, paths)
    given_out = _named(outputs, request, settings)
    if predicate is not None:
        paths += [_resolve(name, fields).path for name in sorted(filters.columns_of(predicate))]
    # A batch without columns would lose its number of rows.
    used = _pruned(fields, paths) or schema.fields[:1]
    _check_blobs(used, predicate)
    if predicate is not None:
        filters.check(predicate, _arrow(used))
    on_rowkind, predicate = filters.split_and(predicate, [ROWKIND] if settings.view in LOGS else [])
    on_keys, on_values = filters.split_and(predicate, [*schema.partition_keys, *schema.primary_keys])
    stored = tuple(field for field in used if field.name not in SYSTEM_TYPES and field.id != ROWKIND_FIELD.id)
    system_columns = tuple(field.name for field in used if field.name in SYSTEM_TYPES)
    packed = settings.view == "binlog"
    columns = stored, system_columns, tuple(given_out), tuple(request)
    return ReadLayout(schema, *columns, predicate, on_keys, on_values, on_rowkind, packed)


def _check_blobs(fields: Sequence[DataField], predicate: Predicate | None) -> None:
    for field in fields:
        known = is_blob(field.type) or is_blob_collection(field.type)
        if holds_blobs(field.type) and not known:
            raise UnsupportedTableError(
                f"Columns with blobs deep inside of them cannot be streamed: {field.name} {field.type}.",
                advice="Leave such columns out with with_projection(...).",
                option="with_projection",
            )
        # Blobs are fetched last, after the filter.
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
    result = []
    for field in fields:
        tails = [path[1:] for path in paths if path[0] == field.name]
        if not tails:
            continue
        if all(tails):
            inner = RowType(field.type.nullable, _pruned(cast(RowType, field.type).fields, tails))
            field = DataField(field.id, field.name, inner, field.description, field.default_value)
        result.append(field)
    return result


def requested(fields: Sequence[DataField], paths: Sequence[Sequence[str]]) -> list[DataField]:
    """The columns on the paths, in their order. A row keeps the fields on its paths, or all if it is a path itself."""
    by_name = {field.name: field for field in fields}
    tails: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        tails.setdefault(path[0], []).append(path[1:])
    return [_with_fields(by_name[name], inside) for name, inside in tails.items()]


def _with_fields(field: DataField, inside: Sequence[Sequence[str]]) -> DataField:
    if not all(inside):
        return field
    row = RowType(field.type.nullable, requested(cast(RowType, field.type).fields, inside))
    return DataField(field.id, field.name, row, field.description, field.default_value)


def narrowed(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column that was read, with only the fields of a type, in its order."""
    if not isinstance(data_type, RowType) or _has_fields_of(array.type, data_type):
        return array
    # The fields of a null row are null too.
    children = [narrowed(pc.struct_field(array, field.name), field.type) for field in data_type.fields]
    fields = [
        array.type.field(field.name).with_type(child.type)
        for field, child in zip(data_type.fields, children, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))


def _has_fields_of(arrow_type: pa.DataType, data_type: DataType) -> bool:
    if not isinstance(data_type, RowType):
        return True
    inside = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    if [field.name for field in inside] != [field.name for field in data_type.fields]:
        return False
    return all(_has_fields_of(each.type, field.type) for each, field in zip(inside, data_type.fields, strict=True))
