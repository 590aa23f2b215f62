"""Groups in a world where everything goes wrong: no row is lost, and each rule is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pypaimon.streaming.groups import coordinator, rebalance
from pypaimon.streaming.groups.assigned_slots import AssignedSlots, SlotState
from pypaimon.streaming.groups.coordinator import Coordinator
from pypaimon.streaming.groups.group_files import GroupState, MemberRecord, MemberStatus, SlotOwnership, SlotProgress
from pypaimon.streaming.groups.group_requests import Steps
from pypaimon.streaming.groups.group_view import GroupTimes, GroupView
from pypaimon.streaming.groups.member import FencedError, GroupMember
from pypaimon.streaming.groups.rebalance import begun_state, durable_position
from pypaimon.streaming.model.position import Position
from support.groups.invariants import BrokenLawError
from support.groups.world import Weather, play
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A rule that is switched off.

    Attributes:
        weather: Weather in which it is found soonest.
    """

    what: str
    laws: tuple[str, ...]
    patch: Patch
    weather: Weather = field(default_factory=lambda: ROUGH)


ROUGH = Weather(slots=3, disturbances=1.5, faults=0.15, sessions=8)


def _set(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _no_fencing(self: Coordinator, member: str, by: str) -> Steps[None]:
    yield from self._view.read([member])
    record = self._view.known.get(member)
    if record is not None and not record.is_final:
        self._view.known[member] = replace(record, version=record.version + 1, status=MemberStatus.FENCED)


def _empty_fencing(self: Coordinator, member: str, by: str) -> Steps[None]:
    yield from self._view.read([member])
    record = self._view.known.get(member)
    if record is not None and not record.is_final:
        self._view.known[member] = replace(record, held={}, released={})
        yield from _FENCE(self, member, by)


_FENCE = Coordinator.fence


def _begin_and_protect(self: Coordinator, state: GroupState) -> Steps[bool]:
    if rebalance.next_state(state, self._view.known, self._view.silent()) or state.members:
        yield from self._write_state(begun_state(state, self._view.known, self._view.silent()))
        yield from self._pin_start(state)
    return True


def _begin_unseen(self: Coordinator, state: GroupState) -> Steps[bool]:
    if (yield from self._pin_start(state)):
        yield from self._write_state(begun_state(state, self._view.known, self._view.silent()))
    return True


def _save_believed(self: GroupMember) -> Steps[None]:
    try:
        yield from _SAVE(self)
    except FencedError:
        record, sent = self._pending or (self._next_record(), 0.0)
        self._pending = None
        self._version = record.version
        self._assigned.saved({**record.held, **record.released}, sent + self._times.lease)


_SAVE = GroupMember._send_heartbeat


def _save_lost(self: GroupMember) -> Steps[None]:
    """A heartbeat counts as saved before the store has answered."""
    record, sent = self._pending or (self._next_record(), self._clock())
    self._assigned.saved({**record.held, **record.released}, sent + self._times.lease)
    self._pending = record, sent
    yield from _SAVE(self)


def _saved_for_ever(self: AssignedSlots, entries: Mapping[int, SlotProgress], lease_until: float) -> None:
    _SAVED(self, entries, float("inf"))


_SAVED = AssignedSlots.saved


def _former_start(slot: int, ownership: SlotOwnership, records: object) -> Position:
    return ownership.start


def _fits_all(self: AssignedSlots, each: SlotState, before: Position) -> bool:
    return self._is_open(each)


def _early(self: AssignedSlots, each: SlotState) -> bool:
    return each.revoked_since is not None and not each.released


def _ahead(self: AssignedSlots, each: SlotState) -> bool:
    """What was handed out counts as confirmed."""
    each.confirmed = each.handed_out
    return each.revoked_since is not None and not each.released


def _compose_ahead(self: AssignedSlots) -> Any:
    for each in self._slots.values():
        each.confirmed = each.handed_out
    return _COMPOSE(self)


_COMPOSE = AssignedSlots.compose


def _fastest(state: GroupState, known: Mapping[str, MemberRecord]) -> Position:
    return max(durable_position(slot, ownership, known) for slot, ownership in enumerate(state.owned))


def _soon_silent(self: GroupView) -> set[str]:
    return self._monitor.silent_for(self._times.session / 4) - self.final


def _lose_nothing(self: AssignedSlots) -> None:
    """A fenced member keeps its slots."""


def _dead_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members do not list before they write either: that would usually reveal it."""
    monkeypatch.setattr(Coordinator, "_old_versions", lambda coordinator, member, _: coordinator._view.versions[member])
    monkeypatch.setattr(GroupView, "is_stale", property(lambda view: False))


CUT = Weather(slots=3, disturbances=1, faults=0.02, pauses=False, sessions=8, kinds=("join", "cut", "cut"))
FROZEN = Weather(slots=3, disturbances=1.5, faults=0.05, sessions=10, kinds=("join", "freeze", "freeze"))
LIVELY = Weather(slots=4, disturbances=1.5, faults=0.05, pauses=False, sessions=8, kinds=("join", "leave", "kill"))

MUTANTS = (
    Mutant(
        "silent members are removed, not fenced", ("I2", "I6", "I7"), _set(Coordinator, "fence", _no_fencing), FROZEN
    ),
    Mutant("a fenced record forgets what was confirmed", ("I2",), _set(Coordinator, "fence", _empty_fencing), FROZEN),
    Mutant("records of ended members are deleted at once", ("I2",), _dead_go, FROZEN),
    Mutant(
        "slots are released before they are confirmed", ("I2",), _set(AssignedSlots, "_may_release", _early), LIVELY
    ),
    Mutant(
        "a slot is released as if it were confirmed", ("I1", "I3"), _set(AssignedSlots, "_may_release", _ahead), LIVELY
    ),
    Mutant("what is handed out counts as confirmed", ("I3",), _set(AssignedSlots, "compose", _compose_ahead), LIVELY),
    Mutant("slots are read after release", ("I2", "I6"), _set(AssignedSlots, "_is_open", lambda *_: True), LIVELY),
    Mutant("the lease is ignored", ("I6",), _set(AssignedSlots, "saved", _saved_for_ever), CUT),
    Mutant(
        "the lease outlasts the session", ("I6",), _set(GroupTimes, "lease", property(lambda t: 2 * t.session)), CUT
    ),
    Mutant("one missed heartbeat is enough", ("I6", "I10"), _set(GroupView, "silent", _soon_silent), CUT),
    Mutant(
        "members are missed after the watcher's session",
        ("I6",),
        _set(GroupView, "_pace", lambda *_: 1.0),
        replace(CUT, mixed=True),
    ),
    Mutant("a fenced member continues", ("I2", "I6", "I7"), _set(AssignedSlots, "lose_all", _lose_nothing), CUT),
    Mutant(
        "other members' versions are taken for own ones",
        ("I2", "I4"),
        _set(GroupMember, "_send_heartbeat", _save_believed),
        CUT,
    ),
    Mutant("a save counts before it is there", ("I2",), _set(GroupMember, "_send_heartbeat", _save_lost), FROZEN),
    Mutant("plans of another position are handed out", ("I1",), _set(AssignedSlots, "_fits", _fits_all), LIVELY),
    Mutant(
        "new owners begin where the last ones did", ("I2",), _set(rebalance, "durable_position", _former_start), LIVELY
    ),
    Mutant("slots are assigned before the start is pinned", ("I5",), _set(Coordinator, "_begin", _begin_and_protect)),
    Mutant("the start is not checked after it was pinned", ("I5",), _set(Coordinator, "_begin", _begin_unseen)),
    Mutant("the pin moves with the fastest slot", ("I5",), _set(coordinator, "lowest_position", _fastest)),
    Mutant(
        "barriers are passed", ("I12",), _set(AssignedSlots, "may_pass", lambda *_: True), replace(LIVELY, barriers=10)
    ),
)


HISTORIES = 2500 if SOAK else 30
ROUNDS = 40 if SOAK else 1
MOST_TRIES = 100
"""Histories within which a mutant has to be found."""
FOUND_BY = {"members are missed after the watcher's session": 17}
"""Where to look first for the mutants that only a late history finds."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_invariants_hold_in_any_weather(round: int) -> None:
    """A failure names its history: `play(number)` of `support.groups.world` replays it."""
    draws = seeded(f"groups {round}")
    seen: Counter[str] = Counter()
    for _ in range(HISTORIES):
        seen += play(draws.randrange(1 << 40)).laws.seen
    assert seen["handed out"] > 10 * HISTORIES
    assert seen["fencings"] > HISTORIES / 4 and seen["refused"] > HISTORIES


@pytest.mark.parametrize("mixed", [False, True], ids=["equal sessions", "longer and shorter sessions"])
def test_in_good_weather_no_member_is_fenced_and_nothing_is_refused_for_long(mixed: bool) -> None:
    calm = Weather(faults=0.0001, slow=0, disturbances=0, pauses=False, sessions=5, mixed=mixed)
    for seed in range(8 if mixed else 4):
        seen = play(seed, calm).laws.seen
        assert not seen["fencings"] and not seen["zombies"] and seen["handed out"] > 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_every_rule_is_needed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    seeds = sorted(range(MOST_TRIES), key=lambda seed: seed != FOUND_BY.get(mutant.what))
    assert any(_broken(seed, mutant.weather).startswith(mutant.laws) for seed in seeds)


def _broken(seed: int, weather: Weather) -> str:
    """The broken invariant of a history; empty if there is none."""
    try:
        play(seed, weather)
    except BrokenLawError as broken:
        return str(broken)
    return ""
