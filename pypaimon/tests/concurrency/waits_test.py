"""Loops that wait: one generator for threads and for asyncio, and calls on a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread
from pypaimon.streaming.concurrency.waits import Wait, Waits, calling, run, run_async

LONG = 60.0


def wait_for(value: Any) -> Wait[Any]:
    """A wait for a value, or that fails with an error."""

    def block() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    async def awaitable() -> Any:
        await asyncio.sleep(0)
        return block()

    return Wait(block, awaitable)


def steps(*values: Any, ended: list[str]) -> Waits[list[Any]]:
    """What waits come to; an error of one does not end the others."""
    found: list[Any] = []
    try:
        for value in values:
            try:
                found.append((yield wait_for(value)))
            except ValueError as error:  # noqa: PERF203 - each may fail
                found.append(str(error))
    finally:
        ended.append("ended")
    return found


async def test_an_error_of_a_wait_is_raised_where_it_is_waited_for() -> None:
    values = 1, ValueError("two"), 3, ValueError("four")
    assert run(steps(*values, ended=[])) == await run_async(steps(*values, ended=[])) == [1, "two", 3, "four"]


@pytest.mark.parametrize("error", [OSError("no"), KeyError("no"), StopIteration("no")])
async def test_an_error_that_is_not_handled_ends_the_generator(error: Exception) -> None:
    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    ended: list[str] = []
    with pytest.raises(expected):
        run(steps(1, error, ended=ended))
    if not isinstance(error, StopIteration):  # No coroutine can raise it.
        with pytest.raises(expected):
            await run_async(steps(1, error, ended=ended))
    assert set(ended) == {"ended"}


async def test_an_interrupt_is_not_given_to_the_generator() -> None:
    def waits() -> Waits[None]:
        try:
            yield wait_for(KeyboardInterrupt())
        except BaseException as error:
            caught.append(type(error))
            raise

    caught: list[type[BaseException]] = []
    with pytest.raises(KeyboardInterrupt):
        run(waits())
    assert caught in ([], [GeneratorExit])


async def test_a_function_of_a_user_may_be_a_coroutine_function() -> None:
    called: list[Any] = []

    async def awaited(value: int) -> None:
        await asyncio.sleep(0)
        called.append(value)

    calling(called.append, 1).block()
    await calling(called.append, 2).awaitable()
    await calling(awaited, 3).awaitable()
    assert called == [1, 2, 3]


async def test_a_call_on_a_thread_of_its_own() -> None:
    thread = await call_on_thread(threading.current_thread, "of-its-own")
    assert thread.name == "of-its-own" and thread.daemon

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await call_on_thread(fail, "fails")
    may_end, has_ended = threading.Event(), threading.Event()

    def hang() -> None:
        may_end.wait(LONG)
        has_ended.set()

    waiting = asyncio.create_task(call_on_thread(hang, "hangs"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    assert has_ended.wait(LONG), "a cancelled wait does not end the call"
