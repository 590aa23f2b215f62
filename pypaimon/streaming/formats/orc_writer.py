"""Arrow tables into an ORC file that Java reads.

Arrow writes timestamps as a writer in UTC. For a writer in another time zone the values are moved before, and the zone
is put into the footers of the stripes afterwards (`OrcZone`).
"""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.orc_checks import OrcChecks, StripeField
from pypaimon.streaming.formats.orc_tail import (
    TIMESTAMP,
    VARINT,
    Field,
    FooterField,
    OrcTail,
    encode,
    numbers,
    read_tail,
    reads_of,
    with_bounds,
)
from pypaimon.streaming.formats.orc_timestamps import (
    ORC_EPOCH,
    Seconds,
    base_of,
    children,
    meant_by_java,
    moved,
    shown_by_java,
    split,
    with_timestamps,
)
from pypaimon.streaming.io.local_files import written_temporarily
from pypaimon.streaming.model.arrow_types import holds_local_timestamps
from pypaimon.streaming.model.time_zone import TimeZone

_CODECS = {"none": "UNCOMPRESSED", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "zlib": "ZLIB"}
_ZONED = "An ORC file of another time zone than UTC is written twice"
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
_COPIED_BYTES = 1 << 20
_MAGIC = b"ORC"
_STRIPE_BYTES = 64 << 20


