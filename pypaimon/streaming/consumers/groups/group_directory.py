"""`GroupDirectory`: answers what the members of a group ask for, out of a table's store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.former_layouts import FormerLayouts
from pypaimon.streaming.consumers.groups.group_files import numbers_of, state_name
from pypaimon.streaming.consumers.groups.group_requests import (
    CreateFile,
    DeleteFiles,
    Fence,
    FindStart,
    ListNames,
    LookAtFence,
    ReadFiles,
    ReportDeleted,
    Request,
    Stands,
    WriteFence,
)
from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.consumers.groups.group_view import parsed
from pypaimon.streaming.errors import ConsumerConflictError, StoreError, TableChangedError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.position import Position

_MOST_LOOKS = 8
_OWNER = "group:"


class GroupDirectory:
    """The files of one incarnation of a group: `consumer/group-<id>/<incarnation>/`, and the fence beside them.

    A group that has begun and whose fence is gone, or is another's, has ended; the next members make a new incarnation,
    in a directory of its own, where no late write of a former one is looked for. The fence is a consumer file in Java's
    format, so that Java's expiry heeds it.

    Args:
        manager: Consumers of the table and branch.
        store: Requests go through this one.
        consumer_id: Of the group.
        find_start: Gives the position at which a stream with the group's settings would begin now.
        start_at: Gives the position before a snapshot, where somebody has set the group to one.
        stands: Whether a stream could still begin at a position.
        check_table: Raises TableChangedError if the table is not there any more.

    Attributes:
        incarnation: The one that is used, from 1; 0 before `open`.
    """

    def __init__(
        self,
        manager: ConsumerManager,
        store: Store,
        consumer_id: str,
        find_start: Callable[[], Position],
        start_at: Callable[[int], Position],
        stands: Callable[[Position], bool],
        check_table: Callable[[], None] = lambda: None,
    ) -> None:
        self._manager = manager
        self._store = store
        self._consumer_id = consumer_id
        self._fence = ConsumerName(consumer_id, group=True)
        self._has_former = True
        self._home = group_home(manager, consumer_id)
        self._find_start = find_start
        self._start_at = start_at
        self._stands = stands
        self._check_table = check_table
        self.incarnation = 0

    @property
    def owner(self) -> str:
        """Whose the fence of the incarnation is."""
        return f"{_OWNER}{self.incarnation}"

    def open(self) -> GroupState | None:
        """Find the incarnation to be a member of: the last one, or the next if that has ended.

        Returns:
            Its last state; None: it has none yet.

        Raises:
            CorruptTableError: Its last state is damaged.
            ConsumerConflictError: Its files were deleted.
            TableChangedError: The table was dropped, or has another name.
            StoreError: The store failed.
        """
        for _ in range(_MOST_LOOKS):
            last = max(incarnations(self._store, self._home), default=0)
            state = self._last_state(f"{self._home}/{last}") if last else None
            fence = None if state is not None and not state.begun else self._look()
            # Of an incarnation that came in between the files are there by now.
            if fence is None or _incarnation_of(fence) <= last:
                ended = last == 0 or (state is not None and _has_ended(last, state, fence))
                self.incarnation = last + 1 if ended else last
                return None if ended else state
        raise self._deleted()

    def _last_state(self, directory: str) -> GroupState | None:
        for _ in range(_MOST_LOOKS):
            states, _ = numbers_of(self._store.list_names(directory))
            if not states:
                return None
            path = f"{directory}/{state_name(states[-1])}"
            # It may have gone since; then there are newer ones.
            with suppress(FileNotFoundError):
                return parsed(path, self._store.read(path), GroupState.from_json)
        raise StoreError(f"{directory}: its last state is listed, and is not there")

    def answer(self, request: Request) -> Any:
        """What a request comes to.

        Raises:
            StoreError: The store failed; it may have been done.
            CorruptTableError: A file may not be read or written.
            ConsumerConflictError: The files of the group were deleted.
            TableChangedError: The table was dropped, or has another name.
            StreamConfigError: The store cannot make a file where none of the name is.
        """
        if isinstance(request, ListNames):
            statuses = self._store.list_statuses(self._directory)
            return {status.path.rstrip("/").rsplit("/", 1)[-1]: _seconds(status.mtime) for status in statuses}
        if isinstance(request, ReadFiles):
            return self._store.read_many([self._path(name) for name in request.names])
        if isinstance(request, CreateFile):
            return self._create(request)
        if isinstance(request, DeleteFiles):
            self._store.delete_many([self._path(name) for name in request.names])
            return None
        if isinstance(request, LookAtFence):
            return self._look()
        if isinstance(request, WriteFence):
            return self._write(request)
        if isinstance(request, Stands):
            return self._stands(request.position)
        if isinstance(request, ReportDeleted):
            raise self._deleted()
        assert isinstance(request, FindStart)
        return self._start()

    def _create(self, request: CreateFile) -> bool:
        # The first file of a group makes its directories, no later one does: they may have been deleted since.
        directories = 3 if request.name == state_name(0) else 0
        try:
            return self._store.create_exclusive(self._path(request.name), request.data, directories)
        except FileNotFoundError:
            raise self._deleted() from None

    def _deleted(self) -> Exception:
        """Why the files of the group are not there."""
        try:
            self._check_table()
        except TableChangedError as error:
            return error
        return ConsumerConflictError(
            f"{self._home}: the files of group {self._consumer_id!r} were deleted, and with them what its members have "
            "confirmed. To begin again, set where: paimon-stream consumers reset, or consumers delete for its "
            "configured start."
        )

    @property
    def _directory(self) -> str:
        return f"{self._home}/{self.incarnation}"

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _look(self) -> Fence | None:
        found = self._manager.look(self._fence)
        return None if found is None else Fence(found[0].next_snapshot, found[0].owner, found[1], found[0].fingerprint)

    def _write(self, request: WriteFence) -> bool:
        seen = None if request.found is None else request.found.seen
        try:
            fence = Consumer(request.floor, owner=self.owner, fingerprint=request.fingerprint)
            self._manager.replace(self._fence, fence, seen)
        except ChangedFileError:
            return False
        if self._has_former:
            # What other readers of the id have left is kept by the fence from now on.
            FormerLayouts(self._manager, self._fence).drop(set(self._manager.names(self._consumer_id)), created=True)
            self._has_former = False
        return True

    def _start(self) -> Position:
        """Where Java or a reset has set the group to; else where its settings say."""
        fence = self._look()
        return self._start_at(fence.floor) if fence is not None and fence.owner is None else self._find_start()


def group_home(manager: ConsumerManager, consumer_id: str) -> str:
    """The directory of a group; need not exist."""
    return f"{manager.directory}/group-{consumer_id}"


def incarnations(store: Store, home: str) -> list[int]:
    """Numbers of the incarnations that are in the directory of a group. One listing."""
    return [int(name) for name in store.list_names(home) if name.isascii() and name.isdigit()]


def _has_ended(incarnation: int, state: GroupState, fence: Fence | None) -> bool:
    if not state.begun:
        return False
    return state.conflict is not None or fence is None or fence.owner != f"{_OWNER}{incarnation}"


def _incarnation_of(fence: Fence) -> int:
    """Whose a fence is; 0: of no group."""
    number = (fence.owner or "").removeprefix(_OWNER)
    return int(number) if number.isascii() and number.isdigit() else 0


def _seconds(modified: Any) -> float | None:
    """A time of modification in seconds of the store's clock."""
    if isinstance(modified, datetime):
        return (modified if modified.tzinfo else modified.replace(tzinfo=timezone.utc)).timestamp()
    return None if modified is None else float(modified)
