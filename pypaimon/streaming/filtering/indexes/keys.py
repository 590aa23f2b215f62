"""Keys: values of a column as its indexes hold them, and literals of a filter as such keys."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader
from pypaimon.streaming.filtering.statistics import INTEGER_BITS
from pypaimon.streaming.internals import AtomicType, DataType
from pypaimon.streaming.model.data_types import parameter, root

Key = int | float | bytes
_CODES = {"BOOLEAN": "b", "TINYINT": "b", "SMALLINT": "h", "INT": "i", "BIGINT": "q", "DATE": "i", "TIME": "i"}
_CODES |= {"DECIMAL": "q", "FLOAT": "f", "DOUBLE": "d", "TIMESTAMP": "q", "TIMESTAMP_LTZ": "q"}
_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class KeyType:
    """How indexes hold the values of a column.

    Attributes:
        code: The format of `struct` for keys of fixed length; None for texts and bytes.
        of_literal: The key of a value, given as a scalar of the column's type in Arrow.
        ordered: Whether keys are in one-to-one correspondence with values and sort as they do; else equal values have
            equal keys, and no more is known.
    """

    code: str | None
    of_literal: Callable[[pa.Scalar], Key]
    ordered: bool = True

    @property
    def is_floating(self) -> bool:
        """Whether keys are floating-point numbers."""
        return self.code in ("f", "d")

    def read(self, reader: BytesReader) -> Key:
        """The key at a reader's position. Raises ValueError where the bytes end too early."""
        if self.code is None:
            return reader.take(reader.length())
        key: Key = struct.unpack(f">{self.code}", reader.take(struct.calcsize(f">{self.code}")))[0]
        return key

    def order(self, key: Key) -> Any:
        """What sorts as Java sorts keys: -0.0 before 0.0, NaN last. Equal for equal keys."""
        if not self.is_floating or isinstance(key, bytes):
            return key
        bits = double_bits(math.nan if math.isnan(key) else float(key))
        return bits if bits >= 0 else -_SIGN - bits - 1


def double_bits(value: float) -> int:
    """The bits of a double, as Java's `doubleToLongBits`."""
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
    return bits


def key_type(stored: DataType, read: DataType) -> KeyType | None:
    """The keys of a column's indexes; None where a literal of the type that is read says nothing about them.

    CHAR and BINARY are padded and trimmed from format to format; TIMESTAMP(0) may hold milliseconds in its index that
    are not read. Of finer timestamps than microseconds the index knows microseconds.

    Args:
        stored: Its type in the file.
        read: Its type in the schema that is read.
    """
    if not isinstance(stored, AtomicType) or not isinstance(read, AtomicType):
        return None
    kind, kind_read = root(stored), root(read)
    if kind in INTEGER_BITS and INTEGER_BITS.get(kind_read, 0) >= INTEGER_BITS[kind]:
        return KeyType(_CODES[kind], _integer)
    if kind != kind_read:
        return None
    if kind == "VARCHAR":
        # A narrower type would cut the texts that are read.
        longest, longest_read = parameter(stored), parameter(read)
        fits = longest_read is None or (longest is not None and longest <= longest_read)
        return KeyType(None, _text) if fits else None
    if stored.type.split(" NOT NULL")[0] != read.type.split(" NOT NULL")[0]:
        return None
    if kind.startswith("TIMESTAMP"):
        precision = parameter(stored)
        precision = 6 if precision is None else precision
        return None if precision == 0 else KeyType("q", _nanos_as_micros if precision > 6 else _integer, precision <= 6)
    if kind == "VARBINARY":
        return KeyType(None, _bytes, ordered=False)
    if kind == "DECIMAL":
        return KeyType("q", _unscaled)
    if kind in ("FLOAT", "DOUBLE"):
        return KeyType(_CODES[kind], _float)
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


def _float(scalar: pa.Scalar) -> Key:
    return float(scalar.as_py())


def _text(scalar: pa.Scalar) -> Key:
    return str(scalar.as_py()).encode()


def _bytes(scalar: pa.Scalar) -> Key:
    return bytes(scalar.as_py())
