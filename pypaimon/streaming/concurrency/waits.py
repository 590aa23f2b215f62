"""Loops that wait, written once for threads and asyncio: generators of waits, which are blocked for or awaited.

A step that must wait yields a `Wait` and is sent its result. An error of a wait, an interrupt or a cancellation ends
the generator; what it has done by then stays done, and another one goes on from there.
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
"""Waits, and what comes of them in the end."""


def run(waits: Waits[T]) -> T:
    """Block for all of them."""
    answer = None
    while True:
        try:
            wait = waits.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = wait.block()


async def run_async(waits: Waits[T]) -> T:
    """Await all of them."""
    answer = None
    while True:
        try:
            wait = waits.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = await wait.awaitable()
