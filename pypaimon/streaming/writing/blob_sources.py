"""`blob_sources`: how the values of columns of blobs become what is written to blob files."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from pypaimon.streaming.internals import BlobDescriptor, PaimonBlob
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.reading.blob import Blob
from pypaimon.streaming.reading.blob_fetcher import BlobFetcher, BlobPlaces
from pypaimon.streaming.write_internals import BlobData
from pypaimon.streaming.writing.blob_forms import BlobForm, blob_forms, is_descriptor
from pypaimon.streaming.writing.files.blob_encoder import BlobSource


def blob_sources(table: Any) -> dict[str, BlobSource]:
    """Of each column whose blobs go to blob files, what makes blobs of its values.

    Args:
        table: pypaimon's table.

    Raises:
        UnsupportedTableError: Its blobs cannot be written.
    """
    forms = {name: form for name, form in blob_forms(table.table_schema).items() if form.in_blob_files}
    if BlobForm.COPIED not in forms.values():
        return dict.fromkeys(forms, BlobData)
    path = str(table.table_path)
    # As readers do by default: a descriptor leads to no other file system, nor to another bucket.
    fetcher = BlobFetcher(TableDirectory.of(table).store, BlobPlaces.of(path, None))
    return dict.fromkeys(forms, partial(_copied, fetcher, path))


def _copied(fetcher: BlobFetcher, table: str, value: bytes) -> PaimonBlob:
    """A blob that is read where its descriptor says, piece by piece, or is given itself."""
    if not is_descriptor(value):
        return BlobData(value)
    found = fetcher.references(pa.array([value], pa.large_binary()), f"what is written to {table}")
    return Blob(fetcher, BlobDescriptor(found.places[0], int(found.offsets[0]), int(found.lengths[0])))
