"""What is to be compacted of a snapshot, bucket by bucket, and how each part is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pypaimon.streaming.compaction.append_packing import neighbours, packs
from pypaimon.streaming.compaction.append_rewrite import AppendRewriter
from pypaimon.streaming.compaction.change_making import ChangeMaking
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import KeyedRewriter
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.compaction.record_expiry import Expired, RecordExpiry
from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.compaction.run_picking import Pick, pick_full, pick_needed
from pypaimon.streaming.compaction.sorted_levels import level_runs
from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.model.time_zone import zone_of_table
from pypaimon.streaming.write_internals import BucketMode


@dataclass(frozen=True, slots=True)
class Work:
    """A part that is carried out, and can be committed, without the others.

    Attributes:
        bucket: Whose files they are.
        files: The files that it may replace.
        pick: What becomes of them; None: they become one file, of a table without a primary key.
    """

    bucket: LiveBucket
    files: list[LiveFile]
    pick: Pick | None = None

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def files_read(self) -> Sequence[LiveFile]:
        """Its files, and those that their records may be held against."""
        return self.files if self.pick is None else self.bucket.files


class Planner(Protocol):
    """Finds the work of one table, and carries it out, on any thread."""

    def by_time(self, *, full: bool) -> bool:
        """Whether time alone makes something due."""

    def work(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[Work]:
        """What there is to do, bucket by bucket."""

    def carry_out(self, work: Work) -> Replaced:
        """Write the new files.

        Raises:
            FileNotFoundError: A file is missing; nothing is left of what was written.
            CorruptTableError: A file is damaged; likewise.
            StoreError: The store failed; likewise.
        """


def planner(table: Any, reader: FileReader, now: Callable[[], datetime] | None = None) -> Planner:
    """The planner of a table that can be compacted.

    Args:
        table: pypaimon's table.
        reader: Reads its files.
        now: The present moment, as clocks of the table's time zone show it; None: that of the computer's clock.
    """
    if table.is_primary_key_table:
        return KeyedPlanner(table, reader, now or zone_of_table(table).now)
    return AppendPlanner(table, reader)


class KeyedPlanner:
    """Finds the work of a table with a primary key: one pick of each bucket.

    Where full compactions make the changelog, everything is due that is not on the highest level.

    Args:
        table: pypaimon's table.
        reader: Reads its files.
        now: See `planner`.
    """

    def __init__(self, table: Any, reader: FileReader, now: Callable[[], datetime]) -> None:
        self._options = CompactionOptions.of(table)
        self._making = ChangeMaking.of(table)
        self._expiry = RecordExpiry.of(table)
        self._reader = reader
        self._rewriter = KeyedRewriter(table, reader, self._options)
        self._now = now

    def by_time(self, *, full: bool) -> bool:
        """See `Planner`."""
        return self._options.by_time or (self._expiry is not None and (full or self._making.full))

    def work(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[Work]:
        """See `Planner`."""
        expired = self._expired()
        for bucket in buckets:
            runs = level_runs(bucket.files)
            if full or self._making.full:
                pick = pick_full(
                    runs,
                    self._options,
                    lambda file: expired is not None and expired.in_file(file, self._reader.schema),
                )
            else:
                up = self._making.looks_up or self._options.force_up_level_0
                pick = pick_needed(runs, self._options, self._now(), up_level_0=up)
            if pick is not None:
                yield Work(bucket, pick.files, pick)

    def carry_out(self, work: Work) -> Replaced:
        """See `Planner`."""
        assert work.pick is not None
        with _naming_files(self._reader, work):
            return self._rewriter.compact(work.bucket, work.pick, self._expired())

    def _expired(self) -> Expired | None:
        return None if self._expiry is None else self._expiry.at(self._now())


class AppendPlanner:
    """Finds the work of a table without a primary key: packs of small files.

    Args:
        table: pypaimon's table.
        reader: Reads its files.
    """

    def __init__(self, table: Any, reader: FileReader) -> None:
        self._options = CompactionOptions.of(table)
        self._reader = reader
        self._rewriter = AppendRewriter(table, reader)
        self._choose = packs if table.bucket_mode() == BucketMode.BUCKET_UNAWARE else neighbours

    def by_time(self, *, full: bool) -> bool:
        """See `Planner`."""
        return False

    def work(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[Work]:
        """See `Planner`."""
        for bucket in buckets:
            for pack in self._choose(bucket.files, self._options, full=full):
                yield Work(bucket, pack)

    def carry_out(self, work: Work) -> Replaced:
        """See `Planner`."""
        with _naming_files(self._reader, work):
            return self._rewriter.compact(work.bucket, work.files)


@contextmanager
def _naming_files(reader: FileReader, work: Work) -> Iterator[None]:
    """A row that cannot be written again makes the file damaged that holds it."""
    try:
        yield
    except BadRowError as error:
        raise reader.damaged(work.files_read, error) from error
