"""`GroupState`: who is in a group, and who reads which slots from where on; one of a sequence of states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.consumers.groups.json_values import (
    FORMAT_VERSION,
    object_of,
    optional,
    position_of,
    position_value,
    texts,
    to_bytes,
    typed,
)
from pypaimon.streaming.consumers.groups.slot_ranges import MOST_SLOTS, slots_of_text, slots_to_text
from pypaimon.streaming.model.position import Position


@dataclass(frozen=True, slots=True)
class Tenure:
    """A slot under one owner.

    Attributes:
        owner: Id of the member that reads it; None: nobody does.
        since: Number of the state that began it.
        start: Where it begins: all before is confirmed.
        to: Id of the member that is to get it once the owner has given it back; None: the owner keeps it.
    """

    owner: str | None
    since: int
    start: Position
    to: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """One state of a group. Each follows from the one before, and only the one with the highest number counts.

    Attributes:
        number: Its place in the sequence, from 0.
        table: Identity of the table.
        start: Where the group begins.
        begun: Whether the start is protected, so that slots are given away.
        settings: Of the streams of all members, as text.
        rule: How files are divided over slots.
        members: Ids of those who were admitted, in that order.
        owned: One for each slot.
        passed: Id of the last snapshot that all slots have reached together; 0: none yet.
        conflict: Why the group has ended for all members; None: it has not.
    """

    number: int
    table: str
    start: Position
    begun: bool
    settings: str
    rule: str
    members: tuple[str, ...]
    owned: tuple[Tenure, ...]
    passed: int = 0
    conflict: str | None = None

    def to_json(self) -> bytes:
        """The content of its file."""
        runs: dict[Tenure, list[int]] = {}
        for slot, tenure in enumerate(self.owned):
            runs.setdefault(tenure, []).append(slot)
        value: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "number": self.number,
            "table": self.table,
            "start": position_value(self.start),
            "begun": self.begun,
            "settings": self.settings,
            "slots": len(self.owned),
            "rule": self.rule,
            "passed": self.passed,
            "members": list(self.members),
            "owned": [_tenure_value(tenure, slots) for tenure, slots in runs.items()],
        }
        if self.conflict is not None:
            value["conflict"] = self.conflict
        return to_bytes(value)

    @staticmethod
    def from_json(data: bytes) -> GroupState:
        """Read what `to_json` wrote; unknown fields are ignored.

        Raises:
            ValueError: It is no state.
        """
        value = object_of(data, "state of a group")
        return GroupState(
            typed(value, "number", int),
            typed(value, "table", str),
            position_of(typed(value, "start", dict)),
            typed(value, "begun", bool),
            typed(value, "settings", str),
            typed(value, "rule", str),
            texts(value, "members"),
            _tenures(typed(value, "owned", list), typed(value, "slots", int)),
            typed(value, "passed", int),
            optional(value, "conflict", str),
        )


def first_state(start: Position, slots: int, settings: str = "", rule: str = "") -> GroupState:
    """The first state of a group: a start, and nobody has anything.

    Args:
        start: Where the group begins.
        slots: How many there are.
        settings: Of the streams of all members.
        rule: How files are divided over slots.
    """
    return GroupState(0, start.table, start, False, settings, rule, (), (Tenure(None, 0, start),) * slots)


def _tenure_value(tenure: Tenure, slots: list[int]) -> dict[str, Any]:
    value: dict[str, Any] = {"slots": slots_to_text(slots), "since": tenure.since}
    value["from"] = position_value(tenure.start)
    if tenure.owner is not None:
        value["owner"] = tenure.owner
    if tenure.to is not None:
        value["to"] = tenure.to
    return value


def _tenures(runs: list[Any], count: int) -> tuple[Tenure, ...]:
    if not 0 < count <= MOST_SLOTS:
        raise ValueError(f"slots: expected 1 to {MOST_SLOTS}, got {count}")
    found: list[Tenure | None] = [None] * count
    for run in runs:
        start = position_of(typed(run, "from", dict))
        tenure = Tenure(optional(run, "owner", str), typed(run, "since", int), start, optional(run, "to", str))
        for slot in slots_of_text(typed(run, "slots", str)):
            if slot >= count or found[slot] is not None:
                raise ValueError(f"slot {slot} occurs twice, or there are fewer")
            found[slot] = tenure
    whole = tuple(tenure for tenure in found if tenure is not None)
    if len(whole) != count:
        raise ValueError(f"of {count} slots {count - len(whole)} are missing")
    return whole
