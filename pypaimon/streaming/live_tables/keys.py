"""`Keys`: what callers give as keys, as columns that can be hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.live_tables.key_hashes import comparable


class Keys:
    """The columns of a key.

    Args:
        names: What they are called.
        kinds: Their types.
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> None:
        self.names = list(names)
        self.kinds = list(kinds)
        self._python = [_plain_type(kind) for kind in kinds]

    def values(self, key: Any) -> Sequence[Any]:
        """The values of one key, which is a value, or of several columns a tuple or a dict.

        Raises:
            StreamConfigError: It has other columns.
        """
        if isinstance(key, Mapping):
            if key.keys() != set(self.names):
                raise self._refused(f"a dict of {list(key)}")
            return [key[name] for name in self.names]
        if len(self.names) == 1:
            return [key]
        if not isinstance(key, (tuple, list)) or len(key) != len(self.names):
            raise self._refused(repr(key))
        return key

    def plain(self, values: Sequence[Any]) -> list[int | bytes] | None:
        """Values of a key as integers and bytes; None where not all columns are integers or texts."""
        plain: list[int | bytes] = []
        for value, python in zip(values, self._python, strict=True):
            if type(value) is not python:
                return None
            plain.append(value.encode() if python is str else value)
        return plain

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """The values of one key as columns.

        Raises:
            StreamConfigError: They are of other types.
        """
        try:
            made = [pa.array([value], kind) for value, kind in zip(values, self.kinds, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refused(repr(tuple(values))) from error
        for column, value in zip(made, values, strict=True):
            # pyarrow cuts fractions and times of day.
            if not pa.types.is_floating(column.type) and column[0].as_py() != value:
                raise self._refused(repr(tuple(values)))
        return [comparable(each) for each in made]

    def columns(self, keys: Any) -> list[pa.Array]:
        """Many keys as columns, as `fitted` gives them, but `comparable`."""
        return [comparable(each) for each in self.fitted(keys)]

    def fitted(self, keys: Any) -> list[pa.Array]:
        """Many keys as columns: of an Arrow array, or something that it is made of; or of a table or record batch.

        Raises:
            StreamConfigError: Columns are missing, or of types that cannot be made those of the key.
        """
        try:
            return [_fitted(each, kind) for each, kind in zip(self._given(keys), self.kinds, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, StreamConfigError):
                raise
            raise self._refused(f"keys that do not fit ({error})") from error

    def _given(self, keys: Any) -> list[pa.Array]:
        if isinstance(keys, (pa.Table, pa.RecordBatch)):
            missing = [name for name in self.names if name not in keys.schema.names]
            if missing:
                raise self._refused(f"columns {keys.schema.names}")
            return [_array(keys.column(name)) for name in self.names]
        if len(self.names) > 1:
            raise self._refused("one column" if isinstance(keys, (pa.Array, pa.ChunkedArray)) else type(keys).__name__)
        if isinstance(keys, (pa.Array, pa.ChunkedArray)):
            return [_array(keys)]
        return [_array(pa.array(keys))]

    def _refused(self, given: str) -> StreamConfigError:
        key = ", ".join(f"{name} {kind}" for name, kind in zip(self.names, self.kinds, strict=True))
        ways = "a value" if len(self.names) == 1 else "a tuple or a dict"
        return StreamConfigError(
            f"the key of the table is ({key}), and not {given}: give {ways} for one key, and for many an Arrow table "
            f"with these columns{', or an array' if len(self.names) == 1 else ''}"
        )


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain_type(kind: pa.DataType) -> type[Any] | None:
    return int if pa.types.is_integer(kind) else str if pa.types.is_string(kind) else None


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys in the type of the column; integers stay what they are, for they are compared by value."""
    given = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    both_integers = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(kind)
    if given == kind or both_integers:
        return column if given == column.type else column.cast(given)
    if pa.types.is_string(kind) and not (pa.types.is_null(given) or "string" in str(given)):
        raise TypeError(f"{given} is no text")
    if pa.types.is_date(kind) and pa.types.is_timestamp(given):
        raise TypeError("a time is no date")
    return column.cast(kind)
