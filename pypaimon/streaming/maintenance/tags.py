"""`Tag`: a named snapshot, with the time after which it expires, if it was given one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pyarrow.fs import FileType

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_PREFIX = "tag-"


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag of a branch.

    Attributes:
        name: Its name.
        snapshot: The snapshot that it keeps.
        expires: When it expires, on the local clock of its writer; None: never.
    """

    name: str
    snapshot: Snapshot
    expires: datetime | None = None

    @staticmethod
    def from_json(name: str, data: bytes) -> Tag:
        """Decode a tag file: a snapshot, with the time of its creation and how long it is kept if that was given.

        Raises:
            ValueError: It is not a tag file.
        """
        value = json.loads(data)
        snapshot = Snapshot.from_json(data)
        created, retained = value.get("tagCreateTime"), value.get("tagTimeRetained")
        if created is None or retained is None:
            return Tag(name, snapshot)
        try:
            return Tag(name, snapshot, _local_time(created) + timedelta(seconds=float(retained)))
        except (TypeError, LookupError, OverflowError) as error:
            raise ValueError(f"its creation time {created!r} or its retention {retained!r} cannot be read") from error


def _local_time(parts: list[int]) -> datetime:
    """A time as Java's JSON holds it: year, month, day, hour, minute, and if they are not 0 second and nanosecond."""
    second, nanos = [*parts[5:], 0, 0][:2]
    return datetime(parts[0], parts[1], parts[2], parts[3], parts[4], second, nanos // 1000)


def tag_names(directory: TableDirectory) -> list[str]:
    """Names of all tags of a branch, without Java's directory `tag-success-file`. One listing."""
    statuses = directory.store.list_statuses(directory.tag_path("").rpartition("/")[0])
    names = (str(each.path).rpartition("/")[2] for each in statuses if each.type != FileType.Directory)
    return sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))


def tags_of(directory: TableDirectory) -> tuple[Tag, ...]:
    """All tags of a branch, without one that is deleted between the listing and its read.

    Raises:
        CorruptTableError: A tag is damaged.
    """
    names = tag_names(directory)
    paths = [directory.tag_path(name) for name in names]
    found = directory.store.read_many(paths)
    return tuple(
        directory.store.parse_data(path, data, partial(Tag.from_json, name))
        for name, path, data in zip(names, paths, found, strict=True)
        if data is not None
    )
