"""`Tag`: a named snapshot, with the time after which it expires, if it was given one; the files that hold tags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import SUCCESS_FILES, TableDirectory

_LISTINGS = 10
_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag of a branch.

    Attributes:
        name: Its name.
        snapshot: The snapshot that it keeps.
        created: When it was created, on the local clock of its writer; None unless it has a retention. Not compared, so
            that a plan and its dry run are equal.
        retention: How long it is kept; None: until it is deleted.
    """

    name: str
    snapshot: Snapshot
    created: datetime | None = field(default=None, compare=False)
    retention: timedelta | None = None

    @property
    def expires(self) -> datetime | None:
        """When it expires, on the local clock of its writer; None: never."""
        return None if self.created is None or self.retention is None else self.created + self.retention

    @staticmethod
    def from_json(name: str, data: bytes) -> Tag:
        """Decode a tag file: a snapshot, with the time of its creation and how long it is kept if that was given.

        Raises:
            ValueError: It is not a tag file.
        """
        value = json.loads(data)
        snapshot = Snapshot.from_json(data)
        created, retained = value.get(_CREATED), value.get(_RETAINED)
        if created is None or retained is None:
            return Tag(name, snapshot)
        try:
            tag = Tag(name, snapshot, _local_time(created), timedelta(seconds=float(retained)))
            _ = tag.expires
        except (TypeError, LookupError, OverflowError) as error:
            raise ValueError(f"its creation time {created!r} or its retention {retained!r} cannot be read") from error
        return tag

    def to_json(self, snapshot: bytes) -> bytes:
        """The content of the tag's file, as Java writes it.

        Args:
            snapshot: The content of the file of the snapshot, or of another tag of it.
        """
        fields = json.loads(snapshot)
        if self.created is None or self.retention is None:
            return _json({name: value for name, value in fields.items() if name not in (_CREATED, _RETAINED)})
        # Java writes decimals, with all nanoseconds unless the whole is 0.
        micros = self.retention // timedelta(microseconds=1)
        seconds = f"{micros // 10**6}.{micros % 10**6:06}000" if micros else "0.0"
        text = _json({**fields, _CREATED: None, _RETAINED: None}).decode()
        text = text.replace(f'"{_CREATED}" : null', f'"{_CREATED}" : [ {", ".join(map(str, _parts(self.created)))} ]')
        return text.replace(f'"{_RETAINED}" : null', f'"{_RETAINED}" : {seconds}').encode()


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, indent=2, separators=(",", " : "), ensure_ascii=False).encode()


def _parts(time: datetime) -> list[int]:
    """A time as Java's JSON holds it: year, month, day, hour, minute, and if they are not 0 second and nanosecond."""
    parts = [time.year, time.month, time.day, time.hour, time.minute, time.second, time.microsecond * 1000]
    while len(parts) > 5 and not parts[-1]:
        parts.pop()
    return parts


def _local_time(parts: list[int]) -> datetime:
    """The inverse of `_parts`."""
    second, nanos = [*parts[5:], 0, 0][:2]
    return datetime(parts[0], parts[1], parts[2], parts[3], parts[4], second, nanos // 1000)


def success_path(directory: TableDirectory, name: str) -> str:
    """Path of the file that says that a tag was created, if the table asks for it (`tag.create-success-file`)."""
    return f"{directory.tag_path('').rpartition('/')[0]}/{SUCCESS_FILES}/{name}_SUCCESS"


def tags_of(directory: TableDirectory, seen: SeenFiles | None = None) -> tuple[Tag, ...]:
    """All tags of a branch. They are listed again if one is deleted between the listing and its read.

    Args:
        directory: The branch.
        seen: The tags that earlier calls have read.

    Raises:
        CorruptTableError: A tag is damaged, or stays missing though it is listed.
    """
    seen = SeenFiles() if seen is None else seen
    path = ""
    for _ in range(_LISTINGS):
        statuses = directory.tag_statuses()
        known: dict[str, Tag] = {name: tag for name, each in statuses.items() if (tag := seen.unchanged(each))}
        paths = {name: directory.tag_path(name) for name in statuses if name not in known}
        found = dict(zip(paths, directory.store.read_many([*paths.values()]), strict=True))
        missing = next((name for name, data in found.items() if data is None), None)
        if missing is None:
            for name, data in found.items():
                known[name] = directory.store.parse_data(paths[name], data or b"", partial(Tag.from_json, name))
            seen.add(statuses, known)
            return tuple(known[name] for name in statuses)
        path = paths[missing]
    raise CorruptTableError(path, "is listed, but cannot be found")
