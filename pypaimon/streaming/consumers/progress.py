"""`Progress`: what one reader may save under its consumer id, and when."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.former_layouts import FormerLayouts
from pypaimon.streaming.consumers.own_file import OwnFile
from pypaimon.streaming.consumers.shared_start import SharedStart
from pypaimon.streaming.consumers.start_group import StartGroup, StartSettings
from pypaimon.streaming.consumers.unconfirmed import UnconfirmedPlans
from pypaimon.streaming.errors import ConsumerConflictError, StreamConfigError
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.stream_options import CommitMode

_REWRITES_PER_EXPIRATION = 3


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a consumer stands.

    Attributes:
        saved: The file that says where the reader continues; None: nothing was saved.
        start: A start of the reader's group, or its own from before a crash, to begin at instead; None: there is none.
    """

    saved: Consumer | None
    start: SharedStart | None = None

    @property
    def next_snapshot(self) -> int | None:
        """Id of the next snapshot to read, as it was saved; None: nothing was."""
        return None if self.saved is None else self.saved.next_snapshot


class Progress:
    """Bookkeeping of one reader with a consumer id: what it handed out, what was confirmed, and the files that say so.

    A file holds the greatest whole-snapshot position with no unconfirmed plan before it (at least once: a restart by
    consumer repeats from the first snapshot that was not wholly confirmed). It moves backward only with `begin`.
    There is no clock in here: `now` is seconds of any clock that does not go back. `open`, `begin`, `flush`,
    `keep_alive` and `committed` block and ask the store; the others do not. All may be called from any thread.
    A call that raised may be repeated.

    In this order: `open`, once before the first plan. `begin`, when the start is found, and again after each seek.
    `on_plan` for each plan, in the same uncancellable moment in which the caller gets it, or `on_passed_over`. When the
    next plan is asked for, and at a clean end, `confirm_handed_out` and `flush`; whoever leaves otherwise calls
    neither. At each poll `flush` and `keep_alive`, which ask nothing if nothing is due.

    Args:
        manager: Consumers of the table and branch.
        name: The progress file, see `reader_name`.
        owner: Token of this reader, unique among all that ever read.
        commit: Who confirms.
        poll_interval: Seconds between two saves that only move over snapshots without a plan.
        expiration: Seconds of `consumer.expiration-time`, None if it is not set.
        start: What the reader is told of its start.
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
    ) -> None:
        try:
            self.commit_mode = CommitMode(commit)
        except ValueError as error:
            raise StreamConfigError(f"commit: expected 'auto' or 'manual', got {commit!r}") from error
        self._manager = manager
        self._name = name
        self._ignores_progress = start.ignore_progress
        self._poll_interval = poll_interval
        self._keep_alive_after = None if expiration is None else expiration / _REWRITES_PER_EXPIRATION
        # Held while the store is asked; who reports a plan, or confirms, never waits for it.
        self._io = threading.Lock()
        self._rewriting = threading.Lock()
        self._closed = False
        owners: set[str] = set()
        self._file = OwnFile(manager, name, owner, owners)
        self._fence = OwnFile(manager, name.fenced, owner, owners)
        self._group = StartGroup(manager, name, owner, start)
        self._may_have_fence = False
        self._created = False
        self._former = FormerLayouts(manager, name)
        self._has_former_layouts = False
        self._unconfirmed = UnconfirmedPlans()
        self._floor: int | None = None
        self._fence_needed_until = 0

    @property
    def name(self) -> ConsumerName:
        """The progress file."""
        return self._name

    @property
    def is_plain(self) -> bool:
        """Whether the reader is no shard and no member of its consumer id."""
        return self._group.is_plain

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
        """Seconds after which `keep_alive` rewrites a file; call it at least this often. None: never."""
        return self._keep_alive_after

    def stored(self) -> Consumer | None:
        """The file as it is in the store; None if there is none. One GET."""
        return self._manager.read(self._name)

    def committed(self) -> int | None:
        """Next snapshot in the file as it is in the store; None if there is none. One GET."""
        found = self.stored()
        return None if found is None else found.next_snapshot

    def open(self, now: float) -> Opened:
        """Take over the file and find where the consumer stands, before the first plan.

        Its own file counts; without one, the slowest file of a complete former layout (all n shards, or the plain id);
        a member has none. Without any, a start that the group has begun at, see `StartGroup`. One GET, one LIST, one
        PUT if the file exists, a GET for each fence that counts, and one per file of a former layout.

        Raises:
            ConsumerConflictError: Called again, and another reader has taken over since.
            CorruptTableError: A file that counts is damaged.
            StreamConfigError: The group has begun at a start that was configured otherwise.
        """
        with self._io:
            if self._unconfirmed.frontier is not None or self._file.mine:
                self._check_owned()
                own = self._file.content
            else:
                own = self._file.take_over(now)
                self._created = not self._file.mine
            names = set(self._manager.names(self._name.consumer_id))
            self._may_have_fence = self._name.fenced in names
            self._has_former_layouts = bool(self._former.among(names))
            self._group.open(names)
            if own is not None and self._group.goes_on(own):
                start = self._group.joined(own) if self._ignores_progress else None
                if start is None:
                    self._group.took_up(own.began)
                return Opened(own, start)
            former = self._former.position(names, self._group.follows) if own is None else None
            if former is not None:
                self._group.took_up()
            start = self._group.joined(own) if former is None or self._ignores_progress else None
            return Opened(former, start)

    def begin(
        self,
        position: Position,
        now: float,
        found: bool = False,
        end: int | None = None,
        instead_of: Position | None = None,
    ) -> SharedStart | None:
        """Start at a position, or seek to it; before any plan from there is handed out. Call it again if it raised.

        A full plan (phase FULL) is fenced at its snapshot, and nothing is saved until all of it is confirmed. Any other
        position is saved at once, be it backward, and a fence is deleted. Plans handed out earlier that lie behind the
        position are forgotten; those before it stay to be confirmed.

        Args:
            position: Where to.
            now: Seconds.
            found: It is a start that was found, to be shared with the group.
            end: The last snapshot, where the stream ends at the one that was the latest when the start was found.
            instead_of: After the plan in whose place this comes: it cannot be read, and nobody will confirm it.

        Returns:
            None; or the start of the group, which another reader was the first to find: nothing has begun, begin there.

        Raises:
            ConsumerConflictError: Another reader has taken over; nothing was written.
            StreamConfigError: The group has begun at a start that was configured otherwise.
        """
        with self._io:
            full = position.phase is Phase.FULL
            self._leave_behind()
            if full and self._unconfirmed.frontier is not None:
                self._check_owned()
            if found and (other := self._group.share(position, end)) is not None:
                return other
            self._leave_behind()
            if full:
                self._may_have_fence = True
                self._fence.claim(Consumer(position.snapshot, start=self._group.fence_start(position)), now)
            self._unconfirmed.begin(position, instead_of)
            self._floor = None
            self._fence_needed_until = position.snapshot + 1 if full else 0
            self._flush(now, force=False)
            return None

    def has_saved(self) -> bool:
        """Whether this reader, or another one of its layout, has saved progress. One LIST."""
        return any(name in self._name.layout for name in self._manager.names(self._name.consumer_id))

    def on_plan(self, position: Position, begins: Position | None = None) -> None:
        """A plan is handed out. To say so of the last one again changes nothing.

        Args:
            position: The plan's `position`.
            begins: Where it begins, where snapshots before it were passed over unreported.

        Raises:
            ValueError: The plan does not lie after the one before it.
        """
        self._unconfirmed.add(position, begins)

    def on_passed_over(self, position: Position) -> None:
        """Snapshots before `position` hold nothing for this reader. A full plan without rows is passed over too.

        Raises:
            ValueError: The position lies before the one reached.
        """
        self._unconfirmed.pass_over(position)

    def confirm(self, position: Position) -> None:
        """Everything before `position` has arrived where it must; `flush` saves it.

        Raises:
            StreamConfigError: The position is of another table, or was not reached since the last `begin`.
        """
        self._unconfirmed.confirm(position)

    def confirm_handed_out(self) -> None:
        """The next plan is asked for, or the stream ends cleanly: `commit="auto"` confirms all that was handed out."""
        if self.commit_mode is CommitMode.AUTO:
            self._unconfirmed.confirm_all()

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
        with self._rewriting, self._io:
            for file in (self._file, self._fence):
                if self._closed:
                    return
                if file.content is not None and now - file.written_at >= self._keep_alive_after:
                    self._check(file)
                    file.write(file.content, now)
                    self._group.keep_alive()

    def close(self) -> None:
        """The reader has ended: `keep_alive` does nothing more. Waits for nothing."""
        self._closed = True

    @property
    def is_rewriting(self) -> bool:
        """Whether `keep_alive` is at work."""
        return self._rewriting.locked()

    def wait_for_keep_alive(self, seconds: float) -> None:
        """Wait until no file is being rewritten by `keep_alive`, at most for so long."""
        if self._rewriting.acquire(timeout=max(0.0, seconds)):
            self._rewriting.release()

    # ---- with `_io` held ----

    def _leave_behind(self) -> None:
        if self._file.began != self._group.token and self._group.leave_behind():
            self._file.forget()

    def _check_owned(self) -> None:
        if not self._file.mine and self._fence.mine:
            self._check(self._fence)
        self._check(self._file)

    def _check(self, file: OwnFile) -> None:
        try:
            file.check()
        except ConsumerConflictError as conflict:
            raise self._group.conflict() or conflict from None

    def _flush(self, now: float, force: bool) -> None:
        target, wanted = self._unconfirmed.to_save()
        at_once = force or (wanted is not None and (self._floor is None or wanted > self._floor))
        if target is not None and (self._floor is None or target.snapshot > self._floor):
            content = Consumer(target.snapshot, began=self._group.token, fingerprint=target.fingerprint)
            if self._file.says(content):
                self._floor = target.snapshot
            elif at_once or now - self._file.written_at >= self._poll_interval:
                self._check_owned()
                self._group.check(self._file.began)
                self._file.write(content, now)
                self._floor = target.snapshot
        if self._file.mine and self._floor is not None:
            self._tidy_up()

    def _tidy_up(self) -> None:
        saved = self._file.next_snapshot
        assert saved is not None
        in_first_plan = saved < self._fence_needed_until
        if self._may_have_fence and not in_first_plan:
            self._fence.delete()
            self._may_have_fence = False
        unsettled = self._group.unsettled and not in_first_plan
        if not unsettled and not self._has_former_layouts:
            return
        names = set(self._manager.names(self._name.consumer_id))
        if unsettled:
            self._group.settle(names)
        if self._has_former_layouts:
            self._former.drop(names, self._created)
            self._has_former_layouts = False
