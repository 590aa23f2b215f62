"""A table that a seed lets live: real maintenance, others at every request of it, and a store with faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from typing import Any

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.errors import MaintenanceConflictError, PaimonStreamError, StoreError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed
from support.groups.invariants import BrokenLawError
from support.maintenance.actors import WEIGHTS, Actors, Steps
from support.maintenance.java_maintainer import JavaMaintainer, JavaProcess
from support.maintenance.laws import TableLaws
from support.maintenance.memory_store import MemoryFileIO, MemoryObjects, always
from support.maintenance.operations import Operation, drawn_operation
from support.maintenance.readers import Readers
from support.maintenance.simulated_process import simulated
from support.maintenance.simulated_table import ROOT, SimulatedTable, is_root, number_of, parsed
from support.maintenance.weather import Weather

DAY = 86_400


class World:
    """One history.

    Args:
        seed: Decides everything.
        weather: How bad it is.
        options: Of the table; None: drawn.

    Attributes:
        laws: The invariants.
    """

    def __init__(self, seed: int, weather: Weather | None = None, options: dict[str, str] | None = None) -> None:
        self.rng = random.Random(seed)
        self.weather = weather or Weather()
        self.objects = MemoryObjects()
        self.options = self.rng.choice(self.weather.kinds) if options is None else options
        self.table = SimulatedTable(self.objects, self.options)
        self.laws = TableLaws(self.objects, self.table)
        self.actors = Actors(self.rng, self.objects, self.table, self.laws)
        self.actors.deletes_first = self.weather.java > 0
        self.depth = 0
        self._least: list[int] = []
        self._active: list[Steps] = []
        # Paths, and whether an operation of a user deletes them.
        self._late: list[tuple[str, bool]] = []
        self._is_calm = False
        self._operations: list[Operation | None] = []
        self.skew = 0.0
        self.compares = self.rng.random() < 0.5
        self.readers = Readers(self.actors, self.compares, self.weather.faults, self.is_blind, lambda: not self.checked)
        self.position: int | None = None
        # Runs that have looked for consumers for the last time: they do not see one that comes later.
        self.checked: set[int] = set()
        self._checking: set[int] = set()
        # Consumers that they have looked at for the last time, or whose marks they have read back.
        self._blind: dict[int, set[str]] = {}
        self._dead: set[int] = set()
        self._abandoned: set[str] = set()

    def run(self) -> None:
        """Let the table live, then let it come to rest."""
        for _ in range(self.rng.randint(1, self.weather.rounds)):
            for _ in range(self.rng.randint(1, 5)):
                self.finish(self._new_actor())
            self._turn(3)
            if self.weather.operations and self.rng.random() < 0.3:
                self.operate(drawn_operation(self.actors))
            if self.rng.random() < 0.3:
                self._drain()
                self.objects.now += self.rng.uniform(1, 2) * DAY
            self._protect()
            self.maintain(self._policy(), self._any_branch())
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """Without faults and others, everything goes that nothing needs."""
        self._is_calm = True
        self._drain()
        self._protect(None)
        self.objects.now += 2 * DAY
        # What Java has expired by half stays damaged, and maintenance refused, until nothing keeps it any more.
        most = 1 if self.laws.doomed else 2
        if self.laws.doomed:
            self._end_consumers()
        policy = MaintenancePolicy(min_snapshots=1, max_snapshots=most, orphan_age=DAY)
        self.maintain(policy)
        self.laws.seen["rest"] += 1
        if self.rng.random() < self.weather.twice:
            report = self.maintain(policy)
            if report is None or not report.plan.is_empty:
                raise BrokenLawError(f"M9: a second run deletes {report and report.plan.to_value()}")
        self.check_rest(most)

    def _end_consumers(self) -> None:
        self.laws.held.clear()
        for name in self.objects.names(f"{ROOT}/consumer"):
            if name.startswith("consumer-"):
                self.actors.remove(f"{ROOT}/consumer/{name}")

    def check_rest(self, most: int) -> None:
        """Check that only what is needed is left, and no plan."""
        left = {
            path
            for path in self.objects.paths()
            if path.removeprefix(f"{ROOT}/").partition("/")[0] in ("bucket-0", "manifest", "index", "statistics")
        }
        if useless := left - self.laws.needed() - self._before_changes():
            raise BrokenLawError(f"M7: {sorted(useless)} is left")
        self.check_kept(most)
        changelogs = (f"{ROOT}/changelog/changelog-{number}" for number in self.laws.changelog_ids())
        if lost := [each for each in changelogs if not self.laws.is_complete(each)]:
            raise BrokenLawError(f"M2: {lost} are left without their files")
        if any(name.startswith("maintenance-") for name in self.objects.names(f"{ROOT}/consumer")):
            raise BrokenLawError("M7: a plan is left")

    def _before_changes(self) -> set[str]:
        """What snapshots but the first had before their changes: more than the one before, if they do not follow it."""
        found: set[str] = set()
        for name in ("main", *self.actors.branches):
            for number in self.actors.ids(name)[1:]:
                data = self.objects.get(f"{self.actors.home(name)}/snapshot/snapshot-{number}")
                found |= self.table.paths_of_base(parsed(data or b""))
        return found

    def check_kept(self, most: int) -> None:
        """Check that only the snapshots are left that the rules and consumers keep."""
        ids, first = self.laws.ids(f"{ROOT}/snapshot"), self._first_kept()
        if len([each for each in ids if each < first]) > most - len([each for each in ids if each >= first]) > 0:
            raise BrokenLawError(f"M7: snapshots {ids} are left, kept are those from {first}")

    def _first_kept(self) -> int:
        paths = [f"{ROOT}/consumer/{each}" for each in self.objects.names(f"{ROOT}/consumer")]
        saved = [parsed(self.objects.get(path) or b"") for path in paths if "/consumer-" in path]
        return min((each["nextSnapshot"] - 1 for each in saved), default=2**62)

    def is_blind(self, path: str) -> bool:
        """Whether a run has looked at a consumer for the last time; it looks once more after it has marked one.

        In a store that does not compare, what is saved now is lost if the consumer expires.
        """
        return any(path in each for each in self._blind.values())

    # ---- Maintenance

    def maintain(self, policy: MaintenancePolicy, branch: str = "main") -> Any:
        """A run of maintenance; None if it was killed, or gave up for a reason that passes."""
        handle, snapshots = self.handle(branch), f"{self.actors.home(branch)}/snapshot"
        before = len(self.laws.visible_ids(snapshots))
        given_up = {path for path, _ in self._late}
        # A run inside of another one may keep fewer snapshots.
        self._least = [*(min(each, policy.min_snapshots or 10) for each in self._least), policy.min_snapshots or 10]
        self._begin(None)
        try:
            report = maintain(handle, policy)
        except Killed:
            self.laws.seen["killed"] += 1
            self._abandon_changelogs()
            return None
        except (MaintenanceConflictError, StoreError) as error:
            self._abandon_changelogs()
            if self._is_calm:
                raise BrokenLawError(f"M7: {error!r} at rest") from error
            self.laws.seen[type(error).__name__] += 1
            return None
        except PaimonStreamError as error:
            damage = self.laws.pending or self.laws.seen["java was killed"] or not self.laws.visible_ids(snapshots)
            if not self._is_calm and damage:
                # A tag that came too late, whose writer has not found that out yet, what Java has expired by half, or
                # a branch that was deleted.
                self.laws.seen["damaged for a moment"] += 1
                return None
            raise BrokenLawError(f"M7: {error!r}") from error
        finally:
            self._end()
            least = min(self._least.pop(), before)
            # Deletes that the call around this run has given up before it began are not this run's.
            of_others = given_up & self._do_late()
            self._settle_changelogs()
        left = self.laws.visible_ids(snapshots)
        taken = sum(path.startswith(f"{snapshots}/snapshot-") for path in of_others)
        if len(left) + taken < least and (left or branch == "main"):
            raise BrokenLawError(f"M6: {left} is left of {before} snapshots")
        kept = report.plan.kept_changelog_ids if branch == "main" and least else ()
        if max(kept, default=0) > max(self.laws.changelog_ids(), default=0):
            raise BrokenLawError(f"M2: changelogs {kept} are not kept")
        self.laws.seen["run" if branch == "main" else "run of a branch"] += 1
        self.laws.seen["expired"] += len(report.plan.snapshot_ids)
        return report

    def operate(self, operation: Operation | None) -> None:
        """A user calls the library."""
        if operation is None:
            return
        if operation.rolls_back:
            self.laws.seen["two rollbacks at once"] += self.laws.rollbacks > 0
            self._least = [0 for _ in self._least]
            self._protect(None)
            self.laws.rollbacks += 1
        self._begin(operation)
        operation.rolled_back, is_done, before = self.laws.rolled_back, False, self._snapshots()
        try:
            operation.call(self.handle())
            is_done = True
        except Killed:
            self.laws.seen["killed"] += 1
        except PaimonStreamError as error:
            self.refuse(operation, error)
        finally:
            self._end()
            self.laws.rollbacks -= operation.rolls_back
            self.laws.rolled_back += operation.rolls_back
            self._do_late()
        # A commit that came meanwhile may have the id of a snapshot that was deleted.
        if operation.rolls_back and not is_done and self._has_new_snapshots(before):
            self.laws.allow_gaps()
        self.laws.seen[operation.name] += is_done
        self._settle(operation, is_done)

    def _snapshots(self) -> dict[int, bytes | None]:
        return {each: self.objects.get(f"{ROOT}/snapshot/snapshot-{each}") for each in self.actors.ids()}

    def _has_new_snapshots(self, before: dict[int, bytes | None]) -> bool:
        """Whether there are commits since, and not only a snapshot that was restored."""
        latest = max(before, default=0)
        return any(each > latest or data != before.get(each, data) for each, data in self._snapshots().items())

    def refuse(self, operation: Operation, error: PaimonStreamError) -> None:
        """The library refuses to do something."""
        self.laws.seen[f"{operation.name}: {type(error).__name__}"] += 1

    def _begin(self, operation: Operation | None) -> None:
        self.depth += 1
        self._operations.append(operation)
        self.skew = 0.0 if self._is_calm else self.rng.uniform(-1, 1) * self.weather.skew

    def _end(self) -> None:
        for each in (self.checked, self._checking, self._dead):
            each.discard(self.depth)
        self._blind.pop(self.depth, None)
        self.depth -= 1
        self._operations.pop()

    def _abandon_changelogs(self) -> None:
        """A run may have ended before it could find out that another one has expired what it keeps."""
        self._abandoned |= {each for each in self.laws.pending if "/changelog/" in each}

    def _settle_changelogs(self) -> None:
        """The changelogs that a run has kept count from now on."""
        earliest = int(self.objects.get(f"{ROOT}/changelog/EARLIEST") or 0)
        for path in [each for each in self.laws.pending if "/changelog/" in each]:
            has_expired = path in self._abandoned and number_of(path) < earliest and not self.laws.is_complete(path)
            if path not in self.objects or (has_expired and self.depth == 0):
                # The next run deletes it if it is there.
                self.laws.pending.discard(path)
            elif self.laws.is_complete(path) or self.depth == 0:
                self.laws.establish(path)

    def _settle(self, operation: Operation, is_done: bool) -> None:
        """What an operation has written counts from now on. What it has not finished its user deletes."""
        if operation.branch is not None and not is_done:
            self.actors.drop_branch(operation.branch)
        for path in dict.fromkeys(operation.written):
            if path in self.laws.pending and path in self.objects:
                if "/tag/" in path and not is_done and not self.laws.is_complete(path):
                    self.actors.remove(path)
                else:
                    self.laws.establish(path)
            self.laws.pending.discard(path)
        names = [each.removeprefix("branch-") for each in self.objects.names(f"{ROOT}/branch")]
        self.actors.branches = [each for each in names if self.actors.ids(each)]

    def _protect(self, share: float | None = 0.2) -> None:
        """A position without a file: named to each run from now on, or not any more."""
        if share is None:
            self.laws.held.pop("position", None)
            self.position = None
        elif self.position is None and self.rng.random() < share:
            ids = self.laws.visible_ids(f"{ROOT}/snapshot")
            if ids:
                self.position = self.rng.choice(ids)
                self.laws.held["position"] = self.position - 1 if self.position - 1 in ids else self.position

    def _any_branch(self) -> str:
        return self.rng.choice(self.actors.branches or ["main"]) if self.rng.random() < 0.3 else "main"

    def handle(self, branch: str = "main") -> Any:
        """A handle of a process that begins now."""
        handle = self.table.handle(MemoryFileIO(self.objects, self._mortal_request, self.compares), branch)
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        return handle

    def _policy(self) -> MaintenancePolicy:
        rng = self.rng
        least = rng.choice([1, 1, 2])
        return MaintenancePolicy(
            min_snapshots=least,
            max_snapshots=rng.choice([None, least, least + 2]),
            snapshot_age=rng.choice([None, 0, 60, 600]),
            expire_limit=rng.choice([None, None, 2]),
            orphan_age=rng.choice([None, DAY + 2 * self.weather.skew]),
            protect=() if self.position is None else (self.position,),
        )

    def _mortal_request(self, *request: Any) -> Any:
        """A request of a process that makes no other one once it was killed, not even to tidy up."""
        if self.depth in self._dead:
            raise Killed
        try:
            return self._request(*request)
        except Killed:
            self._dead.add(self.depth)
            raise

    def _request(self, kind: str, path: str, answer: Callable[[], Any], is_met: Callable[[], bool] = always) -> Any:
        """A request of maintenance."""
        rng, weather = self.rng, self.weather
        if kind == "list" and path.endswith("/consumer") and self.depth in self._checking:
            self.checked.add(self.depth)
        if self._is_calm:
            return self._answer(kind, path, answer, is_met)
        if rng.random() < weather.others:
            self._turn(rng.randint(1, 3))
        if self.depth < 2 and rng.random() < weather.nested:
            self.laws.seen["nested"] += 1
            self.maintain(self._policy(), self._any_branch())
        if weather.java and rng.random() < weather.java:
            self._expire_like_java()
        if self.depth < 2 and rng.random() < weather.operations:
            self.operate(drawn_operation(self.actors))
        if rng.random() < weather.kills:
            if rng.random() < 0.5:
                self._answer(kind, path, answer, is_met)
            raise Killed
        if rng.random() < weather.faults:
            self.laws.seen["faults"] += 1
            outcome = rng.random()
            if outcome < 0.4:
                self._answer(kind, path, answer, is_met)
            elif outcome < 0.6 and kind == "delete":
                self._late.append((path, self._operations[-1] is not None))
            raise ConnectionResetError(104, "connection reset by peer")
        found = self._answer(kind, path, answer, is_met)
        if kind == "list" and path.endswith("/snapshot") and rng.random() < weather.stale:
            return self._stale(path, found)
        return found

    def _expire_like_java(self) -> None:
        """Java expires main, at once, or is killed meanwhile.

        Whoever makes a tag has to do that at another time; and Java keeps nothing below what a consumer reads next.
        """
        laws, ids = self.laws, self.actors.ids()
        if laws.pending or self.actors.branches or not ids:
            return
        self._protect(None)
        for name in laws.held:
            laws.held[name] = parsed(self.objects.get(f"{ROOT}/consumer/consumer-{name}") or b"")["nextSnapshot"]
        self._least = [1 for _ in self._least]
        # Java does not see what a run of ours is about to delete.
        hint = int(self.objects.get(f"{ROOT}/snapshot/EARLIEST") or 0)
        for number in [each for each in ids if each < hint <= ids[-1]]:
            laws.dooms(f"{ROOT}/snapshot/snapshot-{number}")
        java = JavaMaintainer(JavaProcess(self.actors, 0.02), self.table, laws)
        try:
            java.expire(MaintenancePolicy(min_snapshots=self.rng.choice([1, 2, 3])))
            laws.seen["java"] += 1
        except Killed:
            laws.seen["java was killed"] += 1

    def _stale(self, directory: str, found: list[Any]) -> list[Any]:
        """A listing from before the newest snapshot, if a hint shows that there is one."""
        newest = f"snapshot-{(self.objects.get(f'{directory}/LATEST') or b'').decode()}"
        is_newest = newest == f"snapshot-{max(self.laws.ids(directory), default=0)}"
        if self._operations[-1] is not None or len(found) < 5 or not is_newest:
            return found
        self.laws.seen["stale"] += 1
        return [each for each in found if not each.path.endswith(f"/{newest}")]

    def _answer(self, kind: str, path: str, answer: Callable[[], Any], is_met: Callable[[], bool] = always) -> Any:
        operation = self._operations[-1] if self._operations else None
        if kind not in ("write", "delete"):
            found = answer()
            if kind == "read" and self.depth in self._checking and "/consumer/consumer-" in path:
                self._blind.setdefault(self.depth, set()).add(path)
            return found
        if not is_met():
            return False
        rolls_back, self.laws.is_rolling_back = self.laws.is_rolling_back, operation is not None
        try:
            if kind == "delete":
                # What a user has deleted may be written again at once, so the request before has taken effect by now.
                self._late = [each for each in self._late if each != (path, True)]
                self.laws.before_delete(path)
                answer()
                return self.laws.deleted(path)
            self.laws.before_write(path)
            if operation is not None and is_root(path):
                operation.written.append(path)
                self.laws.pending.add(path)
            elif self._operations and "/changelog/changelog-" in path:
                # It is deleted again if another run has deleted its files just before.
                self.laws.pending.add(path)
            answer()
            self._blind.get(self.depth, set()).discard(path)
            self.table.learn(path)
            self.laws.written(path)
            if operation and "/snapshot/snapshot-" in path and self.laws.rolled_back > operation.rolled_back:
                self.laws.allow_gaps()
        finally:
            self.laws.is_rolling_back = rolls_back
        return True

    def _do_late(self) -> set[str]:
        """Deletes that were given up take effect, at the end of the run at the latest; return what has gone."""
        late, self._late = self._late, []
        gone = set()
        for path, is_of_user in late:
            if path in self.objects and "/consumer/" not in path and "EARLIEST" not in path:
                self.laws.is_rolling_back = is_of_user
                self.actors.remove(path)
                self.laws.is_rolling_back = False
                gone.add(path)
        return gone

    # ---- The others

    def _turn(self, steps: int) -> None:
        """Others do something."""
        for _ in range(steps):
            self.objects.now += self.rng.random() * 30
            if not self._active or self.rng.random() < 0.15:
                self._active.append(self._new_actor())
            actor = self.rng.choice(self._active)
            if next(actor, self) is self:
                self._active.remove(actor)

    def finish(self, actor: Steps) -> None:
        """Let an actor do all it has to do."""
        for _ in actor:
            self.objects.now += self.rng.random() * 30

    def end(self) -> None:
        """End what the others have begun."""
        for each in self._active:
            if isinstance(each, Generator):
                each.close()

    def _drain(self) -> None:
        for actor in self._active:
            self.finish(actor)
        self._active = []

    def _new_actor(self) -> Iterator[None]:
        actors, branches = self.actors, ["main", "main", "main", *self.actors.branches]
        branch = self.rng.choice(branches)
        what = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if what.isupper():
            return actors.commit(what, branch)
        if what == "write":
            return actors.write()
        if what in ("tag", "untag"):
            return getattr(actors, what)(branch)  # type: ignore[no-any-return]
        if what == "read":
            return self.readers.steps()
        if what == "consume":
            return actors.consume(lambda: not self.checked)
        if what == "progress":
            return actors.progress(lambda path: self.compares or not self.is_blind(path))
        return getattr(actors, what)()  # type: ignore[no-any-return]


def live(seed: int, weather: Weather | None = None) -> World:
    """A whole history.

    Raises:
        BrokenLawError: It breaks an invariant; it names the seed.
    """
    world = World(seed, weather)
    with simulated(world):
        try:
            world.run()
        except BrokenLawError as error:
            raise BrokenLawError(f"seed {seed}: {error}") from error
        finally:
            world.end()
    return world
