"""`Handover`: passes each item of a stream to its caller exactly once, or again if the call did not return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import StreamConfigError

T = TypeVar("T")
S = TypeVar("S")


class Handover(Generic[T, S]):
    """Holds an item until a call returns it. The state of the stream changes at that moment.

    A signal handler may raise in any line of a call. The next call then returns the item. So every change is one
    assignment, or one call of a builtin, and `take` must be the last line of a call. Only a call inside of
    `exclusively` may `offer`, `move` or `take`.

    Args:
        busy: Text of the error for a second call at the same time.
    """

    def __init__(self, state: S, busy: str) -> None:
        # The state after the item, and the item with the state before it.
        self._standing: tuple[S, list[tuple[S, T]]] = (state, [])
        self._calls: dict[str, object] = {}
        self._busy = busy
        self._origin = Origin()

    @property
    def is_here(self) -> bool:
        """Whether the stream was made in this process: one that was forked must neither drive nor end it."""
        return self._origin.is_here

    def refuse_elsewhere(self) -> None:
        """Check that this process made the stream, because no other may drive it.

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
        """The state of the stream after the last item that the caller got."""
        after, waiting = self._standing
        return next((before for before, _ in waiting), after)

    @property
    def has_item(self) -> bool:
        """Whether there is an item to take."""
        return bool(self._standing[1])

    def offer(self, found: T, state: S) -> None:
        """Offer an item; taking it moves the stream to this state."""
        self._standing = (state, [(self.state, found)])

    def move(self, state: S) -> None:
        """Move the stream to a state and drop the item."""
        self._standing = (state, [])

    def take(self) -> T:
        """Take the item."""
        try:
            return self._standing[1].pop()[1]
        except IndexError:
            # Another call took it after this one had left `exclusively`.
            raise StreamConfigError(self._busy) from None

    def exclusively(self, work: Callable[[], object]) -> None:
        """Run `work` while no other call runs.

        Raises:
            StreamConfigError: Another call is running, or the stream belongs to another process.
        """
        call = object()
        try:
            try:
                self._enter(call)
                work()
            finally:
                self._leave(call)
        finally:
            # Once more, in case a signal handler raised inside of the first `_leave`.
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
