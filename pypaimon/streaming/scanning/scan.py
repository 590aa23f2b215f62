"""`StreamScan`, and its loops over plans: `PlanStream` for asyncio, `BlockingPlanStream` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import PaimonFollowUpScanner
from pypaimon.streaming.planning.follow_up import follow_up_scanner
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.handover import AsyncIteration, BlockingIteration, Iteration
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.metrics import ScanMetrics
from pypaimon.streaming.scanning.worker import Unopened

if TYPE_CHECKING:
    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")

S = TypeVar("S", bound="StreamScan")


class _PlanLoop(Iteration[Plan]):
    """What both loops share: one that was left is closed by the next, which continues at the position of the driver.

    Args:
        in_background: See `ScanDriver.look`.
    """

    _opened_by = "scan.stream()", "scan.stream_sync()"

    def __init__(self, driver: ScanDriver, *, in_background: bool = False) -> None:
        self._driver = driver
        self._in_background = in_background
        self._handover = driver.handover
        self._started = False
        self._finished = False

    def _is_left(self) -> bool:
        return self._finished or (self._started and not self._driver.is_current(self))

    def _find(self) -> Waits[None]:
        driver = self._driver
        driver.begin_call(self)
        self._started = True
        while not driver.handover.has_item:
            yield driver.next_poll(self._is_left)
            self._check()
            advance = yield driver.next_advance(driver.poll_seconds, self._is_left, in_background=self._in_background)
            self._check()
            driver.accept(advance)

    def _check(self) -> None:
        if self._is_left():
            raise EndOfScan("the loop was left")

    def _end(self) -> None:
        if not self._is_left():
            self._finished = True
            if self._started:
                self._driver.leave()

    def _ended(self) -> Wait[None]:
        # In a plain loop `leave` has waited already.
        return Wait(lambda: None, self._driver.closed)

    def __del__(self) -> None:
        # The driver is garbage too, unless its scan or another loop holds it.
        if self._started and not self._is_left():
            spawn_detached(self._driver.leave)


class PlanStream(_PlanLoop, AsyncIteration[Plan]):
    """An asynchronous iterator of plans, and an async context manager that closes it.

    Leaving the loop in any way confirms nothing and frees its threads. The scan can be streamed again, and continues
    after the last plan that was handed out. A cancelled `__anext__` loses nothing: the next one hands out its plan.
    """


class BlockingPlanStream(_PlanLoop, BlockingIteration[Plan]):
    """An iterator of plans, and a context manager that closes it. Ctrl-C interrupts it and loses nothing."""


class StreamScan:
    """The methods of `AsyncStreamingTableScan`, which adds its constructors.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: ReadableTable, driver: ScanDriver) -> None:
        self.table = table
        self._driver = driver

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.identifier.get_full_name()})"

    # ---- settings ----

    @property
    def predicate(self) -> filter_internals.Predicate | None:
        """The filter; None: all rows. Blocks if the table is not known yet, as the two properties below."""
        return self._driver.parts.get().options.predicate

    @property
    def poll_interval(self) -> float:
        """Seconds between two polls for a new snapshot."""
        return self._driver.parts.get().options.poll_interval_ms / 1000

    @property
    def follow_up_scanner(self) -> PaimonFollowUpScanner:
        """Decides which snapshots are read after the start: the scanner of the builder, else the table's own."""
        parts = self._driver.parts.get()
        given = parts.options.follow_up_scanner
        return follow_up_scanner(parts.planner.traits) if given is None else given

    # ---- driving ----

    def stream(self) -> PlanStream:
        """Plans for `async for`, or `async with` to close for sure. Polls every poll interval; ends at a bound."""
        return PlanStream(self._driver)

    def stream_sync(self) -> BlockingPlanStream:
        """Plans for a plain `for` or `with`; blocks. Works in threads, and inside a running event loop too."""
        return BlockingPlanStream(self._driver)

    def plan(self) -> Plan | None:
        """One step without waiting for new snapshots: a plan, or None without news. Blocks for its requests.

        The call confirms the plan before (with a consumer id and `commit="auto"`).

        Raises:
            EndOfScan: The stream has reached its bound, or was stopped.
            PaimonStreamError: See the class; the scan stays usable.
        """
        handover = self._driver.handover
        handover.exclusively(lambda: run(self._driver.look()))
        return handover.take() if handover.has_item else None

    async def plan_async(self) -> Plan | None:
        """As `plan`, without blocking the event loop. A cancelled call loses nothing."""
        handover = self._driver.handover
        await handover.exclusively_async(lambda: run_async(self._driver.look()))
        return handover.take() if handover.has_item else None

    # ---- position ----

    def checkpoint(self) -> Position | None:
        """The position after the last plan that was handed out; None before the start is found. Sends no requests."""
        return self._driver.position

    def restore(self, position: Position | int | None) -> None:
        """Move to a saved position, a snapshot id, or (None) the configured start. Sends no requests.

        Prefetched plans are dropped. The next plan checks the position.

        Raises:
            StreamConfigError: Another call is driving the scan, or the argument is not a position.
        """
        if position is not None and (isinstance(position, bool) or not isinstance(position, (int, Position))):
            raise StreamConfigError(
                f"restore: expected Position, int or None, got {position!r} ({type(position).__name__})"
            )
        self._driver.seek(position)

    @property
    def next_snapshot_id(self) -> int | None:
        """Snapshot of the position; None before the start is found. Setting it calls `restore`."""
        position = self.checkpoint()
        return None if position is None else position.snapshot

    @next_snapshot_id.setter
    def next_snapshot_id(self, snapshot_id: int | None) -> None:
        self.restore(snapshot_id)

    @property
    def watermark(self) -> int | None:
        """Watermark of the last planned snapshot, epoch milliseconds, or None. Sends no requests."""
        state = self._driver.handover.state.state
        return None if isinstance(state, Unopened) else state.watermark

    # ---- progress ----

    def commit(self, confirmed: Plan | Position | int) -> None:
        """Confirm a plan, or everything before a position or snapshot id, and save progress. Blocks.

        Raises:
            StreamConfigError: The scan has no consumer id.
            ConsumerConflictError: Another reader has taken over; nothing was written.
        """
        self._driver.confirm(confirmed)
        self._driver.save()

    async def commit_async(self, confirmed: Plan | Position | int) -> None:
        """As `commit`, without blocking the event loop."""
        driver = self._driver
        if driver.parts.known is None:
            await wait_for_future(driver.commits.submit(self.commit, confirmed))
            return
        driver.confirm(confirmed)
        await wait_for_future(driver.begin_save())

    def notify_checkpoint_complete(self, next_snapshot: Position | int) -> None:
        """`commit` under its Java name."""
        self.commit(next_snapshot)

    def committed(self) -> int | None:
        """The next snapshot in the consumer file, or None. One request.

        Raises:
            StreamConfigError: The scan has no consumer id.
        """
        return self._driver.progress().committed()

    # ---- lag and metrics ----

    def lag(self, position: Position | None = None) -> Lag:
        """The distance of the scan's position, or of another one that it has reached, from the latest snapshot.

        Blocks for one listing and for unknown snapshots; before the start is found also for finding it.
        """
        return self._driver.lag(position)

    async def lag_async(self, position: Position | None = None) -> Lag:
        """As `lag`, without blocking the event loop."""
        return await wait_for_future(self._driver.lags.submit(self.lag, position))

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of this scan, and the requests of its table handle once it knows its table. Sends no requests."""
        return self._driver.metrics

    # ---- ending ----

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: the current plan is the last one.

        The next call for a plan confirms it (`commit="auto"`), saves progress and ends. It waits for saving progress,
        but not for a request of the next plan that is under way.
        """
        self._driver.stop()

    def close(self) -> None:
        """End at once, also a waiting call, and let the threads end. Confirms nothing. Idempotent.

        With a consumer id it waits for a write of progress that is under way, so that nothing is written afterwards.
        On an event loop `aclose` waits for it.
        """
        self._driver.close()

    async def aclose(self) -> None:
        """As `close`, without blocking the event loop."""
        self.close()
        await self._driver.closed()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
