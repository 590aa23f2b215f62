"""The start that the shards of a consumer id share, and the files of its previous shardings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName, SharedStart
from pypaimon.streaming.errors import ConsumerConflictError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.model.position import Phase, Position


class PreviousShardings:
    """The shardings of a consumer id other than this reader's; a reader without shards counts as one of them.

    Members have none: each of them saves under a name of its own.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName) -> None:
        self._manager = manager
        self._name = name

    def among(self, names: AbstractSet[ConsumerName]) -> list[ConsumerName]:
        """Their files, pins included, without the file of the shared start."""
        if self._name.member is not None:
            return []
        shared = self._name.shared_start
        others = (name for name in names if name.member is None and name != shared)
        return [name for name in others if name.progress not in self._name.sharding]

    def position(
        self, names: AbstractSet[ConsumerName], counts: Callable[[AbstractSet[str | None]], bool]
    ) -> Consumer | None:
        """The slowest file of a complete sharding: everything before it was confirmed. None if there is none.

        Of several complete shardings the one that is furthest counts, since it repeats least.
        """
        positions = []
        for sharding in {name.sharding for name in self.among(names) if not name.is_pin}:
            files = [self._manager.read(name) for name in sharding] if sharding <= names else [None]
            found = [file for file in files if file is not None]
            if len(found) == len(files) and counts({file.began for file in found}):
                positions.append(min(found, key=_next_snapshot))
        return max(positions, key=_next_snapshot, default=None)

    def drop(self, names: AbstractSet[ConsumerName], created: bool) -> None:
        """Delete their files once this sharding is complete.

        If this reader created its own file, the others were there before: they are from earlier. If it found its own
        file, the others may also belong to a newer sharding that is just starting. Only files that are not ahead of
        this sharding are surely from earlier.
        """
        if not self._name.sharding <= names:
            return
        others = self.among(names)
        if not created:
            own = [file.next_snapshot for name in self._name.sharding if (file := self._manager.read(name)) is not None]
            found = {name: self._manager.read(name) for name in others}
            others = [name for name, file in found.items() if file is not None and file.next_snapshot <= min(own)]
        for name in others:
            self._manager.delete(name)


def _next_snapshot(file: Consumer) -> int:
    return file.next_snapshot


