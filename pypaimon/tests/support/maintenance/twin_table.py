"""A table that live Java and this library change by turns, and what each of them leaves of it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import ConsumerManager, MaintenancePolicy, compact, maintain, stream_read_builder
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.maintenance import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    drop_partitions,
    rename_tag,
    replace_tag,
    rollback,
)
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from support.java.live import LiveJava
from support.java.twins import write
from support.maintenance.twin_kinds import OLD_PARTITIONS, PARTITIONS, Kind
from support.maintenance.twin_roots import MAIN, Left, Roots
from support.tables.named_files import deleted_by_commits, files_of, needed_by_roots
from support.tables.streamed_table import available

KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3", "snapshot.expire.limit": "1000"}
"""What both keep. A writer of Java that maintains removes a bounded part of what is due; here it is all."""
KEEP_ALL = MaintenancePolicy(min_snapshots=100_000, expire_limit=0, expire_tags=False)
_CONSUMERS = ["ours", "ours.shard-0-of-2", "ours.member-a", "shared.group", "ours.first-plan"]


class TwinTable:
    """A table of live Java in a place that stays the same, so that files elsewhere are always those of one table.

    Args:
        java: Live Java.
        directory: Holds the warehouse, directories outside of it, and what is put aside.
        kind: The keys and options of the table.
        seeded: Draws what happens.

    Attributes:
        returned: The files that commits of an old state have added again.
        orphaned: The files that branches needed when they were deleted.
    """

    def __init__(self, java: LiveJava, directory: Path, kind: Kind, seeded: random.Random) -> None:
        self.java = java
        self.kind = kind
        self.root = directory / "now"
        self.path = self.root / "warehouse" / "d.db" / "t"
        self._aside = directory / "aside"
        self._random = seeded
        self._number = 0
        self.returned: frozenset[str] = frozenset()
        self.orphaned: frozenset[str] = frozenset()
        java.call(
            "create", warehouse=str(self.root / "warehouse"), fields=kind.fields,
            partition_keys=["p"] if kind.is_partitioned else [], primary_keys=list(kind.keys),
            options={
                "snapshot.expire.limit": "0", "tag.time-expire-enabled": "false",
                **{name: value.replace("{root}", str(self.root)) for name, value in kind.options.items()},
            },
        )  # fmt: skip

    # ---- what it is

    def handle(self, branch: str = MAIN, **options: str) -> Any:
        """A new handle of pypaimon."""
        name = "d.t" if branch == MAIN else f"d.t$branch_{branch}"
        return CatalogFactory.create({"warehouse": str(self.root / "warehouse")}).get_table(name).copy(options)

    def home(self, branch: str = MAIN) -> Path:
        """The directory of a branch."""
        return self.path if branch == MAIN else self.path / "branch" / f"branch-{branch}"

    def ids(self, branch: str = MAIN, what: str = "snapshot") -> list[int]:
        """The snapshots, or the changelogs."""
        return sorted(int(path.name.rpartition("-")[2]) for path in (self.home(branch) / what).glob(f"{what}-*"))

    def tags(self, branch: str = MAIN) -> list[str]:
        """The names of the tags."""
        return sorted(path.name.removeprefix("tag-") for path in (self.home(branch) / "tag").glob("tag-*"))

    def branches(self) -> list[str]:
        """The names of the other branches."""
        return sorted(path.name.removeprefix("branch-") for path in (self.path / "branch").glob("branch-*"))

    def left(self) -> Left:
        """What is there now."""
        small, consumers, tagged = [], {}, {}
        for branch in (MAIN, *self.branches()):
            home = self.home(branch)
            small += [each for name in ("snapshot", "changelog", "tag") for each in (home / name).glob(f"{name}-*")]
            following = [json.loads(path.read_text())["nextSnapshot"] for path in home.glob("consumer/consumer-*")]
            consumers[branch] = min(following, default=2**63)
            for path in home.glob("tag/tag-*"):
                tagged[str(path.relative_to(self.path))] = json.loads(path.read_text())["id"]
        outside = (path.name for path in (self.root / "external").rglob("*") if path.is_file())
        files = files_of(self.path).union(outside)
        try:
            needs = needed_by_roots(self.path)
        except FileNotFoundError as error:
            needs, lost = {}, {str(error.filename)}
        else:
            lost = set().union(*needs.values()) - files
        return Left(
            small=frozenset(str(each.relative_to(self.path)) for each in small),
            files=frozenset(files),
            needs=needs,
            lost=frozenset(lost),
            deleted=frozenset(deleted_by_commits(self.path)) if self.kind.is_long_lived else frozenset(),
            consumers=consumers,
            tagged=tagged,
        )

    def live_files(self) -> set[str]:
        """The names of the files that the latest snapshot needs."""
        return needed_by_roots(self.path)[f"snapshot/snapshot-{self.ids()[-1]}"]

    # ---- what readers find

    def java_reads(self, roots: Roots) -> dict[str, Any]:
        """The rows of snapshots and tags, and the changes of snapshots and changelogs, as Java finds them."""
        place = _place_of(roots.branch)
        # Java 1.4 looks for the tags of any branch in main.
        tags = roots.tags if roots.branch == MAIN else []
        states = self.java.call("states", **{"snapshot-id": roots.snapshots, "tag-name": tags}, **place)
        found = {f"{what} {each}": _sorted(rows) for what in states for each, rows in states[what].items()}
        reply = self.java.call("read", options=KEPT, restore=roots.changes[0], **place)
        assert reply["end"] == "waiting", reply["end"]
        for plan in reply["plans"]:
            rows = [row for split in plan["splits"] for row in split["rows"]]
            found[f"changes {plan['next'] - 1}"] = _sorted(rows)
        return {name: rows for name, rows in found.items() if rows}

    def ours_reads(self, roots: Roots) -> dict[str, Any]:
        """As `java_reads`, by this library."""
        table, found = self.handle(roots.branch, **KEPT), {}
        starts: dict[str, tuple[dict[str, Any], int]] = {
            f"snapshot {each}": ({"snapshot_id": each}, each) for each in roots.snapshots
        }
        for each in roots.tags:
            tagged = json.loads((self.home(roots.branch) / "tag" / f"tag-{each}").read_text())["id"]
            starts[f"tag {each}"] = ({"tag": each}, tagged)
        for name, (start, end) in starts.items():
            builder = stream_read_builder(table).with_start(**start, full=True).with_end(snapshot_id=end)
            with builder.new_streaming_scan() as scan:
                found[name] = [row for plan in available(scan) for row in _sorted(_rows(builder.new_read(), plan))]
        builder = stream_read_builder(table).with_start(snapshot_id=roots.changes[0])
        with builder.new_streaming_scan() as scan:
            for plan in available(scan):
                found[f"changes {plan.snapshot_id}"] = _sorted(_rows(builder.new_read(), plan))
        return {name: rows for name, rows in found.items() if rows}

    # ---- what happens to it

    def live(self, steps: int) -> None:
        """Let things happen, by Java or by this library."""
        for _ in range(steps):
            what = self._random.choices(list(_STEPS), list(_STEPS.values()))[0]
            by = "java" if self._random.random() < 0.6 or not self.kind.written_here else "ours"
            getattr(self, f"_{what}")(by)

    @contextmanager
    def both(self, java: Callable[[], object]) -> Iterator[Left]:
        """Let Java do something and put what it leaves aside; inside, the table is again as it was before.

        Gives what Java has left.
        """
        before = self._aside / "before"
        shutil.copytree(self.root, before)
        java()
        left = self.left()
        self.root.rename(self._aside / "java")
        before.rename(self.root)
        yield left

    def remove(self) -> None:
        """Remove it."""
        shutil.rmtree(self.root)

    def go_on_with_java(self) -> None:
        """Go on with the table as Java has left it."""
        shutil.rmtree(self.root)
        (self._aside / "java").rename(self.root)

    def go_on(self) -> None:
        """Go on with the table as this library has left it."""
        shutil.rmtree(self._aside / "java")

    def java_expires(self, branch: str) -> None:
        """Java's expiry, of snapshots and of long-lived changelogs."""
        self.java.call("expire", options=KEPT, **_place_of(branch))

    def ours_expires(self, branch: str, meanwhile: Callable[[], None] | None = None) -> None:
        """The expiry of this library; something may happen after it has planned."""
        with pytest.MonkeyPatch.context() as patch:
            if meanwhile is not None:
                original, todo = PlanExecution._check_unchanged, [meanwhile]

                def after(self: Any, *args: Any) -> Any:
                    if todo:
                        todo.pop()()
                    return original(self, *args)

                patch.setattr(PlanExecution, "_check_unchanged", after)
            maintain(self.handle(branch, **KEPT))

    def save_consumer(self, by: str, branch: str = MAIN) -> None:
        """A consumer of either side, a shard, a member or a group saves where it stands."""
        if not (ids := self.ids(branch)):
            return
        following = self._random.choice([*ids[-4:], ids[-1] + 1])
        if by == "java" and branch == MAIN:
            self.java.call("consumer", name="java", next=following)
            return
        self.put_consumer(self._random.choice(_CONSUMERS), following, branch)

    def put_consumer(self, name: str, following: int, branch: str) -> None:
        """A consumer of this library stands at a snapshot; of a group there is a state, too."""
        directory = self.home(branch) / "consumer"
        if name == "ours":
            home = None if branch == MAIN else branch
            ConsumerManager(self.handle().file_io, str(self.path), home).reset_consumer(name, Consumer(following))
            return
        directory.mkdir(exist_ok=True)
        (directory / f"consumer-{name}").write_text(json.dumps({"nextSnapshot": following}))
        if name.endswith(".group"):
            (directory / "group-shared" / "1").mkdir(parents=True, exist_ok=True)
            (directory / "group-shared" / "1" / "state-1").write_text("{}")

    def write(self, branch: str) -> None:
        """Let Java write."""
        self.java.call("write", flushes=[self._flush()], assigns=True, **_place_of(branch))

    def commit_again(self, snapshot: int, *, with_tag: bool) -> None:
        """Commit the state of a snapshot again. Java's expiry needs a tag of it, unless nothing of it was deleted."""
        before, old = self.live_files(), needed_by_roots(self.path)[f"snapshot/snapshot-{snapshot}"]
        tag = rollback(self.handle(), snapshot_id=snapshot, as_latest=True).holding_tag
        self.returned |= self.live_files() & old - before
        if tag is not None and not with_tag:
            delete_tag(self.handle(), tag)

    def tag_branch(self, branch: str) -> None:
        """Tag the latest snapshot of a branch, and let commits there drop what the tag needs."""
        self.write(branch)
        create_tag(self.handle(branch), self._name())
        self.java.call("compact", full=True, options={}, branch=branch)
        for _ in range(3):
            self.write(branch)

    # ---- steps

    def _row(self) -> list[Any]:
        pick = self._random
        row = ["+I", pick.randrange(9), pick.choice(PARTITIONS), pick.randrange(99)]
        return row + ["YmxvYg=="] * ("b" in [name for name, _ in self.kind.fields])

    def _flush(self) -> list[list[Any]]:
        return [self._row() for _ in range(4)]

    def _place(self) -> str:
        """Main, or seldom another branch."""
        branches = self.branches()
        return self._random.choice(branches) if branches and self._random.random() < 0.3 else MAIN

    def _name(self) -> str:
        self._number += 1
        return f"x{self._number}"

    def _write(self, by: str) -> None:
        branch = self._place()
        if by == "java":
            self.write(branch)
            return
        user = self._name()
        write(self.handle(branch), [self._flush()], user, None)
        # Its ledger of commits, which holds expiry back as any consumer does, in both.
        for name in (f"consumer-{user}", f"sink-{user}"):
            (self.home(branch) / "consumer" / name).unlink(missing_ok=True)

    def _compact(self, by: str) -> None:
        branch, full = self._place(), self._random.random() < 0.5
        if by == "java" or not self.kind.compacted_here:
            self.java.call("compact", full=full, options={}, **_place_of(branch))
        else:
            compact(self.handle(branch), full=full)

    def _overwrite(self, by: str) -> None:
        self.java.call("overwrite", flushes=[self._flush()], assigns=True)

    def _tag(self, by: str) -> None:
        ids, tags, what = self.ids(), self.tags(), self._random.choice(["create", "create", "delete", "rename"])
        if what == "create" and ids:
            name, snapshot = self._name(), self._random.choice(ids)
            if by == "java":
                self.java.call("tag", name=name, snapshot=snapshot)
            else:
                create_tag(self.handle(), name, snapshot=snapshot)
        elif what == "rename" and tags:
            name, new = self._random.choice(tags), self._name()
            if by == "java":
                self.java.call("tags", operation="rename", name=name, new_name=new)
            else:
                rename_tag(self.handle(), name, new)
        elif what == "delete" and tags:
            # Java deletes files that a branch of the tag needs, and those of long-lived changelogs.
            if by == "java" and not self.branches() and not self.kind.is_long_lived:
                self.java.call("tags", operation="delete", name=self._random.choice(tags))
            else:
                delete_tag(self.handle(), self._random.choice(tags))

    def _replace_tag(self, by: str) -> None:
        if (tags := self.tags()) and (ids := self.ids()):
            name, snapshot = self._random.choice(tags), self._random.choice(ids)
            if by == "java":
                self.java.call("tags", operation="replace", name=name, snapshot=snapshot)
            else:
                replace_tag(self.handle(), name, snapshot=snapshot)

    def _branch(self, by: str) -> None:
        tags, branches = self.tags(), self.branches()
        if len(branches) > 1 or (branches and not tags):
            name = self._random.choice(branches)
            needs = needed_by_roots(self.path).items()
            self.orphaned |= {
                each for root, names in needs if root.startswith(f"branch/branch-{name}/") for each in names
            }
            if by == "java":
                self.java.call("delete_branch", name=name)
            else:
                delete_branch(self.handle(), name)
        elif tags:
            name, tag = self._name(), self._random.choice(tags)
            tagged = json.loads((self.path / "tag" / f"tag-{tag}").read_text())["id"]
            # Java 1.4 cannot if the snapshot has expired.
            if by == "java" and tagged in self.ids():
                self.java.call("branch", name=name, tag=tag)
            else:
                create_branch(self.handle(), name, tag=tag)
            if (producer := self._random.choice(["none", "input"])) == "input" and self.kind.may_produce:
                self.java.call("alter", branch=name, changes=[["set", "changelog-producer", producer]])

    def _branch_tag(self, by: str) -> None:
        for branch in self.branches()[:1]:
            self.tag_branch(branch)

    def _consumer(self, by: str) -> None:
        self.save_consumer(by, self._place())

    def _forget_consumers(self, by: str) -> None:
        for each in self.path.rglob("consumer/consumer-*"):
            each.unlink()

    def _analyze(self, by: str) -> None:
        if self.ids():
            self.java.call("analyze")

    def _roll_back(self, by: str) -> None:
        if not (ids := self.ids()[-3:]):
            return
        snapshot = self._random.choice(ids)
        if by == "java":
            self.java.call("rollback", snapshot=snapshot)
        elif self._random.random() < 0.5 and self.kind.may_return:
            self.commit_again(snapshot, with_tag=self._random.random() < 0.5)
        else:
            rollback(self.handle(), snapshot_id=snapshot)

    def _drop_partition(self, by: str) -> None:
        if self.kind.is_partitioned and self.ids():
            spec = {"p": str(self._random.choice(PARTITIONS))}
            if by == "java":
                self.java.call("drop_partitions", partitions=[spec])
            else:
                drop_partitions(self.handle(), spec)

    def _expire_partitions(self, by: str) -> None:
        if self.kind.is_partitioned and self.ids():
            if by == "java":
                self.java.call("expire_partitions", options=OLD_PARTITIONS)
            else:
                maintain(self.handle(**OLD_PARTITIONS), replace(KEEP_ALL, expire_partitions=True))


_STEPS = {
    "write": 30, "compact": 12, "overwrite": 4, "tag": 12, "replace_tag": 1, "branch": 4, "branch_tag": 1,
    "consumer": 3, "forget_consumers": 3, "analyze": 3, "roll_back": 2, "drop_partition": 2, "expire_partitions": 2,
}  # fmt: skip
"""What may happen, and how often."""


def _place_of(branch: str) -> dict[str, str]:
    return {} if branch == MAIN else {"branch": branch}


def _rows(read: Any, plan: Any) -> Iterator[list[Any]]:
    table = read.to_arrow(plan.splits())
    columns = [table[name].to_pylist() for name in table.column_names]
    return map(list, zip(*columns, strict=True))  # type: ignore[arg-type]


def _sorted(rows: Any) -> list[str]:
    return sorted(map(repr, rows))
