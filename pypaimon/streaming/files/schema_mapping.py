"""Maps the columns of a file to the schema that is read, by field id at every depth.

Java's rules: docs/java-semantics.md#schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import UnsupportedContentError, UnsupportedTableError
from pypaimon.streaming.files.casts import CastError, Convert, cast, to_unit
from pypaimon.streaming.files.shared_shredding import shredded_map
from pypaimon.streaming.formats.parquet_footer import BEYOND_NANOSECONDS, is_int96, timestamps_of_int96
from pypaimon.streaming.model.arrow_types import arrow_type, counted, map_entries
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.paimon.internals import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    assemble_shredded_column,
    build_variant_schema,
    is_shredded_variant,
)


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """The source of one column of the schema that is read."""

    source: str | None  # Name of the file's column; None: it is not read from the file
    target: pa.DataType
    convert: Convert | None = None  # Converts the file's values; None: they are used as they are
    constant: pa.Scalar | None = None  # The value of all rows if there is no source, of type `target`; None: null

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        if self.source is None:
            if self.constant is None:
                return pa.nulls(batch.num_rows, self.target)
            return pa.repeat(self.constant, batch.num_rows)
        array = batch.column(self.source)
        if self.convert is None:
            return array
        try:
            return self.convert(array)
        except CastError as error:
            raise CastError(f"column {self.source}: {error}") from error
        except UnsupportedTableError as error:
            raise UnsupportedContentError(str(error), self.source) from error


@dataclass(frozen=True, slots=True)
class _Rules:
    exact: bool
    zone: TimeZone
    trim_char: bool


def map_columns(
    stored: pa.Schema,
    file_fields: Sequence[DataField],
    read_fields: Sequence[DataField],
    *,
    exact: bool,
    zone: TimeZone,
    trim_char: bool = False,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> list[MappedColumn]:
    """How to read each field from a file.

    Args:
        exact: Whether a loss in a cast is an error (see `casts`).
        trim_char: Whether to strip trailing blanks of CHAR; see `Format.pads_char`.
        constants: Values of fields that are the same in all rows and are not read; by name.

    Raises:
        CastError: The type of a field changed and there is no cast.
    """
    return _columns(stored, file_fields, read_fields, _Rules(exact, zone, trim_char), constants)


def _columns(
    stored: pa.Schema,
    file_fields: Sequence[DataField],
    read_fields: Sequence[DataField],
    rules: _Rules,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> list[MappedColumn]:
    names = {field.id: field for field in file_fields}
    columns = []
    for field in read_fields:
        target = arrow_type(field.type)
        if constants and field.name in constants:
            columns.append(MappedColumn(None, target, constant=constants[field.name]))
            continue
        origin = names.get(field.id)
        position = -1 if origin is None else stored.get_field_index(origin.name)
        if origin is None or position < 0:
            columns.append(MappedColumn(None, target))
            continue
        try:
            convert = _field_converter(stored.field(position), origin.type, field.type, rules)
        except CastError as error:
            raise CastError(f"column {field.name}: {error}") from error
        columns.append(MappedColumn(origin.name, target, convert))
    return columns


def _field_converter(stored: pa.Field, source: DataType, target: DataType, rules: _Rules) -> Convert | None:
    if isinstance(source, MapType) and isinstance(target, MapType) and pa.types.is_struct(stored.type):
        values = partial(_converter, source=source.value, target=target.value, rules=rules)
        key = _converter(pa.string(), source.key, target.key, rules)
        return shredded_map(stored, arrow_type(target), key, values)
    return _converter(stored.type, source, target, rules)


def _converter(stored: pa.DataType, source: DataType, target: DataType, rules: _Rules) -> Convert | None:
    """The conversion from an Arrow type that holds values of one Paimon type to another Paimon type; None: identity."""
    if isinstance(source, MultisetType) and isinstance(target, MultisetType):
        source, target = counted(source), counted(target)
    if isinstance(source, RowType) and isinstance(target, RowType):
        return _row_converter(stored, source, target, rules)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _map_converter(stored, source, target, rules)
    if isinstance(source, (ArrayType, VectorType)) and isinstance(target, (ArrayType, VectorType)):
        return _list_converter(stored, source, target, rules)
    if isinstance(source, AtomicType) and isinstance(target, AtomicType):
        return _atomic_converter(stored, source, target, rules)
    raise CastError(f"{source} cannot be read as {target}")


def _atomic_converter(stored: pa.DataType, source: AtomicType, target: AtomicType, rules: _Rules) -> Convert | None:
    if root(source) == root(target) == "VARIANT":
        return _variant
    arrow = arrow_type(target)
    if is_int96(stored, arrow_type(source)) and pa.types.is_timestamp(arrow) and not rules.exact:
        # Cut as Java does, and not through nanoseconds, which end in 2262.
        cut = pa.timestamp(arrow.unit, arrow_type(source).tz)
        decode: Convert | None = partial(timestamps_of_int96, arrow=cut)
        if cut == arrow:
            return decode
    else:
        decode = _decoder(stored, source, rules.trim_char)
    if source.type.upper() == target.type.upper():
        return decode
    convert = cast(source, target, rules.exact, rules.zone)
    if decode is None:
        return convert
    return lambda array: convert(decode(array))


def _decoder(stored: pa.DataType, source: AtomicType, trim_char: bool) -> Convert | None:
    arrow = arrow_type(source)
    if trim_char and root(source) == "CHAR":
        return lambda array: pc.utf8_rtrim(array.cast(arrow), " ")
    if stored == arrow:
        return None
    if is_int96(stored, arrow):
        return partial(timestamps_of_int96, arrow=arrow)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(arrow):
        return lambda array: _timestamps(array, arrow)
    if pa.types.is_integer(stored) and pa.types.is_timestamp(arrow) and arrow.unit == "s":
        # Avro has no seconds: precision 0 is stored as milliseconds.
        return lambda array: _timestamps(array.cast(pa.timestamp("ms", arrow.tz)), arrow)
    if pa.types.is_decimal(arrow) and (pa.types.is_binary(stored) or pa.types.is_large_binary(stored)):
        return lambda array: _decimals(array, arrow)
    return lambda array: array.cast(arrow)


def _decimals(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Decimals from Avro's big-endian bytes in two's complement."""
    array = array.cast(pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(array.buffers()[2] or b"\0", np.uint8)
    starts, ends = offsets[:-1, np.newaxis], offsets[1:, np.newaxis]
    if len(array) and (ends - starts).max() > 16:
        raise ValueError("a decimal is longer than 16 bytes")
    positions = ends - 1 - np.arange(16)
    letters = content[np.clip(positions, 0, len(content) - 1)]
    signs = np.where(content[np.clip(starts, 0, len(content) - 1)] > 127, 255, 0)
    words = np.ascontiguousarray(np.where(positions >= starts, letters, signs).astype(np.uint8))
    validity = None if not array.null_count else pa.array(array.is_valid()).buffers()[1]
    return pa.Array.from_buffers(arrow, len(array), [validity, pa.py_buffer(words)])


def _timestamps(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    try:
        return to_unit(array, arrow, exact=False)
    except pa.ArrowInvalid as error:
        raise UnsupportedTableError(BEYOND_NANOSECONDS) from error


def _variant(array: pa.Array) -> pa.Array:
    target = arrow_type(AtomicType("VARIANT"))
    if is_shredded_variant(array.type):
        array = assemble_shredded_column(array, build_variant_schema(array.type))
    children = [array.field(name).cast(pa.binary()) for name in ("value", "metadata")]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_null_mask(array))


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _row_converter(stored: pa.StructType, source: RowType, target: RowType, rules: _Rules) -> Convert | None:
    arrow = arrow_type(target)
    columns = _columns(pa.schema(list(stored)), source.fields, target.fields, rules)
    # Fields of the same name and type may still differ: one was renamed, or dropped and added again.
    in_place = (
        column.source == field.name and column.convert is None
        for column, field in zip(columns, target.fields, strict=True)
    )
    if stored == arrow and all(in_place):
        return None

    def convert(array: pa.StructArray) -> pa.Array:
        # In a null row the fields may hold anything, even values that cannot be converted: `flatten` makes them null.
        parts = pa.RecordBatch.from_arrays(array.flatten(), schema=pa.schema(list(stored)))
        children = [column.read(parts) for column in columns]
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=_null_mask(array))

    return convert


