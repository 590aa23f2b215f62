"""The loops over a scan: `PlanStream` for asyncio, `BlockingPlanStream` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypaimon.streaming.bridge import awaited
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.plan import Plan

if TYPE_CHECKING:
    from pypaimon.streaming.scan import AsyncStreamingTableScan


class _Loop:
    """What both loops share: one that was left is closed by the next, which goes on at the position of the scan."""

    def __init__(self, scan: AsyncStreamingTableScan) -> None:
        self._scan = scan
        self._started = False
        self._finished = False

    def _superseded(self) -> bool:
        return self._started and not self._scan.is_current(self)

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            if self._started and not self._superseded():
                self._scan.release()

    def __del__(self) -> None:
        self._finish()


class PlanStream(_Loop):
    """An asynchronous iterator of plans, and an async context manager that closes it.

    Leaving it, in whatever way, confirms nothing and frees its threads; the scan can be streamed again, and goes on after
    the last plan that was handed out. A cancelled `__anext__` loses nothing: the next one hands out the same plan.
    """

    def __aiter__(self) -> PlanStream:
        return self

    async def __anext__(self) -> Plan:
        if self._finished or self._superseded():
            raise StopAsyncIteration
        scan = self._scan
        with scan.driven_by(self):
            self._started = True
            try:
                while True:
                    advance = scan.begin_advance(scan.poll_seconds)
                    step = scan.accept(advance, await awaited(advance))
                    if step is not None and step.plan is not None:
                        return step.plan
                    if step is not None:
                        await scan.pause_async()
            except EndOfScan:
                self._finish()
                raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the loop; confirms nothing. Idempotent."""
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
        if self._finished or self._superseded():
            raise StopIteration
        scan = self._scan
        with scan.driven_by(self):
            self._started = True
            try:
                while True:
                    advance = scan.begin_advance(scan.poll_seconds)
                    step = scan.accept(advance, advance.result())
                    if step is not None and step.plan is not None:
                        return step.plan
                    if step is not None:
                        scan.pause()
            except EndOfScan:
                self._finish()
                raise StopIteration from None

    def close(self) -> None:
        """End the loop; confirms nothing. Idempotent."""
        self._finish()

    def __enter__(self) -> BlockingPlanStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
