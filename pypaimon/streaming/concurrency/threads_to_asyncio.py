"""From threads to asyncio: the result of a thread is awaited; cancelling the wait does not cancel the call."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pypaimon.streaming.concurrency.background_threads import BackgroundThread

T = TypeVar("T")


def on_event_loop() -> bool:
    """Whether this thread runs an event loop, which must not be blocked."""
    if "asyncio" not in sys.modules:
        # Importing asyncio takes as long as a plan; a process that only blocks does not need it.
        return False
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def wait_for_future(future: Future[T]) -> T:
    """The result of a call on another thread. If the wait is cancelled, the call continues and keeps its result."""
    import asyncio

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake(_: Future[T]) -> None:
        # The loop may be closed when the call returns; then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

    future.add_done_callback(wake)
    await done
    return future.result()


async def call_on_thread(call: Callable[[], T], name: str) -> T:
    """The result of a call on its own thread. If it hangs, the loop does not wait for it, and the exit only a moment.

    Args:
        name: Name of the thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            future.set_exception(error)

    BackgroundThread(run, name, stop=int).start()
    return await wait_for_future(future)


async def finish_on_thread(
    call: Callable[..., T], *arguments: object, on_cancel: Callable[[], object] = lambda: None
) -> T:
    """The result of a call on another thread. A cancellation is raised after the call has ended.

    Args:
        call: What is called. It uses something that must be free again afterwards, such as a target.
        arguments: Its arguments.
        on_cancel: Called once at a cancellation, on the event loop; makes the call end soon.
    """
    import asyncio

    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        on_cancel()
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise
