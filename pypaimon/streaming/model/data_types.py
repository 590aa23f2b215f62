"""Paimon's atomic types as they are written in schemas: names, aliases, lengths and precisions."""

from __future__ import annotations

import re
from decimal import Decimal

from pypaimon.streaming.internals import AtomicType

_TYPE = re.compile(r"([A-Z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(.*)")
_ALIASES = {"INTEGER": "INT", "STRING": "VARCHAR", "BYTES": "VARBINARY", "NUMERIC": "DECIMAL", "DEC": "DECIMAL"}
_MOST_EXPONENT = 10_000
_DEFAULT_LENGTH = {"CHAR": 1, "BINARY": 1}


INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def bounded(number: Decimal) -> Decimal:
    """The number, unless it is one at which pyarrow ends the process: it scales by the exponent, however small.

    Raises:
        ValueError: Its exponent is far beyond the digits of any DECIMAL.
    """
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > _MOST_EXPONENT:
        raise ValueError("it is out of range")
    return number


def root(data_type: AtomicType) -> str:
    """The type without its parameters and aliases: `INT`, `VARCHAR`, `TIMESTAMP_LTZ`, ..."""
    match = _TYPE.match(data_type.type.upper())
    name = match.group(1) if match else data_type.type
    if name == "TIMESTAMP" and match and "LOCAL TIME ZONE" in match.group(4):
        return "TIMESTAMP_LTZ"
    return _ALIASES.get(name, name)


def parameter(data_type: AtomicType) -> int | None:
    """The length or precision of a type, None where it is not limited."""
    match = _TYPE.match(data_type.type.upper())
    if match and match.group(2):
        return int(match.group(2))
    return _DEFAULT_LENGTH.get(root(data_type))


def is_local_timestamp(data_type: object) -> bool:
    """Whether it is TIMESTAMP WITH LOCAL TIME ZONE."""
    return isinstance(data_type, AtomicType) and root(data_type) == "TIMESTAMP_LTZ"
