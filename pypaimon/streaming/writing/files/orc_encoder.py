"""`OrcEncoder`: Arrow tables into an ORC file that Java reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.io.temporary_files import written_temporarily
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.writing.files.orc_zone import OrcZone

_CODECS = {"none": "UNCOMPRESSED", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "zlib": "ZLIB"}
_ZONED = "An ORC file of another time zone than UTC is written twice"
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class OrcEncoder:
    """One ORC file that is being written.

    Args:
        stream: Where to.
        compression: Name of the codec, in lower case.
        zone: As clocks of which zone it holds TIMESTAMP WITH LOCAL TIME ZONE; None: as moments.

    Raises:
        StreamConfigError: ORC has no such codec.
        StoreError: There is no room for a temporary file.
    """

    def __init__(self, stream: Any, compression: str, zone: TimeZone | None = None) -> None:
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': ORC files have {', '.join(_CODECS)}.")
        self._target = stream
        self._zone = None if zone is None else OrcZone(zone)
        if zone is not None:
            with written_temporarily(_ZONED):
                stream = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the file
        self._stream = stream
        self._writer = orc.ORCWriter(stream, compression=_CODECS[compression])
        self._written = 0
        self._held = 0

    def write(self, data: pa.Table) -> None:
        """Add rows.

        Raises:
            UnsupportedTableError: A value cannot be written right.
        """
        if self._zone is not None:
            data = self._zone.stored(data)
        for name, column in zip(data.schema.names, data.columns, strict=True):
            for chunk in column.chunks:
                _check(name, chunk)
        with self._temporarily():
            self._writer.write(_without_slices(_without_times(data)))
        # A stripe is written once it is full; until then Arrow holds it.
        written = int(self._stream.tell())
        self._held = self._held + data.nbytes if written == self._written else 0
        self._written = written

    def size(self) -> int:
        """Bytes so far, and those of Arrow for what it holds."""
        return self._written + self._held

    def close(self) -> None:
        """Write the last stripe and the footer."""
        if self._zone is None:
            self._writer.close()
            return
        with self._stream:
            with self._temporarily():
                self._writer.close()
            self._zone.put_into(self._target, self._stream)

    def _temporarily(self) -> AbstractContextManager[None]:
        return nullcontext() if self._zone is None else written_temporarily(_ZONED)


def _without_times(data: pa.Table) -> pa.Table:
    """TIME as the integers that they are in Java's ORC files; Arrow writes none."""
    for index, field in enumerate(data.schema):
        if pa.types.is_time(field.type):
            milliseconds = pc.cast(data.column(index), pa.time32("ms")).cast(pa.int32())
            data = data.set_column(index, field.with_type(pa.int32()), milliseconds)
    return data


def _without_slices(data: pa.Table) -> pa.Table:
    """Structs in memory of their own: of a slice Arrow writes the nulls of other rows."""
    for index, field in enumerate(data.schema):
        if _has_structs(field.type):
            data = data.set_column(index, field, data.column(index).take(pa.array(np.arange(data.num_rows))))
    return data


def _has_structs(kind: pa.DataType) -> bool:
    children = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_struct(kind) or any(map(_has_structs, children))


def _check(name: str, column: pa.Array) -> None:
    """Refuse what Arrow writes so that Java does not read it, or passes it over."""
    for leaf in _leaves(column):
        if pa.types.is_floating(leaf.type) and pc.any(pc.is_nan(leaf)).as_py():
            # It spoils the least and the greatest value in the file.
            raise _refused(name, "NaN", "with statistics by which filters lose rows")
        if pa.types.is_timestamp(leaf.type) and leaf.type.unit in _PER_MILLISECOND:
            numbers = pc.fill_null(leaf.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            if ((numbers < 0) & (np.mod(numbers, _PER_MILLISECOND[leaf.type.unit]) != 0)).any():
                raise _refused(name, "a time before 1970 with a fraction of a millisecond", "with the wrong sign")


def _refused(name: str, what: str, how: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Column '{name}' holds {what}, which pyarrow writes into ORC files {how}. Set 'file.format' to parquet or "
        "avro."
    )


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(column.flatten())
    else:
        yield column