def _list_converter(
    stored: pa.DataType, source: ArrayType | VectorType, target: ArrayType | VectorType, rules: _Rules
) -> Convert | None:
    arrow = arrow_type(target)
    element = _converter(stored.value_type, source.element, target.element, rules)
    if stored == arrow and element is None:
        return None
    plain = pa.list_(arrow.value_field)

    def convert(array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_type))
        values = _own(array, array.values)
        result = _rebuilt(plain, array, values if element is None else element(values))
        return result if plain == arrow else _vectors(result, arrow)

    return convert


def _vectors(lists: pa.ListArray, arrow: pa.FixedSizeListType) -> pa.Array:
    """Vectors from lists; a null list may have any elements."""
    size = arrow.list_size
    offsets = lists.offsets.to_numpy()
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.diff(offsets)[valid]
    if (lengths != size).any():
        wrong = int(lengths[lengths != size][0])
        raise ValueError(f"a vector of {size} elements is stored with {wrong}")
    positions = np.where(valid, offsets[:-1], 0)[:, np.newaxis] + np.arange(size)
    elements = lists.values.take(pa.array(positions.ravel(), mask=np.repeat(~valid, size)))
    validity = pa.array(valid).buffers()[1] if lists.null_count else None
    return pa.Array.from_buffers(arrow, len(lists), [validity], lists.null_count, children=[elements])


def _map_converter(stored: pa.DataType, source: MapType, target: MapType, rules: _Rules) -> Convert | None:
    as_map = pa.types.is_map(stored)
    if not as_map and not (_is_list(stored) and pa.types.is_struct(stored.value_type)):
        raise ValueError(f"{source} is stored as {stored}")
    # Avro maps with keys other than text are lists of rows of key and value.
    stored_key, stored_item = (stored.key_type, stored.item_type) if as_map else (f.type for f in stored.value_type)
    arrow = arrow_type(target)
    key = _converter(stored_key, source.key, target.key, rules)
    item = _converter(stored_item, source.value, target.value, rules)
    if stored == arrow and key is None and item is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        if not as_map:
            array = array.cast(pa.list_(stored.value_type))
        keys, items = (array.keys, array.items) if as_map else (array.values.field(0), array.values.field(1))
        keys, items = _own(array, keys), _own(array, items)
        keys = keys if key is None else key(keys)
        items = items if item is None else item(items)
        return _rebuilt(arrow, array, map_entries(arrow, keys, items))

    return convert


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _own(array: pa.Array, values: pa.Array) -> pa.Array:
    """The values of these lists only: a slice has the values of all lists, which would be converted for each slice."""
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, end - first)


def _rebuilt(arrow: pa.DataType, array: pa.Array, values: pa.Array) -> pa.Array:
    offsets = pc.subtract(array.offsets, array.offsets[0]).buffers()[1]
    validity = pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(arrow, len(array), [validity, offsets], array.null_count, children=[values])
