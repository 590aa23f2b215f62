"""`Register`: what one member of a group says of itself, one version of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
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
from pypaimon.streaming.consumers.groups.slot_ranges import slots_of_text, slots_to_text
from pypaimon.streaming.model.position import Position


class Status(str, Enum):
    """Where a member stands in its life."""

    JOINING = "joining"
    """It wants to be admitted."""
    ACTIVE = "active"
    """A state has admitted it."""
    LEFT = "left"
    """It has ended; the last version."""
    SEALED = "sealed"
    """Others have ended it; the last version."""


FINAL = frozenset((Status.LEFT, Status.SEALED))


@dataclass(frozen=True, slots=True)
class Held:
    """How far a slot was confirmed.

    Attributes:
        since: Number of the state that began the tenure.
        position: Before which all is confirmed.
    """

    since: int
    position: Position


@dataclass(frozen=True, slots=True)
class Register:
    """One version of a register. The last one says what counts, and is never followed by one that its member wrote.

    Attributes:
        id: Of the member: its name, a dot, and a number that was drawn for this life.
        number: Of the version, from 1.
        nonce: Drawn for this version.
        by: Id of the member that wrote it: another one if it is sealed.
        status: Where the member stands.
        seen: Number of the state that it acts upon.
        held: Slots that it has, with what is confirmed of them.
        released: Slots that it has given back, while a state still says that it has them.
        barrier: Id of the snapshot before which it waits for all others; None: for none.
        former: Ids of lives of its name that were there before it.
        session: Seconds of silence after which the others end it; None: that is not told.
    """

    id: str
    number: int
    nonce: str
    by: str
    status: Status
    seen: int
    held: Mapping[int, Held] = field(default_factory=dict)
    released: Mapping[int, Held] = field(default_factory=dict)
    barrier: int | None = None
    former: tuple[str, ...] = ()
    session: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether it is the last version, if it counts."""
        return self.status in FINAL

    def entry(self, slot: int, since: int) -> Held | None:
        """What it says of a tenure; None: nothing."""
        for entries in (self.released, self.held):
            if (found := entries.get(slot)) is not None and found.since == since:
                return found
        return None

    def to_json(self) -> bytes:
        """The content of its file."""
        value: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "id": self.id,
            "number": self.number,
            "nonce": self.nonce,
            "by": self.by,
            "status": self.status.value,
            "seen": self.seen,
            "held": _runs(self.held),
            "released": _runs(self.released),
        }
        if self.barrier is not None:
            value["barrier"] = self.barrier
        if self.former:
            value["former"] = list(self.former)
        if self.session is not None:
            value["session"] = self.session
        return to_bytes(value)

    @staticmethod
    def from_json(data: bytes) -> Register:
        """Read what `to_json` wrote; unknown fields are ignored.

        Raises:
            ValueError: It is no register.
        """
        value = object_of(data, "register")
        return Register(
            typed(value, "id", str),
            typed(value, "number", int),
            typed(value, "nonce", str),
            typed(value, "by", str),
            Status(typed(value, "status", str)),
            typed(value, "seen", int),
            _entries(typed(value, "held", list)),
            _entries(typed(value, "released", list)),
            optional(value, "barrier", int),
            texts(value, "former") if "former" in value else (),
            optional(value, "session", float),
        )


def name_of(member: str) -> str:
    """The name in the id of a member; empty: it has none."""
    return member.rpartition(".")[0]


def _runs(entries: Mapping[int, Held]) -> list[dict[str, Any]]:
    runs: dict[Held, list[int]] = {}
    for slot in sorted(entries):
        runs.setdefault(entries[slot], []).append(slot)
    return [
        {"slots": slots_to_text(slots), "since": held.since, "position": position_value(held.position)}
        for held, slots in runs.items()
    ]


def _entries(runs: list[Any]) -> dict[int, Held]:
    entries: dict[int, Held] = {}
    for run in runs:
        held = Held(typed(run, "since", int), position_of(typed(run, "position", dict)))
        for slot in slots_of_text(typed(run, "slots", str)):
            if entries.setdefault(slot, held) is not held:
                raise ValueError(f"slot {slot} occurs twice")
    return entries
