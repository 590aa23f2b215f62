"""ORC files as record batches of their own columns."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedContentError, UnsupportedTableError
from pypaimon.streaming.formats import file_format
from pypaimon.streaming.formats.file_format import LocalZone
from pypaimon.streaming.formats.orc_checks import OrcChecks, StripeField, open_orc
from pypaimon.streaming.formats.orc_tail import (
    DAY_MILLIS,
    LENGTH_DELIMITED,
    LONG,
    TIMESTAMP,
    TIMESTAMP_INSTANT,
    VARINT,
    FooterField,
    encode,
    reads_of,
)
from pypaimon.streaming.formats.orc_timestamps import ORC_EPOCH, WithEnd, children, in_zones, with_children
from pypaimon.streaming.io.binary_file import HeldStream
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import holds_local_timestamps, leaf_types
from pypaimon.streaming.model.time_zone import TimeZone, time_zone

_WRAP = 1 << 64
_ARROW_SCHEMA = b"ARROW:schema"
_NO_DATABASE = "Time zone file"
_READ_ZONE = "GMT"
"""The writer's zone in footers for Arrow if timestamps are corrected here. Arrow knows GMT without a tz database."""
_WHOLE_STRIPE = 256 << 20
"""Bytes up to which a stripe is decoded at once; writers end a stripe at about 64 MiB."""
_OUT_OF_RANGE = "out of range for nanosecond resolution"
"""In the error of pyarrow 25 and later for a timestamp that overflows. With earlier ones it wraps, and is repaired."""
_MAGIC = b"ORC"
_MOST_ROWS = 16_384
_OF_OTHERS = (FooterField.CONTENT_LENGTH, FooterField.STRIPES, FooterField.ROWS, FooterField.STATISTICS)


