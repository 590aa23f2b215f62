"""The loops over a scan: `PlanStream` for asyncio, `BlockingPlanStream` for everything else."""

from __future__ import annotations

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.waits import Waits, run, run_async
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.scanning.driver import ScanDriver


class _Loop:
    """What both loops share: one that was left is closed by the next, which continues at the position of the driver."""

    def __init__(self, driver: ScanDriver) -> None:
        self._driver = driver
        self._started = False
        self._finished = False

    def _is_over(self) -> bool:
        return self._finished or (self._started and not self._driver.is_current(self))

    def _find(self) -> Waits[None]:
        """Have a plan wait in the handover; EndOfScan if there is none any more."""
        driver = self._driver
        driver.begin_call(self)
        self._started = True
        while not driver.handover.has_item:
            yield driver.next_poll(self._is_over)
            self._check()
            advance = yield driver.next_advance(driver.poll_seconds, self._is_over)
            self._check()
            driver.accept(advance)

    def _check(self) -> None:
        if self._is_over():
            raise EndOfScan("the loop was left")

    def _finish(self) -> None:
        if not self._is_over():
            self._finished = True
            if self._started:
                self._driver.leave()

    def __del__(self) -> None:
        # The driver is garbage too, unless its scan or another loop holds it.
        if self._started and not self._is_over():
            spawn_detached(self._driver.leave)


class PlanStream(_Loop):
    """An asynchronous iterator of plans, and an async context manager that closes it.

    Leaving the loop in any way confirms nothing and frees its threads. The scan can be streamed again, and continues
    after the last plan that was handed out. A cancelled `__anext__` loses nothing: the next one hands out its plan.
    """

    def __aiter__(self) -> PlanStream:
        return self

    async def __anext__(self) -> Plan:
        if self._is_over():
            raise StopAsyncIteration
        handover = self._driver.handover
        try:
            await handover.exclusively_async(lambda: run_async(self._find()))
        except EndOfScan:
            self._finish()
            raise StopAsyncIteration from None
        return handover.take()

    async def aclose(self) -> None:
        """End the loop, also one that another task is waiting in; confirms nothing. Idempotent."""
        self._finish()
        await self._driver.closed()

    async def __aenter__(self) -> PlanStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class BlockingPlanStream(_Loop):
    """An iterator of plans, and a context manager that closes it. Ctrl-C interrupts it and loses nothing."""

    def __iter__(self) -> BlockingPlanStream:
        return self

    def __next__(self) -> Plan:
        if self._is_over():
            raise StopIteration
        handover = self._driver.handover
        try:
            handover.exclusively(lambda: run(self._find()))
        except EndOfScan:
            self._finish()
            raise StopIteration from None
        return handover.take()

    def close(self) -> None:
        """End the loop, also one that another thread is waiting in; confirms nothing. Idempotent."""
        self._finish()

    def __enter__(self) -> BlockingPlanStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
