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
from pypaimon.streaming.io.local_files import written_temporarily
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.writing.files.orc_zone import OrcZone

_CODECS = {"none": "UNCOMPRESSED", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "zlib": "ZLIB"}
_ZONED = "An ORC file of another time zone than UTC is written twice"
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class OrcEncoder:
    """One ORC file that is being written.

    Args:
        stream: Where to.
        schema: Schema of all rows.
        compression: Name of the codec, in lower case.
        zone: As clocks of which zone it holds TIMESTAMP WITH LOCAL TIME ZONE; None: as moments.

    Attributes:
        schema: The types that it takes.

    Raises:
        StreamConfigError: ORC has no such codec.
        StoreError: There is no room for a temporary file.
    """

    def __init__(self, stream: Any, schema: pa.Schema, compression: str, zone: TimeZone | None = None) -> None:
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': ORC files have {', '.join(_CODECS)}.")
        self._target = stream
        self._zone = None if zone is None else OrcZone(zone)
        if zone is not None:
            with written_temporarily(_ZONED):
                stream = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the file
        self._stream = stream
        self.schema = pa.schema([_as_written(field) for field in schema])
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
            self._writer.write(data)
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


def _as_written(field: pa.Field) -> pa.Field:
    """The field as Arrow is to write it: TIME as the integers of Java's files, and nothing NOT NULL.

    ORC has no NOT NULL, and below a null row Arrow's writer needs nulls in all fields.
    """
    kind = field.type
    if pa.types.is_time(kind):
        kind = pa.int32()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_as_written(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_as_written(kind.key_field).type, _as_written(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_as_written(kind.value_field))
    return pa.field(field.name, kind)


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
        parts = [column.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        parts = [column.keys, column.items]
    elif pa.types.is_list(kind):
        parts = [column.values]
    else:
        yield column
        return
    for part in parts:
        yield from _leaves(part)
