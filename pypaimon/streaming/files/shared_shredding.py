"""Maps in the storage layout `shared-shredding`, whose values are stored in columns that many keys share.

A file numbers the keys of a map from 0. Instead of the map it has a row, which is null if the map is null:

- `__field_mapping`: for each of the columns, the number of the key whose value it holds in this row; -1: none;
- `__col_0`, `__col_1`, ...: the columns;
- `__overflow`: a map from numbers of keys to values, for entries without a column; null: there are none.

The metadata of the field explains the numbers. It is in the Arrow schema that the file carries as `ARROW:schema` (a
key-value pair of a Parquet footer, user metadata of an ORC file). Its keys begin with `paimon.map.`, its values are
text:

- `storage-layout`: `shared-shredding`; without it the map is an ordinary one, even if the table's options differ;
- `shared-shredding.version`: 1;
- `shared-shredding.num-columns`: the number of columns;
- `shared-shredding.field-dict`: the numbers of the keys as a JSON object, compressed, each byte as the character of its
  number (ISO 8859-1);
- `shared-shredding.field-dict-compression`: `zstd` (the default), `lz4` or `none`;
- `shared-shredding.field-dict-original-size`: bytes of the JSON.

Others (`field-columns`, `overflow-set`, `max-row-width`) help readers of some keys only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.casts import CastError, Convert
from pypaimon.streaming.formats.codecs import zstd_frame
from pypaimon.streaming.model.arrow_types import map_entries

MAPPING, OVERFLOW = "__field_mapping", "__overflow"
LAYOUT = b"paimon.map.storage-layout"
_SHARED_SHREDDING = b"shared-shredding"
_KEY = "paimon.map.shared-shredding."
_VERSION = 1
_MOST_BYTES, _MOST_KEYS = 1 << 28, 1 << 24
"""Bounds of the JSON, and of the number of keys: far below what ends a process."""

Integers = npt.NDArray[np.int64]


def has_shredded_maps(stored: pa.Schema) -> bool:
    """Whether a column of a file, at any depth, has metadata about this layout."""
    return LAYOUT in stored.serialize().to_pybytes()


def shredded_map(
    stored: pa.Field, arrow: pa.MapType, key: Convert | None, item: Callable[[pa.DataType], Convert | None]
) -> Convert:
    """The conversion of stored rows to maps. Raises ValueError if the column does not have this layout, or its metadata
    is damaged.

    Entries have the order of the columns; those of the overflow come last, as in Java. `key` converts texts to keys,
    `item` returns the conversion of a stored type to the type of the values; None: identity.
    """
    try:
        return _Maps(stored, arrow, key, item)
    except CastError:
        raise
    except ValueError as error:
        raise ValueError(f"column {stored.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of maps, row after row."""

    counts: Integers
    keys: Integers
    sources: Integers


class _Maps:
    def __init__(
        self, stored: pa.Field, arrow: pa.MapType, key: Convert | None, item: Callable[[pa.DataType], Convert | None]
    ) -> None:
        metadata = stored.metadata or {}
        if metadata.get(LAYOUT) != _SHARED_SHREDDING:
            raise ValueError("a map is stored as a row, and the file lacks the metadata that explains it")
        self._name = stored.name
        self._arrow = arrow
        names = pa.array(_names_by_number(metadata), pa.string())
        # One more, without a name, for invalid numbers.
        self._named = np.append(names.is_valid().to_numpy(zero_copy_only=False), False)
        self._keys: pa.Array = names if key is None else key(names)
        self._columns = _count_of_columns(stored.type, metadata)
        types = [field.type for field in stored.type][1:]
        values = types[: self._columns] + [overflow.item_type for overflow in types[self._columns :]]
        self._items = list(map(item, values))

    def __call__(self, rows: pa.StructArray) -> pa.Array:
        valid = rows.is_valid().to_numpy(zero_copy_only=False)
        mapping, *stored = rows.flatten()
        columns = self._in_columns(mapping, valid)
        overflow, more = _in_overflow(stored[self._columns :], len(rows), self._columns * len(rows))
        values = [
            array if convert is None else convert(array)
            for array, convert in zip([*stored[: self._columns], *more], self._items, strict=True)
        ]
        # The entries of a row are consecutive: those of the columns, then those of the overflow.
        ends = np.cumsum(columns.counts + overflow.counts)
        begins = np.concatenate([[0], ends])
        keys, sources = np.empty((2, begins[-1]), np.int64)
        for entries, first in ((columns, begins[:-1]), (overflow, begins[:-1] + columns.counts)):
            indices = _ranges(first, entries.counts)
            keys[indices], sources[indices] = entries.keys, entries.sources
        items = pa.concat_arrays(values).take(pa.array(sources))
        pairs = map_entries(self._arrow, self._named_by(keys), items)
        offsets = pa.array(begins).cast(pa.int32()).buffers()[1]
        validity = pa.array(valid).buffers()[1] if rows.null_count else None
        return pa.Array.from_buffers(self._arrow, len(rows), [validity, offsets], rows.null_count, children=[pairs])

    def _in_columns(self, mapping: pa.ListArray, valid: npt.NDArray[np.bool_]) -> _Entries:
        lengths = np.diff(mapping.offsets.to_numpy())[valid]
        flat = mapping.flatten()
        if (lengths != self._columns).any() or flat.null_count:
            raise ValueError(f"column {self._name}: a row does not say which keys its {self._columns} columns hold")
        numbers = flat.to_numpy().astype(np.int64).reshape(len(lengths), self._columns)
        used = numbers >= 0
        row, column = np.nonzero(used)
        row = np.flatnonzero(valid)[row]
        return _Entries(np.bincount(row, minlength=len(valid)), numbers[used], column * len(valid) + row)

    def _named_by(self, numbers: Integers) -> pa.Array:
        none = len(self._keys)
        known = self._named[np.where((numbers < 0) | (numbers > none), none, numbers)]
        if not known.all():
            unknown = numbers[~known][0]
            raise ValueError(f"column {self._name}: a row has a key of number {unknown}, which the file does not name")
        return self._keys.take(pa.array(numbers))


