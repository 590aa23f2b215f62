"""`MemberThread`: the thread that runs one member, while the reader does something else or nothing."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import StoreError, StreamConfigError
from pypaimon.streaming.groups.group_requests import Pause, Request
from pypaimon.streaming.groups.member import GroupMember


class MemberThread:
    """Runs the steps of one member. A caller that is slow with its rows keeps its slots, since heartbeats do not wait.

    Args:
        on_end: Called by the thread when it ends, after an error too.
    """

    def __init__(
        self,
        member: GroupMember,
        answer: Callable[[Request], Any],
        clock: Callable[[], float],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._member = member
        self._answer = answer
        self._clock = clock
        self._on_end = on_end
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._origin = Origin()
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread = BackgroundThread(self._run, "pypaimon-streaming-group", self._abandon)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have the member look what is due, because something was confirmed or it has to leave."""
        if self._woken.empty():
            self._woken.put(None)

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def check(self) -> None:
        if not self._origin.is_here:
            raise StreamConfigError("a group stream cannot be used in a forked process; open one after the fork.")
        if self._error is not None:
            raise self._error

    def stop(self, seconds: float) -> bool:
        """Leave the group. Returns whether it was left in time; otherwise the others find out after a session."""
        if self._origin.is_here:
            self._member.leave()
            self.wake()
            self._thread.join(seconds)
            # The thread may hang in a request.
            self._abandon()
        return self._member.ended

    def _abandon(self) -> None:
        """Let the thread end without leaving the group, after the request that it waits for."""
        self._is_abandoned = True
        self.wake()

    def _run(self) -> None:
        try:
            self._run_steps()
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self._error = error
        finally:
            self._on_end()

    def _run_steps(self) -> None:
        steps = self._member.run()
        failure: BaseException | None = None
        answer: Any = None
        with closing(steps), suppress(StopIteration):
            while True:
                request = steps.send(answer) if failure is None else steps.throw(failure)
                answer, failure = None, None
                if self._is_abandoned:
                    return
                try:
                    if isinstance(request, Pause):
                        self._wait(request)
                    else:
                        answer = self._answer(request)
                except StoreError as error:
                    failure = error

    def _wait(self, pause: Pause) -> None:
        with suppress(queue.Empty):
            self._woken.get(timeout=max(0.0, pause.until - self._clock()))
