"""Loops that wait, written once for threads and asyncio: generators of waits, which are blocked for or awaited.

A step that must wait yields a `Wait` and is sent its result; an error of the wait is raised there. An interrupt or a
cancellation ends the generator; a new generator continues from the state that it has reached.
"""

from __future__ import annotations

import inspect
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


def calling(function: Callable[..., object], *arguments: object) -> Wait[None]:
    """A call of a user's function; for asyncio it may be a coroutine function."""

    def block() -> None:
        function(*arguments)

    async def awaitable() -> None:
        if inspect.isawaitable(answer := function(*arguments)):
            await answer

    return Wait(block, awaitable)


Waits = Generator[Wait[Any], Any, T]
"""A generator of waits, and its result."""


def run(waits: Waits[T]) -> T:
    """Run a generator of waits by blocking."""
    try:
        wait = waits.send(None)
        while True:
            try:
                answer = wait.block()
            except Exception as error:  # noqa: BLE001, PERF203 - the generator decides
                wait = waits.throw(error)
            else:
                wait = waits.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_async(waits: Waits[T]) -> T:
    """Run a generator of waits by awaiting."""
    try:
        wait = waits.send(None)
        while True:
            try:
                answer = await wait.awaitable()
            except Exception as error:  # noqa: BLE001, PERF203 - the generator decides
                wait = waits.throw(error)
            else:
                wait = waits.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
