"""Snapshots and long-lived changelogs of one branch: read, cached by id, fetched in batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from pypaimon.streaming.store import Store

_CACHED_SNAPSHOTS = 4096


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit, as Paimon 0.8 and later record it; what a release did not write yet is None.

    Attributes:
        id: Ascending from 1 without gaps.
        schema_id: Schema of the committer.
        base_manifest_list: Everything before the commit.
        delta_manifest_list: What the commit added and removed.
        changelog_manifest_list: Changelog files of the commit, or None.
        index_manifest: Index files (deletion vectors and others), or None.
        commit_user: Who committed.
        commit_identifier: The committer's number of the commit.
        commit_kind: APPEND, COMPACT, OVERWRITE or ANALYZE.
        time_millis: Commit time, epoch milliseconds.
        total_record_count: Records in all data files.
        delta_record_count: Records added less removed by the commit.
        changelog_record_count: Records in its changelog files.
        watermark: Event-time watermark, epoch milliseconds.
        uuid: Unique id of the snapshot (newest releases).
        is_changelog: It was read from `changelog/`: its snapshot has expired.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    changelog_manifest_list: str | None
    index_manifest: str | None
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int | None
    delta_record_count: int | None
    changelog_record_count: int | None
    watermark: int | None
    uuid: str | None
    is_changelog: bool = False

    @property
    def fingerprint(self) -> str:
        """Tells this snapshot from another one with the same id, after a rollback or a re-creation."""
        return self.uuid or f"{self.commit_user}/{self.commit_identifier}/{self.time_millis}"

    @staticmethod
    def from_json(data: bytes | str, is_changelog: bool = False) -> Snapshot:
        """Decode the JSON of a snapshot, changelog or tag file.

        Raises:
            ValueError: It is no JSON, or a field that every release writes is missing or of another type.
        """
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
        return Snapshot(
            id=_field(value, "id", int),
            schema_id=_field(value, "schemaId", int),
            base_manifest_list=_field(value, "baseManifestList", str),
            delta_manifest_list=_field(value, "deltaManifestList", str),
            changelog_manifest_list=value.get("changelogManifestList"),
            index_manifest=value.get("indexManifest"),
            commit_user=_field(value, "commitUser", str),
            commit_identifier=_field(value, "commitIdentifier", int),
            commit_kind=_field(value, "commitKind", str),
            time_millis=_field(value, "timeMillis", int),
            total_record_count=value.get("totalRecordCount"),
            delta_record_count=value.get("deltaRecordCount"),
            changelog_record_count=value.get("changelogRecordCount"),
            watermark=value.get("watermark"),
            uuid=value.get("uuid"),
            is_changelog=is_changelog,
        )


def _field(value: dict[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if not isinstance(found, kind):
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def branch_directory(table_path: str, branch: str | None) -> str:
    """Where a branch keeps snapshots, changelogs, schemas, tags and consumers; the table's root for `main`."""
    root = table_path.rstrip("/")
    return root if branch in (None, "main") else f"{root}/branch/branch-{branch}"


