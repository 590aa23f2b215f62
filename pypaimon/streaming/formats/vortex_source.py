"""Vortex files as record batches of their own columns, by the library `vortex-data` (extra `vortex`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from pypaimon.streaming.formats.library_files import decoding, library, local_copy, rows_at_once


class VortexSource:
    """One Vortex file, copied for the library, which takes paths.

    Attributes:
        schema: The columns of the file; texts and bytes, which the library gives as views, as ordinary ones.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ()

    def __init__(self, stream: Any) -> None:
        opened = library("vortex", "vortex").open
        self._copy = local_copy(stream, self)
        with decoding():
            self._file = opened(self._copy.name)
            self.num_rows: int = len(self._file)
            stored: pa.Schema = self._file.dtype.to_arrow_schema()
        self.schema = pa.schema([field.with_type(_without_views(field.type)) for field in stored])

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        with decoding():
            rows = rows_at_once(self.num_rows, batch_size, lambda most: self._scan(schema, limit=most))
            batches = self._scan(schema, batch_size=rows)
        while True:
            with decoding():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _scan(self, schema: pa.Schema, **options: int) -> Iterator[pa.RecordBatch]:
        reader = self._file.scan(schema.names, **options).to_arrow()
        return (batch.select(schema.names).cast(schema) for batch in reader)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    return kind
