"""`LiveEntries`: the live files of a table from one look to the next, by what each snapshot has added and deleted."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

Place = tuple[bytes, int]
"""Serialised partition, and bucket."""

_MOST_SNAPSHOTS = 100
"""Their changes are asked for one after the other: after more of them it takes less time to look at all anew."""


class LiveEntries:
    """Entries of manifests, held in columns. What is asked for after the first look grows with the changes alone."""

    def __init__(self) -> None:
        self._at: Snapshot | None = None
        self._entries: pa.Table | None = None

    def forget(self) -> None:
        """Have the next look see everything."""
        self._at = self._entries = None

    def look(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table:
        """The entries of a snapshot that lie in buckets which have changed since the last look; at first all of them.

        Costs two manifest lists and their manifests at first, whenever the snapshot of the last look is gone, and after
        more than a hundred others; else each snapshot since, its list of changes and their manifests.

        Raises:
            CorruptTableError: A file of the metadata is damaged or missing.
            StoreError: The store failed.
        """
        changed = self._changed(directory, snapshot)
        if changed is not None:
            return changed
        try:
            self._entries = live(_entries(directory, [snapshot.base_manifest_list, snapshot.delta_manifest_list]))
        except FileNotFoundError as error:
            detail = f"is missing, though snapshot {snapshot.id} needs it"
            raise CorruptTableError(str(error.filename or error), detail) from error
        self._at = snapshot
        return self._entries

    def _changed(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table | None:
        """As `look`, by what each snapshot since has changed; None: some of that is not there."""
        since = self._since(directory, snapshot)
        if since is None or self._entries is None:
            return None
        entries, places = self._entries, set[Place]()
        for each in since:
            try:
                changes = _entries(directory, [each.delta_manifest_list])
            except FileNotFoundError:
                # Of a snapshot that expires, its file goes last.
                return None
            places.update(_places(changes))
            entries = live(pa.concat_tables([entries, changes]))
        self._entries, self._at = entries.combine_chunks(), snapshot
        return entries.filter(pa.array([each in places for each in _places(entries)], pa.bool_()))

    def _since(self, directory: TableDirectory, snapshot: Snapshot) -> list[Snapshot] | None:
        """The snapshots after the last look up to this one; None: they do not follow it, or some are gone."""
        last = self._at
        if last is None or not 0 <= snapshot.id - last.id <= _MOST_SNAPSHOTS:
            return None
        there = directory.snapshots.try_get(last.id)
        if there is None or there.fingerprint != last.fingerprint:
            return None
        numbers = range(last.id + 1, snapshot.id + 1)
        found = directory.snapshots.get_snapshots_batch(numbers)
        since = [each for number in numbers if (each := found[number]) is not None]
        return since if len(since) == len(numbers) else None


def _entries(directory: TableDirectory, lists: list[str]) -> pa.Table:
    manifests = pa.concat_tables(directory.manifests.manifest_lists(lists))
    return directory.manifests.entries(manifests)


def _places(entries: pa.Table) -> Iterable[Place]:
    return zip(entries["partition"].to_pylist(), entries["bucket"].to_pylist(), strict=True)
