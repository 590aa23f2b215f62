"""`pinned`: keeps a snapshot from expiring while its branch is rolled back or copied.

A run of `maintain` writes its plan and then reads consumers again; here a consumer is written and then plans are looked
for. So at least one of the two sees the other: either the run starts over and keeps the snapshot, or nothing is done
here. Java's expiry has no plan: it keeps the snapshot if it starts later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.maintenance.plan import plans_of_runs
from pypaimon.streaming.metadata.table_directory import TableDirectory

_PREFIX = "pypaimon-pin-"


def is_own_pin(name: ConsumerName) -> bool:
    """Whether a consumer file is a pin of this module."""
    return name.consumer_id.startswith(_PREFIX)


def pinned_before(directory: TableDirectory, purpose: str) -> int | None:
    """The earliest snapshot that calls for a purpose keep which have not ended; None if there are none."""
    consumers = consumers_of(directory)
    found = (consumers.read(name) for name in _pins(consumers.names(), purpose))
    return min((each.next_snapshot for each in found if each is not None), default=None)


@contextmanager
def pinned(
    directory: TableDirectory, snapshot_id: int, purpose: str, *, stays: bool = False
) -> Iterator[Callable[[], None]]:
    """A context in which a snapshot, and later ones, do not expire.

    A process that dies in it leaves the pin. The next one for the same purpose that succeeds deletes it too.

    Args:
        directory: The branch.
        snapshot_id: The snapshot.
        purpose: What the call does.
        stays: Whether a call that fails in it leaves the pin too, so that the next one knows that it has begun.

    Yields:
        A check of the pin, which raises MaintenanceConflictError if a later call for the same purpose has succeeded
        and deleted it.

    Raises:
        MaintenanceConflictError: A run of maintenance is under way, or was killed.
    """
    # A pin, because consumers of another kind may keep changelogs only. One for each call, because the first of two
    # that ends would delete that of the other.
    name = ConsumerName(f"{_PREFIX}{purpose}-{uuid4().hex[:8]}", is_pin=True)
    consumers = consumers_of(directory)
    consumers.write(name, Consumer(snapshot_id))

    def check() -> None:
        if consumers.read(name) is None:
            raise MaintenanceConflictError(directory.table.table_path, "another call has done the same meanwhile")

    try:
        names = directory.store.list_names(consumers.directory)
        plans = plans_of_runs(names)
        if plans:
            raise MaintenanceConflictError(
                directory.table.table_path,
                f"consumer/{plans[0]} is the plan of a maintenance run that has not ended; if it was killed, the first "
                "maintain after 15 minutes ends it",
            )
    except BaseException:
        consumers.delete(name)
        raise
    try:
        yield check
    except BaseException:
        if not stays:
            consumers.delete(name)
        raise
    found = (ConsumerName.parse(each.removeprefix("consumer-")) for each in names)
    for each in {name, *_pins(found, purpose)}:
        consumers.delete(each)


def _pins(names: Iterable[ConsumerName], purpose: str) -> list[ConsumerName]:
    pattern = re.compile(rf"{re.escape(_PREFIX + purpose)}-[0-9a-f]{{8}}")
    return [each for each in names if each.is_pin and pattern.fullmatch(each.consumer_id)]
