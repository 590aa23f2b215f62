"""`TagWriter`: writes tags, and finds out whether they came in time to keep the files of an expiring snapshot."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from functools import partial

from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.completeness import missing_of_state
from pypaimon.streaming.maintenance.tags import Tag, success_path, tags_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys

_LOG = StreamLog(__name__)
_warned: set[str] = set()


def warn_of_callbacks(table: PaimonTable) -> None:
    """Log, once in a process, what Java would call when a tag is created or deleted, and is not called here."""
    keys = (option_keys.TAG_CALLBACKS, option_keys.METASTORE_TAG_TO_PARTITION)
    asked = [key.name for key in keys if key.of(table.options)]
    if asked and table.path not in _warned:
        _warned.add(table.path)
        text = "tags of %(table)s are created and deleted here without calling what Java would call: %(options)s"
        _LOG.warning("upkeep_left_out", text, table=table.name, options=", ".join(asked))


def new_tag(table: PaimonTable, name: str, snapshot: Snapshot, retention: timedelta | None = None) -> Tag:
    """A tag that is created now.

    Args:
        table: The table, whose zone the creation time is in.
        name: Its name.
        snapshot: The snapshot that it keeps.
        retention: How long it is kept; None: as the table says (`tag.default-time-retained`), or until it is deleted.
    """
    default = option_keys.TAG_DEFAULT_TIME_RETAINED.of(table.options)
    if retention is None and default is not None:
        retention = timedelta(milliseconds=default)
    created: datetime | None = None if retention is None else table.zone.now().replace(tzinfo=None)
    return Tag(name, snapshot, created, retention)


class TagWriter:
    """Writes tags of a branch.

    Args:
        table: The table.
        directory: Its files.
    """

    def __init__(self, table: PaimonTable, directory: TableDirectory) -> None:
        self._table = table
        self._directory = directory
        self._store = directory.store

    def write(self, tag: Tag, *, replace: bool = False) -> None:
        """Write a tag.

        Expiry looks for tags once more after it has deleted a snapshot, and before its files. So a tag that is followed
        by a look at its snapshot has come in time if the snapshot is still there. If it is gone, all files are looked
        for, also in the plans of runs that are about to delete some.

        Args:
            tag: The tag.
            replace: Whether a tag of this name may be there.

        Raises:
            ChangedFileError: There is another tag of this name.
            MaintenanceConflictError: The snapshot has expired. The tag is as it was before.
        """
        path = self._directory.tag_path(tag.name)
        data = tag.to_json(self._snapshot_data(tag.snapshot))
        (before,) = self._store.read_many([path]) if replace else (None,)
        if replace:
            self._store.write_atomic(path, data)
        else:
            self._store.replace(path, data, None)
        self._check(tag.snapshot, path, before)
        if option_keys.TAG_CREATE_SUCCESS_FILE.of(self._table.options):
            self._write_success(tag.name)

    def rename(self, name: str, new_name: str) -> None:
        """Write a tag under another name, and delete the old one if all is well. See `write`.

        Raises:
            ChangedFileError: There is another tag of the new name.
            MaintenanceConflictError: The tag was deleted meanwhile. There is no tag of the new name then.
        """
        path, new_path = self._directory.tag_path(name), self._directory.tag_path(new_name)
        (data,) = self._store.read_many([path])
        if data is None:
            raise MaintenanceConflictError(self._table.name, f"tag {name!r} was deleted meanwhile")
        tag = self._store.parse_data(path, data, partial(Tag.from_json, name))
        # Written first, so that the files of its snapshot are needed at every moment.
        self._store.replace(new_path, data, None)
        if self._store.read_many([path]) == [None]:
            self._check(tag.snapshot, new_path, None)
        self._store.delete(path)

    def _check(self, snapshot: Snapshot, path: str, before: bytes | None) -> None:
        """Restore what was there before a tag was written, if it has come too late to keep its files."""
        missing = self._missing_file(snapshot)
        if missing is None:
            return
        if before is not None:
            self._store.write_atomic(path, before)
        # What was replaced may have been deleted meanwhile, with its files.
        if before is None or self._missing_file(self._store.parse_data(path, before, Snapshot.from_json)) is not None:
            self._store.delete(path)
        raise self._expired(snapshot, f": {missing} is gone, or about to go")

    def _snapshot_data(self, snapshot: Snapshot) -> bytes:
        """The content of the snapshot's file, or of a tag of it."""
        path = self._directory.snapshots.get_snapshot_path(snapshot.id)
        (data,) = self._store.read_many([path])
        if data is not None:
            found = self._store.parse_data(path, data, Snapshot.from_json)
            if found.is_same_commit(snapshot):
                return data
        tags = (each for each in tags_of(self._directory) if each.snapshot.is_same_commit(snapshot))
        for each in tags:
            (data,) = self._store.read_many([self._directory.tag_path(each.name)])
            if data is not None:
                return data
        raise self._expired(snapshot, "")

    def _is_there(self, snapshot: Snapshot) -> bool:
        found = self._directory.snapshots.refreshed(snapshot.id)
        return found is not None and found.is_same_commit(snapshot)

    def _missing_file(self, snapshot: Snapshot) -> str | None:
        """Path of a file that the state of a snapshot needs, and that is gone or about to go; None if all are there.

        One request if the snapshot itself is there, because it keeps them.
        """
        if self._is_there(snapshot):
            return None
        return missing_of_state(self._table, self._directory, snapshot)

    def _write_success(self, name: str) -> None:
        path, now = success_path(self._directory, name), int(1000 * time.time())
        (known,) = self._store.read_many([path])
        created = now
        if known is not None:
            created = self._store.parse_data(path, known, json.loads).get("creationTime", now)
        content = {"creationTime": created, "modificationTime": now}
        self._store.write_atomic(path, json.dumps(content, indent=2, separators=(",", " : ")).encode())

    def _expired(self, snapshot: Snapshot, detail: str) -> MaintenanceConflictError:
        return MaintenanceConflictError(self._table.name, f"snapshot {snapshot.id} has expired meanwhile{detail}")
