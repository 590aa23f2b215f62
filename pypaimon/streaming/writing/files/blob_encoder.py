"""`BlobEncoder`: writes one column of blobs into a blob file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.paimon.internals import GenericRow, PaimonBlob
from pypaimon.streaming.paimon.write_internals import BlobFormatWriter

BlobSource = Callable[[bytes], PaimonBlob]
"""Makes pypaimon's blob of given bytes."""

_COPIED_AT_ONCE = 1 << 20


class BlobEncoder:
    """One blob file that is being written."""

    def __init__(self, stream: Any, schema: pa.Schema, field: Any, source: BlobSource) -> None:
        self.schema = schema
        self._field = field
        self._source = source
        self._writer = BlobFormatWriter(_Unclosed(stream), copy_buffer_size=_COPIED_AT_ONCE)

    def write(self, data: pa.Table) -> None:
        """Add the values of the only column. Raises BadRowError if a value cannot be in a blob file."""
        for chunk in data.column(0).chunks:
            for value in chunk:
                row = GenericRow([self._blobs(value.as_py(), value.type)], [self._field])
                try:
                    self._writer.add_element(row)
                except ValueError as error:
                    raise BadRowError(f"Column '{self._field.name}' is {self._field.type}: {error}") from error

    def size(self) -> int:
        return int(self._writer.position)

    def close(self) -> None:
        """Write the index. The stream stays open."""
        self._writer.close()

    def _blobs(self, value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return [(key, self._blobs(each, kind.item_type)) for key, each in value]
        if pa.types.is_nested(kind):
            return [self._blobs(each, kind.value_type) for each in value]
        return self._source(value)


class _Unclosed:
    def __init__(self, stream: Any) -> None:
        self.write = stream.write