def _in_overflow(overflow: Sequence[pa.MapArray], rows: int, first: int) -> tuple[_Entries, list[pa.Array]]:
    if not overflow:
        return _Entries(np.zeros(rows, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)), []
    maps = overflow[0]
    offsets = maps.offsets.to_numpy().astype(np.int64)
    begin, length = offsets[0], offsets[-1] - offsets[0]
    counts = np.where(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    indices = _ranges(offsets[:-1] - begin, counts)
    keys = maps.keys.slice(begin, length).to_numpy()[indices].astype(np.int64)
    return _Entries(counts, keys, first + indices), [maps.items.slice(begin, length)]


def _ranges(begins: Integers, lengths: Integers) -> Integers:
    ends = np.cumsum(lengths)
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def _count_of_columns(stored: pa.StructType, metadata: Mapping[bytes, bytes]) -> int:
    count = _integer(metadata, "num-columns")
    names = [field.name for field in stored]
    wanted = [MAPPING, *(f"__col_{index}" for index in range(min(count, len(names)))), OVERFLOW]
    if count < 0 or names not in (wanted, wanted[:-1]):
        raise ValueError(f"a map in {count} columns is stored as {names}")
    mapping = stored.field(0).type
    overflow = stored.field(names.index(OVERFLOW)).type if OVERFLOW in names else None
    if not (pa.types.is_list(mapping) and pa.types.is_integer(mapping.value_type)) or not (
        overflow is None or (pa.types.is_map(overflow) and pa.types.is_integer(overflow.key_type))
    ):
        raise ValueError(f"a map in columns is stored as {stored}")
    return count


def _names_by_number(metadata: Mapping[bytes, bytes]) -> list[str | None]:
    version = _integer(metadata, "version")
    if version != _VERSION:
        raise UnsupportedTableError(f"Maps in version {version} of the layout 'shared-shredding' cannot be read.")
    text = _decompressed(
        _text(metadata, "field-dict").encode("latin-1"),
        _integer(metadata, "field-dict-original-size"),
        _text(metadata, "field-dict-compression", "zstd").lower(),
    )
    numbers = json.loads(text)
    if not isinstance(numbers, dict) or not all(_is_number(number) for number in numbers.values()):
        raise ValueError("the numbers of the keys of a map are not a JSON object of numbers")
    names: list[str | None] = [None] * (1 + max(numbers.values(), default=-1))
    for name, number in numbers.items():
        if names[number] is not None:
            raise ValueError(f"the keys {names[number]!r} and {name!r} of a map have the same number")
        names[number] = name
    return names


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_KEYS


def _decompressed(data: bytes, size: int, compression: str) -> bytes:
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"the keys of a map take {size} bytes according to the metadata")
    if compression == "zstd":
        data = zstd_frame(data, size)
    elif compression == "lz4":
        # Two sizes, compressed and not, as Java's block compression writes them.
        if len(data) < 8 or struct.unpack_from("<ii", data) != (len(data) - 8, size):
            raise ValueError("the keys of a map are cut off")
        data = bytes(pa.Codec("lz4_raw").decompress(data[8:], size)) if size else b""
    elif compression != "none":
        raise UnsupportedTableError(f"Maps whose keys are compressed with {compression!r} cannot be read.")
    if len(data) != size:
        raise ValueError(f"the keys of a map take {len(data)} bytes instead of {size}")
    return data


def _text(metadata: Mapping[bytes, bytes], name: str, default: str | None = None) -> str:
    value = metadata.get(f"{_KEY}{name}".encode())
    if value is not None:
        return value.decode()
    if default is None:
        raise ValueError(f"the metadata {_KEY}{name} is missing")
    return default


def _integer(metadata: Mapping[bytes, bytes], name: str) -> int:
    value = _text(metadata, name)
    try:
        return int(value)
    except ValueError as error:
        raise ValueError(f"the metadata {_KEY}{name} is not an integer: {value!r}") from error
