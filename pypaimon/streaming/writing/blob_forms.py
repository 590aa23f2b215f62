"""`BlobForm`: which values a writer accepts in a column of blobs, and how it stores them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.data_types import holds_blobs, is_blob, is_blob_collection
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import BlobDescriptor, BlobViewStruct, MapType, PaimonBlob, map_key_serializer
from pypaimon.streaming.paimon.write_internals import BlobData
from pypaimon.streaming.reading.blob import Blob, BlobFetcher, BlobPlaces

_REFERENCES = ("VIDEOFRM", "BLOBVIEW", "BLOBDESC")
_MARKS = tuple(name.encode()[::-1] for name in _REFERENCES)
"""What serialised references contain after their version, which is one byte."""
_MARK = slice(1, 9)
_DESCRIPTOR = _MARKS[2]
_VIDEO = option_keys.VIDEO_FRAME_FIELD
_OTHER_FILES = "blob-descriptor."


class BlobForm(Enum):
    """The values of a column."""

    BYTES = "bytes"
    COPIED = "copied"  # Blobs, or descriptors of their location, from which they are copied into blob files
    DESCRIPTOR = "descriptor"
    VIEW = "view"

    @property
    def in_blob_files(self) -> bool:
        return self in (BlobForm.BYTES, BlobForm.COPIED)


def blob_forms(schema: Any) -> dict[str, BlobForm]:
    """The form of each column of blobs of a table. Raises UnsupportedTableError if a column of blobs cannot be written
    as the table keeps it.
    """
    columns = [field for field in schema.fields if holds_blobs(field.type)]
    if not columns:
        return {}
    storage, options = BlobStorage.of(schema), schema.options
    if not storage.dedicated or not option_keys.ROW_TRACKING_ENABLED.of(options):
        raise _refused(columns[0], "and blobs are written here to tables without primary key that have "
                       "'row-tracking.enabled' and 'data-evolution.enabled'")  # fmt: skip
    if _VIDEO.set_as(options):
        raise _refused(columns[0], f"and the table has '{_VIDEO}': frames of videos are not written here")
    copied = option_keys.BLOB_AS_DESCRIPTOR.of(options)
    if copied and (foreign := [key for key in schema.options if key.startswith(_OTHER_FILES)]):
        raise _refused(columns[0], f"and '{foreign[0]}' names another file system to copy blobs from")
    forms = {}
    for field in columns:
        if not (is_blob(field.type) or is_blob_collection(field.type)):
            raise _refused(field, "and blobs are supported in columns, arrays and maps only")
        if isinstance(field.type, MapType):
            _check_keys(field)
        if storage.in_blob_files(field):
            forms[field.name] = BlobForm.COPIED if copied else BlobForm.BYTES
        elif is_blob(field.type):
            forms[field.name] = BlobForm.VIEW if field.name in storage.views else BlobForm.DESCRIPTOR
        else:
            raise _refused(field, "and only columns of type BLOB hold descriptors or views")
    if all(field.name in forms and forms[field.name].in_blob_files for field in schema.fields):
        raise _refused(columns[0], "and the table lacks a column of another type")
    return forms


def blob_problem(values: pa.Array, form: BlobForm) -> str | None:
    """What is wrong with the values of a column; None: they are right."""
    problem = _PROBLEMS[form]
    return next((found for cell in _cells(values) if (found := problem(cell)) is not None), None)


def is_descriptor(cell: memoryview | bytes) -> bool:
    """Whether bytes are a descriptor and not a blob, by the rule of Java's writers."""
    return bytes(cell[_MARK]) == _DESCRIPTOR and cell[0] == BlobDescriptor.CURRENT_VERSION


def _of_bytes(cell: memoryview) -> str | None:
    mark = bytes(cell[_MARK])
    if mark not in _MARKS:
        return None
    what = f"a serialised reference ({_REFERENCES[_MARKS.index(mark)]}), which other writers would follow"
    if mark == _DESCRIPTOR:
        return f"{what}. Set 'blob-as-descriptor' = 'true' on the table to have the blob copied, or give its bytes"
    return what


def _of_copied(cell: memoryview) -> str | None:
    if not is_descriptor(cell):
        return _of_bytes(cell)
    return _of_descriptor(cell)


def _of_descriptor(cell: memoryview) -> str | None:
    descriptor = BlobDescriptor.parse_if_serialized(bytes(cell))
    return None if type(descriptor) is BlobDescriptor else "something other than a serialised BlobDescriptor"


def _of_view(cell: memoryview) -> str | None:
    data = bytes(cell)
    try:
        valid = BlobViewStruct.deserialize(data).serialize() == data
    except (ValueError, struct.error):
        valid = False
    return None if valid else "something other than a serialised BlobViewStruct"


_PROBLEMS: dict[BlobForm, Callable[[memoryview], str | None]] = {
    BlobForm.BYTES: _of_bytes,
    BlobForm.COPIED: _of_copied,
    BlobForm.DESCRIPTOR: _of_descriptor,
    BlobForm.VIEW: _of_view,
}


def _cells(values: pa.Array) -> Iterable[memoryview]:
    if pa.types.is_map(values.type):
        values = values.items
    elif pa.types.is_nested(values.type):
        values = values.flatten()
    return (memoryview(each.as_buffer()) for each in values if each.is_valid)


def _check_keys(field: Any) -> None:
    try:
        map_key_serializer(field.type.key)
    except ValueError as error:
        raise _refused(field, f"which has keys that blob files do not hold: {error}") from error


def _refused(field: Any, why: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"Column '{field.name}' is {field.type}, {why}.")


def blob_sources(table: PaimonTable) -> dict[str, Callable[[bytes], PaimonBlob]]:
    """How the values of each column that goes to blob files become blobs."""
    forms = {name: form for name, form in blob_forms(table.schema).items() if form.in_blob_files}
    if BlobForm.COPIED not in forms.values():
        return dict.fromkeys(forms, BlobData)
    # As readers do by default, this follows descriptors only within the file system and the bucket of the table.
    fetcher = BlobFetcher(table.new_directory().store, BlobPlaces.of(table.path, None))
    return dict.fromkeys(forms, partial(_read, fetcher, table.path))


def _read(fetcher: BlobFetcher, table: str, value: bytes) -> PaimonBlob:
    if not is_descriptor(value):
        return BlobData(value)
    found = fetcher.references(pa.array([value], pa.large_binary()), f"what is written to {table}")
    return Blob(fetcher, BlobDescriptor(found.places[0], int(found.offsets[0]), int(found.lengths[0])))
