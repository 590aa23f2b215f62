"""The rules of groups switched off, one at a time: what a simulation is worth is how soon it finds that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pypaimon.streaming.consumers.groups import group_decisions, group_duty
from pypaimon.streaming.consumers.groups.group_decisions import begun_state, durable
from pypaimon.streaming.consumers.groups.group_duty import GroupDuty
from pypaimon.streaming.consumers.groups.group_member import FencedError, GroupMember
from pypaimon.streaming.consumers.groups.group_requests import Steps
from pypaimon.streaming.consumers.groups.group_state import GroupState, Tenure
from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.consumers.groups.group_view import GroupView
from pypaimon.streaming.consumers.groups.holdings import Holding, Holdings
from pypaimon.streaming.consumers.groups.register import Held, Register, Status
from pypaimon.streaming.model.position import Position
from support.groups.world import Weather

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A rule that is switched off.

    Attributes:
        what: What is done instead.
        laws: Those that it breaks.
        patch: Does it.
        weather: In which it is found soonest.
    """

    what: str
    laws: tuple[str, ...]
    patch: Patch
    weather: Weather = field(default_factory=lambda: ROUGH)


ROUGH = Weather(slots=3, disturbances=1.5, faults=0.15, sessions=8)


def _set(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _no_seal(self: GroupDuty, member: str, by: str) -> Steps[None]:
    yield from self._view.read([member])
    register = self._view.known.get(member)
    if register is not None and not register.is_final:
        self._view.known[member] = replace(register, number=register.number + 1, status=Status.SEALED)


def _empty_seal(self: GroupDuty, member: str, by: str) -> Steps[None]:
    yield from self._view.read([member])
    register = self._view.known.get(member)
    if register is not None and not register.is_final:
        self._view.known[member] = replace(register, held={}, released={})
        yield from _SEAL(self, member, by)


_SEAL = GroupDuty.seal


def _begin_and_protect(self: GroupDuty, state: GroupState) -> Steps[bool]:
    if group_decisions.next_state(state, self._view.known, self._view.silent()) or state.members:
        yield from self._create(begun_state(state, self._view.known, self._view.silent()))
        yield from self._protect(state)
    return True


def _begin_unseen(self: GroupDuty, state: GroupState) -> Steps[bool]:
    if (yield from self._protect(state)):
        yield from self._create(begun_state(state, self._view.known, self._view.silent()))
    return True


def _save_believed(self: GroupMember) -> Steps[None]:
    try:
        yield from _SAVE(self)
    except FencedError:
        register, sent = self._pending or (self._compose(), 0.0)
        self._pending = None
        self._number = register.number
        self._holdings.saved({**register.held, **register.released}, sent + self._times.lease)


_SAVE = GroupMember._save


def _save_lost(self: GroupMember) -> Steps[None]:
    """What the store did not answer counts as saved."""
    register, sent = self._pending or (self._compose(), self._clock())
    self._holdings.saved({**register.held, **register.released}, sent + self._times.lease)
    self._pending = register, sent
    yield from _SAVE(self)


def _saved_for_ever(self: Holdings, entries: Mapping[int, Held], lease_until: float) -> None:
    _SAVED(self, entries, float("inf"))


_SAVED = Holdings.saved


def _former_start(slot: int, tenure: Tenure, registers: object) -> Position:
    return tenure.start


def _fits_all(self: Holdings, each: Holding, before: Position) -> bool:
    return self._is_open(each)


def _early(self: Holdings, each: Holding) -> bool:
    return each.moving_since is not None and not each.released


def _ahead(self: Holdings, each: Holding) -> bool:
    """What was handed out counts as confirmed."""
    each.confirmed = each.handed
    return each.moving_since is not None and not each.released


def _compose_ahead(self: Holdings) -> Any:
    for each in self._slots.values():
        each.confirmed = each.handed
    return _COMPOSE(self)


_COMPOSE = Holdings.compose


def _fastest(state: GroupState, known: Mapping[str, Register]) -> Position:
    return max(durable(slot, tenure, known) for slot, tenure in enumerate(state.owned))


def _soon_silent(self: GroupView) -> set[str]:
    return self._silence.longer_than(self._times.session / 4) - self.final


def _lose_nothing(self: Holdings) -> None:
    """What was lost is still held."""


def _dead_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody list before writing, which would notice it as a rule."""
    monkeypatch.setattr(GroupDuty, "_former_versions", lambda duty, member, _: duty._view.versions[member])
    monkeypatch.setattr(GroupView, "is_stale", property(lambda view: False))


CUT = Weather(slots=3, disturbances=1, faults=0.02, pauses=False, sessions=8, kinds=("join", "cut", "cut"))
FROZEN = Weather(slots=3, disturbances=1.5, faults=0.05, sessions=10, kinds=("join", "freeze", "freeze"))
LIVELY = Weather(slots=4, disturbances=1.5, faults=0.05, pauses=False, sessions=8, kinds=("join", "leave", "kill"))

MUTANTS = (
    Mutant("who is silent is gone without a seal", ("I2", "I6", "I7"), _set(GroupDuty, "seal", _no_seal), FROZEN),
    Mutant("a seal says nothing of what was confirmed", ("I2",), _set(GroupDuty, "seal", _empty_seal), FROZEN),
    Mutant("registers of the dead are deleted at once", ("I2",), _dead_go, FROZEN),
    Mutant("slots are released before they are confirmed", ("I2",), _set(Holdings, "_may_release", _early), LIVELY),
    Mutant("a slot is released as if it were confirmed", ("I1", "I3"), _set(Holdings, "_may_release", _ahead), LIVELY),
    Mutant("what is handed out counts as confirmed", ("I3",), _set(Holdings, "compose", _compose_ahead), LIVELY),
    Mutant("slots go on after their release", ("I2", "I6"), _set(Holdings, "_is_open", lambda *_: True), LIVELY),
    Mutant("the lease is not looked at", ("I6",), _set(Holdings, "saved", _saved_for_ever), CUT),
    Mutant(
        "the lease outlasts the session", ("I6",), _set(GroupTimes, "lease", property(lambda t: 2 * t.session)), CUT
    ),
    Mutant("who is silent for a beat is gone", ("I6", "I10"), _set(GroupView, "silent", _soon_silent), CUT),
    Mutant(
        "each is missed after the watcher's session",
        ("I6",),
        _set(GroupView, "_pace", lambda *_: 1.0),
        replace(CUT, mixed=True),
    ),
    Mutant("who was ended goes on", ("I2", "I6", "I7"), _set(Holdings, "lose", _lose_nothing), CUT),
    Mutant(
        "a version of others is taken for an own one", ("I2", "I4"), _set(GroupMember, "_save", _save_believed), CUT
    ),
    Mutant("a save counts before it is there", ("I2",), _set(GroupMember, "_save", _save_lost), FROZEN),
    Mutant("plans of another position are handed out", ("I1",), _set(Holdings, "_fits", _fits_all), LIVELY),
    Mutant("tenures begin where the former ones did", ("I2",), _set(group_decisions, "durable", _former_start), LIVELY),
    Mutant("slots are given away before the fence stands", ("I5",), _set(GroupDuty, "_begin", _begin_and_protect)),
    Mutant("nobody looks whether the start stands", ("I5",), _set(GroupDuty, "_begin", _begin_unseen)),
    Mutant("the fence goes with the fastest slot", ("I5",), _set(group_duty, "floor_of", _fastest)),
    Mutant("barriers are passed", ("I12",), _set(Holdings, "may_pass", lambda *_: True), replace(LIVELY, barriers=10)),
)