class _Numbered:
    """Files `<prefix><id>` of a directory, with hint files that are only hints."""

    def __init__(self, store: Store, directory: str, prefix: str, parser: Callable[[bytes], Snapshot]) -> None:
        self._store = store
        self._directory = directory
        self._prefix = prefix
        self._parser = parser
        self._cache: LRUCache[int, Snapshot] = LRUCache(_CACHED_SNAPSHOTS)
        self._lock = threading.Lock()

    def path(self, number: int) -> str:
        return f"{self._directory}/{self._prefix}{number}"

    def cached(self, number: int) -> Snapshot | None:
        with self._lock:
            return self._cache.get(number)

    def keep(self, snapshot: Snapshot) -> Snapshot:
        with self._lock:
            self._cache[snapshot.id] = snapshot
        return snapshot

    def forget(self) -> None:
        with self._lock:
            self._cache.clear()

    def fetch(self, numbers: Iterable[int]) -> dict[int, Snapshot | None]:
        """These files, asked for at the same time unless cached; None for those that are missing."""
        found: dict[int, Snapshot | None] = {number: self.cached(number) for number in numbers}
        missing = [number for number, snapshot in found.items() if snapshot is None]
        paths = [self.path(number) for number in missing]
        for number, path, data in zip(missing, paths, self._store.read_many(paths), strict=True):
            if data is not None:
                found[number] = self.keep(self._store.parse_data(path, data, self._parser))
        return found

    def get(self, number: int) -> Snapshot | None:
        return self.fetch((number,))[number]

    def ids(self) -> list[int]:
        names = self._store.list_names(self._directory)
        numbers = (name[len(self._prefix) :] for name in names if name.startswith(self._prefix))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def hint(self, name: str) -> int | None:
        try:
            text = self._store.read(f"{self._directory}/{name}")
        except FileNotFoundError:
            return None
        return int(text) if text.strip().isdigit() else None

    def earliest(self) -> int | None:
        """Smallest id: the hint if its file is there and the one before it is not, else by listing."""
        hint = self.hint("EARLIEST")
        if hint is not None:
            probe = self.fetch((hint - 1, hint))
            if probe[hint] is not None and probe[hint - 1] is None:
                return hint
        return min(self.ids(), default=None)

    def latest(self) -> int | None:
        """Greatest id: the hint if its file is there and the one after it is not, else by listing."""
        hint = self.hint("LATEST")
        if hint is not None:
            probe = self.fetch((hint, hint + 1))
            if probe[hint] is not None and probe[hint + 1] is None:
                return hint
        return max(self.ids(), default=None)


