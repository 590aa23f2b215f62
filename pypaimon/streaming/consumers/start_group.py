"""`StartGroup`: readers of one consumer id begin at one start, whenever each of them comes, dies and comes again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.shared_start import SharedStart
from pypaimon.streaming.errors import ConsumerConflictError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.model.position import Phase, Position

_TRIES = 8


@dataclass(frozen=True, slots=True)
class StartSettings:
    """What a reader is told of its start.

    Attributes:
        configured: The start that it is configured with, as text; equal for readers that may share one.
        explicit: It is a position of the caller's, which beats whatever is saved.
        ignore_progress: Saved progress is not used.
        rows_move: Compaction moves rows between the shards of the table, so that shards which begin at different
            snapshots lose and repeat rows.
    """

    configured: str = "latest-full"
    explicit: bool = False
    ignore_progress: bool = False
    rows_move: bool = False


class StartGroup:
    """The start that a reader shares with the other shards or members of its consumer id, and with its own restarts.

    The first reader to come creates the file `<id>.first-plan` (of a plain reader, that is its fence), which keeps the
    snapshot from expiry; the others begin there. While it stands, a shard's progress file says whether its reader began
    with this start. It goes once every shard has saved progress; that of members once none is in its first plan.

    What a snapshot added is the same shard's for good. Compaction moves rows between the shards of a full state only: a
    full state found anew (a policy for expired positions, progress ignored or gone) is one for all shards then, and the
    files of those that go on elsewhere are deleted, so that their next save is a conflict.

    Args:
        manager: Consumers of the table and branch.
        name: The reader's progress file.
        owner: Its token.
        settings: Its start.

    Attributes:
        token: Of the start that this reader began with, or means to; None without one.
        unsettled: The file of the start may be there, and may have to go.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName, owner: str, settings: StartSettings) -> None:
        self._manager = manager
        self._name = name
        self._owner = owner
        self._settings = settings
        self._numbers = itertools.count(1)
        self._start: SharedStart | None = None
        self._shared: SharedStart | None = None
        self._fence: SharedStart | None = None
        self._left_behind: str | None = None
        self.token: str | None = None
        self.unsettled = False

    @property
    def is_plain(self) -> bool:
        """Whether the reader is alone: its fence is the file of the start."""
        return self._name.shard is None and self._name.member is None

    def fence_start(self, position: Position) -> SharedStart | None:
        """What a fence of the first full plan at a position says of its start."""
        known = (each for each in (self._start, self._shared) if each is not None)
        whole = (each for each in known if each.position.phase is Phase.FULL)
        return next((each for each in whole if each.position.snapshot == position.snapshot), None)

    def open(self, names: AbstractSet[ConsumerName]) -> None:
        """Look which start stands. One GET if there is any, and one if the reader has a fence of its own."""
        self._shared = self._read(self._name.shared_start, names)
        self.unsettled = not self.is_plain and self._name.shared_start in names
        fence = self._shared if self.is_plain else self._read(self._name.fenced, names)
        self._fence = fence
        # A member whose start is its own goes on at it.
        if self._name.member is not None and fence is not None and self._fits(fence):
            self._shared = fence

    def goes_on(self, own: Consumer) -> bool:
        """Whether a reader goes on where its own file says: the start that stands does not beat it."""
        shared = self._shared
        if shared is None or own.owner is None or own.began == shared.token:
            return True
        anew = self._moves_rows(shared) or self.is_plain
        return not anew and (self._fence is None or self._fence.token != shared.token)

    def follows(self, former: AbstractSet[str | None]) -> bool:
        """Whether a former layout, whose files began with these starts, has gone beyond the start that stands."""
        return self._shared is None or former == {self._shared.token}

    def took_up(self, began: str | None = None) -> None:
        """The reader goes on behind a start: that of its own file, or else the one that stands."""
        self.token = began if began is not None or self._shared is None else self._shared.token

    def joined(self, own: Consumer | None) -> SharedStart | None:
        """The start that stands, for a reader without progress to go on from; None: it is to find one.

        Raises:
            StreamConfigError: The other shards began at a start that was configured otherwise.
        """
        shared = self._shared
        if shared is None:
            return None
        if self._settings.explicit:
            self.took_up()
            return None
        used = shared.token in (self._fence and self._fence.token, own and own.began)
        if self._settings.ignore_progress and (self.is_plain or used or not self._fits(shared)):
            # It is to be replaced.
            self.took_up()
            return None
        if not self._fits(shared) and self._name.shard is None:
            return None
        self._check_fits(shared)
        self._begin_with(shared)
        return shared

    def share(self, position: Position, end: int | None) -> SharedStart | None:
        """A start was found: make it that of the group, unless there is one already.

        Args:
            position: The start.
            end: Where the stream ends, if that was found with it.

        Returns:
            Another start, at which the reader is to begin instead; None: begin at this one.
        """
        start = self._new(position, end)
        fence = Consumer(position.snapshot, self._owner, start=start)
        for _ in range(_TRIES):
            if self._is_apart(position):
                self._begin_with(start)
                return None
            found = self._manager.look(self._name.shared_start)
            shared = self._shared = None if found is None else found[0].start
            if self._is_apart(position):
                continue
            if shared is not None and shared.token != self.token:
                self._check_fits(shared)
                self._begin_with(shared)
                return shared
            try:
                self._manager.replace(self._name.shared_start, fence, None if found is None else found[1])
            except ChangedFileError:
                continue
            self._begin_with(start)
            return None
        raise ConsumerConflictError(f"{self._manager.path(self._name.shared_start)}: others keep writing it; try again")

    def leave_behind(self) -> bool:
        """Delete the progress of shards that did not begin with this start, where they could not go on.

        One LIST, once for each start.

        Returns:
            Whether the reader's own file is not there: it was among them, or another one that begins here was faster.
        """
        if not self._replaces_all or self._left_behind == self.token:
            return False
        names = self._manager.names(self._name.consumer_id)
        is_gone = self._name in self._delete_stale(names) or self._name not in names
        self._left_behind = self.token
        return is_gone

    def check(self, own_began: str | None) -> None:
        """Before the first save: the start that this reader began with still is the group's. One GET.

        Raises:
            ConsumerConflictError: It is another one.
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
        """Why the reader's file is gone or another's: the group started anew. None if it did not. One GET."""
        found = None if self.is_plain else self._manager.read(self._name.shared_start)
        if found is None or found.start is None or found.start.token == self.token:
            return None
        return ConsumerConflictError(
            f"{self._manager.path(self._name)}: the shards of consumer id {self._name.consumer_id!r} started anew at "
            f"{found.start.text}. This reader wrote nothing. Start it again: it begins there too."
        )

    def settle(self, names: AbstractSet[ConsumerName]) -> None:
        """After a save: delete the file of the start if nobody needs it any more."""
        if self._name.member is None:
            done = self._name.layout <= names and not any(name.fenced in names for name in self._name.layout)
            # Where saves do not compare, one that was under way has perhaps come back since `leave_behind`.
            done = done and not (self._replaces_all and self._delete_stale(names))
        else:
            done = not any(name.member is not None and name.fence for name in names)
        self.unsettled = False
        if done:
            self._manager.delete(self._name.shared_start)
            self._shared = None

    def keep_alive(self) -> None:
        """Rewrite the file of the start while other readers may still come for it. One GET, one PUT if it is there."""
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
        """Whether no shard may begin with another start than this reader."""
        return self._start is not None and self._settings.rows_move and self._name.shard is not None

    @property
    def _replaces_all(self) -> bool:
        """Whether shards that did not begin with this reader's start cannot go on."""
        return self._start is not None and self._name.shard is not None and self._moves_rows(self._start)

    def _moves_rows(self, start: SharedStart) -> bool:
        """Whether a row of this start may be another shard's than in a start before."""
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
        """Whether a start is this reader's own business: of a plain one, or of a member that leaves the others'."""
        if self._name.shard is not None:
            return False
        shared = self._shared
        return self.is_plain or position.phase is Phase.FOLLOW or not (shared is None or self._fits(shared))

    def _delete_stale(self, names: Iterable[ConsumerName]) -> list[ConsumerName]:
        """Delete the progress files of shards that began elsewhere. One GET for each shard's file."""
        stale = [name for name in names if name in self._name.layout and self._is_stale(name)]
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
