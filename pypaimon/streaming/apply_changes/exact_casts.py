"""Changes of a column's type after which the values that are there are, as they are, those that Paimon reads.

Everything else is a cast, and the casts of databases are not Paimon's: of 2.7 Paimon makes the INT 2, and others 3.
"""

from __future__ import annotations

import re

from pypaimon.streaming.internals import AtomicType
from pypaimon.streaming.model.data_types import parameter, root

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_UNLIMITED = 2**31 - 1
_DEFAULT_PRECISION = 6
_VARYING = {"CHAR": "VARCHAR", "VARCHAR": "VARCHAR", "BINARY": "VARBINARY", "VARBINARY": "VARBINARY"}
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME")


def is_wider(old: str, new: str) -> bool:
    """Whether all values of a type of Paimon are the same in another type, in numbers, texts and digits alike."""
    before, after = _kinds(old, new)
    if before in _DIGITS and after in _DIGITS:
        return _DIGITS[after] >= _DIGITS[before]
    if (before, after) in (("TINYINT", "DOUBLE"), ("SMALLINT", "DOUBLE"), ("INT", "DOUBLE"), ("FLOAT", "DOUBLE")):
        return True
    if before == after == "DECIMAL":
        return _scale(old) == _scale(new) and _precision(old) <= _precision(new)
    if after == _VARYING.get(before):
        return _length(old) <= _length(new)
    return before == after and before in _TIMES and _unit(old) == _unit(new) and _precision(old) <= _precision(new)


def is_equal_in(old: str, new: str) -> bool:
    """As `is_wider`, or with more digits: the same numbers and times, which are not the same texts."""
    before, after = _kinds(old, new)
    if is_wider(old, new):
        return True
    if after == "DECIMAL" and before in (*_DIGITS, "DECIMAL"):
        whole = _DIGITS[before] if before in _DIGITS else _precision(old) - _scale(old)
        scale = 0 if before in _DIGITS else _scale(old)
        return scale <= _scale(new) and whole <= _precision(new) - _scale(new)
    return before == after and before in _TIMES and _precision(old) <= _precision(new)


def _kinds(old: str, new: str) -> tuple[str, str]:
    return root(AtomicType(old)), root(AtomicType(new))


def _length(kind: str) -> int:
    length = parameter(AtomicType(kind))
    return _UNLIMITED if length is None else length


def _precision(kind: str) -> int:
    precision = parameter(AtomicType(kind))
    return _DEFAULT_PRECISION if precision is None else precision


def _unit(kind: str) -> int:
    """Seconds, milliseconds, microseconds or nanoseconds."""
    return (_precision(kind) + 2) // 3


def _scale(kind: str) -> int:
    found = re.search(r",\s*(\d+)", kind)
    return int(found[1]) if found else 0
