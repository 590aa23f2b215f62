"""`group_info`: who is in a group, and how far each is, as its files say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import consumers_of, last_write
from pypaimon.streaming.consumers.groups.group_decisions import durable
from pypaimon.streaming.consumers.groups.group_directory import group_home, incarnations
from pypaimon.streaming.consumers.groups.group_files import numbers_of, register_name, state_name
from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.consumers.groups.group_view import parsed
from pypaimon.streaming.consumers.groups.register import Register
from pypaimon.streaming.metadata.table_directory import TableDirectory

_UNKNOWN_SESSION = 30.0


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One member of a group.

    Attributes:
        member: Its id: its name, a dot, and a number of this life; `""` for slots that nobody has.
        status: joining, active, left or sealed (ended by others); `""` for slots that nobody has.
        slots: The slots that it has, ascending.
        next_snapshot: The smallest snapshot that it has not confirmed; None without slots.
        lag: Snapshots from that one to the latest; None without slots.
        last_save: When it was last heard of, by the store's clock; None if the store does not tell.
    """

    member: str
    status: str
    slots: tuple[int, ...]
    next_snapshot: int | None
    lag: int | None
    last_save: datetime | None


def group_info(directory: TableDirectory, group_id: str) -> list[GroupMemberInfo] | None:
    """The members of a group in the order in which they came, and last, if there are any, the slots that nobody has.

    Costs two listings and a request for each member.

    Args:
        directory: The table.
        group_id: Of the group.

    Returns:
        They; None: there is no such group, or it has not begun.

    Raises:
        CorruptTableError: A file of the group is damaged.
        StoreError: The store failed.
    """
    home = _home(directory, group_id)
    if home is None:
        return None
    files, states, registers = _looked_at(directory, home)
    if not states:
        return None
    path = f"{home}/{state_name(states[-1])}"
    state = parsed(path, directory.store.read(path), GroupState.from_json)
    latest = directory.snapshots.latest_id() or 0
    joining = [member for member in sorted(registers) if member not in state.members and not registers[member].is_final]
    return [
        info
        for member in (*state.members, *joining, None)
        if (info := _info(state, registers, member, latest, files)) is not None
    ]


def living_member(directory: TableDirectory, group_id: str, clock: Clock) -> str | None:
    """A member of a group that is alive: it is seen to write; None: there is none.

    Where members have not ended it looks again and again, until one writes, or none may hand out anything any more: for
    three quarters of a session. One whose process stands still is not found. Blocks.

    Args:
        directory: The table.
        group_id: Of the group.
        clock: For the pauses.

    Raises:
        CorruptTableError: A file of the group is damaged.
        StoreError: The store failed.
    """
    home = _home(directory, group_id)
    if home is None:
        return None
    before = _looked_at(directory, home)[2]
    session = max((each.session or _UNKNOWN_SESSION for each in before.values() if not each.is_final), default=0.0)
    until = clock.monotonic() + session * 0.75
    while clock.monotonic() < until:
        clock.wait(SimpleQueue(), session / 16)
        for member, register in _looked_at(directory, home)[2].items():
            has_written = member not in before or register.number > before[member].number
            if has_written and not register.is_final:
                return member
    return None


def _home(directory: TableDirectory, group_id: str) -> str | None:
    """Where the files of a group are; None: there are none."""
    home = group_home(consumers_of(directory), group_id)
    numbers = incarnations(directory.store, home)
    return f"{home}/{max(numbers)}" if numbers else None


def _files(directory: TableDirectory, home: str) -> dict[str, datetime | None]:
    """Names of files, with when they were written."""
    statuses = directory.store.list_statuses(home)
    return {status.path.rstrip("/").rsplit("/", 1)[-1]: last_write(status) for status in statuses}


def _looked_at(
    directory: TableDirectory, home: str
) -> tuple[dict[str, datetime | None], Sequence[int], dict[str, Register]]:
    """The files of a group, the numbers of its states, and the last version of each register."""
    files = _files(directory, home)
    states, versions = numbers_of(files)
    registers = {}
    for member, its in versions.items():
        path = f"{home}/{register_name(member, its[-1])}"
        try:
            registers[member] = parsed(path, directory.store.read(path), Register.from_json)
        except FileNotFoundError:
            continue
    return files, states, registers


def _info(
    state: GroupState,
    registers: dict[str, Register],
    member: str | None,
    latest: int,
    files: dict[str, datetime | None],
) -> GroupMemberInfo | None:
    slots = tuple(slot for slot, tenure in enumerate(state.owned) if tenure.owner == member)
    if member is None and not slots:
        return None
    snapshots = [durable(slot, state.owned[slot], registers).snapshot for slot in slots]
    least = min(snapshots, default=None)
    lag = None if least is None else max(0, latest - least + 1)
    register = registers.get(member or "")
    heard = None if register is None else files.get(register_name(register.id, register.number))
    return GroupMemberInfo(member or "", "" if register is None else register.status.value, slots, least, lag, heard)
