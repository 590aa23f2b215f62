"""`Overtaken`: saved progress that is beyond the latest snapshot after a rollback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pypaimon.streaming.commit.ledger import record_name
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.maintenance.retention_pin import is_own_pin
from pypaimon.streaming.metadata.table_directory import TableDirectory


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Saved progress that a rollback leaves beyond the latest snapshot. The file stays as it is.

    Attributes:
        kind: `consumer`, `first plan`, `group`, or `writer`: a commit user, some of whose commits are taken back.
        name: Name of the consumer file or of the commit user.
        next_snapshot: The snapshot that a reader would read next; of a writer that of its newest known commit.
    """

    kind: str
    name: str
    next_snapshot: int


def overtaken_by(directory: TableDirectory, latest: int) -> tuple[Overtaken, ...]:
    """Saved progress beyond a snapshot that becomes the latest one.

    Raises:
        CorruptTableError: A consumer file is damaged.
    """
    return tuple(_found(directory, latest))


def _found(directory: TableDirectory, latest: int) -> Iterator[Overtaken]:
    consumers = consumers_of(directory)
    files = set(directory.store.list_names(consumers.directory))
    for each in consumers.infos():
        is_writer = record_name(each.name.text) in files
        # A reader may have read up to the latest snapshot; a writer names the snapshot of a commit.
        if is_own_pin(each.name) or each.next_snapshot <= latest + (0 if is_writer else 1):
            continue
        yield Overtaken("writer" if is_writer else _kind(each.name), each.name.text, each.next_snapshot)


def _kind(name: ConsumerName) -> str:
    return "group" if name.group else "first plan" if name.is_pin else "consumer"
