"""ORC files as record batches of their own columns."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.orc_checks import open_orc
from pypaimon.streaming.formats.orc_tail import reads_of
from pypaimon.streaming.io.held_stream import HeldStream
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import map_entries

_ORC_EPOCH = 1_420_070_400
"""2015-01-01 in seconds: what ORC counts timestamps from."""
_WRAP = 1 << 64
_ARROW_SCHEMA = b"ARROW:schema"
_OUT_OF_RANGE = "out of range for nanosecond resolution"
"""How pyarrow 25 and later refuse a timestamp; what earlier ones give wraps, and is put right here."""


class OrcSource:
    """One open ORC file.

    Attributes:
        schema: The columns of the file, as Arrow gives them, with what their writer said of each; timestamps that
            nanoseconds cannot hold are of microseconds.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = True
    damage_words: ClassVar[tuple[str, ...]] = ("ORC",)

    def __init__(self, stream: Any) -> None:
        # What is in memory or on a disk may be read twice.
        self._held = None if isinstance(stream, (pa.NativeFile, io.BytesIO)) else HeldStream(stream)
        self._remote = stream if isinstance(stream, RemoteFile) else None
        stream = self._held or stream
        self._checks, self._file = open_orc(stream, self._held.hold if self._held else reads_of(stream))
        self._seconds: orc.ORCFile | None = None
        self.schema: pa.Schema = _with_what_was_told(self._file.schema)
        self.num_rows: int = self._file.nrows
        if any(_holds_timestamps(field.type) for field in self.schema):
            self._mend(stream)

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one. One stripe is in memory at a time."""
        self._announce(columns)
        for index in range(self._file.nstripes):
            self._check(index, columns)
            stripe = self._stripe(index, columns)
            if self._seconds is not None:
                seconds = self._seconds.read_stripe(index, columns=list(columns))
                arrays = [_mended(*pair) for pair in zip(stripe.columns, seconds.columns, strict=True)]
                stripe = pa.RecordBatch.from_arrays(arrays, names=stripe.schema.names)
            for start in range(0, stripe.num_rows, batch_size):
                yield stripe.slice(start, batch_size)

    def _stripe(self, index: int, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            return self._file.read_stripe(index, columns=list(columns))
        except pa.ArrowInvalid as error:
            if _OUT_OF_RANGE not in str(error):
                raise
            raise UnsupportedTableError(
                "A timestamp of an ORC file lies before 1677 or after 2262, where Arrow's nanoseconds end: "
                f"pyarrow {pa.__version__} does not give it. Read with pyarrow 16 to 24, or without its column."
            ) from error

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

    def _check(self, index: int, columns: Sequence[str]) -> None:
        if self._held is not None:
            self._held.forget()
        if self._checks is not None:
            self._checks.check_stripe(index, columns, whole=self._held is not None)

    def _mend(self, stream: Any) -> None:
        if self._checks is None:
            raise UnsupportedTableError("Timestamps of ORC files compressed in this way cannot be read.")
        tail = self._checks.tail
        types = tail.overflowing()
        if types:
            stream.seek(0)
            self._seconds = orc.ORCFile(pa.BufferReader(tail.with_seconds(bytes(stream.read()), types)))
            pairs = zip(self.schema, self._seconds.schema, strict=True)
            self.schema = pa.schema([field.with_type(_mended_type(field.type, other.type)) for field, other in pairs])


def _with_what_was_told(schema: pa.Schema) -> pa.Schema:
    """The schema with metadata of columns, which Arrow leaves where the writer put them."""
    told = (schema.metadata or {}).get(_ARROW_SCHEMA)
    if told is None or not any(map(pa.types.is_struct, schema.types)):
        return schema
    written = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(told, validate=True)))
    metadata = {field.name: field.metadata for field in written}
    return pa.schema([field.with_metadata(metadata.get(field.name, field.metadata)) for field in schema])


def _holds_timestamps(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_timestamps(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


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
    about = seconds.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + _ORC_EPOCH
    wraps = np.rint((about * 1e9 - nanos) / float(_WRAP)).astype(np.int64)
    micros, rest = np.divmod(nanos, 1000)
    micros = micros + wraps * (_WRAP // 1000) + (rest + wraps * (_WRAP % 1000)) // 1000
    missing = wrapped.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us", wrapped.type.tz))