_TRIES = 8


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Settings of a reader that decide where it starts.

    Attributes:
        configured: The configured start as text; equal for readers that may share one.
        explicit: The caller gave a position, which takes precedence over saved progress.
        ignore_progress: Saved progress is not used.
        rows_move: Compaction moves rows between the shards of the table. Shards that began at different snapshots
            would lose and repeat rows.
    """

    configured: str = "latest-full"
    explicit: bool = False
    ignore_progress: bool = False
    rows_move: bool = False


class SharedStartCoordinator:
    """The start that a reader shares with the other shards or members of its consumer id, and with its own restarts.

    The first reader creates the file `<id>.first-plan` (of a reader without shards that is its own pin), which keeps
    the snapshot from expiring; the others begin there. While the file exists, the progress file of a shard says whether
    its reader began with this start. The file is deleted once every shard has saved progress, or once no member is in
    its first plan.

    The changes of a snapshot belong to the same shard forever. But compaction moves rows between the shards of a full
    state. So if one shard finds another full state later (its position has expired, or its progress was ignored or
    deleted), all shards have to begin there. The progress files of the others are deleted, so that their next save is a
    conflict.

    Attributes:
        token: Token of the start that this reader began with, or will begin with; None without one.
        unsettled: The file of the start may exist, and may have to be deleted.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName, owner: str, settings: StartSettings) -> None:
        self._manager = manager
        self._name = name
        self._owner = owner
        self._settings = settings
        self._numbers = itertools.count(1)
        self._start: SharedStart | None = None
        self._shared: SharedStart | None = None
        self._pinned: SharedStart | None = None
        self._reset_for: str | None = None
        self.token: str | None = None
        self.unsettled = False

    @property
    def is_plain(self) -> bool:
        """Whether the reader is neither a shard nor a member, so that its pin is the file of the start."""
        return self._name.shard is None and self._name.member is None

    def pinned_start(self, position: Position) -> SharedStart | None:
        """The start that a pin of the first full plan at a position carries."""
        known = (each for each in (self._start, self._shared) if each is not None)
        full = (each for each in known if each.position.phase is Phase.FULL)
        return next((each for each in full if each.position.snapshot == position.snapshot), None)

    def open(self, names: AbstractSet[ConsumerName]) -> None:
        """Read the shared start. One GET if there is one, and another if the reader has a pin of its own."""
        self._shared = self._read(self._name.shared_start, names)
        self.unsettled = not self.is_plain and self._name.shared_start in names
        pinned = self._shared if self.is_plain else self._read(self._name.pin, names)
        self._pinned = pinned
        # A member with a start of its own continues at that one.
        if self._name.member is not None and pinned is not None and self._fits(pinned):
            self._shared = pinned

    def continues(self, own: Consumer) -> bool:
        """Whether the reader continues from its own file, because the shared start does not take precedence."""
        shared = self._shared
        if shared is None or own.owner is None or own.began == shared.token:
            return True
        begins_again = self._moves_rows(shared) or self.is_plain
        return not begins_again and (self._pinned is None or self._pinned.token != shared.token)

    def follows(self, began: AbstractSet[str | None]) -> bool:
        """Whether a previous sharding, whose files began with these starts, is past the shared start."""
        return self._shared is None or began == {self._shared.token}

    def resume(self, began: str | None = None) -> None:
        """The reader continues after a start: that of its own file, or else the shared one."""
        self.token = began if began is not None or self._shared is None else self._shared.token

    def join(self, own: Consumer | None) -> SharedStart | None:
        """The shared start, for a reader that has no progress to continue from; None: the reader has to find a start.

        Raises:
            StreamConfigError: The other shards began at a start that was configured differently.
        """
        shared = self._shared
        if shared is None:
            return None
        if self._settings.explicit:
            self.resume()
            return None
        used = shared.token in (self._pinned and self._pinned.token, own and own.began)
        if self._settings.ignore_progress and (self.is_plain or used or not self._fits(shared)):
            # The reader replaces it with another one.
            self.resume()
            return None
        if not self._fits(shared) and self._name.shard is None:
            return None
        self._check_fits(shared)
        self._begin_with(shared)
        return shared

    def share(self, position: Position, end: int | None) -> SharedStart | None:
        """This reader has found a start: make it the shared one, unless another reader was faster.

        Args:
            end: Where the stream ends, if that was found together with the start.

        Returns:
            The start of the other reader, where this one has to begin instead; None: begin at this start.
        """
        start = self._new(position, end)
        pin = Consumer(position.snapshot, self._owner, start=start)
        for _ in range(_TRIES):
            if self._is_apart(position):
                self._begin_with(start)
                return None
            found = self._manager.look(self._name.shared_start)
            shared = self._shared = None if found is None else found[0].start
            # By what was just read: a member whose start is configured differently begins alone.
            if self._is_apart(position):
                continue
            if shared is not None and shared.token != self.token:
                self._check_fits(shared)
                self._begin_with(shared)
                return shared
            try:
                self._manager.replace(self._name.shared_start, pin, None if found is None else found[1])
            except ChangedFileError:
                continue
            self._begin_with(start)
            return None
        raise ConsumerConflictError(
            f"{self._manager.path(self._name.shared_start)}: other readers keep writing it; try again"
        )

    def reset_others(self) -> bool:
        """Delete the progress of shards that began with another start, if they cannot continue.

        One LIST, once for each start.

        Returns:
            Whether the reader's own file is missing: it was deleted here, or by another reader that begins here too.
        """
        if not self._replaces_all or self._reset_for == self.token:
            return False
        names = self._manager.names(self._name.consumer_id)
        is_gone = self._name in self._delete_stale(names) or self._name not in names
        self._reset_for = self.token
        return is_gone

    def check(self, own_began: str | None) -> None:
        """Before the first save: check that the start is still the shared one. One GET.

        Raises:
            ConsumerConflictError: There is another one.
        """
        if not self._is_for_all or own_began == self.token:
            return
        found = self._manager.read(self._name.shared_start)
        if found is None or found.start is None or found.start.token != self.token:
            raise self.conflict() or ConsumerConflictError(
                f"{self._manager.path(self._name.shared_start)}: it was deleted while {self._name.text} was in its "
                "first plan, so that other shards may begin elsewhere. Nothing was saved; start this reader again."
            )

    def conflict(self) -> ConsumerConflictError | None:
        """The error that says that all shards began again, if that is why the reader's file is gone. One GET."""
        found = None if self.is_plain else self._manager.read(self._name.shared_start)
        if found is None or found.start is None or found.start.token == self.token:
            return None
        return ConsumerConflictError(
            f"{self._manager.path(self._name)}: the shards of consumer id {self._name.consumer_id!r} began again at "
            f"{found.start.text}. This reader wrote nothing. Start it again: it begins there too."
        )

    def settle(self, names: AbstractSet[ConsumerName]) -> None:
        """After a save: delete the file of the start if no reader needs it any more."""
        if self._name.member is None:
            done = self._name.sharding <= names and not any(name.pin in names for name in self._name.sharding)
            # Without conditional writes, a save that was under way may have come back since `reset_others`.
            done = done and not (self._replaces_all and self._delete_stale(names))
        else:
            done = not any(name.member is not None and name.is_pin for name in names)
        self.unsettled = False
        if done:
            self._manager.delete(self._name.shared_start)
            self._shared = None

    def keep_alive(self) -> None:
        """Rewrite the file of the start while other readers may still begin there. One GET, one PUT if it exists."""
        if self.token is None or self.is_plain or self._shared is None:
            return
        found = self._manager.look(self._name.shared_start)
        if found is None or found[0].start is None or found[0].start.token != self.token:
            self._shared = None
            return
        try:
            self._manager.replace(self._name.shared_start, *found)
        except ChangedFileError:
            # Another reader has just written it.
            return

    @property
    def _is_for_all(self) -> bool:
        return self._start is not None and self._settings.rows_move and self._name.shard is not None

    @property
    def _replaces_all(self) -> bool:
        return self._start is not None and self._name.shard is not None and self._moves_rows(self._start)

    def _moves_rows(self, start: SharedStart) -> bool:
        """Whether a row of this start may belong to another shard than in an earlier start."""
        return self._settings.rows_move and start.position.phase is Phase.FULL

    def _read(self, name: ConsumerName, names: AbstractSet[ConsumerName]) -> SharedStart | None:
        found = self._manager.read(name) if name in names else None
        return None if found is None else found.start

    def _fits(self, start: SharedStart) -> bool:
        return start.configured == self._settings.configured

    def _check_fits(self, shared: SharedStart) -> None:
        if not self._fits(shared):
            raise StreamConfigError(
                f"{self._manager.path(self._name.shared_start)}: the readers of consumer id "
                f"{self._name.consumer_id!r} began at {shared.text}, for the start {shared.configured!r}; this one "
                f"is configured with {self._settings.configured!r}. Give all of them the same start, or delete the "
                "consumer (paimon-stream consumers delete), and start all of them again."
            )

    def _is_apart(self, position: Position) -> bool:
        """Whether a start concerns only this reader: a plain one, or a member that does not begin with the others."""
        if self._name.shard is not None:
            return False
        shared = self._shared
        return self.is_plain or position.phase is Phase.FOLLOW or not (shared is None or self._fits(shared))

    def _delete_stale(self, names: Iterable[ConsumerName]) -> list[ConsumerName]:
        stale = [name for name in names if name in self._name.sharding and self._is_stale(name)]
        for name in stale:
            self._manager.delete(name)
        return stale

    def _is_stale(self, name: ConsumerName) -> bool:
        found = self._manager.read(name)
        # None: another reader of this start has just deleted it.
        return found is None or found.began != self.token

    def _new(self, position: Position, end: int | None) -> SharedStart:
        whole = replace(position, unit=None)
        return SharedStart(f"{self._owner}.{next(self._numbers)}", whole, self._settings.configured, end)

    def _begin_with(self, start: SharedStart) -> None:
        self._start = self._shared = start
        self.token = start.token
        self.unsettled = not self.is_plain
