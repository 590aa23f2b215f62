"""`Handover`: where a stream passes what it found to its caller: once, or again if the call did not return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import StreamConfigError

T = TypeVar("T")
S = TypeVar("S")


class Handover(Generic[T, S]):
    """What was found waits here until a call returns it; the state of the stream moves on at that moment.

    A signal handler may raise in any line of a call: what waits then is returned by the next one. So every change is
    one assignment, or one call of a builtin, and `take` is to be the last line of the call. Only who is `alone` may
    `offer`, `move` or `take`.

    Args:
        state: Where the stream stands.
        busy: Text of the error for a second call at the same time.
    """

    def __init__(self, state: S, busy: str) -> None:
        # The last state, and what waits, with the state before it.
        self._standing: tuple[S, list[tuple[S, T]]] = (state, [])
        self._calls: dict[str, object] = {}
        self._busy = busy
        self._origin = Origin()

    @property
    def is_here(self) -> bool:
        """Whether the stream was made in this process: one that was forked must neither drive nor end it."""
        return self._origin.is_here

    def refuse_elsewhere(self) -> None:
        """Only the process that made the stream may drive it.

        Raises:
            StreamConfigError: This process was forked after the stream was made.
        """
        if not self.is_here:
            raise StreamConfigError(
                "this stream was made before the process was forked, and belongs to its parent: make a new one from "
                "the builder in this process"
            )

    @property
    def state(self) -> S:
        """Where the stream stands after what the caller was given last."""
        after, waiting = self._standing
        return next((before for before, _ in waiting), after)

    @property
    def has_item(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._standing[1])

    def offer(self, found: T, state: S) -> None:
        """Let this wait to be taken; the stream then stands at this state."""
        self._standing = (state, [(self.state, found)])

    def move(self, state: S) -> None:
        """Stand at another state; what waits is dropped."""
        self._standing = (state, [])

    def take(self) -> T:
        """What waits; it is the caller's from here on."""
        try:
            return self._standing[1].pop()[1]
        except IndexError:
            # By another call, which began after this one was no longer alone.
            raise StreamConfigError(self._busy) from None

    def exclusively(self, work: Callable[[], object]) -> None:
        """Do something while no other call does.

        Raises:
            StreamConfigError: Another call is at it, or the stream belongs to another process.
        """
        call = object()
        try:
            try:
                self._enter(call)
                work()
            finally:
                self._leave(call)
        finally:
            # Again, for a signal handler that raised before it was done.
            self._leave(call)

    async def exclusively_async(self, work: Callable[[], Awaitable[object]]) -> None:
        """As `exclusively`, awaited."""
        call = object()
        try:
            try:
                self._enter(call)
                await work()
            finally:
                self._leave(call)
        finally:
            self._leave(call)

    def _enter(self, call: object) -> None:
        self.refuse_elsewhere()
        if self._calls.setdefault("now", call) is not call:
            raise StreamConfigError(self._busy)

    def _leave(self, call: object) -> None:
        if self._calls.get("now") is call:
            self._calls.pop("now", None)
