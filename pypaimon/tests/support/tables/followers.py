"""Every way to follow a table, at the same time while others write it: what each has read at the end must be equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from pypaimon.streaming import DuckDBTarget, Replication, StreamReadBuilder, replicate, stream_read_builder
from support.waits import PATIENCE, until

Change = tuple[str, dict[str, Any]]
"""A row kind and a row."""
Row = dict[str, Any]
POLL_MS = 50
MEMBERS = 3


class Followers:
    """A stream, a consumer that is reopened after each few batches, a group of three, a live table and a copy.

    They begin with the first snapshot. Each has a consumer, so that nothing expires before it was read.

    Args:
        table: Gives a handle of the table.
        directory: For the copy.
        keys: The primary key; empty: rows are only added, and no live table can follow.
        groups: Whether a group can divide the table.
        renamed: New names of columns that are renamed meanwhile.

    Attributes:
        changes: What each has read until now: row kinds and rows, with the new names.
        consumers: The ids under which they keep snapshots.
    """

    def __init__(
        self,
        table: Callable[[], Any],
        directory: Path,
        keys: Sequence[str],
        *,
        groups: bool = True,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self._table, self._keys, self._done, self._renamed = table, list(keys), False, renamed or {}
        self.consumers = [
            "stream",
            "consumer",
            "copy",
            *(["group"] if groups else []),
            *(["live"] if keys else []),
        ]
        self._database = duckdb.connect(str(directory / "copy.db"))
        self._target = DuckDBTarget(self._database, "copy", keys=self._keys or None)
        self._replication = Replication(self._plain().with_consumer_id("copy"), self._target)
        self._live: Any = None
        self._stops: list[Callable[[], None]] = [self._replication.stop]
        self.changes: dict[str, list[Change]] = {"stream": [], "consumer": []}
        readers = [self._stream, self._consumer, self._replication.run]
        if groups:
            self.changes["group"] = []
            readers += [self._member] * MEMBERS
        if keys:
            readers.append(self._follow_live)
        self._pool = ThreadPoolExecutor(len(readers))
        self._running: list[Future[None]] = [self._pool.submit(each) for each in readers]

    def _plain(self) -> StreamReadBuilder:
        return stream_read_builder(self._table()).with_poll_interval_ms(POLL_MS).with_on_schema_change("follow")

    def _changes(self) -> StreamReadBuilder:
        return self._plain().with_start("earliest").with_include_row_kind()

    def _stream(self) -> None:
        with self._following(self._changes().with_consumer_id("stream")) as stream:
            self._read(stream, "stream")
        with self._changes().with_consumer_id("stream").with_end(latest=True).open_sync() as stream:
            self._read(stream, "stream")

    def _consumer(self) -> None:
        """Two batches of each stream are confirmed, and the third is not."""
        builder = self._changes().with_consumer_id("consumer", commit="manual")
        while not self._done:
            with self._following(builder) as stream:
                for number, batch in enumerate(stream):
                    if number == 2 or self._done:
                        break
                    self.changes["consumer"] += self._renamed_changes(batch)
                    batch.commit()
        with builder.with_end(latest=True).open_sync() as stream:
            for batch in stream:
                self.changes["consumer"] += self._renamed_changes(batch)
                batch.commit()

    def _member(self) -> None:
        group = self._changes()
        with self._following(group.new_group("group")) as stream:
            self._read(stream, "group")
        # No loop of a group ends before all slots are confirmed up to the end.
        with group.with_end(latest=True).new_group("group").open_sync() as stream:
            self._read(stream, "group")

    @contextmanager
    def _following(self, builder: Any) -> Iterator[Any]:
        """A stream that ends when all are to end."""
        with builder.open_sync() as stream:
            self._stops.append(stream.stop)
            if self._done:
                stream.stop()
            yield stream

    def _read(self, stream: Any, name: str) -> None:
        for batch in stream:
            self.changes[name] += self._renamed_changes(batch)

    def _renamed_changes(self, batch: Any) -> list[Change]:
        return [(kind, {self._renamed.get(name, name): row[name] for name in row}) for kind, row in changes_of(batch)]

    def _follow_live(self) -> None:
        with self._plain().with_consumer_id("live").open_live_sync() as live:
            self._live = live
            until(lambda: self._done)
            live.wait_for(self._latest())
            self.live = live.to_arrow().to_pylist()

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._pool.shutdown()
        self._database.close()

    def _stop(self) -> None:
        self._done = True
        for stop in list(self._stops):
            stop()

    def _latest(self) -> int:
        return int(self._table().snapshot_manager().get_latest_snapshot().id)

    def check_running(self) -> None:
        """Raises the error of a follower that has ended."""
        for each in self._running:
            if each.done():
                each.result()

    def finish(self) -> list[Row]:
        """Let them read all that is there, compare what they have, and give the rows of the table."""
        self._stop()
        for each in self._running:
            each.result(PATIENCE)
        replicate(self._plain().with_consumer_id("copy").with_end(latest=True), self._target)
        found = self._state_now()
        copied = self._database.sql("FROM copy").to_arrow_table().to_pylist()
        assert sorted_rows(copied) == sorted_rows(found), "the copy"
        if self._keys:
            assert sorted_rows(self.live) == sorted_rows(found), "the live table"
        for name, changes in self.changes.items():
            assert sorted_rows(self.state(changes)) == sorted_rows(found), name
            assert self.histories(changes) == self.histories(self.changes["stream"]), name
        return found

    def _state_now(self) -> list[Row]:
        with self._plain().with_end(latest=True).open_sync() as stream:
            return [row for batch in stream for row in batch.rows.to_pylist()]

    def state(self, changes: Iterable[Change]) -> list[Row]:
        """The rows after changes."""
        if not self._keys:
            return [row for _, row in changes]
        rows: dict[tuple[Any, ...], Row] = {}
        for kind, row in changes:
            if kind in ("+I", "+U"):
                rows[self._key(row)] = row
            else:
                rows.pop(self._key(row), None)
        return list(rows.values())

    def histories(self, changes: Iterable[Change]) -> Any:
        """The changes of each key in their order; without keys how often each row was added."""
        if not self._keys:
            return Counter(repr((kind, sorted(row.items()))) for kind, row in changes)
        found: dict[tuple[Any, ...], list[Change]] = defaultdict(list)
        for kind, row in changes:
            found[self._key(row)].append((kind, row))
        return dict(found)

    def check_updates(self) -> None:
        """Every `-U` and `-D` has the row that was there before."""
        for key, changes in self.histories(self.changes["stream"]).items():
            there: Row | None = None
            for kind, row in changes:
                if kind in ("-U", "-D"):
                    assert row == there, (key, changes)
                elif kind == "+I":
                    assert there is None, (key, changes)
                there = row if kind in ("+I", "+U") else None if kind == "-D" else there

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._keys)


def changes_of(batch: Any) -> list[Change]:
    """The row kinds and rows of a batch, without nulls: a column may be added later."""
    return [(row.pop("_row_kind", "+I"), without_nulls(row)) for row in batch.data.to_pylist()]


def without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def sorted_rows(rows: Iterable[Row]) -> list[str]:
    """Rows in an order that does not depend on files."""
    return sorted(repr(sorted(without_nulls(row).items())) for row in rows)
