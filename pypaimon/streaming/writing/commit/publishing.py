"""`publisher_of`: how a snapshot comes to be the next one, and who arbitrates between two that want to be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.internals import JSON, local_path
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed
from pypaimon.streaming.io.exclusive_files import NotCreatedError, link_new
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.write_internals import PaimonSnapshot, RenamingSnapshotCommit

Statistics: TypeAlias = Callable[[], list[Any]]


class NotPublishedError(Exception):
    """A snapshot is surely not there, and will not be: it could not even be written. Its cause says why."""


class TakenError(Exception):
    """Another snapshot of that id was there before anything was written."""


class Publisher(Protocol):
    """Puts a snapshot behind another one.

    Attributes:
        arbitrates: Of two attempts for one id the later one fails for good, whoever makes them. Where nobody
            arbitrates, a table may have one writer at a time. Not known before `prepare`.
        rewrites: The stored snapshot may differ from the one that was given, so that its fingerprint has to be read.
        looks_back: Whether the caller must see that the snapshot before is there still: a file is made where there is
            none, and there is none too where snapshots have expired.
    """

    arbitrates: bool
    rewrites: bool
    looks_back: bool

    @property
    def why_not(self) -> str:
        """Why nobody arbitrates."""

    def prepare(self) -> None:
        """Find out whether somebody arbitrates.

        Raises:
            PaimonStreamError: That cannot be found out at present.
        """

    def settle(self, number: int) -> None:
        """See to it that the snapshot of a number, if it is there, is not replaced any more.

        Raises:
            OSError: That cannot be done.
        """

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        """Publish a snapshot.

        Args:
            base_uuid: Of the snapshot that it follows.
            snapshot: Its JSON.
            statistics: Gives pypaimon's `PartitionStatistics` of what it changes, for a catalog.

        Returns:
            Whether it was done; False if there is another one of that id.

        Raises:
            TakenError: It surely was not, for there was another one before.
            NotPublishedError: It surely was not.
            Exception: Nobody knows.
        """


def publisher_of(table: Any, directory: TableDirectory) -> Publisher:
    """How the snapshots of a table are published: by its catalog, by a link, by a condition, or by renaming."""
    publisher = table.new_snapshot_commit()
    if not isinstance(publisher, RenamingSnapshotCommit):
        return _ByCatalog(publisher)
    path = directory.snapshots.get_snapshot_path(1)
    if is_local(path):
        return _ByLink(directory)
    return _ByStore(directory, renamed=is_renamed(path))


class _ByCatalog:
    """By the catalog: a server with Java 1.x stores the fields that it knows, and `uuid` is none of them."""

    arbitrates = True
    why_not = ""
    rewrites = True
    looks_back = False

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher

    def prepare(self) -> None:
        """The catalog does."""

    def settle(self, number: int) -> None:
        """The catalog replaces none."""

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        made = JSON.from_json(json.dumps(snapshot), PaimonSnapshot)
        return bool(self._publisher.commit(base_uuid, made, statistics()))


class _ByLink:
    """On a local disk: a link fails if its name exists, whoever made it.

    Java and pypaimon rename instead: they write `.snapshot-N.<uuid>.tmp`, look whether there is a `snapshot-N`, and
    rename, which replaces one that came meanwhile. So who has made a link deletes those files: where the file is gone
    the rename fails, and its writer takes that for the answer that another one was faster. A file that comes later
    belongs to somebody who looks later, and sees the link. Then the snapshot is the link still, or was replaced before.
    """

    arbitrates = True
    why_not = ""
    rewrites = False
    looks_back = True

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory

    def prepare(self) -> None:
        """The file system does."""

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


class _ByStore:
    """In a store: made if none is there (`If-None-Match`) where the client of the extra `fast` serves, else renamed.

    A rename arbitrates in HDFS alone: object stores copy. Nor does a store that ignores the condition.
    """

    rewrites = False
    looks_back = True

    def __init__(self, directory: TableDirectory, *, renamed: bool) -> None:
        self._directory = directory
        self._renamed = renamed
        self.arbitrates = renamed

    def prepare(self) -> None:
        if not self._renamed:
            self.arbitrates = self._directory.store.creates(self._directory.snapshots.get_snapshot_path(1))

    @property
    def why_not(self) -> str:
        return self._directory.store.objects.why_not_created(self._directory.snapshots.get_snapshot_path(1))

    def settle(self, number: int) -> None:
        """HDFS replaces none; what another store does nobody can know."""

    def publish(self, base_uuid: str | None, snapshot: Mapping[str, Any], statistics: Statistics) -> bool:
        store, path = self._directory.store, self._directory.snapshots.get_snapshot_path(snapshot["id"])
        data = _text(snapshot).encode()
        # One attempt, with a time limit; what it came to is found out by looking.
        answer = store.pool.submit(partial(store.objects.create, path, data))
        done = store.pool.result(answer)
        # How this attempt was made counts: the client may be trusted later.
        self.arbitrates = self._renamed or done is not None
        if done is None:
            done = self._put_where_none_is(path, data)
            # Another program that found none either may put its own there at the same time: the first one reads that.
            done = done and (self.arbitrates or store.read(path) == data)
        if done:
            _hint(self._directory, snapshot["id"])
        return bool(done)

    def _put_where_none_is(self, path: str, data: bytes) -> bool:
        """Whether the store says that it was written."""
        store = self._directory.store
        if not store.puts(path):
            if store.file_io.exists(path):
                raise TakenError
            return bool(store.file_io.try_to_write_atomic(path, data.decode()))
        # An object comes into being whole: it need not be written beside and copied.
        try:
            store.read(path)
        except FileNotFoundError:
            store.write_once(path, data)
            return True
        raise TakenError


def _hint(directory: TableDirectory, number: int) -> None:
    """Say which snapshot is the latest: readers look there first, and verify it."""
    home = directory.snapshots.get_snapshot_path(1).rpartition("/")[0]
    with suppress(PaimonStreamError, OSError):
        directory.store.write_atomic(f"{home}/LATEST", str(number).encode())


def _text(snapshot: Mapping[str, Any]) -> str:
    return json.dumps(snapshot, indent=2)
