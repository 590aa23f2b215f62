"""What indexes of columns have in common: the keys that stand for values, and the questions that they answer."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pypaimon.streaming.indexes.container import BytesReader
from pypaimon.streaming.model.data_types import INTEGER_BITS, parameter, root
from pypaimon.streaming.paimon.internals import AtomicType, DataType

Key = int | float | bytes
_CODES = {"BOOLEAN": "b", "TINYINT": "b", "SMALLINT": "h", "INT": "i", "BIGINT": "q", "DATE": "i", "TIME": "i"}
_CODES |= {"DECIMAL": "q", "FLOAT": "f", "DOUBLE": "d", "TIMESTAMP": "q", "TIMESTAMP_LTZ": "q"}
_SIGN = 1 << 63
TEXTS, BYTES = frozenset(("CHAR", "VARCHAR")), frozenset(("BINARY", "VARBINARY"))
NUMBERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME"))
MOMENTS = frozenset(("TIMESTAMP", "TIMESTAMP_LTZ"))
BOOLEAN, DECIMAL = frozenset(("BOOLEAN",)), frozenset(("DECIMAL",))


@dataclass(frozen=True, slots=True)
class KeyType:
    """How indexes hold the values of a column."""

    code: str | None  # The format code of `struct` for keys of fixed length; None for texts and bytes
    of_literal: Callable[[pa.Scalar], Key]  # The key of a value, given as a scalar of the column's Arrow type
    # Whether different values have different keys that sort as the values do. Otherwise only equal values are known to
    # have equal keys.
    ordered: bool = True

    @property
    def is_floating(self) -> bool:
        return self.code in ("f", "d")

    def read(self, reader: BytesReader) -> Key:
        """Read the next key. Raises ValueError at the end of the bytes."""
        if self.code is None:
            return reader.take(reader.length())
        key: Key = struct.unpack(f">{self.code}", reader.take(struct.calcsize(f">{self.code}")))[0]
        return key

    def order(self, key: Key) -> Any:
        """A sort key for Java's order of keys: -0.0 before 0.0, NaN last."""
        if not self.is_floating or isinstance(key, bytes):
            return key
        bits = double_bits(math.nan if math.isnan(key) else float(key))
        return bits if bits >= 0 else -_SIGN - bits - 1


def double_bits(value: float) -> int:
    """The bits of a double, as Java's `doubleToLongBits`."""
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
    return bits


def key_type(stored: DataType, read: DataType) -> KeyType | None:
    """The keys of a column's indexes; None if literals of the type that is read cannot be compared with them.

    CHAR and BINARY are padded or trimmed, depending on the format. The index of a TIMESTAMP(0) may have milliseconds,
    which readers cut. Indexes hold nanoseconds as microseconds.
    """
    if not isinstance(stored, AtomicType) or not isinstance(read, AtomicType):
        return None
    kind, kind_read = root(stored), root(read)
    if kind in INTEGER_BITS and INTEGER_BITS.get(kind_read, 0) >= INTEGER_BITS[kind]:
        return KeyType(_CODES[kind], _integer)
    if kind != kind_read:
        return None
    if kind == "VARCHAR":
        # A narrower type cuts texts when they are read.
        longest, longest_read = parameter(stored), parameter(read)
        fits = longest_read is None or (longest is not None and longest <= longest_read)
        return KeyType(None, lambda scalar: str(scalar.as_py()).encode()) if fits else None
    if stored.type.split(" NOT NULL")[0] != read.type.split(" NOT NULL")[0]:
        return None
    if kind.startswith("TIMESTAMP"):
        precision = parameter(stored)
        precision = 6 if precision is None else precision
        return None if precision == 0 else KeyType("q", _nanos_as_micros if precision > 6 else _integer, precision <= 6)
    if kind == "VARBINARY":
        return KeyType(None, lambda scalar: bytes(scalar.as_py()), ordered=False)
    if kind == "DECIMAL":
        return KeyType("q", _unscaled)
    if kind in ("FLOAT", "DOUBLE"):
        return KeyType(_CODES[kind], lambda scalar: float(scalar.as_py()))
    return KeyType(_CODES[kind], _integer) if kind in _CODES else None


def _integer(scalar: pa.Scalar) -> Key:
    kind = scalar.type
    width = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    return int(scalar.cast(pa.int8() if pa.types.is_boolean(kind) else width).as_py())


def _nanos_as_micros(scalar: pa.Scalar) -> Key:
    return int(scalar.cast(pa.int64()).as_py()) // 1000


def _unscaled(scalar: pa.Scalar) -> Key:
    sign, digits, _ = scalar.as_py().as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def kind_of(data_type: Any) -> str:
    """The name of a type without its parameters; empty for nested types."""
    return root(data_type) if isinstance(data_type, AtomicType) else ""


def keys_of(values: pa.Array) -> pa.Array:
    """The keys of values: integers or large binary, null if the value is null.

    Timestamps are milliseconds up to a precision of 3, otherwise microseconds; floats are their bits, with a single
    NaN; decimals, of a precision up to 18, are unscaled.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            ticks = values.cast(pa.int64())
            whole = np.floor_divide(pc.fill_null(ticks, 0).to_numpy(), 1000)
            return pa.array(whole, mask=ticks.is_null().to_numpy(zero_copy_only=False))
        return values.cast(pa.timestamp("us" if kind.unit == "us" else "ms", kind.tz)).cast(pa.int64())
    if pa.types.is_floating(kind):
        one = pc.if_else(pc.is_nan(values), pa.scalar(np.nan, kind), values)
        return one.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_time(kind):
        return values.cast(pa.time32("ms")).cast(pa.int32())
    if pa.types.is_date(kind):
        return values.cast(pa.int32())
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_decimal128(kind):
        return _unscaled_numbers(values)
    return values if pa.types.is_integer(kind) else values.cast(pa.large_binary())


def _unscaled_numbers(values: pa.Array) -> pa.Array:
    # Each has 16 bytes, of which the lower ones are first. Up to a precision of 18 those are enough.
    words = np.frombuffer(values.buffers()[1], "<i8")[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    return pa.array(words, mask=values.is_null().to_numpy(zero_copy_only=False))


class ColumnIndex(ABC):
    """The index of one column of one file, from its bytes.

    Each answer is a new bitmap of rows; None: the index does not know. All methods raise ValueError if the index is
    damaged, or of another version.
    """

    row_count: int | None = None  # Rows of the file; None: the index does not say

    @abstractmethod
    def __init__(self, data: bytes, keys: KeyType) -> None: ...

    def valid(self) -> BitMap | None:
        return None

    @abstractmethod
    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """Rows with one of these keys."""

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key greater than `key`, or equal to it if `inclusive`."""
        return None

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key less than `key`, or equal to it if `inclusive`."""
        return None
