"""`Progress`: what one reader may save under its consumer id, and when."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum

from pypaimon.streaming.consumers.consumer import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import ConsumerConflictError, StreamConfigError
from pypaimon.streaming.position import Phase, Position

_NEVER = float("-inf")
_REWRITES_PER_EXPIRATION = 3


class CommitMode(str, Enum):
    """Who confirms plans."""

    AUTO = "auto"
    """Asking for the next plan, and a clean end, confirm what was handed out."""
    MANUAL = "manual"
    """Only `commit`."""


@dataclass(frozen=True, slots=True)
class _HandedOut:
    before: Position
    after: Position


class _OwnFile:
    """One file that this reader writes, and what it knows of it. State changes only after the store has answered."""

    def __init__(self, manager: ConsumerManager, name: ConsumerName, owner: str) -> None:
        self._manager = manager
        self._owner = owner
        self.name = name
        self.next_snapshot: int | None = None
        self.written_at = _NEVER

    @property
    def mine(self) -> bool:
        return self.next_snapshot is not None

    def take_over(self, now: float) -> None:
        found = self._manager.read(self.name)
        if found is not None:
            self.write(found.next_snapshot, now)

    def check(self) -> None:
        found = self._manager.read(self.name)
        if found is None:
            if self.mine:
                raise self._conflict("it was deleted, or consumer.expiration-time has taken it")
        elif found.owner != self._owner:
            by = "Java, a reset or another library" if found.owner is None else f"another reader ({found.owner})"
            raise self._conflict(f"it now belongs to {by}, at snapshot {found.next_snapshot}")

    def write(self, next_snapshot: int, now: float) -> None:
        self._manager.write(self.name, Consumer(next_snapshot, self._owner))
        self.next_snapshot = next_snapshot
        self.written_at = now

    def delete(self) -> None:
        self._manager.delete(self.name)
        self.next_snapshot = None

    def _conflict(self, what: str) -> ConsumerConflictError:
        return ConsumerConflictError(
            f"{self._manager.path(self.name)}: {what}. This reader ({self._owner}, last saved: {self.next_snapshot}) "
            "wrote nothing. Only one reader at a time may use a consumer id, or a shard or member of it; the newest "
            "one goes on. Start this one again to take over."
        )


class Progress:
    """Bookkeeping of one reader with a consumer id: what it handed out, what was confirmed, and the files that say so.

    A file holds the greatest whole-snapshot position with no unconfirmed plan before it (at least once: a restart by
    consumer repeats from the first snapshot that was not wholly confirmed). It moves backward only with `begin`.
    There is no clock in here: `now` is seconds of any clock that does not go back. `open`, `begin`, `flush`,
    `keep_alive` and `committed` block and ask the store; the others do not. All may be called from any thread.
    A call that raised may be repeated.

    Args:
        manager: Consumers of the table and branch.
        name: The progress file, see `reader_name`.
        owner: Token of this reader, unique among all that ever read.
        commit: Who confirms.
        poll_interval: Seconds between two saves that only move over snapshots without a plan.
        expiration: Seconds of `consumer.expiration-time`, None if it is not set.
    """

    def __init__(
        self,
        manager: ConsumerManager,
        name: ConsumerName,
        *,
        owner: str,
        commit: CommitMode | str = CommitMode.AUTO,
        poll_interval: float = 0.0,
        expiration: float | None = None,
    ) -> None:
        try:
            self.commit_mode = CommitMode(commit)
        except ValueError as error:
            raise StreamConfigError(f"commit={commit!r}: wanted 'auto' or 'manual'.") from error
        self._manager = manager
        self._name = name
        self._poll_interval = poll_interval
        self._keep_alive_after = None if expiration is None else expiration / _REWRITES_PER_EXPIRATION
        # `_io` is held while the store is asked, `_state` for moments only: reporting a plan never waits for the store.
        self._io = threading.Lock()
        self._file = _OwnFile(manager, name, owner)
        self._fence = _OwnFile(manager, name.fenced, owner)
        self._may_have_fence = False
        self._created = False
        self._other_layouts = False
        self._state = threading.Lock()
        self._handed_out: deque[_HandedOut] = deque()
        self._frontier: Position | None = None
        self._floor: int | None = None
        self._wanted: int | None = None
        self._fence_needed_until = 0

    @property
    def name(self) -> ConsumerName:
        """The progress file."""
        return self._name

    @property
    def saved(self) -> int | None:
        """Next snapshot in the file, as this reader last wrote it; None before that. No IO."""
        return self._file.next_snapshot

    @property
    def confirmed(self) -> Position | None:
        """Position before the first unconfirmed plan; None before `begin`. Finer than `saved`. No IO."""
        with self._state:
            return self._confirmed()

    @property
    def keep_alive_after(self) -> float | None:
        """Seconds after which `keep_alive` rewrites a file; call it at least this often. None: never."""
        return self._keep_alive_after

    def committed(self) -> int | None:
        """Next snapshot in the file as it is in the store; None if there is none. One GET."""
        found = self._manager.read(self._name)
        return None if found is None else found.next_snapshot

    def open(self, now: float) -> int | None:
        """Take over the file and find where the consumer stands, before the first plan.

        Its own file counts; without one, the slowest file of a complete former layout (all n shards, or the plain id);
        a member has none. One GET, one LIST, one PUT if the file exists, one GET per file of a former layout.

        Returns:
            Id of the next snapshot to read, or None: start as configured.

        Raises:
            ConsumerConflictError: Called again, and another reader has taken over since.
            CorruptTableError: A file that counts is damaged.
        """
        with self._io:
            if self._frontier is not None or self._file.mine:
                self._check_owned()
            else:
                self._file.take_over(now)
                self._created = not self._file.mine
            names = self._manager.names(self._name.consumer_id)
            self._may_have_fence = self._name.fenced in names
            self._other_layouts = any(self._is_other_layout(name) for name in names)
            if self._file.mine or self._name.member is not None:
                return self._file.next_snapshot
            return self._former_position({name for name in names if not name.fence})

    def begin(self, position: Position, now: float) -> None:
        """Start at a position, or seek to it; before any plan from there is handed out. Call it again if it raised.

        A full plan (phase FULL) is fenced at its snapshot, and nothing is saved until all of it is confirmed. Any other
        position is saved at once, be it backward, and a fence is deleted. Plans handed out earlier that lie behind the
        position are forgotten; those before it stay to be confirmed.

        Raises:
            ConsumerConflictError: Another reader has taken over; nothing was written.
        """
        with self._io:
            full = position.phase is Phase.FULL
            if full:
                if self._frontier is not None:
                    self._check_owned()
                self._may_have_fence = True
                self._fence.write(position.snapshot, now)
            with self._state:
                order = position.order()
                self._handed_out = deque(plan for plan in self._handed_out if plan.after.order() <= order)
                self._frontier = position
                self._floor = None
                self._wanted = _whole(position)
                self._fence_needed_until = position.snapshot + 1 if full else 0
            self._flush(now, force=False)

    def on_plan(self, position: Position, first_snapshot: int | None = None) -> None:
        """A plan is handed out. To say so of the last one again changes nothing.

        Args:
            position: The plan's `position`.
            first_snapshot: The first snapshot that it holds, where snapshots before it were passed over unreported.

        Raises:
            ValueError: The plan does not lie after the one before it.
        """
        with self._state:
            last = self._handed_out[-1].after if self._handed_out else None
            if last is None or last != position:
                before = self._checked(position, strictly=True)
                if first_snapshot is not None and before.phase is Phase.FOLLOW and first_snapshot > before.snapshot:
                    before = Position(position.table, first_snapshot)
                self._handed_out.append(_HandedOut(before, position))
            if self._frontier is None or self._frontier < position:
                self._frontier = position

    def on_passed_over(self, position: Position) -> None:
        """Snapshots before `position` hold nothing for this reader. A full plan without rows is passed over too.

        Raises:
            ValueError: The position lies before the one reached.
        """
        with self._state:
            self._checked(position, strictly=False)
            self._frontier = position

    def confirm(self, position: Position) -> None:
        """Everything before `position` has arrived where it must; `flush` saves it.

        Raises:
            StreamConfigError: The position is of another table, or was not reached since the last `begin`.
        """
        with self._state:
            self._confirm(position)

    def confirm_handed_out(self) -> None:
        """The next plan is asked for, or the stream ends cleanly: `commit="auto"` confirms all that was handed out."""
        with self._state:
            if self.commit_mode is CommitMode.AUTO and self._frontier is not None:
                self._confirm(self._frontier)

    def flush(self, now: float, force: bool = False) -> None:
        """Save what is confirmed, then drop files that are no longer needed: the fence, those of a former layout.

        Nothing is asked if nothing changed. A save is one GET and one PUT.

        Args:
            now: Seconds.
            force: Save passed-over snapshots too if the poll interval is not over yet (at the end of the stream).

        Raises:
            ConsumerConflictError: Another reader has taken over, or the file is gone; nothing was written.
        """
        with self._io:
            self._flush(now, force)

    def keep_alive(self, now: float) -> None:
        """Rewrite the files if a third of `consumer.expiration-time` has passed since they were written.

        Raises:
            ConsumerConflictError: Another reader has taken over, or a file is gone; nothing was written to it.
        """
        if self._keep_alive_after is None:
            return
        with self._io:
            for file in (self._file, self._fence):
                if file.next_snapshot is not None and now - file.written_at >= self._keep_alive_after:
                    file.check()
                    file.write(file.next_snapshot, now)

    # With `_state` held.

    def _confirmed(self) -> Position | None:
        return self._handed_out[0].before if self._handed_out else self._frontier

    def _checked(self, position: Position, strictly: bool) -> Position:
        """The frontier, which this position lies after."""
        before = self._frontier
        if before is None:
            raise ValueError(f"{position} before begin()")
        if position < before or (strictly and position.order() == before.order()):
            raise ValueError(f"{position} does not lie after {before}")
        return before

    def _confirm(self, position: Position) -> None:
        frontier = self._frontier
        if frontier is not None and frontier.table != position.table:
            raise StreamConfigError(
                f"Position of another table: this stream reads {frontier.table!r}, not {position.table!r}."
            )
        order = position.order()
        if frontier is None or order > frontier.order():
            reached = "has not started" if frontier is None else f"has only reached snapshot {frontier.snapshot}"
            raise StreamConfigError(
                f"Snapshot {position.snapshot} cannot be confirmed: the stream {reached} since its start or the last "
                "seek. Confirm what this stream has handed out."
            )
        while self._handed_out and self._handed_out[0].after.order() <= order:
            self._handed_out.popleft()
        confirmed = self._confirmed()
        assert confirmed is not None
        if (whole := _whole(confirmed)) is not None:
            self._wanted = whole if self._wanted is None else max(whole, self._wanted)

    # With `_io` held.

    def _check_owned(self) -> None:
        if self._file.mine or not self._fence.mine:
            self._file.check()
        else:
            self._fence.check()
            self._file.check()

    def _flush(self, now: float, force: bool) -> None:
        with self._state:
            confirmed = self._confirmed()
            target = None if confirmed is None else _whole(confirmed)
            at_once = force or (self._wanted is not None and (self._floor is None or self._wanted > self._floor))
        if target is not None and (self._floor is None or target > self._floor):
            if target == self._file.next_snapshot:
                self._floor = target
            elif at_once or now - self._file.written_at >= self._poll_interval:
                self._check_owned()
                self._file.write(target, now)
                self._floor = target
        if self._file.mine:
            self._tidy_up()

    def _tidy_up(self) -> None:
        saved = self._file.next_snapshot
        assert saved is not None
        if self._floor is not None and saved >= self._fence_needed_until and self._may_have_fence:
            self._fence.delete()
            self._may_have_fence = False
        if self._other_layouts and self._floor is not None:
            self._drop_other_layouts()
            self._other_layouts = False

    def _is_other_layout(self, name: ConsumerName) -> bool:
        return self._name.member is None and name.member is None and name.progress not in self._name.layout

    def _former_position(self, names: set[ConsumerName]) -> int | None:
        """All before the slowest file of a complete layout was confirmed: the furthest layout repeats least."""
        starts = []
        for layout in {name.layout for name in names if self._is_other_layout(name)}:
            if layout <= names:
                files = [self._manager.read(name) for name in layout]
                if None not in files:
                    starts.append(min(file.next_snapshot for file in files if file is not None))
        return max(starts, default=None)

    def _drop_other_layouts(self) -> None:
        """Delete the former layouts' files once this one is complete.

        A reader that made its own file saw the others before: they are former ones. One that found its own file cannot
        tell leftovers from a layout that is just being built; what lies ahead of its own layout may be the latter.
        """
        names = self._manager.names(self._name.consumer_id)
        if not self._name.layout <= set(names):
            return
        others = [name for name in names if self._is_other_layout(name)]
        if not self._created:
            own = [file.next_snapshot for name in self._name.layout if (file := self._manager.read(name)) is not None]
            found = {name: self._manager.read(name) for name in others}
            others = [name for name, file in found.items() if file is not None and file.next_snapshot <= min(own)]
        for name in others:
            self._manager.delete(name)


def _whole(position: Position) -> int | None:
    """The snapshot from which a reader that knows only snapshots must go on; None inside a first full plan."""
    return None if position.phase is Phase.FULL else position.snapshot