class OrcFileWriter:
    """One ORC file that is being written; see `FormatWriter` and `Format.writer`. Raises StoreError if a temporary file
    cannot be written, which a time zone needs.
    """

    def __init__(self, stream: Any, schema: pa.Schema, settings: WriteSettings) -> None:
        compression = settings.compression
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': ORC files have {', '.join(_CODECS)}.")
        zone = settings.orc_zone if any(map(holds_local_timestamps, schema.types)) else None
        self._target = stream
        self._zone = None if zone is None else OrcZone(zone)
        if zone is not None:
            with written_temporarily(_ZONED):
                stream = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the file
        self._stream = stream
        self.schema = pa.schema([_as_written(field) for field in schema])
        stripe_bytes = settings.block_bytes or _STRIPE_BYTES
        self._writer = orc.ORCWriter(stream, compression=_CODECS[compression], stripe_size=stripe_bytes)
        self._written = 0
        self._held = 0

    def write(self, data: pa.Table) -> None:
        """Add rows. Raises UnsupportedTableError if Arrow cannot write a value so that Java reads it."""
        if self._zone is not None:
            data = self._zone.stored(data)
        for name, column in zip(data.schema.names, data.columns, strict=True):
            for chunk in column.chunks:
                _check(name, chunk)
        with self._temporarily():
            self._writer.write(data)
        # Arrow writes a stripe once it is full.
        written = int(self._stream.tell())
        self._held = self._held + data.nbytes if written == self._written else 0
        self._written = written

    def size(self) -> int:
        """Bytes so far, and the bytes in Arrow of the unfinished stripe."""
        return self._written + self._held

    def close(self) -> None:
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
    """The field for Arrow's writer: TIME as the integers that Java writes, and nothing NOT NULL."""
    kind = field.type
    if pa.types.is_time(kind):
        kind = pa.int32()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_as_written(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_as_written(kind.key_field).type, _as_written(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_as_written(kind.value_field))
    # Nullable: ORC has no NOT NULL, and within a null row Arrow's writer needs nulls in all fields.
    return pa.field(field.name, kind)


def _check(name: str, column: pa.Array) -> None:
    """Refuse values that Arrow would write so that Java misreads them."""
    for leaf in _leaves(column):
        if pa.types.is_timestamp(leaf.type) and leaf.type.unit in _PER_MILLISECOND:
            numbers = pc.fill_null(leaf.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            if ((numbers < 0) & (np.mod(numbers, _PER_MILLISECOND[leaf.type.unit]) != 0)).any():
                raise UnsupportedTableError(
                    f"Column '{name}' holds a time before 1970 with a fraction of a millisecond, which pyarrow writes "
                    "into ORC files with the wrong sign. Set 'file.format' to parquet or avro."
                )


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    parts = children(column)
    if not parts:
        yield column
    for part in parts:
        yield from _leaves(part)


class OrcZone:
    """Writes the timestamps of one file as a Java writer in a time zone does."""

    def __init__(self, zone: TimeZone) -> None:
        self._zone = zone
        # Arrow counts from 2015 in UTC, readers count from 2015 in the zone.
        self._ahead = base_of(zone) - ORC_EPOCH

    def stored(self, data: pa.Table) -> pa.Table:
        """The rows to give to Arrow. Raises UnsupportedTableError if a value cannot be stored in the zone."""
        for index, field in enumerate(data.schema):

            def turned(leaf: pa.Array, has_zone: bool, name: str = field.name) -> pa.Array:
                return self._local(name, leaf) if has_zone else self._clocks(name, leaf)

            chunks = [with_timestamps(chunk, field.type, turned) for chunk in data.column(index).chunks]
            data = data.set_column(index, field, pa.chunked_array(chunks, field.type))
        return data

    def _local(self, name: str, array: pa.Array) -> pa.Array:
        """The moment at which clocks of the zone show the time that a timestamp has in UTC."""
        shown = split(array)[0]
        meant = self._meant(name, array, shown)
        return moved(array, meant - shown)

    def _clocks(self, name: str, array: pa.Array) -> pa.Array:
        """The timestamps for Arrow, so that readers get the moment at which clocks of the zone show a time."""
        shown, is_late = split(array)
        meant = self._meant(name, array, shown)
        written = meant - self._ahead
        # ORC rounds fractions before 1970 up. Readers cannot know on which side of 1970 the writer saw such a value.
        unclear = is_late & (((meant < 0) != (written < 0)) | (meant == -1))
        self._refuse(name, array, unclear, "a fraction of a second so near to 1970")
        return moved(array, written - shown)

    def _meant(self, name: str, array: pa.Array, shown: Seconds) -> Seconds:
        meant = meant_by_java(self._zone, shown)
        self._refuse(name, array, shown_by_java(self._zone, meant) != shown, "a time that clocks skip there")
        return meant

    def _refuse(self, name: str, array: pa.Array, wrong: Any, what: str) -> None:
        found = array.filter(pa.array(wrong)).drop_null()
        if len(found):
            shown = found[0].cast(pa.timestamp(array.type.unit)).cast(pa.string())
            raise UnsupportedTableError(
                f"Column '{name}' holds {shown}, and ORC files of time zone {self._zone.name} cannot hold {what}. Set "
                "'orc.timestamp-ltz.legacy.type' to 'false', so that no zone is needed, or 'file.format' to parquet."
            )

    def put_into(self, target: Any, written: BinaryIO) -> None:
        """Copy a file that Arrow has written, with the zone in it.

        Statistics of parts of the file are left out. They are of the moved times, and with statistics of this kind in
        its own files Java's filters lose the rows with the least and the greatest value.
        """
        size, read = written.seek(0, io.SEEK_END), reads_of(written)
        if not size:
            # Arrow writes nothing if there are no rows.
            return
        tail = read_tail(size, read)
        checks = OrcChecks(tail, read)
        messages = (value for number, _, value in tail.footer if number == FooterField.STRIPES)
        target.write(_MAGIC)
        place, stripes = len(_MAGIC), []
        for index, (stripe, message) in enumerate(zip(checks.stripes, messages, strict=True)):
            found = dict(numbers(message))
            first = stripe.offset + found[StripeField.INDEX_LENGTH]
            for start in range(first, stripe.footer, _COPIED_BYTES):
                target.write(read(start, min(start + _COPIED_BYTES, stripe.footer)))
            footer = checks.zoned_footer(index, str(self._zone.name), indexes=False)
            target.write(footer)
            found |= {StripeField.OFFSET: place, StripeField.INDEX_LENGTH: 0, StripeField.FOOTER_LENGTH: len(footer)}
            stripes.append(encode([(number, VARINT, value) for number, value in sorted(found.items())]))
            place += stripe.footer - first + len(footer)
        target.write(tail.end(self._tail(tail, stripes, place), metadata_length=0))

    def _tail(self, tail: OrcTail, stripes: list[bytes], length: int) -> list[Field]:
        stripe, types, clocks = iter(stripes), itertools.count(), tail.of_kind(TIMESTAMP)
        footer: list[Field] = []
        for number, wire, value in tail.footer:
            if number == FooterField.STRIPES:
                value = next(stripe)
            elif number == FooterField.CONTENT_LENGTH:
                value = length - len(_MAGIC)
            elif number == FooterField.INDEX_STRIDE:
                value = 0
            elif number == FooterField.STATISTICS and next(types) in clocks:
                value = with_bounds(value, self._shown)
            footer.append((number, wire, value))
        return footer

    def _shown(self, millis: int) -> int:
        second = millis // 1000
        shown = shown_by_java(self._zone, np.array([second + self._ahead]))
        return millis + 1000 * (int(shown[0]) - second)
