"""Loops that wait, written once for threads and asyncio: generators of waits, which are blocked for or awaited.

A step that must wait yields a `Wait` and is sent its result. An error of a wait, an interrupt or a cancellation ends
the generator; a new generator continues from the state that it has reached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait(Generic[T]):
    """Something to wait for.

    Attributes:
        block: Blocks for it and returns its result.
        awaitable: The same, for asyncio.
    """

    block: Callable[[], T]
    awaitable: Callable[[], Awaitable[T]]


Waits = Generator[Wait[Any], Any, T]
"""A generator of waits, and its result."""


def run(waits: Waits[T]) -> T:
    """Run a generator of waits by blocking."""
    answer = None
    while True:
        try:
            wait = waits.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = wait.block()


async def run_async(waits: Waits[T]) -> T:
    """Run a generator of waits by awaiting."""
    answer = None
    while True:
        try:
            wait = waits.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = await wait.awaitable()
