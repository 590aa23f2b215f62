"""Snapshots that a read names: by id or by tag."""

from __future__ import annotations

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey


def snapshot_of_version(directory: TableDirectory, key: OptionKey[str, None], name: str) -> Snapshot:
    """The snapshot that an option names: a number is an id, unless the option is for tags.

    Raises:
        StreamConfigError: There is no such tag.
        PositionExpiredError: The snapshot has expired.
        PositionBeyondLatestError: The table ends before it.
    """
    if key is not option_keys.SCAN_TAG_NAME and name.isdecimal():
        return snapshot_with_id(directory, int(name))
    found = directory.tag(name)
    if found is None:
        known = ", ".join(directory.tag_names()) or "none"
        raise StreamConfigError(f"Option '{key}' = '{name}': there is no such tag; tags are: {known}.")
    return found


def snapshot_with_id(directory: TableDirectory, snapshot_id: int) -> Snapshot:
    """The snapshot of an id.

    Raises:
        PositionExpiredError: The snapshot has expired.
        PositionBeyondLatestError: The table ends before it.
    """
    found = directory.snapshots.try_get(snapshot_id)
    if found is None:
        raise SnapshotRangeValidator(directory, with_changelogs=False).absent(snapshot_id)
    return found
