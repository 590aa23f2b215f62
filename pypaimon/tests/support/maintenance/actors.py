"""What others do to a table while it is maintained, request by request: each `yield` is a moment for somebody else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pypaimon.streaming.maintenance.expiry_planner import EXPIRED
from pypaimon.streaming.metadata.entry_kind import EntryKind
from support.maintenance.laws import TableLaws
from support.maintenance.memory_store import MemoryObjects
from support.maintenance.simulated_table import (
    COMPACT,
    ROOT,
    DataFile,
    Entry,
    SimulatedTable,
    Value,
    parsed,
    upgraded,
)

Steps = Iterator[None]
WEIGHTS = {
    "APPEND": 10.0, "COMPACT": 4.0, "OVERWRITE": 0.7, "DROP": 0.3, "tag": 2.0, "untag": 0.7, "branch": 0.7,
    "unbranch": 0.3, "consume": 1.0, "progress": 2.0, "write": 1.0, "read": 4.0,
}  # fmt: skip
"""How often each of them does something: commits of a kind, or a method of `Actors`."""


class Actors:
    """The others.

    Args:
        rng: What they draw.
        objects: The store.
        table: The table.
        laws: Checked at each change.

    Attributes:
        branches: The branches.
        deletes_first: Whether a file that changes its level is deleted before it is added, as Java expects.
    """

    def __init__(self, rng: random.Random, objects: MemoryObjects, table: SimulatedTable, laws: TableLaws) -> None:
        self.rng = rng
        self.objects = objects
        self.table = table
        self.laws = laws
        self.branches: list[str] = []
        self.deletes_first = False

    # ---- The store

    def put(self, path: str, data: bytes) -> None:
        self.laws.before_write(path)
        self.objects.put(path, data)
        self.laws.written(path)

    def remove(self, path: str) -> None:
        self.laws.before_delete(path)
        self.objects.remove(path)
        self.laws.deleted(path)

    def home(self, branch: str = "main") -> str:
        """The directory of a branch."""
        return ROOT if branch == "main" else f"{ROOT}/branch/branch-{branch}"

    def ids(self, branch: str = "main") -> list[int]:
        return self.laws.ids(f"{self.home(branch)}/snapshot")

    def latest(self, branch: str = "main") -> Value | None:
        """The latest snapshot."""
        ids = self.ids(branch)
        data = self.objects.get(f"{self.home(branch)}/snapshot/snapshot-{ids[-1]}") if ids else None
        return None if data is None else parsed(data)

    # ---- Commits

    def commit(self, kind: str, branch: str = "main", user: str | None = None) -> Steps:
        """Write, compact or overwrite: the files first, then the snapshot, if nobody else has committed."""
        schema, before = f"{self.home(branch)}/schema/schema-0", self.latest(branch)
        if schema not in self.objects or (before is None and branch != "main"):
            # The branch is gone, or is being deleted, and a writer that begins now cannot load it.
            return
        live = [] if before is None else self.table.live(before)
        if kind in ("COMPACT", "DROP") and not live:
            return
        entries = self._entries(kind, live)
        for entry in entries:
            if entry.kind == EntryKind.ADD:
                for path in entry.file.paths:
                    if path not in self.objects:
                        self.put(path, b"data")
                        yield
        changes = [DataFile(self.table.name("changelog"))] if self.table.producer and kind == "APPEND" else []
        for file in changes:
            self.put(file.paths[0], b"changelog")
            yield
        snapshot = yield from self._snapshot(kind.replace("DROP", "OVERWRITE"), before, entries, changes, user)
        yield
        path = f"{self.home(branch)}/snapshot/snapshot-{snapshot['id']}"
        # A user who deletes a branch ends its writers before the call has ended.
        if self.latest(branch) == before and path not in self.objects and schema in self.objects:
            self.put(path, json.dumps(snapshot).encode())
            self.laws.seen[kind] += 1
            yield
            if self.rng.random() < 0.8 and path in self.objects:
                self.put(f"{self.home(branch)}/snapshot/LATEST", str(snapshot["id"]).encode())

    def _entries(self, kind: str, live: Sequence[DataFile]) -> list[Entry]:
        fresh = DataFile(self.table.name("data"), 0, self.table.name("extra") if self.rng.random() < 0.2 else None)
        if kind == "APPEND":
            return [Entry(EntryKind.ADD, fresh)]
        if kind == "OVERWRITE":
            return [*(Entry(EntryKind.DELETE, each) for each in live), Entry(EntryKind.ADD, fresh)]
        gone = self.rng.sample(list(live), self.rng.randint(1, len(live)))
        if kind == "DROP":
            # As partitions that expire.
            return [Entry(EntryKind.DELETE, each) for each in gone]
        if self.rng.random() < 0.4:
            # A file that only changes its level; the order of the two entries is any.
            found = [Entry(EntryKind.ADD, upgraded(gone[0])), Entry(EntryKind.DELETE, gone[0])]
            return found[::-1] if self.deletes_first else self.rng.sample(found, 2)
        made = DataFile(fresh.name, 1, fresh.extra, COMPACT)
        return [*(Entry(EntryKind.DELETE, each) for each in gone), Entry(EntryKind.ADD, made)]

    def _snapshot(
        self, kind: str, before: Value | None, entries: Sequence[Entry], changes: Sequence[DataFile], user: str | None
    ) -> Iterator[None]:
        manifests = () if before is None else self.table.manifests_of(before)
        if before is not None and self.rng.random() < 0.25:
            merged = self.put_manifest([Entry(EntryKind.ADD, each) for each in self.table.live(before)])
            manifests = (merged,)
            yield
        base = self.put_list(manifests)
        yield
        delta = self.put_list([self.put_manifest(entries)])
        yield
        changelog = (
            self.put_list([self.put_manifest([Entry(EntryKind.ADD, each) for each in changes])]) if changes else None
        )
        index = None if before is None else before.get("indexManifest")
        if self.rng.random() < 0.15:
            file = self.table.name("index")
            self.put(f"{ROOT}/index/{file}", b"index")
            index, data = self.table.index_manifest([file])
            self.put(f"{ROOT}/manifest/{index}", data)
            yield
        statistics = None
        if self.rng.random() < 0.1:
            statistics = self.table.name("stat")
            self.put(f"{ROOT}/statistics/{statistics}", b"{}")
        user = user or self.table.name("u")
        return snapshot_value(self.objects.now, user, kind, before, base, delta, changelog, index, statistics)

    def put_manifest(self, entries: Sequence[Entry]) -> str:
        """Write a manifest; return its name."""
        name, data = self.table.manifest(entries)
        self.put(f"{ROOT}/manifest/{name}", data)
        return name

    def put_list(self, manifests: Sequence[str]) -> str:
        """Write a manifest list; return its name."""
        name, data = self.table.manifest_list(manifests)
        self.put(f"{ROOT}/manifest/{name}", data)
        return name

    # ---- Tags and branches

    def tag(self, branch: str = "main") -> Steps:
        """Tag a snapshot that may expire meanwhile: the tag stands if the snapshot is there after it was written."""
        ids = self.ids(branch)
        if not ids:
            return
        path = f"{self.home(branch)}/snapshot/snapshot-{self.rng.choice(ids)}"
        data = self.objects.get(path)
        yield
        if data is None:
            return
        value = parsed(data)
        if self.rng.random() < 0.5:
            value |= {"tagCreateTime": [2023, 11, 14, 0, 0], "tagTimeRetained": 3600.0 * self.rng.randrange(60)}
        tag = f"{self.home(branch)}/tag/tag-{self.table.name('t')}"
        self.laws.pending.add(tag)
        self.put(tag, json.dumps(value).encode())
        yield
        is_there = path in self.objects and path not in self.laws.doomed
        if is_there and parsed(self.objects.get(path) or b"") == parsed(data):
            self.laws.seen["tag"] += 1
            if tag in self.objects:
                self.laws.establish(tag)
        else:
            self.laws.seen["tag too late"] += 1
            self.remove(tag)

    def untag(self, branch: str = "main") -> Steps:
        """Delete a tag, without its files."""
        names = self.objects.names(f"{self.home(branch)}/tag")
        if names:
            path = f"{self.home(branch)}/tag/{self.rng.choice(names)}"
            if path not in self.laws.pending:
                self.remove(path)
        yield

    def branch(self) -> Steps:
        """Create a branch of a tag: its snapshot, as the tag keeps it."""
        names = self.objects.names(f"{ROOT}/tag")
        if not names or len(self.branches) > 1:
            return
        tag = f"{ROOT}/tag/{self.rng.choice(names)}"
        data = self.objects.get(tag)
        if data is None or tag in self.laws.pending:
            return
        name = self.table.name("b")
        self.put(f"{self.home(name)}/schema/schema-0", self.objects.get(f"{ROOT}/schema/schema-0") or b"")
        value = parsed(data)
        path = f"{self.home(name)}/snapshot/snapshot-{value['id']}"
        # As a tag, which stands if what it was made of is there afterwards. Its changelog may be gone.
        self.laws.pending.add(path)
        for each in ("changelogManifestList", "tagCreateTime", "tagTimeRetained"):
            value.pop(each, None)
        self.put(path, json.dumps(value).encode())
        yield
        # A user may have deleted the branch meanwhile.
        if self.objects.get(tag) == data and path in self.objects:
            self.laws.establish(path)
            self.branches.append(name)
            self.laws.seen["branch"] += 1
        else:
            self.drop_branch(name)

    def drop_branch(self, name: str) -> None:
        """Delete a branch, as one request."""
        self.laws.is_rolling_back = True
        for path in [each for each in self.objects.paths() if each.startswith(f"{self.home(name)}/")]:
            self.remove(path)
            self.laws.pending.discard(path)
        self.laws.is_rolling_back = False
        self.branches = [each for each in self.branches if each != name]

    def unbranch(self) -> Steps:
        """Delete a branch."""
        if self.branches:
            self.drop_branch(self.rng.choice(self.branches))
        yield

    # ---- Consumers

    def consume(self, is_seen: Callable[[], bool]) -> Steps:
        """Start a consumer at a snapshot that readers find, and check that it is still found after it has saved."""
        ids = self.laws.visible_ids(f"{ROOT}/snapshot")
        if not ids:
            return
        start = self.rng.choice(ids)
        name = self.table.name("c") + self.rng.choice(["", ".group", ".shard-0-of-2", ".first-plan"])
        if self.rng.random() < 0.2:
            self.put(f"{ROOT}/consumer/sink-{name}", b"{}")
        if name.endswith(".group"):
            self.put(f"{ROOT}/consumer/group-{name.removesuffix('.group')}/1/state-1", b"{}")
        yield
        self.put(f"{ROOT}/consumer/consumer-{name}", json.dumps({"nextSnapshot": start}).encode())
        self.laws.saved[name] = self.objects.now
        in_time = is_seen()
        yield
        if in_time and start in self.laws.visible_ids(f"{ROOT}/snapshot"):
            # The one before, for its fingerprint, if it is still there.
            self.laws.held[name] = start - 1 if start - 1 in self.ids() else start
            self.laws.seen["consumer"] += 1

    def write(self) -> Steps:
        """A writer commits, then records which snapshot holds its newest commit: that one has to be found later."""
        user = "writer"
        if self.laws.seen["ledger"] == 0:
            self.put(f"{ROOT}/consumer/sink-{user}", b"{}")
            yield
        yield from self.commit("APPEND", user=user)
        latest = self.latest()
        if latest is not None and latest["commitUser"] == user:
            self.put(f"{ROOT}/consumer/consumer-{user}", json.dumps({"nextSnapshot": latest["id"]}).encode())
            self.laws.saved[user] = self.objects.now
            self.laws.held[user] = latest["id"]
            self.laws.seen["ledger"] += 1

    def progress(self, is_seen: Callable[[str], bool]) -> Steps:
        """A consumer saves its progress, or ends."""
        if not self.laws.held:
            return
        names = [name for name in sorted(self.laws.held) if name.startswith("c")]
        if not names:
            return
        name = self.rng.choice(names)
        path = f"{ROOT}/consumer/consumer-{name}"
        data = self.objects.get(path)
        if data is None or self.rng.random() < 0.3:
            del self.laws.held[name]
            self.remove(path)
            return
        if json.loads(data).get("owner") == EXPIRED:
            # The reader finds out that it has come too late.
            del self.laws.held[name]
            return
        before = json.loads(data)
        following = min(before["nextSnapshot"] + self.rng.randint(0, 3), max(self.ids(), default=0) + 1)
        value: dict[str, Any] = {"nextSnapshot": following}
        if following == before["nextSnapshot"]:
            # As the library does, so that a run that expires the consumer notices it.
            value["save"] = before.get("save", 0) + 1
        self.put(path, json.dumps(value).encode())
        if is_seen(path):
            self.laws.saved[name] = self.objects.now
        self.laws.held[name] = following - 1
        yield


def snapshot_value(
    now: float,
    user: str,
    kind: str,
    before: Value | None,
    base: str,
    delta: str,
    changelog: str | None,
    index: str | None,
    statistics: str | None,
) -> Value:
    """The JSON of a snapshot."""
    value = {
        "version": 3, "id": 1 if before is None else before["id"] + 1, "schemaId": 0, "baseManifestList": base,
        "deltaManifestList": delta, "changelogManifestList": changelog, "indexManifest": index, "commitUser": user,
        "commitIdentifier": 1, "commitKind": kind, "timeMillis": int(now * 1000), "statistics": statistics,
    }  # fmt: skip
    return {key: each for key, each in value.items() if each is not None}
