"""`container`: the indexes of all columns of a file as one piece of bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping

_MAGIC = 1493475289347502
_VERSION = 1
_PREFIX_BYTES = 16


def container(indexes: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Indexes behind a head that tells where each of them lies.

    Args:
        indexes: By column and kind.
    """
    body = b"".join(data for found in indexes.values() for data in found.values())
    length = _PREFIX_BYTES + len(_head(indexes, 0))
    return struct.pack(">qii", _MAGIC, _VERSION, length) + _head(indexes, length) + body


def _head(indexes: Mapping[str, Mapping[str, bytes]], place: int) -> bytes:
    """What stands behind the prefix.

    Args:
        place: Where the first index begins.
    """
    head = struct.pack(">i", len(indexes))
    for column, found in indexes.items():
        head += _text(column) + struct.pack(">i", len(found))
        for kind, data in found.items():
            head += _text(kind) + struct.pack(">ii", place, len(data))
            place += len(data)
    # For what later versions may add.
    return head + struct.pack(">i", 0)


def _text(text: str) -> bytes:
    """A text as Java's `writeUTF` writes it: characters beyond the basic plane are two of three bytes each."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    encoded = "".join(map(chr, units)).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded
