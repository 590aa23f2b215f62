"""A maintainer built like Java's, with its known defects, for tables in memory.

A model of Java's rules, not of its code: which files go, which names protect them, what is read once, and what counts
as empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.metadata.entry_kind import EntryKind
from support.crash.crashing_file_io import Killed
from support.maintenance.actors import Actors
from support.maintenance.laws import TableLaws
from support.maintenance.simulated_table import COMPACT, ROOT, DataFile, SimulatedTable, Value, number_of, parsed

_DAY = 86_400
_DATA_DIRECTORIES = ("bucket-0", "manifest", "index", "statistics")
_STATE = ("baseManifestList", "deltaManifestList")


class Requests(Protocol):
    """The store as a maintainer reaches it."""

    def read(self, path: str) -> bytes | None: ...
    def list(self, directory: str) -> list[Any]: ...
    def write(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...


@dataclass(frozen=True)
class JavaMaintainer:
    """Maintains a table as Java does.

    Attributes:
        requests: The store.
        table: What the manifests of the table say.
        laws: Told which snapshots are about to go, unless `judges_order`.
        judges_order: Whether it counts that files go before the snapshot that names them.
        forgets: Rules of Java that are left out: `tags`, `neighbours`, `branches`, `one by one`.
    """

    requests: Requests
    table: SimulatedTable
    laws: TableLaws
    judges_order: bool = False
    forgets: frozenset[str] = frozenset()

    # ---- Snapshots

    def expire(self, policy: MaintenancePolicy, branch: str = "main") -> None:
        """Expire snapshots: data files, then changelogs, then metadata, then the snapshots."""
        home = _home(branch)
        ids = self._ids(home)
        if not ids:
            return
        hint = self.requests.read(f"{home}/snapshot/EARLIEST")
        earliest = int(hint) if hint is not None and int(hint) in ids else ids[0]
        least = 10 if policy.min_snapshots is None else policy.min_snapshots
        end = min(ids[-1] - least + 1, self._smallest_consumer(home))
        if policy.expire_limit is not None:
            end = min(end, earliest + policy.expire_limit)
        if end > earliest:
            self._expire(home, earliest, end)

    def _expire(self, home: str, earliest: int, end: int) -> None:
        # The tags of main, whatever the branch.
        tags = [] if "tags" in self.forgets else self._tags(ROOT)
        paths = {number: f"{home}/snapshot/snapshot-{number}" for number in range(earliest, end + 1)}
        found = {number: value for number, path in paths.items() if (value := self._snapshot(path)) is not None}
        going = [found[number] for number in sorted(found) if number < end]
        if not self.judges_order:
            for each in going:
                self.laws.dooms(paths[each["id"]])
        for number in sorted(found)[1:]:
            nearest = max((each for each in tags if each["id"] < number), key=lambda each: each["id"], default=None)
            self._delete_data(self._dropped(found[number]), self._state_names(nearest))
        keeps_changelogs = self.table.keeps_changelogs
        if not keeps_changelogs:
            for each in going:
                self._delete_data((e.file for e in self.table.of_list(each.get("changelogManifestList"))), set())
        if end not in found:
            # Noticed after the data has gone.
            return
        first = max((each["id"] for each in tags if going and each["id"] <= going[0]["id"]), default=0)
        inside = [each for each in tags if first <= each["id"] < end]
        kept = set().union(*(self._metadata(each) for each in (found[end], *inside)))
        for each in going:
            gone = self.table.side_files(each) if self._reads_data_files else self._metadata(each, not keeps_changelogs)
            self._delete_all(gone - kept)
        for each in going:
            path = paths[each["id"]]
            if keeps_changelogs:
                self.requests.write(f"{home}/changelog/changelog-{each['id']}", self.requests.read(path) or b"")
            self.requests.delete(path)
        self.requests.write(f"{home}/snapshot/EARLIEST", str(end).encode())

    def _dropped(self, snapshot: Value) -> list[DataFile]:
        """The files that are deleted after the entries of a delta, in their order, without those of changelogs."""
        dropped: dict[str, DataFile] = {}
        if not self._is_sound(snapshot["deltaManifestList"]):
            return []
        for entry in self.table.of_list(snapshot["deltaManifestList"]):
            if entry.kind == EntryKind.ADD:
                dropped.pop(entry.file.name, None)
            else:
                dropped[entry.file.name] = entry.file
        return [each for each in dropped.values() if not self._reads_data_files or each.source == COMPACT]

    @property
    def _reads_data_files(self) -> bool:
        """Whether the data files of a commit are its long-lived changelog."""
        return self.table.keeps_changelogs and not self.table.producer

    def expire_consumers(self, seconds: float, now: float) -> None:
        """Delete consumers that have not saved, those of writers too."""
        for each in self.requests.list(f"{ROOT}/consumer"):
            if each.path.rpartition("/")[2].startswith("consumer-") and each.mtime.timestamp() < now - seconds:
                self.requests.delete(each.path)

    def _smallest_consumer(self, home: str) -> int:
        paths = [each.path for each in self.requests.list(f"{home}/consumer") if "/consumer-" in each.path]
        saved = [data for path in paths if (data := self.requests.read(path)) is not None]
        return min((parsed(data)["nextSnapshot"] for data in saved), default=2**62)

    # ---- Tags

    def delete_tag(self, name: str) -> None:
        """Delete a tag of main with the files that its neighbours do not need."""
        path = f"{ROOT}/tag/tag-{name}"
        tag = self._snapshot(path)
        assert tag is not None
        others = [each for each in self._tags(ROOT) if each != tag]
        self.requests.delete(path)
        ids = self._ids(ROOT)
        if tag["id"] in ids or any(each["id"] == tag["id"] for each in others):
            return
        left = max((each for each in others if each["id"] < tag["id"]), key=lambda each: each["id"], default=None)
        right = min((each for each in others if each["id"] > tag["id"]), key=lambda each: each["id"], default=None)
        earliest = self._snapshot(f"{ROOT}/snapshot/snapshot-{ids[0]}")
        if earliest is not None and (right is None or ids[0] < right["id"]):
            right = earliest
        neighbours = [] if "neighbours" in self.forgets else [each for each in (left, right) if each is not None]
        names = set().union(*map(self._state_names, neighbours))
        self._delete_data(self._files_of_tag(tag), names)
        self._delete_all(self._metadata(tag) - set().union(*map(self._metadata, neighbours)))

    def _files_of_tag(self, tag: Value) -> list[DataFile]:
        """The live files; if a list is missing, whatever the other one names."""
        lists = [tag[each] for each in _STATE]
        readable = [each for each in lists if self._is_sound(each)]
        if readable == lists:
            return self.table.live(tag)
        return [entry.file for each in readable for entry in self.table.of_list(each)]

    def roll_back(self, tag: str) -> None:
        """Roll back to a tag whose snapshot has expired: all others go, then the snapshot is written again."""
        data = self.requests.read(f"{ROOT}/tag/tag-{tag}") or b""
        self.laws.is_rolling_back = True
        try:
            for number in reversed(self._ids(ROOT)):
                if number > parsed(data)["id"]:
                    self.requests.delete(f"{ROOT}/snapshot/snapshot-{number}")
            self.requests.write(f"{ROOT}/snapshot/snapshot-{parsed(data)['id']}", data)
        finally:
            self.laws.is_rolling_back = False

    def fast_forward(self, branch: str) -> None:
        """Copy a branch over main, with its hints."""
        home = _home(branch)
        ids = self._ids(home)
        self.laws.is_rolling_back = True
        try:
            for number in reversed([each for each in self._ids(ROOT) if each >= ids[0]]):
                self.requests.delete(f"{ROOT}/snapshot/snapshot-{number}")
            for name in (*(f"snapshot-{number}" for number in ids), "EARLIEST", "LATEST"):
                data = self.requests.read(f"{home}/snapshot/{name}")
                if data is not None:
                    self.requests.write(f"{ROOT}/snapshot/{name}", data)
        finally:
            self.laws.is_rolling_back = False

    # ---- Orphans

    def clean(self, now: float, branches: Sequence[str]) -> None:
        """Delete old files that nothing names. What names files is listed once, and what is missing is empty."""
        old = [
            each.path
            for name in _DATA_DIRECTORIES
            for each in self.requests.list(f"{ROOT}/{name}")
            if each.mtime.timestamp() < now - _DAY
        ]
        used: set[str] = set()
        for branch in ("main",) if "branches" in self.forgets else ("main", *branches):
            home = _home(branch)
            used |= self._used(home)
        for path in old:
            if path.rpartition("/")[2] not in used:
                self.requests.delete(path)

    def _used(self, home: str) -> set[str]:
        names: set[str] = set()
        for what in ("snapshot", "tag", "changelog"):
            paths = [each.path for each in self.requests.list(f"{home}/{what}")]
            for path in [each for each in paths if each.rpartition("/")[2].startswith(f"{what}-")]:
                value = self._snapshot(path)
                if value is None:
                    continue
                lists = [value[each] for each in (*_STATE, "changelogManifestList") if value.get(each) is not None]
                if "one by one" in self.forgets and not all(map(self._is_there, lists)):
                    # What is missing of one of them ends the search.
                    return names
                names |= {path.rpartition("/")[2] for path in self._metadata(value) | self.table.side_files(value)}
                names |= {name for each in lists for name in self._named(each)}
        return names

    def _named(self, list_name: str) -> set[str]:
        files = [entry.file for entry in self.table.of_list(list_name)]
        return {path.rpartition("/")[2] for file in files for path in file.paths}

    # ---- What it reads

    def _ids(self, home: str) -> list[int]:
        names = [each.path.rpartition("/")[2] for each in self.requests.list(f"{home}/snapshot")]
        return sorted(number_of(name) for name in names if name.startswith("snapshot-"))

    def _tags(self, home: str) -> list[Value]:
        """The tags that can be read."""
        paths = [each.path for each in self.requests.list(f"{home}/tag")]
        return [value for path in paths if (value := self._snapshot(path)) is not None]

    def _snapshot(self, path: str) -> Value | None:
        try:
            data = self.requests.read(path)
            return None if data is None else parsed(data)
        except (OSError, ValueError):
            return None

    def _is_sound(self, list_name: str) -> bool:
        data = self.requests.read(f"{ROOT}/manifest/{list_name}")
        return data is not None and data.startswith(b"Obj")

    def _is_there(self, list_name: str) -> bool:
        return self.requests.read(f"{ROOT}/manifest/{list_name}") is not None

    def _state_names(self, snapshot: Value | None) -> set[str]:
        """The names of the live files; none if a list cannot be read."""
        if snapshot is None or not all(self._is_sound(snapshot[each]) for each in _STATE):
            return set()
        return {file.name for file in self.table.live(snapshot)}

    def _metadata(self, snapshot: Value, with_changelog: bool = False) -> set[str]:
        lists = (*_STATE, "changelogManifestList") if with_changelog else _STATE
        return self.table.metadata(snapshot, *lists) | self.table.side_files(snapshot)

    # ---- What it deletes

    def _delete_data(self, files: Iterable[DataFile], kept: set[str]) -> None:
        self._delete_all(path for file in files if file.name not in kept for path in file.paths)

    def _delete_all(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            self.requests.delete(path)


class JavaProcess:
    """What a maintainer like Java's requests as one process among others, which may be killed at any request.

    Args:
        actors: They share the store, and its laws.
        kills: Share of requests at which it is killed.
    """

    def __init__(self, actors: Actors, kills: float) -> None:
        self._actors = actors
        self._kills = kills

    def read(self, path: str) -> bytes | None:
        return self._actors.objects.get(path)

    def list(self, directory: str) -> list[Any]:
        objects = self._actors.objects
        return objects.statuses(directory) if objects.names(directory) else []

    def write(self, path: str, data: bytes) -> None:
        self._die()
        self._actors.put(path, data)

    def delete(self, path: str) -> None:
        self._die()
        self._actors.remove(path)

    def _die(self) -> None:
        if self._actors.rng.random() < self._kills:
            raise Killed


def _home(branch: str) -> str:
    return ROOT if branch == "main" else f"{ROOT}/branch/branch-{branch}"
