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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

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
_ROWS_AT_ONCE = 8192
"""The memory of larger arrays would go back to the system and come again, which costs more than the work on them."""

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
        # One more at each end, without a name, for invalid numbers.
        self._named = np.pad(names.is_valid().to_numpy(zero_copy_only=False), 1)
        self._keys: pa.Array = names if key is None else key(names)
        self._columns = _count_of_columns(stored.type, metadata)
        types = [field.type for field in stored.type][1:]
        values = types[: self._columns] + [overflow.item_type for overflow in types[self._columns :]]
        self._items = list(map(cache(item), values))

    def __call__(self, rows: pa.StructArray) -> pa.Array:
        blocks = [self._block(rows.slice(start, _ROWS_AT_ONCE)) for start in range(0, len(rows), _ROWS_AT_ONCE)]
        return pa.concat_arrays(blocks) if blocks else pa.array([], self._arrow)

    def _block(self, rows: pa.StructArray) -> pa.Array:
        valid = rows.is_valid().to_numpy(zero_copy_only=False)
        mapping, *stored = rows.flatten()
        entries, values = self._in_columns(mapping, valid), stored[: self._columns]
        for overflow in stored[self._columns :]:
            begin, end = overflow.offsets[0].as_py(), overflow.offsets[-1].as_py()
            if begin < end:
                entries = _joined(entries, _in_overflow(overflow, self._columns * len(rows)))
            values.append(overflow.items.slice(begin, end - begin))
        converted = [
            array if convert is None else convert(array) for array, convert in zip(values, self._items, strict=True)
        ]
        items = pa.concat_arrays(converted).take(pa.array(entries.sources))
        pairs = map_entries(self._arrow, self._named_by(entries.keys), items)
        offsets = pa.array(np.append(0, np.cumsum(entries.counts))).cast(pa.int32()).buffers()[1]
        validity = pa.array(valid).buffers()[1] if rows.null_count else None
        return pa.Array.from_buffers(self._arrow, len(rows), [validity, offsets], rows.null_count, children=[pairs])

    def _in_columns(self, mapping: pa.ListArray, valid: npt.NDArray[np.bool_]) -> _Entries:
        lengths = np.diff(mapping.offsets.to_numpy())[valid]
        flat = mapping.flatten()
        if (lengths != self._columns).any() or flat.null_count:
            raise ValueError(f"column {self._name}: a row does not say which keys its {self._columns} columns hold")
        numbers = flat.to_numpy()
        # One index for row and column: a mask in two dimensions takes ten times as long.
        used = np.flatnonzero(numbers >= 0)
        row = used // self._columns
        column = used - row * self._columns
        if len(lengths) < len(valid):
            row = np.flatnonzero(valid)[row]
        counts = np.bincount(row, minlength=len(valid))
        return _Entries(counts, numbers[used].astype(np.int64), column * len(valid) + row)

    def _named_by(self, numbers: Integers) -> pa.Array:
        known = self._named.take(numbers + 1, mode="clip")
        if not known.all():
            unknown = numbers[~known][0]
            raise ValueError(f"column {self._name}: a row has a key of number {unknown}, which the file does not name")
        return self._keys.take(pa.array(numbers))


def _in_overflow(maps: pa.MapArray, first: int) -> _Entries:
    offsets = maps.offsets.to_numpy().astype(np.int64)
    begin, length = offsets[0], offsets[-1] - offsets[0]
    # A null map may have entries.
    counts = np.where(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    indices = np.repeat(offsets[1:] - begin - np.cumsum(counts), counts) + np.arange(counts.sum())
    keys = maps.keys.slice(begin, length).to_numpy()[indices].astype(np.int64)
    return _Entries(counts, keys, first + indices)


def _joined(first: _Entries, then: _Entries) -> _Entries:
    """Entries of the same maps, in each map one after the other."""
    ends = np.repeat(np.cumsum(first.counts), then.counts)
    keys = np.insert(first.keys, ends, then.keys)
    return _Entries(first.counts + then.counts, keys, np.insert(first.sources, ends, then.sources))


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
