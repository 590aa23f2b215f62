"""`Progress`: what one reader saves under its consumer id, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName, SharedStart
from pypaimon.streaming.consumers.progress_file import ProgressFile
from pypaimon.streaming.consumers.shared_start_coordinator import (
    PreviousShardings,
    SharedStartCoordinator,
    StartSettings,
)
from pypaimon.streaming.consumers.unconfirmed import UnconfirmedPlans
from pypaimon.streaming.errors import ConsumerConflictError, PaimonStreamError, StreamConfigError
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.stream_options import CommitMode

_REWRITES_PER_EXPIRATION = 3


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a consumer continues.

    Attributes:
        saved: The file that says where the reader continues; None if nothing was saved.
        start: The start at which the reader begins instead: one of the other shards or members, or its own from before
            a crash. None if there is none.
    """

    saved: Consumer | None
    start: SharedStart | None = None

    @property
    def next_snapshot(self) -> int | None:
        return None if self.saved is None else self.saved.next_snapshot


class Progress:
    """Bookkeeping of one reader with a consumer id: what it handed out, what was confirmed, and the files that say so.

    The file holds the greatest position between snapshots with no unconfirmed plan before it. A restart by consumer
    repeats from the first snapshot that was not confirmed as a whole (at least once). Only `begin` moves the file
    backward. There is no clock in here: `now` is seconds of any clock that does not go back. `open`, `begin`, `flush`,
    `keep_alive` and `committed` block and ask the store; the other methods do not. All may be called from any thread. A
    call that raised may be repeated.

    The order of calls: `open` once, before the first plan. `begin` when the start is found, and again after each seek.
    `on_plan` for each plan, in the same uncancellable moment in which the caller gets it, or `on_passed_over`. When the
    next plan is asked for, and at a clean end: `confirm_handed_out` and `flush`; a stream that ends in any other way
    calls neither. At each poll: `flush` and `keep_alive`, which send no request if nothing is due.

    Args:
        name: The progress file, see `reader_name`.
        owner: Token of this reader, unique among all readers ever.
        commit: Whether asking for the next plan confirms the one before.
        poll_interval: Seconds between two saves that only move over snapshots without a plan.
        expiration: Seconds of `consumer.expiration-time`; None if it is not set.
        diagnosed: Returns the error for a file that was deleted, which may be a part of a drop: see
            `SnapshotRangeValidator.diagnosed`.
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
        start: StartSettings = StartSettings(),  # noqa: B008 (a frozen value)
        diagnosed: Callable[..., PaimonStreamError] = lambda error, **_: error,
    ) -> None:
        try:
            self.commit_mode = CommitMode(commit)
        except ValueError as error:
            raise StreamConfigError(f"commit: expected 'auto' or 'manual', got {commit!r}") from error
        self._manager = manager
        self._name = name
        self._diagnosed = diagnosed
        self._ignores_progress = start.ignore_progress
        self._poll_interval = poll_interval
        self._keep_alive_after = None if expiration is None else expiration / _REWRITES_PER_EXPIRATION
        # Held while the store is asked. Reporting or confirming a plan never waits for it.
        self._io = threading.Lock()
        self._rewriting = threading.Lock()
        self._closed = False
        owners: set[str] = set()
        self._file = ProgressFile(manager, name, owner, owners)
        self._pin = ProgressFile(manager, name.pin, owner, owners)
        self._starts = SharedStartCoordinator(manager, name, owner, start)
        self._may_have_pin = False
        self._created = False
        self._previous = PreviousShardings(manager, name)
        self._has_previous_shardings = False
        self._unconfirmed = UnconfirmedPlans()
        self._floor: int | None = None
        self._pinned_until = 0

    @property
    def name(self) -> ConsumerName:
        return self._name

    @property
    def is_plain(self) -> bool:
        return self._starts.is_plain

    @property
    def saved(self) -> int | None:
        """Next snapshot in the file, as this reader last wrote it; None before that. No IO."""
        return self._file.next_snapshot

    @property
    def confirmed(self) -> Position | None:
        """Position before the first unconfirmed plan; None before `begin`. Finer than `saved`. No IO."""
        return self._unconfirmed.confirmed

    @property
    def keep_alive_after(self) -> float | None:
        """Seconds after which `keep_alive` rewrites a file. Call it at least this often. None: never."""
        return self._keep_alive_after

    def stored(self) -> Consumer | None:
        return self._manager.read(self._name)

    def committed(self) -> int | None:
        """Next snapshot in the file in the store; None if it is missing. One GET."""
        found = self.stored()
        return None if found is None else found.next_snapshot

    def open(self, now: float) -> ResumePoint:
        """Take over the file and find where the consumer continues, before the first plan.

        Its own file counts. Without one it is the slowest file of a previous sharding that is complete (all n shards,
        or the plain id), except for members. Without any, it is the shared start, see `SharedStartCoordinator`. One
        GET, one LIST, one PUT if the file exists, a GET for each pin that counts and for each file of a previous
        sharding.

        Raises:
            ConsumerConflictError: Called again, and another reader has taken over since.
            CorruptTableError: A file that counts is damaged.
            StreamConfigError: The other readers began at a start that was configured differently.
        """
        with self._io:
            if self._unconfirmed.frontier is not None or self._file.is_written:
                self._check_owned()
                own = self._file.content
            else:
                own = self._file.take_over(now)
                self._created = not self._file.is_written
            names = set(self._manager.names(self._name.consumer_id))
            self._may_have_pin = self._name.pin in names
            self._has_previous_shardings = bool(self._previous.among(names))
            self._starts.open(names)
            if own is not None and self._starts.continues(own):
                start = self._starts.join(own) if self._ignores_progress else None
                if start is None:
                    self._starts.resume(own.began)
                return ResumePoint(own, start)
            previous = self._previous.position(names, self._starts.follows) if own is None else None
            if previous is not None:
                self._starts.resume()
            start = self._starts.join(own) if previous is None or self._ignores_progress else None
            return ResumePoint(previous, start)

    def begin(
        self,
        position: Position,
        now: float,
        found: bool = False,
        end: int | None = None,
        instead_of: Position | None = None,
    ) -> SharedStart | None:
        """Start at a position, or seek to it, before any plan from there is handed out. Call it again if it raised.

        A full plan (phase FULL) is pinned at its snapshot, and nothing is saved until all of it is confirmed. Any other
        position is saved at once, even backward, and a pin is deleted. Plans after the position that were handed out
        earlier are forgotten; those before it still have to be confirmed.

        Args:
            found: The start was found just now, and has to be shared with the other shards or members.
            end: The last snapshot, if the stream ends at the one that was the latest when the start was found.
            instead_of: Position after a plan that this start replaces: it cannot be read and will not be confirmed.

        Returns:
            None; or the start of another reader, which was faster: nothing has begun, begin there.

        Raises:
            ConsumerConflictError: Another reader has taken over; nothing was written.
            StreamConfigError: The other readers began at a start that was configured differently.
        """
        with self._io:
            full = position.phase is Phase.FULL
            self._reset_others()
            if full and (self._unconfirmed.frontier is not None or self._file.is_written):
                # Another reader may have taken over since `open`.
                self._check_owned()
            if found and (other := self._starts.share(position, end)) is not None:
                return other
            self._reset_others()
            if full:
                # First, because a call that fails may have written it.
                self._may_have_pin = True
                pin = Consumer(position.snapshot, start=self._starts.pinned_start(position))
                self._pin.claim(pin, now, follows=not self._file.is_written)
            self._unconfirmed.begin(position, instead_of)
            self._floor = None
            self._pinned_until = position.snapshot + 1 if full else 0
            self._flush(now, force=False)
            return None

    def has_saved(self) -> bool:
        """Whether this reader, or another one of its sharding, has saved progress. One LIST."""
        return any(name in self._name.sharding for name in self._manager.names(self._name.consumer_id))

    def on_plan(self, position: Position, begins: Position | None = None) -> None:
        """A plan is handed out. Repeating the call for the last plan changes nothing.

        Args:
            position: Position of the plan, which is its end.
            begins: Beginning of the plan, if snapshots before it were passed over without a report.

        Raises:
            ValueError: The plan is not after the one before it.
        """
        self._unconfirmed.add(position, begins)

    def on_passed_over(self, position: Position) -> None:
        """The snapshots before `position` contain nothing for this reader. A full plan without rows is passed over too.

        Raises:
            ValueError: The position is before the one that was reached.
        """
        self._unconfirmed.pass_over(position)

    def confirm(self, position: Position) -> None:
        """Everything before `position` is processed; `flush` saves that.

        Raises:
            StreamConfigError: The position is of another table, or was not reached since the last `begin`.
        """
        self._unconfirmed.confirm(position)

    def confirm_handed_out(self) -> None:
        """The next plan is asked for, or the stream ends cleanly: `commit="auto"` confirms all that was handed out."""
        if self.commit_mode is CommitMode.AUTO:
            self._unconfirmed.confirm_all()

    def flush(self, now: float, force: bool = False) -> None:
        """Save what is confirmed, then delete files that are not needed any more: the pin, and previous shardings.

        Sends no request if nothing changed. A save is one GET and one PUT.

        Args:
            force: Save snapshots that were passed over even before the poll interval is over (at the end of a stream).

        Raises:
            ConsumerConflictError: Another reader has taken over, or the file was deleted; nothing was written.
        """
        with self._io:
            self._flush(now, force)

    def keep_alive(self, now: float) -> None:
        """Rewrite the files if a third of `consumer.expiration-time` has passed since they were written.

        Raises:
            ConsumerConflictError: Another reader has taken over, or a file was deleted; it was not written.
        """
        if self._keep_alive_after is None:
            return
        with self._rewriting, self._io:
            for file in (self._file, self._pin):
                if self._closed:
                    return
                if file.content is not None and now - file.written_at >= self._keep_alive_after:
                    self._check(file)
                    file.write(file.content, now)
                    self._starts.keep_alive()

    def close(self) -> None:
        """The reader has ended: `keep_alive` writes nothing more. Does not wait."""
        self._closed = True

    @property
    def is_rewriting(self) -> bool:
        return self._rewriting.locked()

    def wait_for_keep_alive(self, seconds: float) -> None:
        """Wait until `keep_alive` is not running, at most this long."""
        if self._rewriting.acquire(timeout=max(0.0, seconds)):
            self._rewriting.release()

    # ---- with `_io` held ----

    def _reset_others(self) -> None:
        if self._file.began != self._starts.token and self._starts.reset_others():
            self._file.forget()

    def _check_owned(self) -> None:
        # In the first plan the reader has a pin, and often no progress file yet.
        if not self._file.is_written and self._pin.is_written:
            self._check(self._pin)
        self._check(self._file)

    def _check(self, file: ProgressFile) -> None:
        try:
            file.check()
        except ConsumerConflictError as conflict:
            began_again = self._starts.conflict()
            frontier = self._unconfirmed.frontier
            # The pin names the snapshot of a full plan.
            had_snapshots = (self._pin.next_snapshot or 0) > 0 or (frontier is not None and frontier.last_read > 0)
            raise began_again or self._diagnosed(conflict, had_snapshots=had_snapshots) from None

    def _flush(self, now: float, force: bool) -> None:
        target, wanted = self._unconfirmed.to_save()
        at_once = force or (wanted is not None and (self._floor is None or wanted > self._floor))
        if target is not None and (self._floor is None or target.snapshot > self._floor):
            content = Consumer(target.snapshot, began=self._starts.token, fingerprint=target.fingerprint)
            if self._file.says(content):
                self._floor = target.snapshot
            elif at_once or now - self._file.written_at >= self._poll_interval:
                self._check_owned()
                self._starts.check(self._file.began)
                self._file.write(content, now)
                self._floor = target.snapshot
        if self._file.is_written and self._floor is not None:
            self._delete_unneeded()

    def _delete_unneeded(self) -> None:
        # Only after the save: until then the pin and the files of previous shardings are the progress.
        saved = self._file.next_snapshot
        assert saved is not None
        in_first_plan = saved < self._pinned_until
        if self._may_have_pin and not in_first_plan:
            self._pin.delete()
            self._may_have_pin = False
        unsettled = self._starts.unsettled and not in_first_plan
        if not unsettled and not self._has_previous_shardings:
            return
        names = set(self._manager.names(self._name.consumer_id))
        if unsettled:
            self._starts.settle(names)
        if self._has_previous_shardings:
            self._previous.drop(names, self._created)
            self._has_previous_shardings = False
