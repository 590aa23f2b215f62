"""`publisher_of`: the one write that makes a commit visible, and what decides between two writers of one id.

- A catalog that commits (REST) decides itself.
- On a local disk a hard link fails if its name exists. Java and pypaimon rename instead; see `_ByLink`.
- In an object store the snapshot is created with `If-None-Match: *`, if the store is known to heed it.
- In HDFS a rename fails if its target exists.
- Elsewhere nothing decides (`conditional` is False), and one program at a time may write.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from pypaimon.streaming.commit.changes import FileChange
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed
from pypaimon.streaming.io.exclusive_files import NotCreatedError, link_new
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import JSON, local_path
from pypaimon.streaming.paimon.write_internals import PaimonSnapshot, PartitionStatistics, RenamingSnapshotCommit

Statistics: TypeAlias = Callable[[], list[Any]]


class NotPublishedError(Exception):
    """The snapshot is not there and will not appear: it could not even be written. The cause says why."""


class TakenError(Exception):
    """Another snapshot of that id existed before anything was written."""


class Publisher(ABC):
    """Publishes a snapshot."""

    # Of two attempts for one id the later one fails for good, whichever program makes it. Otherwise a table may have
    # one writer at a time. Not known before `prepare`.
    conditional = True
    rewrites = False  # The stored snapshot may differ from the given one, so its fingerprint must be read
    # Whether the caller must check that the snapshot before is still there. The condition is that no file of the new id
    # exists, and none exists either if snapshots of that id have expired.
    checks_previous = True

    @property
    def why_unconditional(self) -> str:
        """Why the store cannot arbitrate."""
        return ""

    def prepare(self) -> None:  # noqa: B027 - a publisher that always arbitrates has nothing to find out
        """Find out whether the store can arbitrate. Raises PaimonStreamError if that cannot be found out at present."""

    def settle(self, number: int) -> None:  # noqa: B027 - most never replace it
        """Make sure that the snapshot of an id, if it exists, is not replaced any more. Raises OSError if that cannot
        be done.
        """

    @abstractmethod
    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        """Publish a snapshot.

        Args:
            statistics: Gives pypaimon's `PartitionStatistics` of what it changes, for a catalog.

        Returns:
            Whether it was published; False if there is another snapshot of that id.

        Raises:
            TakenError: It was not published, because there was another one before.
            NotPublishedError: It was not published.
            Exception: The outcome is unknown.
        """


def publisher_of(table: PaimonTable, directory: TableDirectory) -> Publisher:
    """The publisher of a table: its catalog, a link, a conditional write, or a rename."""
    publisher = table.handle.new_snapshot_commit()
    if not isinstance(publisher, RenamingSnapshotCommit):
        return _ByCatalog(publisher)
    path = directory.snapshots.get_snapshot_path(1)
    if is_local(path):
        return _ByLink(directory)
    return _ByStore(directory, renamed=is_renamed(path))


class _ByCatalog(Publisher):
    """By the catalog. A server with Java 1.x stores the fields that it knows, and drops others, such as `uuid`."""

    rewrites = True
    checks_previous = False

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        made = JSON.from_json(json.dumps(snapshot), PaimonSnapshot)
        return bool(self._publisher.commit(base_uuid, made, statistics()))


class _ByLink(Publisher):
    """On a local disk: a link fails if its name exists, whichever program made that.

    Java and pypaimon rename instead: they write `.snapshot-N.<uuid>.tmp`, check that there is no `snapshot-N`, and
    rename, which replaces one that has appeared in between. So after the link is made, those temporary files are
    deleted. A rename whose file is gone fails, and its writer concludes that another one was faster. A temporary file
    that appears later belongs to a writer that checks later, and sees the link. So afterwards the snapshot is either
    the link for good, or was replaced before, which a look at it shows.
    """

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory

    def settle(self, number: int) -> None:
        home, name = os.path.split(self._path(number))
        begin = f".{name}."
        for each in os.listdir(home):
            if each.startswith(begin) and each.endswith(".tmp"):
                with suppress(FileNotFoundError):
                    os.unlink(f"{home}/{each}")

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        target = self._path(snapshot["id"])
        try:
            made = link_new(target, _text(snapshot).encode())
        except NotCreatedError as error:
            raise NotPublishedError from error.__cause__
        if made is None:
            return False
        self.settle(snapshot["id"])
        if not os.path.samestat(made, os.stat(target)):
            return False
        _hint(self._directory, snapshot["id"])
        return True

    def _path(self, number: int) -> str:
        return str(local_path(self._directory.snapshots.get_snapshot_path(number)))


class _ByStore(Publisher):
    """In a store: created with `If-None-Match` if the client of the extra `fast` is in use, otherwise renamed.

    A rename arbitrates only in HDFS: object stores copy. A store that ignores the condition does not arbitrate either.
    """

    def __init__(self, directory: TableDirectory, *, renamed: bool) -> None:
        self._directory = directory
        self._renamed = renamed
        self.conditional = renamed

    def prepare(self) -> None:
        if not self._renamed:
            self.conditional = self._directory.store.creates(self._directory.snapshots.get_snapshot_path(1))

    @property
    def why_unconditional(self) -> str:
        return self._directory.store.objects.why_not_created(self._directory.snapshots.get_snapshot_path(1))

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        store, path = self._directory.store, self._directory.snapshots.get_snapshot_path(snapshot["id"])
        data = _text(snapshot).encode()
        # One attempt with a time limit: a retry could not distinguish its own first attempt from another writer.
        answer = store.pool.submit(partial(store.objects.create, path, data))
        done = store.pool.result(answer)
        # What counts is how this attempt was made: the client may come to be trusted later.
        self.conditional = self._renamed or done is not None
        if done is None:
            done = self._put_where_none_is(path, data)
            # Another program that found no snapshot either may write its own at the same time. The one that was
            # replaced reads the other's.
            done = done and (self.conditional or store.read(path) == data)
        if done:
            _hint(self._directory, snapshot["id"])
        return bool(done)

    def _put_where_none_is(self, path: str, data: bytes) -> bool:
        store = self._directory.store
        if not store.puts(path):
            if store.file_io.exists(path):
                raise TakenError
            return bool(store.file_io.try_to_write_atomic(path, data.decode()))
        # An object appears as a whole, so it need not be written under another name and copied.
        try:
            store.read(path)
        except FileNotFoundError:
            store.write_once(path, data)
            return True
        raise TakenError


def _hint(directory: TableDirectory, number: int) -> None:
    home = directory.snapshots.get_snapshot_path(1).rpartition("/")[0]
    # Readers look there first, and verify it, so a failure does no harm.
    with suppress(PaimonStreamError, OSError):
        directory.store.write_atomic(f"{home}/LATEST", str(number).encode())


def _text(snapshot: Mapping[str, Any]) -> str:
    return json.dumps(snapshot, indent=2)


def partition_statistics(files: Iterable[FileChange], paths: FilePaths) -> list[Any]:
    """What a commit changes in each partition, for catalogs that keep count: pypaimon's `PartitionStatistics`."""
    found: dict[bytes, Any] = {}
    for each in files:
        sign = 1 if each.kind == EntryKind.ADD else -1
        made = found.get(each.partition)
        if made is None:
            made = found[each.partition] = PartitionStatistics(paths.values(each.partition), 0, 0, 0, 0, 0)
        made.record_count += each.rows
        made.file_size_in_bytes += sign * each.file["_FILE_SIZE"]
        made.file_count += sign
        # The file's record holds local time of the writer's zone.
        stored = each.file["_CREATION_TIME"]
        created = 0 if stored is None else paths.zone.millis(stored)
        made.last_file_creation_time = max(made.last_file_creation_time, created)
        made.total_buckets = each.total_buckets
    return list(found.values())
