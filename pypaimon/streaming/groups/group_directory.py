"""`GroupDirectory`: answers the requests of a member from the store of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from queue import SimpleQueue
from typing import Any

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager, consumers_of, last_write
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.shared_start_coordinator import PreviousShardings
from pypaimon.streaming.errors import ConsumerConflictError, PaimonStreamError, StoreError
from pypaimon.streaming.groups.group_files import (
    GroupState,
    MemberRecord,
    parse_file,
    parse_names,
    record_file,
    state_file,
)
from pypaimon.streaming.groups.group_requests import (
    CheckStart,
    CreateFile,
    DeleteFiles,
    FindStart,
    ListNames,
    ReadFiles,
    ReadPin,
    ReportDeleted,
    Request,
    RetentionPin,
    WritePin,
)
from pypaimon.streaming.groups.rebalance import durable_position
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position

_MAX_LOOKS = 8
_OWNER = "group:"


class GroupDirectory:
    """The files of one lifetime of a group: the directory `consumer/group-<id>/<lifetime>/` and the retention pin.

    A group ends when its pin is deleted or replaced. The next members start a new lifetime in a directory of its own,
    so that late writes of the previous one go where no member looks. The pin is a consumer file in Java's format, so
    that Java's snapshot expiry respects it.

    Args:
        find_start: Returns the position where a stream with the group's settings would begin now.
        start_at: Returns the position before a snapshot, for a group that was reset to one.
        can_start: Whether a stream can still begin at a position.
        diagnosed: Returns the error for deleted files, which may be a part of a drop: see
            `SnapshotRangeValidator.diagnosed`.

    Attributes:
        lifetime: Number of the lifetime, from 1; 0 before `open`.
    """

    def __init__(
        self,
        manager: ConsumerManager,
        store: Store,
        consumer_id: str,
        find_start: Callable[[], Position],
        start_at: Callable[[int], Position],
        can_start: Callable[[Position], bool],
        diagnosed: Callable[..., PaimonStreamError] = lambda error, **_: error,
    ) -> None:
        self._manager = manager
        self._store = store
        self._consumer_id = consumer_id
        self._pin = ConsumerName(consumer_id, group=True)
        self._has_previous_shardings = True
        self._home = group_home(manager, consumer_id)
        self._find_start = find_start
        self._start_at = start_at
        self._can_start = can_start
        self._diagnosed = diagnosed
        self.has_begun = False
        self.lifetime = 0

    @property
    def owner(self) -> str:
        return f"{_OWNER}{self.lifetime}"

    def open(self) -> GroupState | None:
        """Find the lifetime to join: the last one, or the next one if that has ended.

        Returns:
            Its last state; None if it has none yet.

        Raises:
            CorruptTableError: Its last state is damaged.
            ConsumerConflictError: Its files were deleted.
            TableChangedError: The table was dropped or renamed.
        """
        for _ in range(_MAX_LOOKS):
            last = max(lifetimes(self._store, self._home), default=0)
            state = self._last_state(f"{self._home}/{last}") if last else None
            self.has_begun = state is not None and state.begun
            # A group that has not begun may not have written its pin yet.
            pin = None if state is not None and not state.begun else self._read_pin()
            # If the pin is that of a later lifetime, that one began after the listing. Its files exist by now.
            if pin is None or _lifetime_of(pin) <= last:
                ended = last == 0 or (state is not None and _has_ended(last, state, pin))
                self.lifetime = last + 1 if ended else last
                return None if ended else state
        raise self._deleted()

    def _last_state(self, directory: str) -> GroupState | None:
        for _ in range(_MAX_LOOKS):
            generations, _ = parse_names(self._store.list_names(directory))
            if not generations:
                return None
            path = f"{directory}/{state_file(generations[-1])}"
            # It may have been deleted since it was listed; then there are newer ones.
            with suppress(FileNotFoundError):
                return parse_file(path, self._store.read(path), GroupState.from_json)
        raise StoreError(f"{directory}: a listing contains its last state, but it cannot be found")

    def answer(self, request: Request) -> Any:
        """The answer to a request.

        Raises:
            StoreError: The store failed. The request may have been carried out.
            CorruptTableError: Access to a file is denied.
            ConsumerConflictError: The files of the group were deleted.
            TableChangedError: The table was dropped or renamed.
            StreamConfigError: The store cannot create a file only if it does not exist.
        """
        if isinstance(request, ListNames):
            found = self._store.statuses_by_name(self._directory)
            return {name: _seconds(status.mtime) for name, status in found.items()}
        if isinstance(request, ReadFiles):
            return self._store.read_many([self._path(name) for name in request.names])
        if isinstance(request, CreateFile):
            return self._create(request)
        if isinstance(request, DeleteFiles):
            self._store.delete_all([self._path(name) for name in request.names])
            return None
        if isinstance(request, ReadPin):
            return self._read_pin()
        if isinstance(request, WritePin):
            return self._write_pin(request)
        if isinstance(request, CheckStart):
            return self._can_start(request.position)
        if isinstance(request, ReportDeleted):
            raise self._deleted()
        assert isinstance(request, FindStart)
        return self._start()

    def _create(self, request: CreateFile) -> bool:
        # Only the first file of a group creates its directories. If they are missing later, they were deleted, and
        # creating them would bring back the directory of a dropped table.
        directories = 3 if request.name == state_file(0) else 0
        try:
            return self._store.create_exclusive(self._path(request.name), request.data, directories)
        except FileNotFoundError:
            raise self._deleted() from None

    def _deleted(self) -> PaimonStreamError:
        conflict = ConsumerConflictError(
            f"{self._home}: the files of group {self._consumer_id!r} were deleted, alone or with the table, and with "
            "them what its members have confirmed. To start again, run paimon-stream consumers reset with a snapshot, "
            "or consumers delete for the configured start."
        )
        # A group begins once the table has a snapshot.
        return self._diagnosed(conflict, had_snapshots=self.has_begun)

    @property
    def _directory(self) -> str:
        return f"{self._home}/{self.lifetime}"

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _read_pin(self) -> RetentionPin | None:
        found = self._manager.look(self._pin)
        if found is None:
            return None
        consumer, seen = found
        self.has_begun |= consumer.owner == self.owner
        return RetentionPin(consumer.next_snapshot, consumer.owner, seen, consumer.fingerprint)

    def _write_pin(self, request: WritePin) -> bool:
        seen = None if request.found is None else request.found.seen
        try:
            pin = Consumer(request.floor, owner=self.owner, fingerprint=request.fingerprint)
            self._manager.replace(self._pin, pin, seen)
        except ChangedFileError:
            return False
        self.has_begun = True
        if self._has_previous_shardings:
            # From now on the pin keeps what the progress files of earlier readers of this id have kept.
            names = set(self._manager.names(self._consumer_id))
            PreviousShardings(self._manager, self._pin).drop(names, created=True)
            self._has_previous_shardings = False
        return True

    def _start(self) -> Position:
        pin = self._read_pin()
        return self._start_at(pin.floor) if pin is not None and pin.owner is None else self._find_start()


def group_home(manager: ConsumerManager, consumer_id: str) -> str:
    return f"{manager.directory}/group-{consumer_id}"


def lifetimes(store: Store, home: str) -> list[int]:
    """Numbers of the lifetimes in the directory of a group. One listing."""
    return [int(name) for name in store.list_names(home) if name.isascii() and name.isdigit()]


def _has_ended(lifetime: int, state: GroupState, pin: RetentionPin | None) -> bool:
    if not state.begun:
        return False
    return state.conflict is not None or pin is None or pin.owner != f"{_OWNER}{lifetime}"


def _lifetime_of(pin: RetentionPin) -> int:
    """The lifetime that wrote a pin; 0 if no group did."""
    number = (pin.owner or "").removeprefix(_OWNER)
    return int(number) if number.isascii() and number.isdigit() else 0


def _seconds(modified: Any) -> float | None:
    """A modification time in seconds of the store's clock."""
    if isinstance(modified, datetime):
        return (modified if modified.tzinfo else modified.replace(tzinfo=timezone.utc)).timestamp()
    return None if modified is None else float(modified)


_UNKNOWN_SESSION = 30.0


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One member of a group, or all slots without an owner.

    Attributes:
        member: Its id: its name, a dot, and digits that are new each time it joins; `""` for slots without an owner.
        status: joining, active, left, or sealed (fenced by another member); `""` for slots without an owner.
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
    files = {name: last_write(status) for name, status in directory.store.statuses_by_name(home).items()}
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
