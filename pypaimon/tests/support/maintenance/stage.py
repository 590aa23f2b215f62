"""A table whose history is written down: what happens, and what happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.maintenance import create_branch, create_tag, delete_tag, fast_forward, rollback
from pypaimon.streaming.metadata.entry_kind import EntryKind
from support.crash.crashing_file_io import Killed
from support.groups.invariants import BrokenLawError
from support.maintenance.actors import snapshot_value
from support.maintenance.java_maintainer import JavaMaintainer
from support.maintenance.memory_store import always
from support.maintenance.operations import Operation
from support.maintenance.simulated_process import simulated
from support.maintenance.simulated_table import COMPACT, ROOT, DataFile, Entry, number_of
from support.maintenance.weather import Weather
from support.maintenance.world import DAY, World

ONE = MaintenancePolicy(min_snapshots=1, max_snapshots=1)


@dataclass
class Moment:
    """A request at which something happens."""

    kind: str
    part: str
    do: Callable[[], Any]
    times: int
    skipped: int


class Stage(World):
    """A world without chance.

    Args:
        options: Of the table.
        java: Rules of Java that are left out; None: the table is maintained by this library.
        judges_order: See `JavaMaintainer`.

    Attributes:
        refused: Errors of this library: it has refused to maintain the table.
    """

    def __init__(self, options: dict[str, str], java: Collection[str] | None, judges_order: bool = False) -> None:
        super().__init__(0, Weather(), options)
        self._is_calm = True
        self._moments: list[Moment] = []
        self._files: dict[str, DataFile] = {}
        self._hidden: set[str] = set()
        self.refused: list[PaimonStreamError] = []
        self._java = None
        if java is not None:
            self._java = JavaMaintainer(self, self.table, self.laws, judges_order, frozenset(java))

    # ---- What others do

    def commit(
        self,
        added: str = "",
        dropped: str = "",
        *,
        kind: str = "APPEND",
        branch: str = "main",
        entries: Sequence[Entry] | None = None,
        index: str | None = None,
    ) -> int:
        """Commit data files, whose names are separated by blanks; return the snapshot."""
        actors, before = self.actors, self.actors.latest(branch)
        source = COMPACT if kind == "COMPACT" else 0
        if entries is None:
            gone = [Entry(EntryKind.DELETE, self._files[name]) for name in dropped.split()]
            entries = [*gone, *(Entry(EntryKind.ADD, self.file(name, source)) for name in added.split())]
        for entry in entries:
            for path in entry.file.paths:
                if entry.kind == EntryKind.ADD and path not in self.objects:
                    actors.put(path, b"data")
        changelog = None
        if self.table.producer and kind == "APPEND":
            file = DataFile(self.table.name("changelog"))
            actors.put(file.paths[0], b"changelog")
            changelog = actors.put_list([actors.put_manifest([Entry(EntryKind.ADD, file)])])
        base = actors.put_list(() if before is None else self.table.manifests_of(before))
        delta = actors.put_list([actors.put_manifest(entries)])
        manifest = None if before is None else before.get("indexManifest")
        if index is not None:
            actors.put(f"{ROOT}/index/{index}", b"index")
            manifest, data = self.table.index_manifest([index])
            actors.put(f"{ROOT}/manifest/{manifest}", data)
        user = self.table.name("u")
        value = snapshot_value(self.objects.now, user, kind, before, base, delta, changelog, manifest, None)
        home = actors.home(branch)
        actors.put(f"{home}/snapshot/snapshot-{value['id']}", json.dumps(value).encode())
        actors.put(f"{home}/snapshot/LATEST", str(value["id"]).encode())
        self.objects.now += 60
        return int(value["id"])

    def compact(self, dropped: str, added: str, branch: str = "main") -> int:
        return self.commit(added, dropped, kind="COMPACT", branch=branch)

    def file(self, name: str, source: int = 0) -> DataFile:
        """The data file of a name."""
        return self._files.setdefault(name, DataFile(f"data-{name}", source=source))

    def tag(self, name: str, snapshot: int, branch: str = "main") -> None:
        home = self.actors.home(branch)
        data = self.objects.get(f"{home}/snapshot/snapshot-{snapshot}")
        assert data is not None
        self.actors.put(f"{home}/tag/tag-{name}", data)

    def untag(self, name: str) -> None:
        """Delete a tag, without its files."""
        self.actors.remove(f"{ROOT}/tag/tag-{name}")

    def branch(self, name: str, tag: str, has_changelog: bool = True) -> None:
        """Make a branch of a tag, whose changelog a program leaves out that does not know whether it is still there."""
        home, data = self.actors.home(name), self.objects.get(f"{ROOT}/tag/tag-{tag}")
        assert data is not None
        self.actors.put(f"{home}/schema/schema-0", self.objects.get(f"{ROOT}/schema/schema-0") or b"")
        value = json.loads(data)
        number = value["id"]
        if not has_changelog:
            value.pop("changelogManifestList", None)
            data = json.dumps(value).encode()
        self.actors.put(f"{home}/tag/tag-{tag}", data)
        self.actors.put(f"{home}/snapshot/snapshot-{number}", data)
        self.actors.branches.append(name)

    def consume(self, name: str, next_snapshot: int) -> None:
        self.actors.put(f"{ROOT}/consumer/consumer-{name}", json.dumps({"nextSnapshot": next_snapshot}).encode())
        self.laws.saved[name] = self.objects.now
        self.laws.held[name] = max(1, next_snapshot - 1)

    def lose(self, path: str) -> None:
        """An object vanishes, though it is needed."""
        self.objects.remove(f"{ROOT}/{path}")
        if path.startswith("snapshot/"):
            self.laws.gaps.add(number_of(path))
            self.laws.forget(f"{ROOT}/{path}")

    def spoil(self, path: str) -> None:
        """The content of an object is cut off."""
        self.objects.put(f"{ROOT}/{path}", b'{"ver')

    def hide(self, directory: str, name: str) -> None:
        """The listings of maintenance lack an entry."""
        self._hidden.add(f"{ROOT}/{directory}/{name}")

    def pass_days(self, days: float) -> None:
        self.objects.now += days * DAY

    # ---- What happens meanwhile

    def when(self, kind: str, part: str, do: Callable[[], Any], times: int = 1, skipped: int = 0) -> None:
        """Do something before a request of maintenance.

        Args:
            kind: The kind of the request.
            part: A part of its path.
            do: It may raise, which is the answer then.
            times: How often at most.
            skipped: How many of such requests come before.
        """
        self._moments.append(Moment(kind, part, do, times, skipped))

    def _request(self, kind: str, path: str, answer: Callable[[], Any], is_met: Callable[[], bool] = always) -> Any:
        if kind == "list" and path.endswith("/consumer") and self.depth in self._checking:
            self.checked.add(self.depth)
        for each in self._moments:
            if each.times and each.kind == kind and each.part in path:
                each.skipped -= 1
                if each.skipped < 0:
                    each.times -= 1
                    each.do()
        found = self._answer(kind, path, answer, is_met)
        return [each for each in found if each.path not in self._hidden] if kind == "list" else found

    # ---- The store, for a maintainer built like Java

    def read(self, path: str) -> bytes | None:
        found: bytes | None = self._request("read", path, lambda: self.objects.get(path))
        return found

    def list(self, directory: str) -> list[Any]:
        found: list[Any] = self._request("list", directory, lambda: self._statuses(directory))
        return found

    def write(self, path: str, data: bytes) -> None:
        self._request("write", path, lambda: self.objects.put(path, data))

    def delete(self, path: str) -> None:
        self._request("delete", path, lambda: self.objects.remove(path))

    def _statuses(self, directory: str) -> list[Any]:
        try:
            return self.objects.statuses(directory)
        except FileNotFoundError:
            return []

    # ---- Maintenance

    def expire(self, policy: MaintenancePolicy | None = ONE, branch: str = "main", **given: Any) -> None:
        """Expire snapshots; only the latest stays if no policy is given.

        Args:
            policy: What is kept; None: made of the other arguments.
            branch: The branch.
            given: Arguments of the policy, which may be wrong.
        """
        if self._java is not None:
            self._java.expire(policy or _Unchecked(**given), branch)  # type: ignore[arg-type]
        else:
            with self._refusals():
                maintain(self.handle(branch), policy or MaintenancePolicy(**given))

    def expire_consumers(self) -> None:
        if self._java is not None:
            self._java.expire_consumers(DAY, self.objects.now)
        else:
            self.expire(MaintenancePolicy(min_snapshots=99))

    def clean(self) -> None:
        if self._java is not None:
            self._java.clean(self.objects.now, self.actors.branches)
        else:
            self.expire(MaintenancePolicy(min_snapshots=99, orphan_age=DAY))

    def delete_tag(self, name: str) -> None:
        if self._java is not None:
            self._java.delete_tag(name)
        else:
            with self._refusals():
                delete_tag(self.handle(), name)

    def roll_back(self, tag: str | None = None, *, snapshot: int | None = None) -> None:
        if self._java is not None:
            self._java.roll_back(str(tag))
            return
        call = partial(rollback, tag=tag, snapshot_id=snapshot)
        self.operate(Operation("roll back", call, rolls_back=True))

    def fast_forward(self, branch: str) -> None:
        if self._java is not None:
            self._java.fast_forward(branch)
            return
        call = partial(fast_forward, branch=branch, discard_own_commits=True)
        self.operate(Operation("fast-forward", call, rolls_back=True))

    def create_tag(self, name: str, snapshot: int) -> None:
        self.laws.pending.add(f"{ROOT}/tag/tag-{name}")
        with self._refusals():
            create_tag(self.handle(), name, snapshot=snapshot)

    def check_roots(self) -> None:
        """Check that all is there that the latest snapshot, tags and changelogs need."""
        latest = f"snapshot/snapshot-{self.actors.ids()[-1]}"
        tags = [f"tag/{name}" for name in self.objects.names(f"{ROOT}/tag") if name.startswith("tag-")]
        changelogs = [f"changelog/changelog-{number}" for number in self.laws.changelog_ids()]
        for each in (latest, *tags, *changelogs):
            if not self.laws.is_complete(f"{ROOT}/{each}"):
                raise BrokenLawError(f"{'M2' if each in changelogs else 'M1'}: {each} is not complete")

    def create_branch(self, name: str, tag: str) -> None:
        with self._refusals():
            create_branch(self.handle(), name, tag=tag)

    def refuse(self, operation: Operation | None, error: PaimonStreamError) -> None:
        self.refused.append(error)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        self._begin(None)
        try:
            yield
        except Killed:
            self.laws.seen["killed"] += 1
            self._abandon_changelogs()
        except PaimonStreamError as error:
            self.refuse(None, error)
        finally:
            self._end()
            self._settle_changelogs()


class _Unchecked:
    """A policy that nobody has checked."""

    def __init__(self, min_snapshots: int, expire_limit: int | None = None) -> None:
        self.min_snapshots, self.expire_limit = min_snapshots, expire_limit


def played(history: Callable[[Stage], None], stage: Stage) -> Stage:
    """A stage after a history.

    Raises:
        BrokenLawError: An invariant was broken.
    """
    with simulated(stage):
        history(stage)
        if stage.objects.get(f"{ROOT}/snapshot/snapshot-1") is not None and not stage.laws.ids(f"{ROOT}/snapshot"):
            raise BrokenLawError("M4: there is no snapshot any more")
    return stage
