"""ORC files as record batches of their own columns."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.orc_checks import open_orc
from pypaimon.streaming.formats.orc_pieces import OrcPieces
from pypaimon.streaming.formats.orc_tail import reads_of
from pypaimon.streaming.formats.unsupported_content import UnsupportedContentError
from pypaimon.streaming.io.held_stream import HeldStream
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import map_entries

_ORC_EPOCH = 1_420_070_400
"""2015-01-01 in seconds: what ORC counts timestamps from."""
_WRAP = 1 << 64
_ARROW_SCHEMA = b"ARROW:schema"
_WHOLE_STRIPE = 256 << 20
"""Bytes up to which a stripe is decoded at once; writers begin a new one from about 64 MiB on."""
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
        self._far: set[int] = set()
        self.schema: pa.Schema = _with_what_was_told(self._file.schema)
        self.num_rows: int = self._file.nrows
        if any(_holds_timestamps(field.type) for field in self.schema):
            self._mend(stream)

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one. One stripe, or a part, is in memory at a time.

        Raises:
            UnsupportedContentError: A column holds what the installed pyarrow does not read.
        """
        self._announce(columns)
        for index in range(self._file.nstripes):
            decoded = self._check(index, columns)
            with self._explained(index, columns):
                for batch in self._read(index, columns, decoded, batch_size):
                    for start in range(0, batch.num_rows, batch_size):
                        yield batch.slice(start, batch_size)

    def _read(self, index: int, columns: Sequence[str], decoded: int, batch_size: int) -> Iterator[pa.RecordBatch]:
        """The rows of a stripe that take so many bytes."""
        if self._checks is not None and decoded > _WHOLE_STRIPE:
            pieces = OrcPieces(self._checks, index, columns, decoded, batch_size)
            yield from (
                map(_mended_batch, pieces.batches(), pieces.batches(self._far)) if self._far else pieces.batches()
            )
            return
        stripe = self._file.read_stripe(index, columns=list(columns))
        if self._seconds is not None:
            stripe = _mended_batch(stripe, self._seconds.read_stripe(index, columns=list(columns)))
        yield stripe

    @contextmanager
    def _explained(self, index: int, columns: Sequence[str]) -> Iterator[None]:
        """Tells which column pyarrow does not read, and why."""
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
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
            self._file.read_stripe(index, columns=[column])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def _holds_timestamps(self, column: str) -> bool:
        return _holds_timestamps(self.schema.field(column).type)

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

    def _mend(self, stream: Any) -> None:
        if self._checks is None:
            raise UnsupportedTableError("Timestamps of ORC files compressed in this way cannot be read.")
        tail = self._checks.tail
        self._far = tail.overflowing()
        if self._far:
            stream.seek(0)
            self._seconds = orc.ORCFile(pa.BufferReader(tail.with_seconds(bytes(stream.read()), self._far)))
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


def _mended_batch(wrapped: pa.RecordBatch, seconds: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [_mended(*pair) for pair in zip(wrapped.columns, seconds.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=wrapped.schema.names)


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
