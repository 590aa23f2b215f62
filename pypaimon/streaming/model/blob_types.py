"""Which types hold blobs."""

from __future__ import annotations

from pypaimon.streaming.internals import ArrayType, AtomicType, DataType, MapType, RowType, VectorType
from pypaimon.streaming.model.data_types import root

BLOB = AtomicType("BLOB")


def is_blob(data_type: DataType) -> bool:
    """Whether values of a type are blobs."""
    return isinstance(data_type, AtomicType) and root(data_type) == "BLOB"


def is_blob_collection(data_type: DataType) -> bool:
    """Whether values of a type are arrays or maps of blobs."""
    if isinstance(data_type, MapType):
        return is_blob(data_type.value)
    return isinstance(data_type, ArrayType) and is_blob(data_type.element)


def holds_blobs(data_type: DataType) -> bool:
    """Whether there are blobs in values of a type, at whatever depth."""
    if isinstance(data_type, RowType):
        return any(holds_blobs(field.type) for field in data_type.fields)
    if isinstance(data_type, MapType):
        return holds_blobs(data_type.key) or holds_blobs(data_type.value)
    if isinstance(data_type, (ArrayType, VectorType)):
        return holds_blobs(data_type.element)
    return is_blob(data_type)
