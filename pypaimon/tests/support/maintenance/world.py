"""A table that a seed lets live: real maintenance, others at every request of it, and a store with faults."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.errors import MaintenanceConflictError, PaimonStreamError, StoreError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.maintenance import plan_execution
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from pypaimon.streaming.metadata import manifest_tables
from pypaimon.streaming.metadata.manifest_tables import Parser
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed
from support.groups.invariants import BrokenLawError
from support.maintenance.actors import Actors, Steps
from support.maintenance.laws import TableLaws
from support.maintenance.memory_store import MemoryFileIO, MemoryObjects
from support.maintenance.simulated_table import ROOT, SimulatedTable, parsed

DAY = 86_400
_MODULE = importlib.import_module("pypaimon.streaming.maintenance.maintain")
_KEPT = {"snapshot__num_retained__min": "1", "changelog__num_retained__min": "1"}
KINDS: tuple[dict[str, str], ...] = (
    {"changelog_producer": "input"},
    {},
    {"changelog_producer": "input", "changelog__num_retained__max": "8", "snapshot__num_retained__max": "3", **_KEPT},
    {"changelog__num_retained__max": "6", "snapshot__num_retained__max": "2", **_KEPT},
    {"changelog_producer": "input", "consumer__expiration_time": "1 d"},
)


@dataclass(frozen=True)
class Weather:
    """How bad the world is.

    Attributes:
        faults: Share of requests of maintenance that fail, or whose answers are lost.
        kills: Share of requests at which it is killed.
        others: Share of requests before which others do something.
        nested: Share of requests before which another run begins.
        rounds: The most runs of a history before it comes to rest.
        twice: Share of histories in which the run at rest is repeated.
    """

    faults: float = 0.02
    kills: float = 0.008
    others: float = 0.08
    nested: float = 0.008
    rounds: int = 2
    twice: float = 0.25


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
        self.options = self.rng.choice(KINDS) if options is None else options
        self.table = SimulatedTable(self.objects, self.options)
        self.laws = TableLaws(self.objects, self.table)
        self.actors = Actors(self.rng, self.objects, self.table, self.laws)
        self.depth = 0
        self._least: list[int] = []
        self._active: list[Steps] = []
        self._late: list[str] = []
        self._is_calm = False
        # Runs that have looked for consumers for the last time: they do not see one that comes later.
        self.checked: set[int] = set()
        self._checking: set[int] = set()

    def run(self) -> None:
        """Let the table live, then let it come to rest."""
        for _ in range(self.rng.randint(1, self.weather.rounds)):
            for _ in range(self.rng.randint(1, 5)):
                self.finish(self._new_actor())
            self._turn(3)
            if self.rng.random() < 0.15:
                self._drain()
                self.actors.roll_back()
            if self.rng.random() < 0.3:
                self._drain()
                self.objects.now += self.rng.uniform(1, 2) * DAY
            self.maintain(self._policy())
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """Without faults and others, everything goes that nothing needs."""
        self._is_calm = True
        self._drain()
        self.objects.now += 2 * DAY
        policy = MaintenancePolicy(min_snapshots=1, max_snapshots=2, orphan_age=DAY)
        self.maintain(policy)
        self.laws.seen["rest"] += 1
        if self.rng.random() < self.weather.twice:
            report = self.maintain(policy)
            if report is None or not report.plan.is_empty:
                raise BrokenLawError(f"M9: a second run deletes {report and report.plan.to_value()}")
        self.check_rest(2)

    def check_rest(self, most: int) -> None:
        """Check that only what is needed is left, and no plan."""
        left = {
            path
            for path in self.objects.paths()
            if path.removeprefix(f"{ROOT}/").partition("/")[0] in ("bucket-0", "manifest", "index", "statistics")
        }
        if left - self.laws.needed():
            raise BrokenLawError(f"M7: {sorted(left - self.laws.needed())} is left")
        self.check_kept(most)
        if any(name.startswith("maintenance-") for name in self.objects.names(f"{ROOT}/consumer")):
            raise BrokenLawError("M7: a plan is left")

    def check_kept(self, most: int) -> None:
        """Check that only the snapshots are left that the rules and consumers keep."""
        ids, first = self.laws.ids(f"{ROOT}/snapshot"), self._first_kept()
        if len([each for each in ids if each < first]) > most - len([each for each in ids if each >= first]) > 0:
            raise BrokenLawError(f"M7: snapshots {ids} are left, kept are those from {first}")

    def _first_kept(self) -> int:
        paths = [f"{ROOT}/consumer/{each}" for each in self.objects.names(f"{ROOT}/consumer")]
        saved = [parsed(self.objects.get(path) or b"") for path in paths if "/consumer-" in path]
        return min((each["nextSnapshot"] - 1 for each in saved), default=2**62)

    # ---- Maintenance

    def maintain(self, policy: MaintenancePolicy) -> Any:
        """A run of maintenance; None if it was killed, or gave up for a reason that passes."""
        handle = self.handle()
        before = len(self.laws.visible_ids(f"{ROOT}/snapshot"))
        # A run inside of another one may keep fewer snapshots.
        self._least = [*(min(each, policy.min_snapshots or 10) for each in self._least), policy.min_snapshots or 10]
        self.depth += 1
        try:
            report = maintain(handle, policy)
        except Killed:
            self.laws.seen["killed"] += 1
            return None
        except (MaintenanceConflictError, StoreError) as error:
            if self._is_calm:
                raise BrokenLawError(f"M7: {error!r} at rest") from error
            self.laws.seen[type(error).__name__] += 1
            return None
        except PaimonStreamError as error:
            if self.laws.pending and not self._is_calm:
                # A tag that came too late, whose writer has not found that out yet.
                self.laws.seen["damaged for a moment"] += 1
                return None
            raise BrokenLawError(f"M7: {error!r}") from error
        finally:
            self.checked.discard(self.depth)
            self._checking.discard(self.depth)
            self.depth -= 1
            least = min(self._least.pop(), before)
            self._do_late()
        if len(self.laws.visible_ids(f"{ROOT}/snapshot")) < least:
            raise BrokenLawError(f"M6: {self.laws.ids(f'{ROOT}/snapshot')} is left of {before} snapshots")
        self.laws.seen["run"] += 1
        self.laws.seen["expired"] += len(report.plan.snapshot_ids)
        return report

    def handle(self, branch: str = "main") -> Any:
        """A handle of a process that begins now."""
        handle = self.table.handle(MemoryFileIO(self.objects, self._request), branch)
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
            orphan_age=rng.choice([None, DAY]),
        )

    def _request(self, kind: str, path: str, answer: Callable[[], Any]) -> Any:
        """A request of maintenance."""
        rng, weather = self.rng, self.weather
        if kind == "list" and path.endswith("/consumer") and self.depth in self._checking:
            self.checked.add(self.depth)
        if self._is_calm:
            return self._answer(kind, path, answer)
        if rng.random() < weather.others:
            self._turn(rng.randint(1, 3))
        if self.depth < 2 and rng.random() < weather.nested:
            self.laws.seen["nested"] += 1
            self.maintain(self._policy())
        if rng.random() < weather.kills:
            if rng.random() < 0.5:
                self._answer(kind, path, answer)
            raise Killed
        if rng.random() < weather.faults:
            self.laws.seen["faults"] += 1
            outcome = rng.random()
            if outcome < 0.4:
                self._answer(kind, path, answer)
            elif outcome < 0.6 and kind == "delete":
                self._late.append(path)
            raise ConnectionResetError(104, "connection reset by peer")
        return self._answer(kind, path, answer)

    def _answer(self, kind: str, path: str, answer: Callable[[], Any]) -> Any:
        if kind == "write":
            self.laws.before_write(path)
            answer()
            return self.laws.written(path)
        if kind == "delete":
            self.laws.before_delete(path)
            answer()
            return self.laws.deleted(path)
        return answer()

    def _do_late(self) -> None:
        """Deletes that were given up take effect, at the end of the run at the latest."""
        late, self._late = self._late, []
        for path in late:
            if path in self.objects and "/consumer/" not in path and "EARLIEST" not in path:
                self.actors.remove(path)

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

    def _drain(self) -> None:
        for actor in self._active:
            self.finish(actor)
        self._active = []

    def _new_actor(self) -> Iterator[None]:
        actors, branches = self.actors, ["main", "main", "main", *self.actors.branches]
        branch = self.rng.choice(branches)
        what = self.rng.choices(
            ["APPEND", "COMPACT", "OVERWRITE", "tag", "untag", "branch", "unbranch", "consume", "progress"],
            [10, 4, 1, 2, 0.7, 0.7, 0.3, 1, 2],
        )[0]
        if what.isupper():
            return actors.commit(what, branch)
        if what in ("tag", "untag"):
            return getattr(actors, what)(branch)  # type: ignore[no-any-return]
        if what == "consume":
            return actors.consume(lambda: not self.checked)
        return getattr(actors, what)()  # type: ignore[no-any-return]


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Requests are made at once, on the caller's thread, and the time of maintenance is the world's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_tables, "_together", _DECODE)
        patch.setattr(IOPool, "submit", lambda _, function, *args: _Answer(function, args))
        patch.setattr(IOPool, "result", lambda _, future: future.result())
        patch.setattr(_MODULE, "time", SimpleNamespace(time=lambda: world.objects.now))
        check = PlanExecution._check_unchanged

        def check_unchanged(run: Any, *args: Any) -> None:
            world._checking.add(world.depth)
            check(run, *args)

        patch.setattr(PlanExecution, "_check_unchanged", check_unchanged)
        counter = iter(range(1_000_000))
        patch.setattr(plan_execution, "uuid4", lambda: next(counter))
        yield


class _Decoded:
    """Tables of manifests that were decoded before: runs and seeds decode the same ones again and again."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, str], pa.Table] = {}

    def __call__(self, files: Sequence[bytes], parsers: Sequence[Parser], *rest: Any) -> list[pa.Table]:
        keys = [(data, len(each.columns), each.schema.names[0]) for data, each in zip(files, parsers, strict=True)]
        known = self._known
        new = [index for index, key in enumerate(keys) if key not in known]
        if new:
            if len(known) > _DECODED:
                known.clear()
                new = [*range(len(files))]
            found = _TOGETHER([files[index] for index in new], [parsers[index] for index in new], *rest)
            known.update(zip((keys[index] for index in new), found, strict=True))
        return [known[key] for key in keys]


_DECODED = 4000
"""The most tables that are kept."""
_TOGETHER = manifest_tables._together
_DECODE = _Decoded()


class _Answer:
    """The outcome of a request that was made at once."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._error: Exception | None = None
        self._value: Any = None
        try:
            self._value = function(*args)
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits
            self._error = error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """It is too late."""


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
    return world
