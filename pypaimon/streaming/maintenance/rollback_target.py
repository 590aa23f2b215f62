"""`RollbackTarget`: the snapshot that a table is rolled back to, named by its id, a tag, a time or a watermark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pypaimon.streaming.errors import CorruptTableError, StreamConfigError
from pypaimon.streaming.maintenance.completeness import has_changelog
from pypaimon.streaming.maintenance.tags import tags_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_name, at_least, millis, typed

_OF_TAGS = ("tagCreateTime", "tagTimeRetained")
_OF_CHANGELOGS = ("changelogManifestList", "changelogManifestListSize", "changelogRecordCount")


@dataclass(frozen=True, slots=True)
class RollbackTarget:
    """The snapshot that a table is rolled back to.

    Attributes:
        snapshot: The snapshot.
        tag: The tag that was named, or that holds the snapshot if its own file is gone; None: neither.
        is_there: Whether the snapshot has a file of its own.
    """

    snapshot: Snapshot
    tag: str | None
    is_there: bool

    def stored(self, directory: TableDirectory) -> bytes:
        """The bytes of the file that holds the snapshot now.

        Raises:
            CorruptTableError: It is gone.
        """
        if self.is_there or self.tag is None:
            path = directory.snapshots.get_snapshot_path(self.snapshot.id)
        else:
            path = directory.tag_path(self.tag)
        try:
            return directory.store.read(path)
        except FileNotFoundError as error:
            raise CorruptTableError(path, "was deleted meanwhile") from error


def rollback_target(
    directory: TableDirectory,
    snapshot_id: int | None,
    tag: str | None,
    timestamp: datetime | str | int | None,
    watermark: int | None = None,
) -> RollbackTarget:
    """Find the snapshot. Exactly one argument is given.

    Raises:
        StreamConfigError: There is no such snapshot, or not exactly one argument is given.
    """
    given = [each for each in (snapshot_id, tag, timestamp, watermark) if each is not None]
    if len(given) != 1:
        raise StreamConfigError("rollback: give one of snapshot_id, tag, timestamp and watermark.")
    if tag is not None:
        return _of_tag(directory, a_name("rollback: tag", tag))
    if snapshot_id is not None:
        return _of_id(directory, at_least(1, "rollback: snapshot_id", snapshot_id))
    if watermark is not None:
        return _of_watermark(directory, typed(int, "rollback: watermark", watermark))
    moment = millis("rollback: timestamp", timestamp)
    found = directory.snapshots.earlier_or_equal_time_mills(moment)
    if found is None:
        raise StreamConfigError(f"rollback: no snapshot was committed at {timestamp} or before. {_choices(directory)}")
    return RollbackTarget(found, None, True)


def snapshot_text(data: bytes, *, with_changelog: bool) -> bytes:
    """The text of a snapshot's file, made from that of a tag or a snapshot.

    Args:
        data: The text of the tag or snapshot.
        with_changelog: Whether the snapshot names its changelog.
    """
    value: dict[str, Any] = json.loads(data)
    left_out = _OF_TAGS if with_changelog else (*_OF_TAGS, *_OF_CHANGELOGS)
    return json.dumps({key: each for key, each in value.items() if key not in left_out}, indent=2).encode()


def restored_text(table: PaimonTable, directory: TableDirectory, data: bytes) -> bytes:
    """As `snapshot_text`: the changelog is left out if it has expired, because a tag does not keep it.

    Without that, readers and maintenance would look for files that are gone.
    """
    snapshot = Snapshot.from_json(data)
    return snapshot_text(data, with_changelog=has_changelog(table, directory, snapshot))


def _of_tag(directory: TableDirectory, name: str) -> RollbackTarget:
    found = directory.tag(name)
    if found is None:
        raise StreamConfigError(f"rollback: there is no tag {name!r}. {_choices(directory)}")
    return RollbackTarget(found, name, _is_there(directory, found))


def _of_id(directory: TableDirectory, number: int) -> RollbackTarget:
    there = directory.snapshots.refreshed(number)
    if there is not None:
        return RollbackTarget(there, None, True)
    for each in tags_of(directory):
        if each.snapshot.id == number:
            return RollbackTarget(each.snapshot, each.name, False)
    raise StreamConfigError(f"rollback: there is no snapshot {number}. {_choices(directory)}")


def _of_watermark(directory: TableDirectory, watermark: int) -> RollbackTarget:
    """The last snapshot up to a watermark. One without a watermark has that of the snapshot before it."""
    later = directory.snapshots.later_or_equal_watermark(watermark + 1)
    ids = [each for each in directory.snapshots.list_ids() if later is None or each < later.id]
    known = None
    for number in reversed(ids):
        found = directory.snapshots.try_get(number)
        known = known or found
        if found is not None and known is not None and found.watermark is not None:
            return RollbackTarget(known, None, True)
    raise StreamConfigError(f"rollback: no snapshot has a watermark of {watermark} or less. {_choices(directory)}")


def _is_there(directory: TableDirectory, tagged: Snapshot) -> bool:
    there = directory.snapshots.refreshed(tagged.id)
    return there is not None and there.is_same_commit(tagged)


def _choices(directory: TableDirectory) -> str:
    ids, tags = directory.snapshots.list_ids(), directory.tag_names()
    snapshots = f"snapshots {ids[0]} to {ids[-1]}" if ids else "no snapshot"
    return f"The table has {snapshots}; tags: {', '.join(tags) or 'none'}."
