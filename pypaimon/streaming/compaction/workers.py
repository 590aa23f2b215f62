"""Who carries out the work of a compaction: `Workers`, and the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Protocol

from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.compaction.work import Planner, Work
from pypaimon.streaming.options.arguments import at_least

Done = Callable[[Work, Replaced], None]


class Workers(Protocol):
    """Carry out work.

    Attributes:
        commit_bytes: A commit is made once so many bytes have been compacted.
    """

    commit_bytes: int

    def carry_out(self, table: Any, planner: Planner, work: Sequence[Work], done: Done) -> None:
        """Carry out all of some work.

        Args:
            table: pypaimon's table, under the schema that it is compacted with.
            planner: Of that table.
            work: What `planner` has found.
            done: Called, on this thread, with each part that is done: also where another one fails, for its files are
                there then.

        Raises:
            FileNotFoundError: A file is missing. Nothing is left of what its part wrote.
            CorruptTableError: A file is damaged; likewise.
            StoreError: The store failed; likewise.
        """


class Threads:
    """The threads of this process.

    Args:
        count: How many parts are carried out at the same time. Each holds a part of a bucket in memory.

    Raises:
        StreamConfigError: The count is none.
    """

    commit_bytes = 2 << 30

    def __init__(self, count: int) -> None:
        self._count = at_least(1, "threads", count)

    def carry_out(self, table: Any, planner: Planner, work: Sequence[Work], done: Done) -> None:
        """See `Workers`."""
        if self._count == 1:
            for each in work:
                done(each, planner.carry_out(each))
            return
        with ThreadPoolExecutor(self._count, thread_name_prefix="paimon-compaction") as pool:
            under_way = {pool.submit(planner.carry_out, each): each for each in work}
            _gather(under_way, done)


def _gather(under_way: dict[Future[Replaced], Work], done: Done) -> None:
    """Tell of each part that ends; after an error, or an interrupt, of those that are begun already."""
    errors: list[BaseException] = []
    waiting = set(under_way)

    def next_one() -> None:
        try:
            future = next(as_completed(waiting))
            waiting.discard(future)
            if not future.cancelled():
                done(under_way[future], future.result())
        except BaseException as error:  # noqa: BLE001 - the others are waited for first
            errors.append(error)
            for each in waiting:
                each.cancel()

    while waiting:
        next_one()
    if errors:
        raise errors[0]
