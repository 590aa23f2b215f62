"""`LiveEntries`: the live files of a table, kept up to date by what each snapshot has added and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

Place = tuple[bytes, int]
"""Serialised partition, and bucket."""

_MOST_SNAPSHOTS = 100
"""Changes of snapshots are read one after the other. After more of them, reading all manifests takes less time."""


class LiveEntries:
    """Entries of manifests, in columns. After the first read, the number of requests depends on the changes alone."""

    def __init__(self) -> None:
        self._at: Snapshot | None = None
        self._entries: pa.Table | None = None

    def forget(self) -> None:
        """Make the next call of `look` return everything."""
        self._at = self._entries = None

    def look(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table:
        """The entries of a snapshot in buckets that have changed since the last call; all entries at first.

        Costs two manifest lists and their manifests at first, if the snapshot of the last call is gone, and after more
        than a hundred others; otherwise each snapshot since, its list of changes and their manifests.
        """
        changed = self._changed(directory, snapshot)
        if changed is not None:
            return changed
        try:
            self._entries = live(_entries(directory, snapshot.state_lists))
        except FileNotFoundError as error:
            detail = f"is missing, though snapshot {snapshot.id} needs it"
            raise CorruptTableError(str(error.filename or error), detail) from error
        self._at = snapshot
        return self._entries

    def _changed(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table | None:
        """As `look`, from the changes of each snapshot since the last call; None: some of these are gone."""
        since = self._since(directory, snapshot)
        if since is None or self._entries is None:
            return None
        entries, places = self._entries, set[Place]()
        for each in since:
            try:
                changes = _entries(directory, [each.delta_manifest_list])
            except FileNotFoundError:
                # The snapshot has expired meanwhile: its own file is deleted last.
                return None
            places.update(_places(changes))
            entries = live(pa.concat_tables([entries, changes]))
        self._entries, self._at = entries.combine_chunks(), snapshot
        return entries.filter(pa.array([each in places for each in _places(entries)], pa.bool_()))

    def _since(self, directory: TableDirectory, snapshot: Snapshot) -> list[Snapshot] | None:
        """The snapshots since the last call; None: this is another history, or some are gone."""
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


def _entries(directory: TableDirectory, lists: Sequence[str]) -> pa.Table:
    manifests = pa.concat_tables(directory.manifests.manifest_lists(lists))
    return directory.manifests.entries(manifests)


def _places(entries: pa.Table) -> Iterable[Place]:
    return zip(entries["partition"].to_pylist(), entries["bucket"].to_pylist(), strict=True)
