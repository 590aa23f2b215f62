"""The files of a group: the states that the coordinator writes, and the records that each member writes of itself.

Both are JSON files that are created once and never changed. Field names belong to the format, which running groups of
other releases read too; so some differ from the names in the code (`sealed` for FENCED, `to` for `moves_to`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.model.json_fields import JsonFields, canonical_json, parse_fields
from pypaimon.streaming.model.position import Position, position_from_value, position_to_value

T = TypeVar("T")

FORMAT_VERSION = 1
MAX_SLOTS = 100_000
_STATE = "state-"
_MEMBER = "member-"
_DIGITS = 12
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


# ---- states ----


@dataclass(frozen=True, slots=True)
class SlotOwnership:
    """Who reads a slot.

    Attributes:
        owner: Id of the member that reads the slot; None if no member does.
        since: Generation in which the owner got the slot. With the slot's number it identifies this ownership.
        start: Position where the owner begins; everything before it is confirmed.
        moves_to: The slot is revoked: id of the member that gets it once the owner has released it. Otherwise None.
    """

    owner: str | None
    since: int
    start: Position
    moves_to: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """The assignment of one generation. Only the state with the highest generation counts.

    Attributes:
        generation: Number of the state, from 0. Each state follows from the one before it.
        table: Identity of the table.
        start: Position where the group begins.
        begun: Whether the retention pin protects the start; only then are slots assigned.
        settings: Stream settings that all members share, as text.
        rule: How files are divided into slots, as text.
        members: Ids of the members, in the order in which they were admitted.
        owned: The ownership of each slot.
        passed: Id of the last barrier that all slots have reached; 0 if there was none.
        conflict: Why the group has ended for all members; None while it runs.
    """

    generation: int
    table: str
    start: Position
    begun: bool
    settings: str
    rule: str
    members: tuple[str, ...]
    owned: tuple[SlotOwnership, ...]
    passed: int = 0
    conflict: str | None = None

    def to_json(self) -> bytes:
        """The content of the file. Slots with equal ownership are written once, as ranges."""
        runs: dict[SlotOwnership, list[int]] = {}
        for slot, ownership in enumerate(self.owned):
            runs.setdefault(ownership, []).append(slot)
        value: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "number": self.generation,
            "table": self.table,
            "start": position_to_value(self.start),
            "begun": self.begun,
            "settings": self.settings,
            "slots": len(self.owned),
            "rule": self.rule,
            "passed": self.passed,
            "members": list(self.members),
            "owned": [_ownership_value(ownership, slots) for ownership, slots in runs.items()],
        }
        if self.conflict is not None:
            value["conflict"] = self.conflict
        return canonical_json(value).encode()

    @staticmethod
    def from_json(data: bytes) -> GroupState:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The file is damaged; a StreamConfigError if a newer release wrote it.
        """
        fields = parse_fields(data, "state of a group")
        fields.check_version(FORMAT_VERSION)
        return GroupState(
            fields.get("number", int),
            fields.get("table", str),
            _position(fields, "start"),
            fields.get("begun", bool),
            fields.get("settings", str),
            fields.get("rule", str),
            fields.texts("members"),
            _read_ownerships(fields.objects("owned"), fields.get("slots", int)),
            fields.get("passed", int),
            fields.optional("conflict", str),
        )


@dataclass(frozen=True, slots=True, eq=False)
class GroupTerms:
    """What a member wants of its group. All live members have the same; a state records it.

    Attributes:
        slots: Into how many slots the table is divided.
        rule: How the slot of a file is found, as a text to compare.
        settings: The filter, start and other settings of the stream, as a text to compare.
        check_first_plan: Raises StreamConfigError if this member cannot finish a first plan that members with the given
            settings have begun.
    """

    slots: int
    rule: str = ""
    settings: str = ""
    check_first_plan: Callable[[str], None] = lambda settings: None


def first_state(start: Position, terms: GroupTerms) -> GroupState:
    """Generation 0: a start, no members, and slots without owners."""
    owned = (SlotOwnership(None, 0, start),) * terms.slots
    return GroupState(0, start.table, start, False, terms.settings, terms.rule, (), owned)


def _ownership_value(ownership: SlotOwnership, slots: list[int]) -> dict[str, Any]:
    value: dict[str, Any] = {"slots": slots_to_text(slots), "since": ownership.since}
    value["from"] = position_to_value(ownership.start)
    if ownership.owner is not None:
        value["owner"] = ownership.owner
    if ownership.moves_to is not None:
        value["to"] = ownership.moves_to
    return value


def _read_ownerships(runs: list[JsonFields], count: int) -> tuple[SlotOwnership, ...]:
    if not 0 < count <= MAX_SLOTS:
        raise ValueError(f"slots: expected 1 to {MAX_SLOTS}, got {count}")
    found: list[SlotOwnership | None] = [None] * count
    for run in runs:
        ownership = SlotOwnership(
            run.optional("owner", str), run.get("since", int), _position(run, "from"), run.optional("to", str)
        )
        for slot in slots_from_text(run.get("slots", str)):
            if slot >= count or found[slot] is not None:
                raise ValueError(f"slot {slot} occurs twice, or is not below the number of slots")
            found[slot] = ownership
    complete = tuple(ownership for ownership in found if ownership is not None)
    if len(complete) != count:
        raise ValueError(f"of {count} slots {count - len(complete)} are missing")
    return complete


# ---- records of members ----


