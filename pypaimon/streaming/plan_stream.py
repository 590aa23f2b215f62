"""The loops over a scan: `PlanStream` for asyncio, `BlockingPlanStream` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.io_pool import detached
from pypaimon.streaming.plan import Plan

if TYPE_CHECKING:
    from pypaimon.streaming.scan import AsyncStreamingTableScan


class _Loop:
    """What both loops share: one that was left is closed by the next, which goes on at the position of the scan."""

    def __init__(self, scan: AsyncStreamingTableScan) -> None:
        self._scan = scan
        self._started = False
        self._finished = False

    def _is_over(self) -> bool:
        return self._finished or (self._started and not self._scan.is_current(self))

    def _check(self) -> None:
        if self._is_over():
            raise EndOfScan("the loop was left")

    def _finish(self) -> None:
        if not self._is_over():
            self._finished = True
            if self._started:
                self._scan.leave()

    def __del__(self) -> None:
        # The scan is garbage too, unless another loop drives it.
        if self._started and not self._is_over():
            detached(self._scan.leave)


class PlanStream(_Loop):
    """An asynchronous iterator of plans, and an async context manager that closes it.

    Leaving it, in whatever way, confirms nothing and frees its threads; the scan can be streamed again, and goes on
    after the last plan that was handed out. A cancelled `__anext__` loses nothing: the next one hands out its plan.
    """

    def __aiter__(self) -> PlanStream:
        return self

    async def __anext__(self) -> Plan:
        if self._is_over():
            raise StopAsyncIteration
        handover = self._scan.handover
        try:
            await handover.alone_async(self._find)
        except EndOfScan:
            self._finish()
            raise StopAsyncIteration from None
        return handover.take()

    async def _find(self) -> None:
        scan = self._scan
        scan.begin_call(self)
        self._started = True
        while not scan.handover.waits:
            await scan.pause_async(self._is_over)
            self._check()
            advance = await scan.next_advance_async(scan.poll_seconds, self._is_over)
            self._check()
            scan.accept(advance)

    async def aclose(self) -> None:
        """End the loop, also one that another task is waiting in; confirms nothing. Idempotent."""
        self._finish()

    async def __aenter__(self) -> PlanStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._finish()


class BlockingPlanStream(_Loop):
    """An iterator of plans, and a context manager that closes it. Ctrl-C interrupts it and loses nothing."""

    def __iter__(self) -> BlockingPlanStream:
        return self

    def __next__(self) -> Plan:
        if self._is_over():
            raise StopIteration
        handover = self._scan.handover
        try:
            handover.alone(self._find)
        except EndOfScan:
            self._finish()
            raise StopIteration from None
        return handover.take()

    def _find(self) -> None:
        scan = self._scan
        scan.begin_call(self)
        self._started = True
        while not scan.handover.waits:
            scan.pause(self._is_over)
            self._check()
            advance = scan.next_advance(scan.poll_seconds, self._is_over)
            self._check()
            scan.accept(advance)

    def close(self) -> None:
        """End the loop, also one that another thread is waiting in; confirms nothing. Idempotent."""
        self._finish()

    def __enter__(self) -> BlockingPlanStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
