"""`BlobPlaces`: where descriptors that writers stored in a table may point."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io.conditional_writes import is_local

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a directory, without `.` and `..` on the way to it.

    Attributes:
        file_system: Scheme and authority, such as `s3://bucket`; empty for the files of this machine.
        path: Its path there, which begins with `/`.
    """

    file_system: str
    path: str

    @staticmethod
    def of(path: str) -> Place:
        """The place that a path or URI names."""
        if is_local(path):
            return Place("", _absolute(local_path(path)))
        parts = urlsplit(path)
        scheme = parts.scheme.lower()
        return Place(f"{_SAME_SCHEME.get(scheme, scheme)}://{parts.netloc}", _absolute(parts.path))

    def holds(self, other: Place) -> bool:
        """Whether a place is this one, or below it."""
        if self.file_system != other.file_system:
            return False
        return other.path == self.path or other.path.startswith(self.path.rstrip("/") + "/")

    def __str__(self) -> str:
        return self.file_system + self.path


@dataclass(frozen=True, slots=True)
class BlobPlaces:
    """Directories below which blobs are read.

    Attributes:
        directories: They.
    """

    directories: tuple[Place, ...]

    @staticmethod
    def of(table_path: str, allowed: Iterable[str] | None) -> BlobPlaces:
        """The places of a table.

        Args:
            table_path: Its directory, which always is one of them.
            allowed: The others; None: the whole file system, or bucket, of the table.
        """
        own = Place.of(table_path)
        if allowed is None:
            return BlobPlaces((Place(own.file_system, "/"),))
        return BlobPlaces((own, *map(Place.of, allowed)))

    def check(self, path: str) -> None:
        """Refuse a place outside of them.

        Raises:
            UnsupportedTableError: It is.
        """
        place = Place.of(path)
        if not any(directory.holds(place) for directory in self.directories):
            raise UnsupportedTableError(
                f"A descriptor of a blob points to {path}, outside of the places that are read: "
                f"{', '.join(map(str, self.directories))}.",
                advice="Name it in with_blob_places(...) if it is to be read.",
                option="with_blob_places",
            )


def _absolute(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))
