"""`SnapshotManager`: the snapshots and long-lived changelogs of a branch, by id, by time, by watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, StoreError, TableChangedError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.snapshot_files import Snapshot, SnapshotDirectory, branch_directory, inside
from pypaimon.streaming.paimon.internals import JSON, TableNoPermissionException, TableNotExistException

__all__ = ["Snapshot", "SnapshotManager", "branch_directory", "inside"]


class SnapshotManager:
    """Snapshots and long-lived changelogs of one branch of a table.

    Snapshots are cached by id. After a rollback another snapshot may have an id, so the cache is dropped (`forget`) on
    restore, on a failed range check and when the table has changed. Thread-safe.

    The methods of pypaimon's own `SnapshotManager` are here under their names.

    Args:
        file_io: pypaimon's `FileIO`, or a `Store`.
        table_path: Root directory of the table.
        branch: Name of the branch; None means `main`.
        snapshot_loader: pypaimon's `SnapshotLoader` of catalogs that know the latest snapshot themselves, or None.
    """

    def __init__(self, file_io: Any, table_path: str, branch: str | None = None, snapshot_loader: Any = None) -> None:
        self._store = file_io if isinstance(file_io, Store) else Store(file_io)
        self._loader = snapshot_loader
        self._table_path = table_path
        home = branch_directory(table_path, branch)
        self._snapshots = SnapshotDirectory(self._store, f"{home}/snapshot", "snapshot-")
        self._changelogs = SnapshotDirectory(self._store, f"{home}/changelog", "changelog-", are_changelogs=True)

    def copy_with_branch(self, branch_name: str) -> SnapshotManager:
        """The snapshots of another branch of the table."""
        loader = None if self._loader is None else self._loader.copy_with_branch(branch_name)
        return SnapshotManager(self._store, self._table_path, branch_name, loader)

    def get_snapshot_path(self, snapshot_id: int) -> str:
        """Path of a snapshot file."""
        return self._snapshots.path(snapshot_id)

    def try_get(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or None if its file is missing. One request unless cached. Raises CorruptTableError if the file
        cannot be decoded, or may not be read, StoreError if the store kept failing (retriable).
        """
        return self._snapshots.get(snapshot_id)

    def greatest_known_id(self) -> int | None:
        """The greatest id among the cached snapshots, or None. Sends no request."""
        return self._snapshots.greatest_cached()

    def let_go(self, most: int) -> None:
        """Drop the cached snapshots except the `most` latest ones. They are requested again when needed."""
        self._snapshots.let_go(most)
        self._changelogs.let_go(most)

    def get_snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """As `try_get`, under pypaimon's name."""
        return self.try_get(snapshot_id)

    def get(self, snapshot_id: int) -> Snapshot:
        """A snapshot that must exist. Raises CorruptTableError if it does not."""
        snapshot = self.try_get(snapshot_id)
        if snapshot is None:
            raise CorruptTableError(
                self.get_snapshot_path(snapshot_id), "this snapshot is missing in the middle of others"
            )
        return snapshot

    def know(self, snapshot: Snapshot) -> None:
        """Cache a snapshot that was read elsewhere."""
        self._snapshots.keep(snapshot)

    def refreshed(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot as it is in the store now, without the cache. One request."""
        return self._snapshots.refreshed(snapshot_id)

    def begin_refresh(self, snapshot_id: int) -> Callable[[], Snapshot | None]:
        """As `refreshed`, but the request is sent at once, and the returned function waits for the answer."""
        return self._snapshots.begin_refresh(snapshot_id)

    def refreshed_changelog(self, snapshot_id: int) -> Snapshot | None:
        """A long-lived changelog as it is in the store now, without the cache. One request."""
        return self._changelogs.refreshed(snapshot_id)

    def get_snapshots_batch(
        self, snapshot_ids: Iterable[int], max_workers: int = 4, *, most: int | None = None
    ) -> dict[int, Snapshot | None]:
        """Several snapshots, requested at the same time; None for missing ones. At most the last `most` that are not
        cached are requested. The others are None too. `max_workers` exists in pypaimon and has no effect here.
        """
        return self._snapshots.fetch(snapshot_ids, most)

    def get_changelogs_batch(
        self, snapshot_ids: Iterable[int], *, most: int | None = None
    ) -> dict[int, Snapshot | None]:
        """Several long-lived changelogs; as `get_snapshots_batch`."""
        return self._changelogs.fetch(snapshot_ids, most)

    def prefetch(self, snapshot_ids: Iterable[int]) -> list[Snapshot]:
        """Snapshots as they are in the store now, requested at the same time, up to the first that is missing.

        Also up to the first that cannot be read. Its error is raised by the call that requests it alone, after the
        snapshots before it were read.
        """
        return self._snapshots.refreshed_ahead(list(snapshot_ids))

    def find_next_scannable(
        self, start_id: int, should_scan: Callable[[Snapshot], bool], lookahead_size: int = 10, max_workers: int = 4
    ) -> tuple[Snapshot | None, int, int]:
        """The first snapshot from `start_id` on that `should_scan` accepts, searched in growing windows.

        The first window is one snapshot; while all exist the window doubles, up to `lookahead_size`. No file is fetched
        twice. A file that cannot be read is an error only after all before it were passed over. `max_workers` exists in
        pypaimon and has no effect here.

        Returns:
            The snapshot or None, the id to continue with, and how many were passed over.

        Raises:
            CorruptTableError: The next snapshot cannot be decoded, or may not be read.
            StoreError: The store kept failing (retriable).
        """
        number, window, passed = start_id, 1, 0
        while True:
            try:
                found = self._snapshots.fetch(range(number, number + window))
            except (CorruptTableError, StoreError):
                if window == 1:
                    raise
                window = 1
                continue
            for snapshot in found.values():
                if snapshot is None:
                    return None, number, passed
                number += 1
                if should_scan(snapshot):
                    return snapshot, number, passed
                passed += 1
            window = min(window * 2, max(1, lookahead_size))

    def get_latest_snapshot(self) -> Snapshot | None:
        """The latest snapshot as it is now: from the catalog if it knows, else by hint, else by listing. None: there is
        none.

        Raises TableChangedError if the table is no longer in the catalog, CorruptTableError if the snapshot cannot be
        decoded, or may not be read, StoreError if the store, or the catalog, kept failing (retriable).
        """
        # Read `_loader` once, because another thread may set it to None meanwhile.
        loader = self._loader
        if loader is not None:
            try:
                return self._store.call("catalog", self._table_path, partial(self._load_latest, loader))
            except NotImplementedError:
                # This catalog does not know the latest snapshot, so it is not asked again.
                self._loader = None
        return self._snapshots.latest()

    def _load_latest(self, loader: Any, table_path: str) -> Snapshot | None:
        try:
            loaded = loader.load()
        except NotImplementedError:
            raise
        except RuntimeError as error:
            # pypaimon's loader raises a RuntimeError without a cause for every error of its catalog.
            raise catalog_error(error.__context__ or error) from error
        if loaded is None:
            return None
        text = loaded if isinstance(loaded, (str, bytes)) else JSON.to_json(loaded)
        try:
            return self._snapshots.keep(Snapshot.from_json(text))
        except ValueError as error:
            raise CorruptTableError(table_path, f"the catalog's latest snapshot cannot be decoded: {error}") from error

    def try_get_earliest_snapshot(self, stop_snapshot_id: int | None = None) -> Snapshot | None:
        """The earliest snapshot that has not expired; None without one, or if it is after `stop_snapshot_id`."""
        earliest = self._snapshots.earliest()
        if earliest is None or (stop_snapshot_id is not None and earliest > stop_snapshot_id):
            return None
        return self._snapshots.get(earliest)

    def earliest_id(self) -> int | None:
        """Id of the earliest snapshot, or None."""
        return self._snapshots.earliest()

    def latest_id(self) -> int | None:
        """Id of the latest snapshot, or None."""
        snapshot = self.get_latest_snapshot()
        return None if snapshot is None else snapshot.id

    def begin_hinted_latest(self) -> Callable[[], Snapshot | None]:
        """Request the hint LATEST; the function that is returned reads the latest snapshot, if the hint is right.

        It returns None if only a listing would find the latest snapshot.
        """
        return self._snapshots.begin_hinted("LATEST")

    def hinted_latest_id(self) -> int | None:
        """The id in the hint file LATEST, unchecked; None without one. One request."""
        return self._snapshots.hint("LATEST")

    def hinted_earliest_id(self) -> int | None:
        """The id in the hint file EARLIEST, unchecked; None without one. One request."""
        return self._snapshots.hint("EARLIEST")

    def read_latest_file(self, max_retries: int = 5) -> str:
        """The id in the hint file LATEST, unchecked; without one the greatest id. `max_retries` has no effect here.
        Raises PaimonStreamError if there is no snapshot.
        """
        latest = self.hinted_latest_id()
        latest = max(self.list_ids(), default=None) if latest is None else latest
        if latest is None:
            raise PaimonStreamError(f"{self._table_path} has no snapshot yet: commit one, or ask get_latest_snapshot()")
        return str(latest)

    def list_ids(self) -> list[int]:
        """Ids of all snapshot files, ascending. One listing."""
        return self._snapshots.ids()

    def list_statuses(self) -> dict[int, Any]:
        """Statuses (`path`, `size`, `mtime`) of all snapshot files by id, ascending. One listing."""
        return self._snapshots.statuses()

    def list_changelog_statuses(self) -> dict[int, Any]:
        """As `list_statuses`, of the long-lived changelogs."""
        return self._changelogs.statuses()

    def list_snapshots(self) -> list[Snapshot]:
        """All snapshots, ascending, without those that expire meanwhile."""
        found = self.get_snapshots_batch(self.list_ids())
        return [snapshot for snapshot in found.values() if snapshot is not None]

    def try_get_changelog(self, snapshot_id: int) -> Snapshot | None:
        """A long-lived changelog, or None if its file is missing. One request unless cached."""
        return self._changelogs.get(snapshot_id)

    def list_changelog_ids(self) -> list[int]:
        """Ids of all long-lived changelogs, ascending. One listing."""
        return self._changelogs.ids()

    def hinted_earliest_changelog_id(self) -> int | None:
        """As `hinted_earliest_id`, of the long-lived changelogs."""
        return self._changelogs.hint("EARLIEST")

    def earliest_changelog_id(self) -> int | None:
        """Id of the earliest long-lived changelog, or None."""
        return self._changelogs.earliest()

    def earlier_or_equal_time_mills(self, timestamp: int) -> Snapshot | None:
        """The last snapshot committed at this time (epoch milliseconds) or before."""
        return self.earlier_than_time_millis(timestamp + 1)

    def earlier_than_time_millis(self, millis: int, with_changelogs: bool = False) -> Snapshot | None:
        """The last snapshot, or also long-lived changelog, committed strictly before a time (epoch milliseconds), by
        binary search. None: all were committed later.
        """
        low, high = self._snapshots.earliest(), self.latest_id()
        if with_changelogs and (changelog := self._changelogs.earliest()) is not None:
            low = changelog if low is None else min(low, changelog)
        best = None
        there = _Listing(self, with_changelogs)
        while low is not None and high is not None and low <= high:
            middle = (low + high) // 2
            snapshot = there.first(middle, high)
            if snapshot is not None and snapshot.time_millis < millis:
                best, low = snapshot, snapshot.id + 1
            else:
                high = middle - 1
        return best

    def later_or_equal_watermark(self, watermark: int) -> Snapshot | None:
        """The first snapshot with this watermark (epoch milliseconds) or a later one, by binary search. None: there is
        none.

        Snapshots without a watermark are passed over. Watermarks never decrease from one snapshot to the next.
        """
        low, high = self._snapshots.earliest(), self.latest_id()
        best = None
        there = _Listing(self, with_changelogs=False)
        while low is not None and high is not None and low <= high:
            middle = (low + high) // 2
            snapshot = there.first(middle, high)
            while snapshot is not None and snapshot.watermark is None:
                snapshot = there.first(snapshot.id + 1, high) if snapshot.id < high else None
            if snapshot is not None and snapshot.watermark is not None and snapshot.watermark < watermark:
                low = snapshot.id + 1
            else:
                best, high = snapshot or best, middle - 1
        return best

    def try_get_any(self, snapshot_id: int, with_changelogs: bool) -> Snapshot | None:
        """A snapshot, or with `with_changelogs` its long-lived changelog if the snapshot has expired."""
        found = self.try_get(snapshot_id)
        return self.try_get_changelog(snapshot_id) if found is None and with_changelogs else found

    def forget(self, first_id: int = 0) -> None:
        """Drop the cached snapshots from this id on."""
        self._snapshots.forget(first_id)
        self._changelogs.forget(first_id)


class _Listing:
    """Snapshots by id, where ids may be missing: expired meanwhile, lost, or never used.

    The ids are listed once, at the first missing one, so that the cost does not depend on the size of a gap.
    """

    def __init__(self, manager: SnapshotManager, with_changelogs: bool) -> None:
        self._manager = manager
        self._with_changelogs = with_changelogs

    @cached_property
    def _ids(self) -> list[int]:
        changelogs = self._manager.list_changelog_ids() if self._with_changelogs else []
        return sorted({*self._manager.list_ids(), *changelogs})

    def first(self, number: int, last: int) -> Snapshot | None:
        found = self._manager.try_get_any(number, self._with_changelogs)
        if found is not None:
            return found
        following = (each for each in self._ids if number < each <= last)
        snapshots = (self._manager.try_get_any(each, self._with_changelogs) for each in following)
        return next((snapshot for snapshot in snapshots if snapshot is not None), None)


def catalog_error(error: BaseException) -> Exception:
    """The error to raise for an error of a catalog: the table is gone or forbidden, or the catalog fails for now."""
    if isinstance(error, TableNotExistException):
        return TableChangedError(
            f"The table was dropped: {error}.", advice="Close this stream; load the table again if it comes back."
        )
    if isinstance(error, TableNoPermissionException):
        return PermissionError(str(error))
    return OSError(f"the catalog failed: {error}")
