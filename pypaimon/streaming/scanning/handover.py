"""How the items of every stream reach its caller.

`Handover` passes each item exactly once, or again if the call did not return. `AsyncIteration` and `BlockingIteration`
are the two faces, for asyncio and for plain loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NoReturn, TypeVar

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import EndOfScan, StreamConfigError

T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F", bound="Iteration[Any]")


class Handover(Generic[T, S]):
    """Holds an item until a call returns it. The state of the stream changes at that moment.

    A signal handler may raise in any line of a call. The next call then returns the item. So every change is one
    assignment, or one call of a builtin, and `take` must be the last line of a call. Only a call inside of
    `exclusively` may `offer`, `move` or `take`.

    Args:
        busy: Text of the error for a second call at the same time.
    """

    def __init__(self, state: S, busy: str) -> None:
        # The state after the item, and the item with the state before it. One tuple, because a signal handler may run
        # between any two assignments.
        self._held: tuple[S, list[tuple[S, T]]] = (state, [])
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
        after, waiting = self._held
        return next((before for before, _ in waiting), after)

    @property
    def offered(self) -> S | None:
        """The state of the stream once the item is taken; None without an item."""
        after, waiting = self._held
        return after if waiting else None

    @property
    def has_item(self) -> bool:
        """Whether there is an item to take."""
        return bool(self._held[1])

    def offer(self, found: T, state: S) -> None:
        """Offer an item; taking it moves the stream to this state."""
        self._held = (state, [(self.state, found)])

    def move(self, state: S) -> None:
        """Move the stream to a state and drop the item."""
        self._held = (state, [])

    def take(self) -> T:
        """Take the item."""
        try:
            return self._held[1].pop()[1]
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


class Iteration(ABC, Generic[T]):
    """What a stream provides to its face.

    Attributes:
        _handover: Lets one call at a time find an item, and passes it to the caller.
        _opened_by: The calls that open the stream for asyncio and for plain loops, as errors name them.
    """

    _handover: Handover[T, Any]
    _opened_by = "builder.open()", "builder.open_sync()"

    def _is_left(self) -> bool:
        """Whether the stream has ended, so that a call need not wait for its turn."""
        return False

    @abstractmethod
    def _find(self) -> Waits[None]:
        """Put the next item into the handover. Raises EndOfScan if there is none."""

    @abstractmethod
    def _end(self) -> None:
        """End at once, from any thread, including a call that waits. Idempotent."""

    @abstractmethod
    def _ended(self) -> Wait[None]:
        """Wait for what outlasts `_end`, such as a write of progress."""

    def _on_end(self, end: EndOfScan) -> Waits[None]:
        self._end()
        yield from ()


class AsyncIteration(Iteration[T]):
    """For `async for` and `async with`. A cancelled wait loses nothing: the next one returns its item."""

    def __aiter__(self: F) -> F:
        return self

    async def __anext__(self) -> T:
        if self._is_left():
            raise StopAsyncIteration
        try:
            await self._handover.exclusively_async(lambda: run_async(self._find()))
        except EndOfScan as end:
            await run_async(self._on_end(end))
            raise StopAsyncIteration from None
        return self._handover.take()

    async def aclose(self) -> None:
        """End at once, also a call that another task waits for, and confirm nothing. Idempotent."""
        self._end()
        await self._ended().awaitable()

    async def __aenter__(self: F) -> F:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        self._end()
        here, there = self._opened_by
        raise TypeError(f"{here} is for `async with` and `async for`; without asyncio use `with {there}`")

    def __exit__(self, *_: object) -> None:
        """Never called; `with` looks it up before it enters."""


class BlockingIteration(Iteration[T]):
    """For a plain `for` and `with`. Ctrl-C interrupts a wait and loses nothing."""

    def __iter__(self: F) -> F:
        return self

    def __next__(self) -> T:
        if self._is_left():
            raise StopIteration
        try:
            self._handover.exclusively(lambda: run(self._find()))
        except EndOfScan as end:
            run(self._on_end(end))
            raise StopIteration from None
        return self._handover.take()

    def close(self) -> None:
        """End at once, also a call that another thread waits for, and confirm nothing. Idempotent."""
        self._end()
        self._ended().block()

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        self._end()
        there, here = self._opened_by
        raise TypeError(f"{here} is for `with` and `for`; with asyncio use `async with {there}`")

    async def __aexit__(self, *_: object) -> None:
        """Never called; `async with` looks it up before it enters."""
