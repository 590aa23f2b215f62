"""The normal form of Arrow data, which every encoder gets.

Arrow has many layouts for the same rows, and encoders differ in how they treat the rarer ones. pyarrow's ORC writer
shifts values after a null row whose fields hold values. Its Parquet writer refuses null lists over elements, and nulls
in NOT NULL fields of null rows. Its casts fail because of values below nulls, and its cast of list views crashes. In
the normal form

- there are no dictionaries, run ends, views, extension types, null types or 64-bit offsets of lists,
- a field of a null row is null, or holds any value if it is NOT NULL,
- a null list or map has no elements, and all elements belong to a list, in the order of the lists,
- nested arrays, and nullable ones below a null, begin where their memory begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_] | None
"""Which rows are not below a null; None: all rows."""
_Path = tuple[str, ...]
"""A column and the fields on the way to a nested one."""

_MOST_ELEMENTS = 2**31 - 1


class UnfitValueError(ValueError):
    """A column holds a value that its type does not allow."""

    def __init__(self, path: _Path, problem: str) -> None:
        self.column = path[0]
        self.problem = problem if len(path) == 1 else f"{problem} ('{'.'.join(path)}')"
        super().__init__(f"column '{self.column}': {self.problem}")


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The normal form of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return normal_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return normal_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([_normal_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_normal_field(kind.key_field), _normal_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_normal_field(kind.value_field), kind.list_size)
    return pa.list_(_normal_field(kind.value_field)) if _is_list(kind) else kind


def _normal_field(field: pa.Field) -> pa.Field:
    return field.with_type(normal_type(field.type))


def normal_table(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the normal form. Columns that have it already are not copied.

    Raises:
        UnfitValueError: A value cannot be cast, or is null in a NOT NULL field with no null above it.
    """
    columns = []
    for column, field in zip(data.columns, schema, strict=True):
        chunks = [normal_array(chunk, field) for chunk in column.chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def normal_array(values: pa.Array, field: pa.Field) -> pa.Array:
    """The values of a column in the normal form; the same array if they have it. Raises what `normal_table` raises."""
    return _normal(values, field, None, (field.name,))


def _normal(values: pa.Array, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    given, kind = values.type, field.type
    if isinstance(given, pa.BaseExtensionType):
        return _normal(values.storage, field, seen, path)
    if types.is_dictionary(given):
        places = values.indices.fill_null(0).cast(pa.int64()).to_numpy()
        return _picked(values.dictionary, places, _both(seen, _valid(values.indices)), field, seen, path)
    if types.is_run_end_encoded(given):
        rows = np.arange(values.offset, values.offset + len(values))
        places = np.searchsorted(values.run_ends.to_numpy(), rows, side="right")
        return _picked(values.values, places, seen, field, seen, path)
    if types.is_null(given) and not types.is_null(kind):
        return _normal(pa.nulls(len(values), kind), field, seen, path)
    if types.is_struct(given) and types.is_struct(kind) and given.num_fields == kind.num_fields:
        return _normal_rows(values, field, seen, path)
    if _is_list(given) and types.is_fixed_size_list(kind):
        return _normal_vectors(values, field, seen, path)
    if (_is_list(given) and _is_list(kind)) or (types.is_map(given) and types.is_map(kind)):
        return _normal_lists(values, field, seen, path)
    return _normal_leaf(values, field, seen, path)


def _normal_leaf(values: pa.Array, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    if types.is_string_view(values.type) or types.is_binary_view(values.type):
        # pyarrow before 18 can neither cast nor take views.
        values = pa.array(values.to_pylist(), normal_type(values.type))
    is_cast = not values.type.equals(field.type)
    if seen is not None and (is_cast or field.nullable) and (values.offset or _shows_below_nulls(values, seen)):
        values = values.take(pa.array(np.arange(len(values)), mask=~seen))
    if is_cast:
        values = _cast(values, field.type, path)
    if field.nullable or not values.null_count:
        return values
    _refuse_nulls(values, seen, path)
    return _filled(values)


def _normal_rows(rows: pa.StructArray, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    held = _held(rows, field, seen, path)
    inside = held if field.nullable else seen
    given = [rows.field(number) for number in range(rows.type.num_fields)]
    parts = [_normal(each, part, inside, (*path, part.name)) for each, part in zip(given, field.type, strict=True)]
    if _is_kept(rows, field, seen) and _are_same(parts, given):
        return rows
    return pa.Array.from_buffers(field.type, len(rows), [_validity(field, held)], children=parts)


def _normal_lists(lists: pa.Array, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    held = _held(lists, field, seen, path)
    given, fields = _children(lists), _fields(field.type)
    names = ("key", "value") if types.is_map(field.type) else ("element",)
    inside = [(each, part, (*path, name)) for each, part, name in zip(given, fields, names, strict=True)]
    if held is None and _is_whole(lists, given):
        parts = [_normal(each, part, None, where) for each, part, where in inside]
        offsets = lists.buffers()[1]
    else:
        starts, sizes = _elements(lists)
        sizes = sizes if held is None else np.where(held, sizes, 0)
        parts = [_taken(each, part, starts, sizes, where) for each, part, where in inside]
        offsets = _offsets(sizes, path)
    if _is_kept(lists, field, seen) and _are_same(parts, given):
        return lists
    if types.is_map(field.type):
        parts = [pa.StructArray.from_arrays(parts, fields=fields)]
    return pa.Array.from_buffers(field.type, len(lists), [_validity(field, held), offsets], children=parts)


def _normal_vectors(lists: pa.Array, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    held = _held(lists, field, seen, path)
    starts, sizes = _elements(lists)
    size, part = field.type.list_size, field.type.value_field
    if not (sizes == size if held is None else sizes[held] == size).all():
        raise UnfitValueError(path, f"a row does not hold {size} elements")
    (given,) = _children(lists)
    places = (starts[:, None] + np.arange(size)).ravel()
    shown = None if held is None else np.repeat(held, size)
    is_whole = len(places) == len(given) and types.is_fixed_size_list(lists.type)
    inside = (*path, "element")
    values = _normal(given, part, shown, inside) if is_whole else _picked(given, places, shown, part, shown, inside)
    if _is_kept(lists, field, seen) and values is given:
        return lists
    return pa.Array.from_buffers(field.type, len(lists), [_validity(field, held)], children=[values])


def _taken(values: pa.Array, field: pa.Field, starts: _Numbers, sizes: _Numbers, path: _Path) -> pa.Array:
    """The elements of the lists in order, without those that belong to no list."""
    holds = sizes > 0
    starts, sizes = starts[holds], sizes[holds]
    ends = starts + sizes
    if (ends[:-1] == starts[1:]).all():
        begin, end = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
        return _normal(values if end - begin == len(values) else values[begin:end], field, None, path)
    first = np.cumsum(sizes) - sizes
    places = np.repeat(starts - first, sizes) + np.arange(sizes.sum())
    return _picked(values, places, None, field, None, path)


def _picked(values: pa.Array, places: _Numbers, held: _Mask, field: pa.Field, seen: _Mask, path: _Path) -> pa.Array:
    """The values at `places`, and null where `held` is false.

    Values are brought into the normal form before they are taken, because Arrow cannot take from all layouts.
    """
    used = np.zeros(len(values), np.bool_)
    used[places if held is None else places[held]] = True
    plain = _normal(values, field.with_nullable(True), None if used.all() else used, path)
    taken = plain.take(pa.array(places, mask=None if held is None else ~held))
    return _normal(taken, field, seen, path)


def _is_whole(lists: pa.Array, children: Sequence[pa.Array]) -> bool:
    """Whether lists without nulls hold all elements, with offsets of 32 bits."""
    if lists.offset or not len(lists) or not (types.is_list(lists.type) or types.is_map(lists.type)):
        return False
    return not lists.offsets[0].as_py() and bool(lists.offsets[len(lists)].as_py() == len(children[0]))


def _offsets(sizes: _Numbers, path: _Path) -> pa.Buffer:
    ends = np.cumsum(sizes)
    if len(ends) and ends[-1] > _MOST_ELEMENTS:
        raise UnfitValueError(path, f"{ends[-1]} elements are too many for one batch; write fewer rows at once")
    return pa.py_buffer(np.concatenate([[0], ends]).astype(np.int32).tobytes())


def _elements(lists: pa.Array) -> tuple[_Numbers, _Numbers]:
    """Where the elements of each list begin in `_children`, and their number."""
    if types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        rows = np.arange(lists.offset, lists.offset + len(lists), dtype=np.int64)
        return rows * size, np.full(len(lists), size, np.int64)
    offsets = np.asarray(lists.offsets.to_numpy(), np.int64)
    if _is_list_view(lists.type):
        return offsets, np.asarray(lists.sizes.to_numpy(), np.int64)
    return offsets[:-1], np.diff(offsets)


def _children(lists: pa.Array) -> list[pa.Array]:
    """The elements, or keys and values, of all lists, also of those before and after a slice."""
    if types.is_map(lists.type):
        # `keys` and `items` ignore the offset of the entries, which arrays of other libraries may have.
        entries = lists.values
        return [entries.field(0), entries.field(1)]
    return [lists.values]


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.key_field, kind.item_field] if types.is_map(kind) else [kind.value_field]


def _held(values: pa.Array, field: pa.Field, seen: _Mask, path: _Path) -> _Mask:
    if not field.nullable and values.null_count:
        _refuse_nulls(values, seen, path)
    return _both(seen, _valid(values))


def _refuse_nulls(values: pa.Array, seen: _Mask, path: _Path) -> None:
    valid = _valid(values)
    if valid is not None and not (valid if seen is None else valid[seen]).all():
        raise UnfitValueError(path, "a row holds null in it")


def _validity(field: pa.Field, held: _Mask) -> pa.Buffer | None:
    if held is None or not field.nullable:
        return None
    return pa.py_buffer(np.packbits(held, bitorder="little").tobytes())


def _valid(values: pa.Array) -> _Mask:
    return values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None


def _both(one: _Mask, other: _Mask) -> _Mask:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _shows_below_nulls(values: pa.Array, seen: npt.NDArray[np.bool_]) -> bool:
    valid = _valid(values)
    return not (seen if valid is None else seen | ~valid).all()


def _is_kept(values: pa.Array, field: pa.Field, seen: _Mask) -> bool:
    if values.offset or not values.type.equals(field.type) or (types.is_map(values.type) and values.values.offset):
        return False
    if not field.nullable:
        return not values.null_count
    return seen is None or not _shows_below_nulls(values, seen)


def _are_same(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> bool:
    return all(each is before for each, before in zip(one, other, strict=True))


def _cast(values: pa.Array, kind: pa.DataType, path: _Path) -> pa.Array:
    try:
        if types.is_time(values.type) and types.is_integer(kind):
            # A time as a number is in milliseconds everywhere.
            values = values.cast(pa.time32("ms"))
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnfitValueError(path, f"a row does not fit: {error}") from error


def _filled(values: pa.Array) -> pa.Array:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    blank = pa.Array.from_buffers(values.type, 1, [None, *pa.nulls(1, values.type).buffers()[1:]])
    places = np.where(valid, np.arange(len(values)), len(values))
    return pa.concat_arrays([values, blank]).take(pa.array(places))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or _is_list_view(kind)
    )


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(types.is_list_view(kind) or types.is_large_list_view(kind))
