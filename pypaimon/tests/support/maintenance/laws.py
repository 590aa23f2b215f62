"""Invariants of a table that is maintained, checked at every change of its store."""

from __future__ import annotations

import re
from collections import Counter

from support.groups.invariants import BrokenLawError
from support.maintenance.memory_store import MemoryObjects
from support.maintenance.simulated_table import ROOT, SimulatedTable, is_root, number_of, parsed

_SKEW = 600
"""Seconds by which clocks may differ at most."""
_CONSUMERS = f"{ROOT}/consumer/consumer-"
_IMMUTABLE = ("bucket-0", "manifest", "index", "statistics", "schema")
_SNAPSHOT = re.compile(r"snapshot-\d+")


class TableLaws:
    """What must hold after each request of anybody.

    - M1: All that snapshots and tags name exists. - M2: So does what long-lived changelogs need, and they are kept.
    - M3: Readers find the snapshots without a gap. - M4: The latest snapshot stays, unless the table is rolled back,
    and there is always one; the hint never leads to an earlier one. - M5: What a consumer or position needs stays.
    - M6: At least as many snapshots stay as must. - M7: What nothing needs goes at last. - M8: Only files of the table
    are touched.

    Attributes:
        seen: How often something happened.
        doomed: Snapshots that a maintainer like Java's is expiring: it deletes their files first.
        gaps: Snapshots that have vanished without anybody's doing, or that a commit does not follow any more.
        pending: Tags whose writer has not found out yet whether it was in time.
        held: For each consumer that has found its snapshot, the first that must stay.
        saved: When each consumer has saved.
        is_rolling_back: Whether a snapshot is deleted or replaced on purpose.
        rollbacks: How many rollbacks are under way.
        rolled_back: How many have ended.
    """

    def __init__(self, objects: MemoryObjects, table: SimulatedTable) -> None:
        self.seen: Counter[str] = Counter()
        self.doomed: set[str] = set()
        self.gaps: set[int] = set()
        self.pending: set[str] = set()
        self.held: dict[str, int] = {}
        self.saved: dict[str, float] = {}
        self.is_rolling_back = False
        self.rollbacks = self.rolled_back = 0
        self.expiration = 86_400 - _SKEW if table.expires_consumers else float("inf")
        self._objects = objects
        self._table = table
        self._needs: dict[str, frozenset[str]] = {}
        self._needed: Counter[str] = Counter()
        self._before: bytes | None = None

    def before_write(self, path: str) -> None:
        """An object is about to be written."""
        if not path.startswith(f"{ROOT}/"):
            raise BrokenLawError(f"M10: {path} is written")
        self._before = self._objects.get(path)
        self.forget(path)

    def written(self, path: str) -> None:
        """An object has been written."""
        before, self._before = self._before, None
        is_final = is_root(path) and not self.is_rolling_back and path not in self.pending
        is_immutable = path.removeprefix(f"{ROOT}/").partition("/")[0] in _IMMUTABLE
        if before is not None and (is_final or is_immutable) and not _is_same(before, self._objects.get(path) or b""):
            raise BrokenLawError(f"M8: {path} has changed")
        if is_root(path) and path not in self.pending and path not in self.doomed:
            self.establish(path)
        if self._is_of_readers(path):
            self._check_visible(path)

    def establish(self, path: str) -> None:
        """From now on readers rely on a snapshot, tag or changelog."""
        self.pending.discard(path)
        data = self._objects.get(path)
        assert data is not None
        needs = self._table.needs(path, parsed(data))
        if missing := [each for each in needs if each not in self._objects]:
            raise BrokenLawError(f"{'M2' if '/changelog/' in path else 'M1'}: {path} appears without {missing}")
        self._needs[path] = needs
        self._needed.update(needs)

    def dooms(self, path: str) -> None:
        """A maintainer like Java's begins to delete the files of a snapshot, which it deletes afterwards."""
        if number_of(path) == self.ids(path.rpartition("/")[0])[-1]:
            raise BrokenLawError(f"M4: {path} is to go, which is the latest")
        self.doomed.add(path)
        self.forget(path)

    def before_delete(self, path: str) -> None:
        """An object is about to be deleted."""
        if not path.startswith(f"{ROOT}/"):
            raise BrokenLawError(f"M10: {path} is deleted")
        if path.startswith((f"{ROOT}/consumer/group-", f"{ROOT}/consumer/sink-")):
            raise BrokenLawError(f"M5: {path} goes, which a group or a writer needs")
        if path.startswith(f"{ROOT}/schema/") and not self.is_rolling_back:
            raise BrokenLawError(f"M1: {path} goes")
        if path.startswith(_CONSUMERS):
            self._check_consumer(path.removeprefix(_CONSUMERS))
        if self._needed[path] > 0:
            by = [root for root, needs in self._needs.items() if path in needs]
            raise BrokenLawError(f"{'M1' if any('/changelog/' not in r for r in by) else 'M2'}: {path}, of {by}, goes")
        own = f"{ROOT}/snapshot"
        if path.startswith(f"{own}/") and path in self._objects and _is_snapshot(path) and len(self.ids(own)) == 1:
            raise BrokenLawError(f"M4: {path} goes, and no snapshot is left")
        if _is_snapshot(path) and not self.is_rolling_back and path in self._objects:
            ids = self.ids(path.rpartition("/")[0])
            if number_of(path) == ids[-1]:
                raise BrokenLawError(f"M4: {path} goes, which is the latest")
            if path.startswith(f"{ROOT}/snapshot/"):
                for name, first in self.held.items():
                    if number_of(path) >= first:
                        raise BrokenLawError(f"M5: {path} goes, which {name} needs")
        self.forget(path)

    def deleted(self, path: str) -> None:
        """An object has been deleted."""
        self.doomed.discard(path)
        if self._is_of_readers(path):
            self._check_visible(path)

    def ids(self, directory: str) -> list[int]:
        """Ids of the snapshots of a branch."""
        return sorted(number_of(name) for name in self._objects.names(directory) if _SNAPSHOT.fullmatch(name))

    def changelog_ids(self) -> list[int]:
        """Ids of the long-lived changelogs."""
        names = self._objects.names(f"{ROOT}/changelog")
        return sorted(number_of(name) for name in names if name.startswith("changelog-"))

    def visible_ids(self, directory: str) -> list[int]:
        """Ids that readers find: from the one of the hint, if the one before is gone."""
        ids = self.ids(directory)
        hint = self._objects.get(f"{directory}/EARLIEST")
        if hint is not None and int(hint) in ids and int(hint) - 1 not in ids:
            return [each for each in ids if each >= int(hint)]
        return ids

    def needed(self) -> set[str]:
        """All that is needed."""
        return set(+self._needed)

    def _check_consumer(self, name: str) -> None:
        """A consumer goes by itself, or if it has not saved for a day and is not that of a writer."""
        if name in self.held:
            saved = self.saved[name]
            if self._objects.now - saved < self.expiration or f"{ROOT}/consumer/sink-{name}" in self._objects:
                raise BrokenLawError(f"M5: consumer {name} goes, which has saved at {saved}")
            del self.held[name]

    def _is_of_readers(self, path: str) -> bool:
        return "/snapshot/" in path and (path.endswith(("EARLIEST", "LATEST")) or _is_snapshot(path))

    def _check_visible(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        ids = self.visible_ids(directory)
        missing = {*range(ids[0], ids[-1])} - {*ids} - self.gaps if ids else set()
        if missing and not self.is_rolling_back and not self.rollbacks and not self.doomed:
            raise BrokenLawError(f"M3: readers find {ids} after {path} has changed")
        hint = int(self._objects.get(f"{directory}/LATEST") or 0)
        if hint in ids[:-1] and hint + 1 not in ids:
            raise BrokenLawError(f"M4: readers find {hint} as the latest of {ids} after {path} has changed")

    def allow_gaps(self) -> None:
        """A commit has come while the snapshots that it follows were rolled back, and nobody is left to notice that."""
        ids = self.ids(f"{ROOT}/snapshot")
        self.gaps |= {*range(ids[0], ids[-1])} - {*ids} if ids else set()

    def is_complete(self, path: str) -> bool:
        """Whether all is there that a snapshot, tag or changelog needs."""
        data = self._objects.get(path)
        return data is not None and all(each in self._objects for each in self._table.needs(path, parsed(data)))

    def forget(self, path: str) -> None:
        """Nobody relies on a snapshot, tag or changelog any more."""
        for each in self._needs.pop(path, ()):
            self._needed[each] -= 1


def _is_snapshot(path: str) -> bool:
    return _SNAPSHOT.fullmatch(path.rpartition("/")[2]) is not None


def _is_same(first: bytes, second: bytes) -> bool:
    """Whether two contents are the same, or two texts of the same JSON."""
    return first == second or (first.startswith(b"{") and second.startswith(b"{") and parsed(first) == parsed(second))
