"""`MemberThread`: the thread that is a member of a group, for one reader of this process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.consumers.groups.group_member import GroupMember
from pypaimon.streaming.consumers.groups.group_requests import Pause, Request
from pypaimon.streaming.errors import StoreError, StreamConfigError


class MemberThread:
    """Runs the steps of one member: it beats, saves and watches while the reader does something else, or nothing.

    Args:
        member: Whose steps.
        answer: What a request comes to, see `GroupDirectory.answer`.
        clock: The member's.
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
        self._is_left = False
        self._thread = threading.Thread(target=self._run, name="pypaimon-streaming-group", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Something was confirmed, or is to end: have the member look what is due."""
        if self._woken.empty():
            self._woken.put(None)

    @property
    def has_failed(self) -> bool:
        """Whether `check` would raise what has ended it."""
        return self._error is not None

    def check(self) -> None:
        """See whether the member is well.

        Raises:
            ConsumerConflictError: The group has ended, or a newer member of the name has taken over.
            CorruptTableError: A file of the group is damaged, or may not be read or written.
            StreamConfigError: The process was forked since.
        """
        if not self._origin.is_here:
            raise StreamConfigError("a member of a group does not go on in a process that was forked from its own.")
        if self._error is not None:
            raise self._error

    def stop(self, seconds: float) -> bool:
        """Leave the group; whether that was done in time. If not, the others find out after a session.

        Args:
            seconds: How long to wait.
        """
        if self._origin.is_here:
            self._member.leave()
            self.wake()
            self._thread.join(seconds)
            # Whatever the store does later: nothing is asked of it any more.
            self._is_left = True
        return self._member.ended

    def _run(self) -> None:
        try:
            self._go()
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self._error = error
        finally:
            self._on_end()

    def _go(self) -> None:
        steps = self._member.run()
        failure: BaseException | None = None
        answer: Any = None
        with closing(steps), suppress(StopIteration):
            while True:
                request = steps.send(answer) if failure is None else steps.throw(failure)
                answer, failure = None, None
                if self._is_left:
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
