"""ORC files as record batches of their own columns."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedContentError, UnsupportedTableError
from pypaimon.streaming.formats.orc_checks import open_orc
from pypaimon.streaming.formats.orc_pieces import OrcPieces
from pypaimon.streaming.formats.orc_tail import DAY_MILLIS, LONG, TIMESTAMP, TIMESTAMP_INSTANT, reads_of
from pypaimon.streaming.formats.orc_zones import ORC_EPOCH, WithEnd, holds_timestamps, in_zones
from pypaimon.streaming.io.binary_file import HeldStream
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import map_entries
from pypaimon.streaming.model.time_zone import TimeZone, time_zone

LocalZone: TypeAlias = Callable[[str | None, Mapping[str, tuple[int, int]], Sequence[str]], TimeZone | None]
"""As clocks of which zone a TIMESTAMP WITH LOCAL TIME ZONE is stored, None for as a moment. Called with the zone that
the stripe names, the least and greatest stored milliseconds by column, and the columns that are read."""

_WRAP = 1 << 64
_ARROW_SCHEMA = b"ARROW:schema"
_NO_DATABASE = "Time zone file"
_READ_ZONE = "GMT"
"""As that of the writer where timestamps are moved here, and not by Arrow, which finds this one without a database."""
_WHOLE_STRIPE = 256 << 20
"""Bytes up to which a stripe is decoded at once; writers begin a new one from about 64 MiB on."""
_OUT_OF_RANGE = "out of range for nanosecond resolution"
"""How pyarrow 25 and later refuse a timestamp; what earlier ones give wraps, and is put right here."""


class OrcSource:
    """One open ORC file.

    Args:
        stream: The file.
        local_zone: As clocks of which zone a TIMESTAMP WITH LOCAL TIME ZONE is stored; None: as a moment.

    Attributes:
        schema: The columns of the file, as Arrow gives them, with what their writer said of each; timestamps that
            nanoseconds cannot hold are of microseconds.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = True
    damage_words: ClassVar[tuple[str, ...]] = ("ORC",)

    def __init__(self, stream: Any, local_zone: LocalZone | None = None) -> None:
        # What is in memory or on a disk may be read twice.
        self._held = None if isinstance(stream, (pa.NativeFile, io.BytesIO)) else HeldStream(stream)
        self._remote = stream if isinstance(stream, RemoteFile) else None
        stream = self._held or stream
        self._checks, self._file = open_orc(stream, self._held.hold if self._held else reads_of(stream))
        self._stream = stream
        self._local_zone = local_zone
        self._seconds: orc.ORCFile | None = None
        self._as_moments: orc.ORCFile | None = None
        self._far: dict[int, int] = {}
        self.schema: pa.Schema = _with_what_was_told(self._file.schema)
        self.num_rows: int = self._file.nrows
        self._has_timestamps = any(holds_timestamps(field.type) for field in self.schema)
        if self._has_timestamps:
            self._mend()

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one. One stripe, or a part, is in memory at a time.

        Raises:
            UnsupportedContentError: A column holds what the installed pyarrow does not read.
        """
        self._announce(columns)
        for index in range(self._file.nstripes):
            decoded = self._check(index, columns)
            with self._explained(index, columns):
                for batch in self._meant(index, columns, decoded, batch_size):
                    for start in range(0, batch.num_rows, batch_size):
                        yield batch.slice(start, batch_size)

    def _meant(self, index: int, columns: Sequence[str], decoded: int, batch_size: int) -> Iterator[pa.RecordBatch]:
        """The rows of a stripe that takes so many bytes, with the timestamps that its writer meant."""
        # Arrow would look for the zone in files of the system, in which Java's `GMT+08:00` is not.
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
        """The rows as Arrow gives them, and with seconds in place of timestamps that may wrap."""
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
        """Bytes up to which a stripe is decoded at once: pieces hold what is stored several times."""
        assert self._checks is not None
        stripe = self._checks.stripes[index]
        return max(_WHOLE_STRIPE, 4 * (stripe.footer - stripe.offset))

    def _file_of(self, as_moments: bool) -> orc.ORCFile:
        """The file, on demand with its timestamps without zone as if they were moments."""
        if as_moments and self._as_moments is None:
            self._as_moments = self._retyped(self._moment_kinds())
        return self._as_moments if as_moments else self._file

    def _writer_zone(self, index: int) -> tuple[str | None, TimeZone | None]:
        """The zone that a stripe names, and the same if timestamps have to be moved by it."""
        if self._checks is None or not self._has_timestamps:
            return None, None
        name = self._checks.writer_zone(index)
        return name, None if name is None or (zone := _zone(name)).is_utc else zone

    def _local(self, name: str | None, columns: Sequence[str]) -> TimeZone | None:
        """As clocks of which zone the moments in these columns are stored; None: as they are."""
        local = [each for each in columns if _holds_moments(self.schema.field(each).type)]
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
        """The file as if a writer in UTC had given types (by their places in the footer) other kinds."""
        assert self._checks is not None
        return orc.ORCFile(WithEnd(self._stream, self._checks.tail.body, *self._checks.in_zone(_READ_ZONE, kinds)))

    @contextmanager
    def _explained(self, index: int, columns: Sequence[str]) -> Iterator[None]:
        """Tells which column pyarrow does not read, and why."""
        try:
            yield
        except pa.ArrowException as error:
            if _NO_DATABASE in str(error):
                raise UnsupportedTableError(
                    "pyarrow reads ORC files only where there is a tz database, which this machine lacks: install its "
                    f"package 'tzdata', or have TZDIR name the directory of one. {error}"
                ) from error
            is_far = _OUT_OF_RANGE in str(error)
            if not is_far and not isinstance(error, pa.ArrowNotImplementedError):
                raise
            raise UnsupportedContentError(
                f"a timestamp lies before 1677 or after 2262, where Arrow's nanoseconds end: pyarrow {pa.__version__} "
                "does not give it. Read with pyarrow 16 to 24, or without the column"
                if is_far
                else f"pyarrow {pa.__version__} does not read it ({error}). Read without it",
                self._column_of(index, [name for name in columns if not is_far or self._holds_timestamps(name)]),
            ) from error

    def _column_of(self, index: int, columns: Sequence[str]) -> str | None:
        """The first column of a stripe that pyarrow does not read."""
        return next((name for name in columns if not self._is_read(index, name)), None)

    def _is_read(self, index: int, column: str) -> bool:
        try:
            self._file_of(self._writer_zone(index)[1] is not None).read_stripe(index, columns=[column])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def _holds_timestamps(self, column: str) -> bool:
        return holds_timestamps(self.schema.field(column).type)

    def _announce(self, columns: Sequence[str]) -> None:
        """Have the data of columns on its way: where it lies the footers of the stripes say, which come first."""
        if self._remote is None or self._held is None or self._checks is None:
            return
        ranges: list[tuple[int, int]] = []
        self._remote.will_read([(each.footer, each.end - each.footer) for each in self._checks.stripes])
        # What is damaged is told in its turn.
        with suppress(ValueError):
            for index, stripe in enumerate(self._checks.stripes):
                self._held.pin(stripe.footer, stripe.end)
                ranges += self._checks.ranges(index, columns)
        self._remote.will_read(ranges)

    def _check(self, index: int, columns: Sequence[str]) -> int:
        """Look at a stripe before Arrow reads it; how many bytes it takes once it is decoded, 0: that is not known."""
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
        """Whether timestamps of the last stripe, whose footer is at hand, are others than those that are stored."""
        assert self._checks is not None
        if not self._checks.stripes:
            return False
        name = self._checks.writer_zone(len(self._checks.stripes) - 1)
        try:
            moved = name is not None and not _zone(name).is_utc
            return moved or self._local(name, self.schema.names) is not None
        except (StreamConfigError, UnsupportedTableError):
            # Raised where such a column is read.
            return True


def _zone(name: str) -> TimeZone:
    try:
        return time_zone(name)
    except ValueError as error:
        raise UnsupportedTableError(
            f"The writer of an ORC file was in a time zone that is not known: {error}"
        ) from None


def _with_what_was_told(schema: pa.Schema) -> pa.Schema:
    """The schema with metadata of columns, which Arrow leaves where the writer put them."""
    told = (schema.metadata or {}).get(_ARROW_SCHEMA)
    if told is None or not any(map(pa.types.is_struct, schema.types)):
        return schema
    written = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(told, validate=True)))
    metadata = {field.name: field.metadata for field in written}
    return pa.schema([field.with_metadata(metadata.get(field.name, field.metadata)) for field in schema])


def _holds_moments(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_moments(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz)


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
    """A column with its timestamps put right, by the column that has whole seconds in their place."""
    kind = _mended_type(wrapped.type, seconds.type)
    if kind == wrapped.type:
        return wrapped
    if pa.types.is_timestamp(kind):
        return _microseconds(wrapped, seconds)
    if pa.types.is_struct(kind):
        children = [_mended(*pair) for pair in zip(wrapped.flatten(), seconds.flatten(), strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=wrapped.is_null())
    if pa.types.is_map(kind):
        values = map_entries(kind, _mended(wrapped.keys, seconds.keys), _mended(wrapped.items, seconds.items))
    else:
        values = _mended(wrapped.values, seconds.values)
    buffers = wrapped.buffers()[:2]
    return pa.Array.from_buffers(kind, len(wrapped), buffers, wrapped.null_count, wrapped.offset, children=[values])


def _microseconds(wrapped: pa.Array, seconds: pa.Array) -> pa.Array:
    nanos = wrapped.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    about = seconds.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + ORC_EPOCH
    wraps = np.rint((about * 1e9 - nanos) / float(_WRAP)).astype(np.int64)
    micros, rest = np.divmod(nanos, 1000)
    micros = micros + wraps * (_WRAP // 1000) + (rest + wraps * (_WRAP % 1000)) // 1000
    missing = wrapped.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us", wrapped.type.tz))
