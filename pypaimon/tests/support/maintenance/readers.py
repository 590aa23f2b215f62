"""Readers that save their progress by the library's consumer code while a table is maintained."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pypaimon.streaming.consumers.consumer_manager import EXPIRED, Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.progress import Progress, ResumePoint
from pypaimon.streaming.errors import ConsumerConflictError, StoreError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position
from support.crash.crashing_file_io import Killed
from support.groups.invariants import BrokenLawError
from support.maintenance.actors import Actors, Steps
from support.maintenance.memory_store import MemoryFileIO, always
from support.maintenance.simulated_table import ROOT

_DAY = 86_400
_DIRECTORY = f"{ROOT}/consumer/consumer-"
_KILLS = 0.02
"""Share of their requests at which they are killed."""


class Readers:
    """The readers of main, which share a few consumer ids, so that they take over from each other.

    Args:
        actors: They share the store, and its laws.
        compares: Whether the store makes writes on a condition.
        faults: Share of requests that fail, or whose answers are lost.
        is_blind: Whether a run of maintenance has looked at a file for the last time.
        is_in_time: Whether every run finds a consumer that is new.
    """

    def __init__(
        self,
        actors: Actors,
        compares: bool,
        faults: float,
        is_blind: Callable[[str], bool],
        is_in_time: Callable[[], bool],
    ) -> None:
        self.actors = actors
        self.compares = compares
        self.faults = faults
        self.is_blind = is_blind
        self.is_in_time = is_in_time
        self.confirmed: dict[str, int] = {}
        """For each id the snapshot up to which everything was confirmed, by any reader."""
        self.ranks: dict[str, int] = {}
        """The order in which readers have written their first file, by which they have taken over."""
        self._idle: list[_Reader] = []
        self._count = 0

    def steps(self) -> Steps:
        """Start a reader, or let one go on that has been idle; each `yield` is before a request of it."""
        rng = self.actors.rng
        if self._idle and rng.random() < 0.4:
            reader = self._idle.pop(rng.randrange(len(self._idle)))
            life = reader.read
        else:
            self._count += 1
            reader = _Reader(self, f"r{rng.randrange(3)}", f"{self._count:04}")
            life = reader.begin
        yield from reader.steps(life)
        if reader.is_idle:
            self._idle.append(reader)


class _Reader:
    """A process. Its calls run on a thread, which runs only while the process is stepped."""

    def __init__(self, readers: Readers, consumer_id: str, owner: str) -> None:
        self._all = readers
        self._actors, self._laws, self._rng = readers.actors, readers.actors.laws, readers.actors.rng
        self._id = consumer_id
        self._owner = owner
        file_io = MemoryFileIO(self._actors.objects, self._request, readers.compares)
        self._manager = ConsumerManager(file_io, ROOT, store=Store(file_io, sleep=lambda _: None))
        expiration = _DAY if self._actors.table.expires_consumers else None
        self._progress = Progress(self._manager, ConsumerName(consumer_id), owner=owner, expiration=expiration)
        self._next = 0
        self._is_full = False
        self._written: set[str] = set()
        self._lost: set[str] = set()
        self._new: dict[str, bytes | None] = {}
        self.is_idle = False
        self._may_go, self._has_stopped = threading.Lock(), threading.Lock()
        self._has_ended = self._is_killed = False
        self._error: BaseException | None = None

    # ---- The thread

    def steps(self, life: Callable[[], None]) -> Steps:
        """Let it live, stopped before each request. If this is closed, it is killed there."""
        self._has_ended = self.is_idle = False
        for each in (self._may_go, self._has_stopped):
            each.acquire(blocking=False)
        thread = threading.Thread(target=self._run, args=(life,), daemon=True)
        thread.start()
        try:
            self._has_stopped.acquire()
            while not self._has_ended:
                yield
                self._may_go.release()
                self._has_stopped.acquire()
        finally:
            if not self._has_ended:
                self._is_killed = True
                self._may_go.release()
            thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, life: Callable[[], None]) -> None:
        try:
            life()
        except Killed:
            self._laws.seen["reader was killed"] += 1
        except (ConsumerConflictError, StoreError) as error:
            self._laws.seen[f"reader: {type(error).__name__}"] += 1
        except BaseException as error:  # noqa: BLE001 - raised to whoever steps
            self._error = error
        self._has_ended = True
        self._has_stopped.release()

    def _stop(self) -> None:
        if not self._is_killed:
            self._has_stopped.release()
            self._may_go.acquire()
        if self._is_killed:
            raise Killed

    # ---- Its life

    def begin(self) -> None:
        """Start where the consumer continues, or at a snapshot that readers find."""
        found = self._progress.open(self._actors.objects.now)
        confirmed = self._all.confirmed
        if found.next_snapshot is not None and found.next_snapshot > confirmed.get(self._id, found.next_snapshot):
            raise BrokenLawError(f"M5: {self._id} continues at {found.next_snapshot}, confirmed is {confirmed}")
        position = self._beginning(found)
        if position is not None:
            self._next, self._is_full = position.snapshot, position.phase is Phase.FULL
            confirmed[self._id] = max(confirmed.get(self._id, 0), self._next)
            self._progress.begin(position, self._actors.objects.now, found=found.saved is None)
            self._settle()
            self._laws.seen["reader"] += 1
            self.read()

    def _beginning(self, found: ResumePoint) -> Position | None:
        ids = self._visible()
        if not ids:
            return None
        if found.start is not None and found.start.position.snapshot in ids:
            return found.start.position
        if found.next_snapshot is not None and ids[0] <= found.next_snapshot <= ids[-1] + 1:
            return Position(UNKNOWN_TABLE, found.next_snapshot)
        if self._rng.random() < 0.3:
            return Position(UNKNOWN_TABLE, self._rng.choice(ids), phase=Phase.FULL)
        return Position(UNKNOWN_TABLE, self._rng.choice([*ids, ids[-1] + 1]))

    def read(self) -> None:
        """Read some snapshots, and save that. It ends, is idle from now on, or deletes its consumer."""
        for _ in range(self._rng.randint(1, 3)):
            self._stop()
            self._find_lost()
            if not self._hand_out():
                return
            if self._rng.random() < 0.8:
                self._progress.confirm_handed_out()
            confirmed = self._progress.confirmed
            assert confirmed is not None
            self._all.confirmed[self._id] = max(self._all.confirmed[self._id], confirmed.snapshot)
            self._progress.flush(self._actors.objects.now, force=self._rng.random() < 0.5)
            self._progress.keep_alive(self._actors.objects.now)
            self._settle()
        what = self._rng.random()
        self.is_idle = what < 0.5
        if what > 0.9:
            self._manager.delete_consumer(self._id)

    def _hand_out(self) -> bool:
        """Hand out what comes next, if there is something. Returns False if that has expired."""
        ids = self._visible()
        if not ids or self._next < ids[0]:
            self._laws.seen["reader was overtaken"] += 1
            return False
        last = self._next if self._is_full else self._next + self._rng.randrange(3)
        position = Position(UNKNOWN_TABLE, min(last, ids[-1]) + 1)
        if position.snapshot > self._next:
            if self._is_full or self._rng.random() < 0.8:
                self._progress.on_plan(position)
            else:
                self._progress.on_passed_over(position)
            self._next, self._is_full = position.snapshot, False
        return True

    def _visible(self) -> list[int]:
        return self._laws.visible_ids(f"{ROOT}/snapshot")

    # ---- Its requests, and the laws

    def _request(self, kind: str, path: str, answer: Callable[[], Any], is_met: Callable[[], bool] = always) -> Any:
        self._stop()
        fate = self._rng.random()
        if fate < _KILLS:
            if fate < _KILLS / 2:
                self._answer(kind, path, answer, is_met)
            raise Killed
        if fate < _KILLS + self._all.faults:
            if fate < _KILLS + self._all.faults / 2:
                self._answer(kind, path, answer, is_met)
            raise ConnectionResetError(104, "connection reset by peer")
        return self._answer(kind, path, answer, is_met)

    def _answer(self, kind: str, path: str, answer: Callable[[], Any], is_met: Callable[[], bool]) -> Any:
        if kind not in ("write", "delete"):
            if path in self._lost and not self._is_lost(path):
                # A late write of the reader before has brought it back.
                self._lost.discard(path)
            return answer()
        if not is_met():
            return False
        name, laws = path.removeprefix(_DIRECTORY), self._laws
        if kind == "delete":
            laws.held.pop(name, None)
            laws.before_delete(path)
            answer()
            self._written.discard(path)
            return laws.deleted(path)
        if path in self._lost:
            raise BrokenLawError(f"M5: {path} is saved by reader {self._owner}, which had lost it before")
        before = self._content(path)
        laws.before_write(path)
        answer()
        laws.written(path)
        self._written.add(path)
        self._all.ranks.setdefault(self._owner, len(self._all.ranks))
        is_expired = before is not None and before.owner == EXPIRED
        self._saved(name, path, is_seen=not self._all.is_blind(path) or (self._all.compares and not is_expired))
        return True

    def _saved(self, name: str, path: str, is_seen: bool) -> None:
        """What a file keeps from now on.

        If it is new, or says less than before, that is known once the reader has found its snapshot afterwards. What
        another file of the consumer has kept, this one keeps at once.
        """
        laws, saved = self._laws, self._content(path)
        assert saved is not None
        if is_seen:
            laws.saved[name] = self._actors.objects.now
        held = min((laws.held[each] for each in (self._id, f"{self._id}.first-plan") if each in laws.held), default=0)
        first = self._first(saved.next_snapshot)
        if name in laws.held and first >= laws.held[name]:
            laws.held[name] = first
        elif self._all.is_in_time():
            laws.saved[name] = self._actors.objects.now
            if 0 < held <= first:
                laws.held[name] = first
            else:
                self._new[path] = self._actors.objects.get(path)

    def _first(self, next_snapshot: int) -> int:
        """The first snapshot that stays: the one before the next, for its fingerprint, if it is still there."""
        return next_snapshot - 1 if next_snapshot - 1 in self._actors.ids() else next_snapshot

    def _settle(self) -> None:
        """What new files name is kept if it is still found after the call that has written them."""
        ids = self._visible()
        for path, data in self._new.items():
            saved = self._content(path)
            is_same = data is not None and self._actors.objects.get(path) == data
            if is_same and saved is not None and ids and ids[0] <= saved.next_snapshot <= ids[-1] + 1:
                self._laws.held[path.removeprefix(_DIRECTORY)] = self._first(saved.next_snapshot)
        self._new.clear()

    def _find_lost(self) -> None:
        """Files that this reader must not write any more: they are gone, are about to go, or were taken over."""
        self._lost = {each for each in self._written if self._is_lost(each)}

    def _is_lost(self, path: str) -> bool:
        found, ranks = self._content(path), self._all.ranks
        return found is None or found.owner == EXPIRED or ranks[str(found.owner)] > ranks[self._owner]

    def _content(self, path: str) -> Consumer | None:
        data = self._actors.objects.get(path)
        return None if data is None else Consumer.from_json(data)
