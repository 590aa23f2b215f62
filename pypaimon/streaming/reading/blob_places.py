"""`BlobPlaces`: where descriptors that writers stored in a table may point."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io.conditional_writes import is_local


@dataclass(frozen=True, slots=True)
class BlobPlaces:
    """Directories below which blobs are read; None among them stands for nothing.

    Attributes:
        directories: They, without `.` and `..`; a file system alone stands for all of it.
    """

    directories: tuple[str, ...]

    @staticmethod
    def of(table_path: str, allowed: Iterable[str] | None) -> BlobPlaces:
        """The places of a table.

        Args:
            table_path: Its directory, which always is one of them.
            allowed: The others; None: the whole file system, or bucket, of the table.
        """
        own = _normal(table_path)
        if allowed is None:
            return BlobPlaces((_root(own),))
        return BlobPlaces((own, *map(_normal, allowed)))

    def check(self, place: str) -> None:
        """Refuse a place outside of them.

        Raises:
            UnsupportedTableError: It is.
        """
        wanted = _normal(place)
        if any(wanted == each or wanted.startswith(each.rstrip("/") + "/") for each in self.directories):
            return
        raise UnsupportedTableError(
            f"A descriptor of a blob points to {place}, outside of the places that are read: "
            f"{', '.join(self.directories)}. Name it in with_blob_places(...) if it is to be read."
        )


def _normal(path: str) -> str:
    if is_local(path):
        return posixpath.normpath("/" + local_path(path).lstrip("/")) if path.startswith("/") or ":" in path else path
    parts = urlsplit(path)
    return f"{parts.scheme.lower()}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}".rstrip("/")


def _root(path: str) -> str:
    if "://" not in path:
        return "/"
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}"
