"""A group of real members in a simulated world, where a seed decides how bad time, store and scheduler are."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import ConsumerConflictError, StoreError
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_files import GroupState, GroupTerms, MemberRecord, SlotProgress
from pypaimon.streaming.groups.group_requests import (
    CheckStart,
    CreateFile,
    DeleteFiles,
    FindStart,
    ListNames,
    Pause,
    ReadFiles,
    ReadPin,
    ReportDeleted,
    Request,
    RetentionPin,
    WritePin,
)
from pypaimon.streaming.groups.group_view import GroupTimes
from pypaimon.streaming.groups.member import GroupMember
from pypaimon.streaming.model.position import Position
from support.groups.invariants import BrokenLawError, GroupLaws

TABLE = "t"
SESSION = 8.0
"""Seconds of a session. Everything else is proportional to it."""
LONG = 4
"""How many times as long a long session is."""


@dataclass(frozen=True)
class Weather:
    """How bad the world is.

    Attributes:
        faults: Share of requests that fail or whose answers are lost.
        slow: Share of requests that take up to a session.
        pauses: Processes are interrupted between any two of their instructions.
        disturbances: Kills, joins, ends, pauses of processes and outages of their store, per session.
        named: Members have names, under which they are started again.
        barriers: Snapshots between two barriers; 0: there are none.
        mixed: Some members have a session that is four times as long.
    """

    slots: int = 4
    faults: float = 0.08
    slow: float = 0.03
    pauses: bool = True
    disturbances: float = 0.7
    named: bool = False
    barriers: int = 0
    sessions: float = 10
    mixed: bool = False
    kinds: tuple[str, ...] = ("kill", "kill", "join", "join", "leave", "freeze", "freeze", "cut", "cut")


class World:
    """Virtual time, a store in memory, a table that grows, and processes.

    Attributes:
        now: Seconds.
        requests: Number of files that were asked for, by kind of request.
    """

    def __init__(self, seed: int, weather: Weather) -> None:
        self.rng = random.Random(seed)
        self.weather = weather
        self.now = 0.0
        self.requests: Counter[type] = Counter()
        self.is_calm = False
        self.latest, self.earliest = 3, 1
        barriers = frozenset(range(weather.barriers, 2000, weather.barriers)) if weather.barriers else frozenset[int]()
        self.barriers = barriers
        self.laws = GroupLaws(weather.slots, barriers, one_reader=not weather.pauses)
        self.files: dict[str, tuple[bytes, float]] = {}
        self.pin: RetentionPin | None = None
        self.processes: list[Process] = []
        self._writes = 0
        self._begun = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))

    def draw(self) -> str:
        """Text that no other call returns."""
        self._count += 1
        return f"{self._count:08x}"

    def run(self) -> None:
        """One history: bad weather, then calm, after which the group has to be in order."""
        for index in range(self.rng.randint(1, 3)):
            self.at(self.rng.random() * SESSION / 2, lambda index=index: self.join(str(index)))  # type: ignore[misc]
        storm = SESSION * self.weather.sessions
        for _ in range(int(self.weather.disturbances * self.weather.sessions)):
            self.at(self.rng.uniform(0.5, self.weather.sessions) * SESSION, self._disturb)
        self.at(0, self._grow)
        self.run_until(storm)
        self._calm_down()
        # Silent members have to be missed by members whose clocks are slower. Then slots move one after the other.
        self.run_until(storm + SESSION * 9 * (LONG if self.weather.mixed else 1))
        for _ in range(30):
            if min(self.laws.confirmed) >= self.latest:
                break
            self.run_until(self.now + SESSION)
        self._check_order(self.latest)

    def join(self, name: str) -> None:
        self.processes.append(Process(self, name if self.weather.named else "", len(self.processes), name))
        self.processes[-1].start()

    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.is_over]

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def _grow(self) -> None:
        """Add snapshots, and expire those that the pin does not keep."""
        if self.is_calm:
            return
        self.latest += self.rng.choice((0, 1, 1, 2))
        if self.rng.random() < 0.3:
            kept = self.latest if self.pin is None else min(self.pin.floor, self.latest)
            self.earliest = max(self.earliest, kept)
        self.at(self.now + self.rng.uniform(0.02, 0.2) * SESSION, self._grow)

    def _disturb(self) -> None:
        living = self.living()
        what = self.rng.choice(self.weather.kinds)
        if what == "join" and len(living) < 5:
            self.join(str(self.rng.randint(0, 3)))
        if not living:
            return
        process = self.rng.choice(living)
        duration = SESSION * self.rng.choice((0.1, 0.5, 1, 1.5, 2, 4))
        if what == "kill":
            process.is_over = True
            if self.weather.named and self.rng.random() < 0.8:
                self.at(self.now + self.rng.random() * SESSION, lambda: self.join(process.key))
        elif what == "leave":
            process.member.leave()
            process.wake()
        elif what == "freeze":
            process.frozen_until = self.now + duration
        elif what == "cut":
            process.cut_until = self.now + duration

    def _calm_down(self) -> None:
        self.is_calm = True
        for process in self.living():
            process.cut_until = 0.0
        self.join("9")

    def _check_order(self, reached: int) -> None:
        states = [GroupState.from_json(data) for name, (data, _) in self.files.items() if name.startswith("state-")]
        living = [process.member.id for process in self.living()]
        self.laws.settled(max(states, key=lambda state: state.generation), [id for id in living if id], reached)

    # ---- the store ----

    def latency(self) -> float:
        """Seconds of one way to the store."""
        if not self.is_calm and self.rng.random() < self.weather.slow:
            return self.rng.random() * SESSION
        return self.rng.uniform(0.002, 0.04) * SESSION

    def apply(self, request: Request) -> Any:
        """Carry out a request. A listing begins here and ends with its answer."""
        if isinstance(request, CreateFile):
            return self._create(request.name, request.data)
        if isinstance(request, ReadFiles):
            return [self.files[name][0] if name in self.files else None for name in request.names]
        if isinstance(request, DeleteFiles):
            for name in request.names:
                self.files.pop(name, None)
            return None
        if isinstance(request, ReadPin):
            return self.pin
        if isinstance(request, WritePin):
            return self._write_pin(request)
        if isinstance(request, FindStart):
            return Position(TABLE, self.rng.choice((self.earliest, self.latest + 1)))
        if isinstance(request, CheckStart):
            return self.earliest <= request.position.snapshot <= self.latest + 1
        if isinstance(request, ReportDeleted):
            raise AssertionError("nobody has deleted the group")
        assert isinstance(request, ListNames)
        return dict(self.files)

    def _create(self, name: str, data: bytes) -> bool:
        if name in self.files:
            return self.files[name][0] == data
        self.files[name] = data, self.now
        if name.startswith("member-"):
            self.laws.record_made(MemberRecord.from_json(data))
        elif not self._begun and (state := GroupState.from_json(data)).begun:
            self._begun = True
            self.laws.begins(state.start.snapshot)
        return True

    def _write_pin(self, request: WritePin) -> bool:
        if self.pin != request.found:
            return False
        self._writes += 1
        self.pin = RetentionPin(request.floor, "group:1", self._writes)
        if self._begun:
            self.laws.pin_written(request.floor)
        return True


class WatchedSlots(AssignedSlots):
    """Reports to the invariants what a member believes to be saved."""

    def __init__(self, laws: GroupLaws) -> None:
        super().__init__()
        self._laws = laws

    def saved(self, entries: Any, lease_until: float) -> None:
        self._laws.saves(entries)
        super().saved(entries, lease_until)


class Process:
    """A process: the steps of its member, and a reader with a caller.

    Attributes:
        cut_until: It cannot reach the store until then.
    """

    def __init__(self, world: World, name: str, index: int, key: str) -> None:
        self.world = world
        self.key = key
        self.index = index
        self.is_over = False
        self.frozen_until = 0.0
        self.cut_until = 0.0
        self._rate = world.rng.uniform(0.92, 1.08)
        self._offset = world.rng.random() * 1000
        self._pausing = False
        self._turn = 0
        self._plans: list[tuple[dict[int, int], int, int]] = []
        self.assigned = WatchedSlots(world.laws)
        session = SESSION * (world.rng.choice((1, LONG)) if world.weather.mixed else 1)
        times = GroupTimes(session, SESSION / 1.7)
        clock, draw = self.clock, world.draw
        self.member = GroupMember(name, GroupTerms(world.weather.slots), times, clock, draw, self.assigned)
        self._steps = self.member.run()

    def start(self) -> None:
        self.resume(lambda: next(self._steps))
        self._later(0.1, self._plan)

    def clock(self) -> float:
        return self._offset + self.world.now * self._rate

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Schedule an event in it. If it is suspended then, the event waits; if it is over, the event is dropped."""

        def happen() -> None:
            if self.is_over:
                return
            if self.world.now < self.frozen_until:
                self.at(self.frozen_until, event)
            else:
                event()

        self.world.at(time, happen)

    # ---- the steps of its member ----

    def wake(self) -> None:
        """Have its member look what is due."""
        if self._pausing:
            self._pausing = False
            self._turn += 1
            turn = self._turn
            self.at(self.world.now, lambda: self._resume_turn(turn, None))

    def resume(self, advance: Callable[[], Request]) -> None:
        """Run the member until its next request."""
        try:
            request = advance()
        except StopIteration:
            self.is_over = True
            return
        except ConsumerConflictError:
            self.world.laws.seen["conflicts"] += 1
            self.is_over = True
            return
        self._turn += 1
        self._ask(request, self._turn)

    def _resume_turn(self, turn: int, answer: Any) -> None:
        if turn == self._turn:
            self.resume(lambda: self._steps.send(answer))

    def _fail(self, turn: int) -> None:
        if turn == self._turn:
            self.resume(lambda: self._steps.throw(StoreError("the store failed")))

    def _ask(self, request: Request, turn: int) -> None:
        world = self.world
        if isinstance(request, Pause):
            self._pausing = True
            delay = max(0.0, (request.until - self.clock()) / self._rate)
            self.at(world.now + delay, lambda: self._resume_turn(turn, None))
            return
        self._pausing = False
        world.requests[type(request)] += len(request.names) if isinstance(request, ReadFiles) else 1
        arrives = world.now + world.latency()
        answers = arrives + world.latency()
        fate = world.rng.random() / world.weather.faults if not world.is_calm else 9.0
        if world.now < self.cut_until or fate < 0.3:
            self.at(answers, lambda: self._fail(turn))
        elif fate < 0.7:
            world.at(arrives, lambda: self._applied(request))
            self.at(answers, lambda: self._fail(turn))
        elif fate < 1:
            world.at(answers + world.rng.random() * 3 * SESSION, lambda: self._applied(request))
            self.at(answers, lambda: self._fail(turn))
        else:
            world.at(arrives, lambda: self._arrive(request, turn, answers))

    def _applied(self, request: Request) -> None:
        if not isinstance(request, FindStart):
            self.world.apply(request)

    def _arrive(self, request: Request, turn: int, answers: float) -> None:
        answer = self.world.apply(request)
        if isinstance(request, ListNames):
            self.at(answers, lambda: self._resume_turn(turn, self._listed(answer)))
        else:
            self.at(answers, lambda: self._resume_turn(turn, answer))

    def _listed(self, began: dict[str, tuple[bytes, float]]) -> dict[str, float]:
        """A listing takes time: files that are created or deleted meanwhile may be in it or not."""
        ended = self.world.files
        both = began.keys() & ended.keys()
        some = [name for name in sorted(began.keys() ^ ended.keys()) if self.world.rng.random() < 0.5]
        return {name: (began.get(name) or ended[name])[1] for name in [*sorted(both), *some]}

    # ---- its reader ----

    def _later(self, most: float, event: Callable[[], None]) -> None:
        self.at(self.world.now + self.world.rng.random() * most * SESSION, event)

    def _plan(self) -> None:
        """Make the next plan: of the slowest slots, up to the position of the next ones."""
        assigned = self.assigned.readable()
        before = min((position.snapshot for _, position in assigned.values()), default=0)
        slots = {slot: since for slot, (since, position) in assigned.items() if position.snapshot == before}
        ends = [position.snapshot for _, position in assigned.values() if position.snapshot > before]
        ends += [barrier for barrier in self.world.barriers if barrier > before]
        after = min([*ends, before + self.world.rng.randint(1, 9), self.world.latest + 1])
        if self._plans and self.world.rng.random() < 0.05:
            # A plan that was made before the last ones were handed out.
            former = self._plans[-1]
            self._later(0.1, lambda: self._hand_out(*former))
        elif not slots or after <= before or not self._may_pass(before):
            self._later(0.1, self._plan)
        else:
            self._later(0.1, lambda: self._hand_out(slots, before, after))

    def _may_pass(self, before: int) -> bool:
        if before not in self.world.barriers:
            return True
        passes = self.assigned.may_pass(before)
        self.wake()
        return passes

    def _hand_out(self, slots: dict[int, int], before: int, after: int) -> None:
        """The caller asks for a plan that was made ahead."""
        life = self.member.id
        first, last = Position(TABLE, before), Position(TABLE, after)
        if not self.assigned.hand_out(slots, first, last, self.clock()):
            self.world.laws.seen["refused"] += 1
            self._plan()
            return
        self._plans.append((slots, before, after))

        assert life is not None
        self.world.laws.may_hand_out(life, before, self.world.pin, self.world.earliest)

        def deliver() -> None:
            self.world.laws.handed_out(life, slots, before, after)
            self._later(0.2, lambda: self._confirm(slots, after))

        if not self.world.weather.pauses:
            deliver()
            return
        if self.world.rng.random() < 0.02 and not self.world.is_calm:
            self.frozen_until = self.world.now + SESSION * self.world.rng.choice((0.5, 1.5, 3))
        self.at(self.world.now + 0.001, deliver)

    def _confirm(self, slots: dict[int, int], after: int) -> None:
        self.world.laws.confirms(slots, after)
        self.assigned.confirm(slots, Position(TABLE, after))
        self.wake()
        self._plan()


def weather_of(seed: int) -> Weather:
    choice = random.Random(f"weather {seed}").choice
    return Weather(
        slots=choice((1, 2, 3, 5, 16)),
        faults=choice((0.01, 0.1, 0.3, 0.5)),
        slow=choice((0.0, 0.05, 0.3)),
        pauses=choice((True, True, False)),
        disturbances=choice((0.5, 1.5, 3)),
        named=choice((True, False)),
        barriers=choice((0, 0, 30)),
        sessions=choice((6, 10, 14)),
        mixed=choice((False, False, True)),
    )


def play(seed: int, weather: Weather | None = None) -> World:
    """One history.

    Raises:
        BrokenLawError: An invariant was violated.
    """
    world = World(seed, weather or weather_of(seed))
    try:
        world.run()
    except BrokenLawError as broken:
        raise BrokenLawError(f"{broken} (history {seed})") from None
    return world


__all__ = ["BrokenLawError", "SlotProgress", "Weather", "World", "play", "weather_of"]