class SnapshotManager:
    """Snapshots and long-lived changelogs of one branch of a table.

    What was read is cached by id. An id is not for ever: after a rollback another snapshot may carry it, so the cache is
    dropped (`forget`) on restore, on a failed range check and when the table has changed. Thread-safe.

    Args:
        store: A `Store`, or pypaimon's `FileIO`.
        table_path: Root directory of the table.
        branch: Name of the branch.
        loader: pypaimon's `SnapshotLoader` of catalogs that know the latest snapshot themselves, or None.
    """

    def __init__(self, store: Any, table_path: str, branch: str | None = "main", loader: Any = None) -> None:
        self._store = store if isinstance(store, Store) else Store(store)
        self._loader = loader
        home = branch_directory(table_path, branch)
        self._snapshots = _Numbered(self._store, f"{home}/snapshot", "snapshot-", Snapshot.from_json)
        self._changelogs = _Numbered(self._store, f"{home}/changelog", "changelog-", _changelog)

    def get_snapshot_path(self, snapshot_id: int) -> str:
        """Path of a snapshot file."""
        return self._snapshots.path(snapshot_id)

    def try_get(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or None if its file is missing. One request unless cached.

        Raises:
            CorruptTableError: The file cannot be decoded, or may not be read.
            StoreError: The store kept failing (retriable).
        """
        return self._snapshots.get(snapshot_id)

    def get_snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """As `try_get`, under pypaimon's name."""
        return self.try_get(snapshot_id)

    def get(self, snapshot_id: int) -> Snapshot:
        """A snapshot that must be there.

        Raises:
            FileNotFoundError: It is not.
        """
        snapshot = self.try_get(snapshot_id)
        if snapshot is None:
            raise FileNotFoundError(self.get_snapshot_path(snapshot_id))
        return snapshot

    def refreshed(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot as it is in the store now, past the cache. One request."""
        path = self._snapshots.path(snapshot_id)
        try:
            return self._snapshots.keep(self._store.parse(path, Snapshot.from_json))
        except FileNotFoundError:
            return None

    def get_snapshots_batch(self, snapshot_ids: Iterable[int], max_workers: int = 0) -> dict[int, Snapshot | None]:
        """Several snapshots, asked for at the same time; None for those that are missing."""
        return self._snapshots.fetch(snapshot_ids)

    def find_next_scannable(
        self, start_id: int, should_scan: Callable[[Snapshot], bool], lookahead_size: int = 10, max_workers: int = 0
    ) -> tuple[Snapshot | None, int, int]:
        """The first snapshot from `start_id` on that is to be scanned, looking ahead in windows that grow.

        The first request asks for one snapshot; while all asked for are there the window doubles, up to `lookahead_size`.

        Returns:
            The snapshot or None, the id to go on with, and how many were passed over.
        """
        number, window, passed = start_id, 1, 0
        while True:
            found = self._snapshots.fetch(range(number, number + window))
            for snapshot in found.values():
                if snapshot is None:
                    return None, number, passed
                number += 1
                if should_scan(snapshot):
                    return snapshot, number, passed
                passed += 1
            window = min(window * 2, max(1, lookahead_size))

    def get_latest_snapshot(self) -> Snapshot | None:
        """The latest snapshot; from the catalog where it knows, else by hint, else by listing. None: no snapshot."""
        if self._loader is not None:
            try:
                loaded = self._loader.load()
            except NotImplementedError:
                loaded = None
            if loaded is not None:
                text = loaded if isinstance(loaded, (str, bytes)) else _json_of(loaded)
                return self._snapshots.keep(Snapshot.from_json(text))
        latest = self._snapshots.latest()
        return None if latest is None else self._snapshots.get(latest)

    def try_get_earliest_snapshot(self) -> Snapshot | None:
        """The earliest snapshot that has not expired, or None."""
        earliest = self._snapshots.earliest()
        return None if earliest is None else self._snapshots.get(earliest)

    def earliest_id(self) -> int | None:
        """Id of the earliest snapshot, None if there is none."""
        return self._snapshots.earliest()

    def latest_id(self) -> int | None:
        """Id of the latest snapshot, None if there is none."""
        snapshot = self.get_latest_snapshot()
        return None if snapshot is None else snapshot.id

    def list_ids(self) -> list[int]:
        """Ids of all snapshot files, ascending. One listing."""
        return self._snapshots.ids()

    def list_snapshots(self) -> list[Snapshot]:
        """All snapshots, ascending; one that expires meanwhile is left out."""
        found = self.get_snapshots_batch(self.list_ids())
        return [snapshot for snapshot in found.values() if snapshot is not None]

    def try_get_changelog(self, snapshot_id: int) -> Snapshot | None:
        """A long-lived changelog, or None if its file is missing. One request unless cached."""
        return self._changelogs.get(snapshot_id)

    def get_changelog_path(self, snapshot_id: int) -> str:
        """Path of a long-lived changelog file."""
        return self._changelogs.path(snapshot_id)

    def earliest_changelog_id(self) -> int | None:
        """Id of the earliest long-lived changelog, None if there is none."""
        return self._changelogs.earliest()

    def latest_changelog_id(self) -> int | None:
        """Id of the latest long-lived changelog, None if there is none."""
        return self._changelogs.latest()

    def earlier_or_equal_time_mills(self, timestamp: int) -> Snapshot | None:
        """The last snapshot committed at this time (epoch milliseconds) or before."""
        return self.earlier_than_time_millis(timestamp + 1)

    def earlier_than_time_millis(self, millis: int, with_changelogs: bool = False) -> Snapshot | None:
        """The last snapshot committed strictly before a time (epoch milliseconds), by binary search.

        Args:
            millis: The time.
            with_changelogs: Long-lived changelogs are searched too.

        Returns:
            None if all were committed later, or there is none.
        """
        low, high = self._snapshots.earliest(), self.latest_id()
        if with_changelogs and (changelog := self._changelogs.earliest()) is not None:
            low = changelog if low is None else min(low, changelog)
        best = None
        while low is not None and high is not None and low <= high:
            middle = (low + high) // 2
            snapshot = self.try_get(middle)
            if snapshot is None and with_changelogs:
                snapshot = self.try_get_changelog(middle)
            if snapshot is None or snapshot.time_millis < millis:
                # One that has expired meanwhile was committed earlier than those that are still there.
                best = snapshot or best
                low = middle + 1
            else:
                high = middle - 1
        return best

    def forget(self) -> None:
        """Drop what is cached."""
        self._snapshots.forget()
        self._changelogs.forget()


def _changelog(data: bytes) -> Snapshot:
    return Snapshot.from_json(data, is_changelog=True)


def _json_of(snapshot: Any) -> str:
    from pypaimon.streaming.internals import JSON

    text: str = JSON.to_json(snapshot)
    return text
