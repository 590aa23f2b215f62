"""`group_info`: the members of a group, and how far each has read, from the files of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import consumers_of, last_write
from pypaimon.streaming.groups.group_directory import group_home, lifetimes
from pypaimon.streaming.groups.group_files import (
    GroupState,
    MemberRecord,
    parse_file,
    parse_names,
    record_file,
    state_file,
)
from pypaimon.streaming.groups.rebalance import durable_position
from pypaimon.streaming.metadata.table_directory import TableDirectory

_UNKNOWN_SESSION = 30.0


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One member of a group, or all slots without an owner.

    Attributes:
        slots: The slots, ascending.
        next_snapshot: The smallest snapshot that is not confirmed; None without slots.
        lag: Snapshots from that one to the latest; None without slots.
        last_save: Time of the last heartbeat by the store's clock; None if the store has no modification times.
    """

    member: str
    status: str
    slots: tuple[int, ...]
    next_snapshot: int | None
    lag: int | None
    last_save: datetime | None


def group_info(directory: TableDirectory, group_id: str) -> list[GroupMemberInfo] | None:
    """The members of a group in the order in which they joined, then the slots without an owner, if there are any.

    Costs two listings and a request for each member.

    Returns:
        The members; None if there is no such group, or if it has no state yet.
    """
    home = _last_lifetime(directory, group_id)
    if home is None:
        return None
    files, generations, records = _read_group(directory, home)
    if not generations:
        return None
    path = f"{home}/{state_file(generations[-1])}"
    state = parse_file(path, directory.store.read(path), GroupState.from_json)
    latest = directory.snapshots.latest_id() or 0
    joining = [member for member in sorted(records) if member not in state.members and not records[member].is_final]
    return [
        info
        for member in (*state.members, *joining, None)
        if (info := _info(state, records, member, latest, files)) is not None
    ]


def living_member(directory: TableDirectory, group_id: str, clock: Clock) -> str | None:
    """A member of a group that sends heartbeats; None if there is none.

    If members have not ended, this waits for a heartbeat: for three quarters of a session, after which no member may
    hand out anything. A member whose process is suspended is not found. Blocks.
    """
    home = _last_lifetime(directory, group_id)
    if home is None:
        return None
    before = _read_group(directory, home)[2]
    session = max((each.session or _UNKNOWN_SESSION for each in before.values() if not each.is_final), default=0.0)
    until = clock.monotonic() + session * 0.75
    while clock.monotonic() < until:
        clock.wait(SimpleQueue(), session / 16)
        for member, record in _read_group(directory, home)[2].items():
            has_written = member not in before or record.version > before[member].version
            if has_written and not record.is_final:
                return member
    return None


def _last_lifetime(directory: TableDirectory, group_id: str) -> str | None:
    home = group_home(consumers_of(directory), group_id)
    numbers = lifetimes(directory.store, home)
    return f"{home}/{max(numbers)}" if numbers else None


def _read_group(
    directory: TableDirectory, home: str
) -> tuple[dict[str, datetime | None], Sequence[int], dict[str, MemberRecord]]:
    statuses = directory.store.list_statuses(home)
    files = {status.path.rstrip("/").rsplit("/", 1)[-1]: last_write(status) for status in statuses}
    generations, versions = parse_names(files)
    records = {}
    for member, numbers in versions.items():
        path = f"{home}/{record_file(member, numbers[-1])}"
        try:
            records[member] = parse_file(path, directory.store.read(path), MemberRecord.from_json)
        except FileNotFoundError:
            continue
    return files, generations, records


def _info(
    state: GroupState,
    records: dict[str, MemberRecord],
    member: str | None,
    latest: int,
    files: dict[str, datetime | None],
) -> GroupMemberInfo | None:
    slots = tuple(slot for slot, ownership in enumerate(state.owned) if ownership.owner == member)
    if member is None and not slots:
        return None
    snapshots = [durable_position(slot, state.owned[slot], records).snapshot for slot in slots]
    least = min(snapshots, default=None)
    lag = None if least is None else max(0, latest - least + 1)
    record = records.get(member or "")
    heard = None if record is None else files.get(record_file(record.id, record.version))
    return GroupMemberInfo(member or "", "" if record is None else record.status.value, slots, least, lag, heard)
