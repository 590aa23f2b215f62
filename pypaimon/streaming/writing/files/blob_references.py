"""`BlobReferences`: which shared files hold the managed blobs of a data file of a primary-key table.

Rows hold descriptors of their blobs, which are in files (`.managed.blob`) that several data files share. Next to each
data file a sidecar (`.blobref`) lists those that it needs, because Java deletes the ones that no sidecar names.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.indexes.container import written_text
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.paimon.internals import BlobDescriptor

SIDECAR = ".blobref"
"""What the name of a sidecar adds to that of its data file."""
_MANAGED = ".managed.blob"
_MAGIC, _VERSION = 0x50424C52, 1
_RETRACTS = pa.array([DELETE, UPDATE_BEFORE], pa.int8())
_URI = re.compile(r"(?:(?P<scheme>[^:/]+):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


class BlobReferences:
    """Collects the references of one data file.

    Args:
        columns: The columns of managed blobs.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._uris: set[str] = set()

    def add(self, data: pa.Table) -> None:
        """Add records. Those of -U and -D refer to nothing."""
        rows = data.filter(pc.invert(pc.is_in(data[VALUE_KIND], _RETRACTS)))
        for name in self._columns:
            for value in _blobs(rows[name].to_pylist()):
                # A value that is not a descriptor is the blob itself.
                descriptor = BlobDescriptor.parse_if_serialized(value)
                if descriptor is not None:
                    self._uris.add(descriptor.uri)

    def data(self) -> bytes:
        """The bytes of the sidecar, as Java writes them."""
        places = sorted({_place(uri) for uri in self._uris if uri.endswith(_MANAGED)}, key=_in_java_order)
        listed = b"".join(written_text(text) for place in places for text in place)
        payload = struct.pack(">bi", _VERSION, len(places)) + listed
        return struct.pack(">I", _MAGIC) + payload + struct.pack(">I", zlib.crc32(payload))


def _blobs(values: Iterable[Any]) -> Iterator[bytes]:
    """The blobs in columns of blobs, of lists of them, and of maps to them."""
    for value in values:
        if isinstance(value, list):
            yield from _blobs(each[1] if isinstance(each, tuple) else each for each in value)
        elif value is not None:
            yield value


def _place(uri: str) -> tuple[str, str]:
    """Directory and name, spelled as by Java's `Path`."""
    match = _URI.fullmatch(uri)
    assert match is not None
    scheme, authority = match["scheme"], match["authority"]
    directory, _, name = re.sub("/+", "/", match["path"]).rpartition("/")
    return f"{scheme + ':' if scheme else ''}{'//' + authority if authority else ''}{directory or '/'}", name


def _in_java_order(place: tuple[str, str]) -> tuple[bytes, ...]:
    return tuple(text.encode("utf-16-be", "surrogatepass") for text in place)