class MemberStatus(str, Enum):
    JOINING = "joining"
    """The member waits to be admitted."""
    ACTIVE = "active"
    """A state lists the member."""
    LEFT = "left"
    """The member has left. Its last version."""
    FENCED = "sealed"
    """Another member has ended it. Its last version."""


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """How far the owner of a slot has confirmed it.

    Attributes:
        since: Generation in which the owner got the slot.
        position: Everything before it is confirmed.
    """

    since: int
    position: Position


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One version of a member's record, which is its heartbeat and its saved progress in one. The last version counts.

    Attributes:
        id: Id of the member: its name, a dot, and hexadecimal digits that are drawn each time it joins.
        version: Number of the version, from 1.
        nonce: Drawn for this version, so that two versions with the same number differ in content.
        written_by: Id of the member that wrote the version: another one if it fenced this member.
        status: Status of the member.
        generation: Generation that the member acts on.
        held: Slots that the member has, with its progress.
        released: Slots that the member has given back, while the state still names it as their owner.
        barrier: Id of a snapshot that the member does not read before all slots have reached it; None if it waits for
            no other member.
        predecessors: Ids of the members with the same name that were there before this one joined.
        session: Seconds without a heartbeat after which the others fence the member; None in records of old releases.
    """

    id: str
    version: int
    nonce: str
    written_by: str
    status: MemberStatus
    generation: int
    held: Mapping[int, SlotProgress] = field(default_factory=dict)
    released: Mapping[int, SlotProgress] = field(default_factory=dict)
    barrier: int | None = None
    predecessors: tuple[str, ...] = ()
    session: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether the member has left or was fenced. It writes no version after this one."""
        return self.status in (MemberStatus.LEFT, MemberStatus.FENCED)

    def progress_of(self, slot: int, since: int) -> SlotProgress | None:
        """The progress of one ownership of a slot; None if the record says nothing about it."""
        for entries in (self.released, self.held):
            if (found := entries.get(slot)) is not None and found.since == since:
                return found
        return None

    def to_json(self) -> bytes:
        value: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "id": self.id,
            "number": self.version,
            "nonce": self.nonce,
            "by": self.written_by,
            "status": self.status.value,
            "seen": self.generation,
            "held": _progress_value(self.held),
            "released": _progress_value(self.released),
        }
        if self.barrier is not None:
            value["barrier"] = self.barrier
        if self.predecessors:
            value["former"] = list(self.predecessors)
        if self.session is not None:
            value["session"] = self.session
        return canonical_json(value).encode()

    @staticmethod
    def from_json(data: bytes) -> MemberRecord:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The file is damaged; a StreamConfigError if a newer release wrote it.
        """
        fields = parse_fields(data, "record of a member")
        fields.check_version(FORMAT_VERSION)
        return MemberRecord(
            fields.get("id", str),
            fields.get("number", int),
            fields.get("nonce", str),
            fields.get("by", str),
            MemberStatus(fields.get("status", str)),
            fields.get("seen", int),
            _read_progress(fields.objects("held")),
            _read_progress(fields.objects("released")),
            fields.optional("barrier", int),
            () if fields.optional("former", list) is None else fields.texts("former"),
            fields.optional("session", float),
        )


def name_of(member: str) -> str:
    return member.rpartition(".")[0]


def _progress_value(entries: Mapping[int, SlotProgress]) -> list[dict[str, Any]]:
    runs: dict[SlotProgress, list[int]] = {}
    for slot in sorted(entries):
        runs.setdefault(entries[slot], []).append(slot)
    return [
        {"slots": slots_to_text(slots), "since": progress.since, "position": position_to_value(progress.position)}
        for progress, slots in runs.items()
    ]


def _read_progress(runs: list[JsonFields]) -> dict[int, SlotProgress]:
    entries: dict[int, SlotProgress] = {}
    for run in runs:
        progress = SlotProgress(run.get("since", int), _position(run, "position"))
        for slot in slots_from_text(run.get("slots", str)):
            if entries.setdefault(slot, progress) is not progress:
                raise ValueError(f"slot {slot} occurs twice")
    return entries


def _position(fields: JsonFields, key: str) -> Position:
    return position_from_value(fields.get(key, dict))


# ---- slots as text ----


def slots_to_text(slots: Iterable[int]) -> str:
    """Slots as ranges, ascending: `0-15,40`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def slots_from_text(text: str) -> list[int]:
    """Read what `slots_to_text` wrote.

    Raises:
        ValueError: The text is not a list of ascending ranges.
    """
    slots: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not (slots[-1] if slots else -1) < first <= last < MAX_SLOTS:
            raise ValueError(f"slots: expected ranges such as 0-15,40, got {text!r}")
        slots.extend(range(first, last + 1))
    return slots


# ---- names of files ----


def state_file(generation: int) -> str:
    return f"{_STATE}{generation:0{_DIGITS}d}"


def record_file(member: str, version: int) -> str:
    return f"{_MEMBER}{member}-{version:0{_DIGITS}d}"


def parse_names(names: Iterable[str]) -> tuple[list[int], dict[str, list[int]]]:
    """Generations of the states, and versions of each member's record, ascending. Other names are ignored."""
    generations: list[int] = []
    versions: dict[str, list[int]] = {}
    for name in sorted(names):
        prefix, _, digits = name.rpartition("-")
        if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
            continue
        if f"{prefix}-" == _STATE:
            generations.append(int(digits))
        elif prefix.startswith(_MEMBER):
            versions.setdefault(prefix[len(_MEMBER) :], []).append(int(digits))
    return generations, versions


def parse_file(name: str, data: bytes, parser: Callable[[bytes], T]) -> T:
    """The content of a file.

    Raises:
        CorruptTableError: It is damaged.
    """
    try:
        return parser(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(name, f"cannot be decoded: {error}") from error