class OrcFileReader:
    """One open ORC file. Without `local_zone` (see `LocalZone`), it holds TIMESTAMP WITH LOCAL TIME ZONE as moments in
    UTC.
    """

    def __init__(self, stream: Any, local_zone: LocalZone | None = None) -> None:
        # The checks read data that Arrow reads again, which is cheap in memory and on a disk.
        self._held = None if isinstance(stream, (pa.NativeFile, io.BytesIO)) else HeldStream(stream)
        self._remote = stream if isinstance(stream, RemoteFile) else None
        stream = self._held or stream
        self._checks, self._file = open_orc(stream, self._held.hold if self._held else reads_of(stream))
        self._stream = stream
        self._local_zone = local_zone
        self._seconds: orc.ORCFile | None = None
        self._as_moments: orc.ORCFile | None = None
        self._far: dict[int, int] = {}
        # The columns of the file with the metadata of their writer; timestamps are of microseconds if nanoseconds may
        # not hold them
        self.schema: pa.Schema = _with_field_metadata(self._file.schema)
        self.num_rows: int = self._file.nrows
        self._has_timestamps = any(map(_holds_timestamps, self.schema.types))
        if self._has_timestamps:
            self._mend()

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """See `FormatReader`; one stripe, or a part of a large one, is in memory at a time."""
        self._announce(columns)
        for index in range(self._file.nstripes):
            decoded = self._check(index, columns)
            with self._explained(index, columns):
                for batch in self._meant(index, columns, decoded, batch_size):
                    for start in range(0, batch.num_rows, batch_size):
                        yield batch.slice(start, batch_size)

    def _meant(self, index: int, columns: Sequence[str], decoded: int, batch_size: int) -> Iterator[pa.RecordBatch]:
        # Not by Arrow: it looks for the zone in the system's tz database, which lacks Java's `GMT+08:00`.
        name, clocks = self._writer_zone(index)
        local = self._local(name, columns)
        for batch, seconds in self._decoded(index, columns, decoded, batch_size, clocks is not None):
            arrays = batch.columns
            if seconds is not None:
                arrays = [_mended(*pair) for pair in zip(arrays, seconds.columns, strict=True)]
            if clocks is not None or local is not None:
                kinds = [self.schema.field(each).type for each in batch.schema.names]
                arrays = [in_zones(*each, clocks, local) for each in zip(arrays, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _decoded(
        self, index: int, columns: Sequence[str], decoded: int, batch_size: int, as_moments: bool
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """The rows as Arrow reads them, and again with seconds in place of timestamps that may have wrapped."""
        if self._checks is None or decoded <= self._whole_bytes(index):
            names = list(columns)
            whole = self._file_of(as_moments).read_stripe(index, columns=names)
            yield whole, None if self._seconds is None else self._seconds.read_stripe(index, columns=names)
            return
        pieces = OrcPieces(self._checks, index, columns, decoded, batch_size)
        batches = pieces.batches(_READ_ZONE, self._moment_kinds()) if as_moments else pieces.batches()
        seconds = pieces.batches(_READ_ZONE, self._far) if self._far else repeat(None)
        yield from zip(batches, seconds, strict=bool(self._far))

    def _whole_bytes(self, index: int) -> int:
        assert self._checks is not None
        stripe = self._checks.stripes[index]
        # The stored bytes count too, because pieces hold copies of them.
        return max(_WHOLE_STRIPE, 4 * (stripe.footer - stripe.offset))

    def _file_of(self, as_moments: bool) -> orc.ORCFile:
        if as_moments and self._as_moments is None:
            self._as_moments = self._retyped(self._moment_kinds())
        return self._as_moments if as_moments else self._file

    def _writer_zone(self, index: int) -> tuple[str | None, TimeZone | None]:
        """The zone that a stripe names, and the zone by which timestamps have to be moved, if any."""
        if self._checks is None or not self._has_timestamps:
            return None, None
        name = self._checks.writer_zone(index)
        return name, None if name is None or (zone := _zone(name)).is_utc else zone

    def _local(self, name: str | None, columns: Sequence[str]) -> TimeZone | None:
        """The zone in whose local time these columns hold TIMESTAMP WITH LOCAL TIME ZONE; None: as moments in UTC."""
        local = [each for each in columns if holds_local_timestamps(self.schema.field(each).type)]
        if self._checks is None or self._local_zone is None or not local:
            return None
        tail = self._checks.tail
        whole = (each.name for each in self.schema if pa.types.is_timestamp(each.type) and each.type.tz)
        bounds = {each: tail.bounds(self._checks.type_of(each)) for each in whole}
        zone = self._local_zone(name, {each: found for each, found in bounds.items() if found is not None}, local)
        return None if zone is None or zone.is_utc else zone

    def _moment_kinds(self) -> dict[int, int]:
        assert self._checks is not None
        return dict.fromkeys(self._checks.tail.of_kind(TIMESTAMP), TIMESTAMP_INSTANT)

    def _retyped(self, kinds: Mapping[int, int]) -> orc.ORCFile:
        assert self._checks is not None
        return orc.ORCFile(WithEnd(self._stream, self._checks.tail.body, *self._checks.in_zone(_READ_ZONE, kinds)))

    @contextmanager
    def _explained(self, index: int, columns: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except pa.ArrowException as error:
            if _NO_DATABASE in str(error):
                raise UnsupportedTableError(
                    "pyarrow needs a tz database to read ORC files, and this machine has none: install the system "
                    f"package 'tzdata', or set TZDIR to the directory of one. {error}"
                ) from error
            is_far = _OUT_OF_RANGE in str(error)
            if not is_far and not isinstance(error, pa.ArrowNotImplementedError):
                raise
            raise UnsupportedContentError(
                f"a timestamp is before 1677 or after 2262, beyond Arrow's nanoseconds: pyarrow {pa.__version__} does "
                "not read it. Read with pyarrow 16 to 24, or without the column"
                if is_far
                else f"pyarrow {pa.__version__} does not read it ({error}). Read without it",
                self._column_of(index, [name for name in columns if not is_far or self._holds_timestamps(name)]),
            ) from error

    def _column_of(self, index: int, columns: Sequence[str]) -> str | None:
        return next((name for name in columns if not self._is_read(index, name)), None)

    def _is_read(self, index: int, column: str) -> bool:
        try:
            self._file_of(self._writer_zone(index)[1] is not None).read_stripe(index, columns=[column])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def _holds_timestamps(self, column: str) -> bool:
        return _holds_timestamps(self.schema.field(column).type)

    def _announce(self, columns: Sequence[str]) -> None:
        """Request the data of columns ahead: first the footers of the stripes, which say where the data is."""
        if self._remote is None or self._held is None or self._checks is None:
            return
        ranges: list[tuple[int, int]] = []
        self._remote.will_read([(each.footer, each.end - each.footer) for each in self._checks.stripes])
        # Damage is raised when the stripe is read.
        with suppress(ValueError):
            for index, stripe in enumerate(self._checks.stripes):
                self._held.pin(stripe.footer, stripe.end)
                ranges += self._checks.ranges(index, columns)
        self._remote.will_read(ranges)

    def _check(self, index: int, columns: Sequence[str]) -> int:
        """Check a stripe before Arrow reads it; returns the bytes of its decoded rows, 0 if they are not known."""
        if self._held is not None:
            self._held.forget()
        return 0 if self._checks is None else self._checks.check_stripe(index, columns, whole=self._held is not None)

    def _mend(self) -> None:
        if self._checks is None:
            raise UnsupportedTableError("Timestamps of ORC files compressed in this way cannot be read.")
        tail = self._checks.tail
        types = tail.overflowing(DAY_MILLIS)
        if types and not self._moves_timestamps():
            types = tail.overflowing(0)
        if types:
            self._far = dict.fromkeys(types, LONG)
            self._seconds = self._retyped(self._far)
            pairs = zip(self.schema, self._seconds.schema, strict=True)
            self.schema = pa.schema([field.with_type(_mended_type(field.type, other.type)) for field, other in pairs])

    def _moves_timestamps(self) -> bool:
        assert self._checks is not None
        if not self._checks.stripes:
            return False
        # By the last stripe, whose footer was read with the tail.
        name = self._checks.writer_zone(len(self._checks.stripes) - 1)
        try:
            moved = name is not None and not _zone(name).is_utc
            return moved or self._local(name, self.schema.names) is not None
        except (StreamConfigError, UnsupportedTableError):
            # The error is raised when such a column is read.
            return True


def _zone(name: str) -> TimeZone:
    try:
        return time_zone(name)
    except ValueError as error:
        raise UnsupportedTableError(f"The writer of an ORC file was in an unknown time zone: {error}") from None


def _with_field_metadata(schema: pa.Schema) -> pa.Schema:
    """The schema with the metadata of its fields, which Arrow does not restore from the schema that it stored."""
    stored = (schema.metadata or {}).get(_ARROW_SCHEMA)
    if stored is None or not any(map(pa.types.is_struct, schema.types)):
        return schema
    written = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(stored, validate=True)))
    metadata = {field.name: field.metadata for field in written}
    return pa.schema([field.with_metadata(metadata.get(field.name, field.metadata)) for field in schema])


def _holds_timestamps(kind: pa.DataType) -> bool:
    return any(map(pa.types.is_timestamp, leaf_types(kind)))


def _mended_type(kind: pa.DataType, seconds: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if pa.types.is_integer(seconds) else kind
    if pa.types.is_map(kind):
        item = _mended_type(kind.item_type, seconds.item_type)
        return pa.map_(_mended_type(kind.key_type, seconds.key_type), kind.item_field.with_type(item))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mended_type(kind.value_type, seconds.value_type)))
    if pa.types.is_struct(kind):
        pairs = zip(kind, seconds, strict=True)
        return pa.struct([field.with_type(_mended_type(field.type, other.type)) for field, other in pairs])
    return kind


def _mended(wrapped: pa.Array, seconds: pa.Array) -> pa.Array:
    """Repair the timestamps of a column by the same column with whole seconds in their place."""
    kind = _mended_type(wrapped.type, seconds.type)
    if kind == wrapped.type:
        return wrapped
    if pa.types.is_timestamp(kind):
        return _microseconds(wrapped, seconds)
    pairs = zip(children(wrapped), children(seconds), strict=True)
    return with_children(wrapped, kind, [_mended(*pair) for pair in pairs])


def _microseconds(wrapped: pa.Array, seconds: pa.Array) -> pa.Array:
    nanos = wrapped.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    about = seconds.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + ORC_EPOCH
    wraps = np.rint((about * 1e9 - nanos) / float(_WRAP)).astype(np.int64)
    micros, rest = np.divmod(nanos, 1000)
    micros = micros + wraps * (_WRAP // 1000) + (rest + wraps * (_WRAP % 1000)) // 1000
    missing = wrapped.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us", wrapped.type.tz))


class OrcPieces:
    """Reads one stripe in batches of about `file_format.DECODED_BYTES`.

    pyarrow's ORC reader decodes whole stripes, which may be much larger than their stored bytes: texts of dictionaries,
    and data that compresses well. Only its datasets read rows in batches, here from a file of this stripe alone.
    """

    def __init__(self, checks: OrcChecks, index: int, columns: Sequence[str], decoded: int, batch_size: int) -> None:
        self._checks = checks
        self._index = index
        self._columns = list(columns)
        self._data, self._footer = checks.part(index, columns)
        rows = checks.stripes[index].rows * file_format.DECODED_BYTES // max(decoded, 1)
        self._rows = max(1, min(rows, _MOST_ROWS, batch_size))

    def batches(self, zone: str | None = None, kinds: Mapping[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in stored order; arguments as of `OrcChecks.in_zone`, without a zone that of the stripe."""
        # Seldom needed, and slow to import.
        import pyarrow.dataset

        footer = self._footer if zone is None else self._checks.zoned_footer(self._index, zone)
        content = b"".join((_MAGIC, self._data, footer, self._end(len(footer), kinds or {})))
        fragment = pyarrow.dataset.OrcFileFormat().make_fragment(pa.BufferReader(content))
        yield from fragment.to_batches(
            columns=self._columns, batch_size=self._rows, batch_readahead=0, fragment_readahead=0, use_threads=False
        )

    def _end(self, footer_length: int, kinds: Mapping[int, int]) -> bytes:
        rows = self._checks.stripes[self._index].rows
        stripe = {
            StripeField.OFFSET: len(_MAGIC),
            # Indexes count as data: nothing reads them.
            StripeField.DATA_LENGTH: len(self._data),
            StripeField.FOOTER_LENGTH: footer_length,
            StripeField.ROWS: rows,
        }
        tail = self._checks.tail
        footer = [field for field in tail.retyped(kinds) if field[0] not in _OF_OTHERS]
        footer += [
            (FooterField.CONTENT_LENGTH, VARINT, len(_MAGIC) + len(self._data) + footer_length),
            (FooterField.STRIPES, LENGTH_DELIMITED, encode([(key, VARINT, value) for key, value in stripe.items()])),
            (FooterField.ROWS, VARINT, rows),
        ]
        return tail.end(footer, metadata_length=0)
