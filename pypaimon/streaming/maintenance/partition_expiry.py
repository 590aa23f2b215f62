"""`PartitionExpiry`: which partitions of a table expire. Java's rules: docs/java-semantics.md#maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.partition_files import PartitionFiles, PartitionValues
from pypaimon.streaming.maintenance.partitions import check_no_chain, dropped, warn_of_metastore
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.partition_times import PartitionTimes
from pypaimon.streaming.model.time_patterns import local_nanos
from pypaimon.streaming.options import option_keys

_LOG = StreamLog(__name__)
_NANOS_PER_MILLI = 1_000_000


@dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """The rule by which partitions of one table expire, at one time.

    Attributes:
        table: The table.
        cut: The local time before which a partition that expires has begun, in nanoseconds since 1970.
        times: The times of partitions; None: the time of the last write counts (`update-time`).
        most: How many partitions expire at most in one run.
        batch: How many one commit drops at most.
    """

    table: PaimonTable
    cut: int
    times: PartitionTimes | None
    most: int
    batch: int

    @staticmethod
    def of(table: PaimonTable, seconds: float | None, now: datetime) -> PartitionExpiry | None:
        """The rule of a table; None: its partitions do not expire.

        Args:
            seconds: The age at which they expire, in place of the table's option.
            now: The current local time (aware).

        Raises:
            StreamConfigError: An option cannot be parsed.
            UnsupportedTableError: It is a chain table, or a part of the format of times is not supported.
        """
        millis = option_keys.PARTITION_EXPIRATION_TIME.of(table.options) if seconds is None else int(1000 * seconds)
        if millis is None or not table.partition_keys:
            return None
        check_no_chain(table, "its partitions do not expire here")
        check_commit_options(table)
        warn_of_metastore(table)
        by_values = option_keys.PARTITION_EXPIRATION_STRATEGY.of(table.options) == "values-time"
        most = option_keys.PARTITION_EXPIRATION_MAX_NUM.of(table.options)
        # The difference is one of local clocks, as in Java: over a change of the clock a day is not 24 hours.
        cut = local_nanos(now) - millis * _NANOS_PER_MILLI
        batch = option_keys.PARTITION_EXPIRATION_BATCH_SIZE.of(table.options) or max(1, most)
        return PartitionExpiry(table, cut, PartitionTimes(table) if by_values else None, most, batch)

    def due(self, partitions: Sequence[PartitionFiles]) -> list[PartitionFiles]:
        """The partitions that expire, at most as many as one run may drop. Logs those that can never expire."""
        found, untimed = [], []
        for each in partitions:
            is_due = self._is_due(each)
            if is_due is None:
                untimed.append(each)
            elif is_due:
                found.append(each)
        if untimed:
            _LOG.warning(
                "partitions_untimed",
                "the time of %(count)d partitions is not known, such as that of %(partition)s, so that they stay. Drop "
                "them, or check the options 'partition.timestamp-*' and 'partition.expiration-strategy'",
                table=self.table.name,
                count=len(untimed),
                partition=untimed[0].text,
            )
        return found[: self.most]

    def drop(self, planned: Sequence[PartitionFiles]) -> list[PartitionValues]:
        """Drop partitions that are due, unless they have been written meanwhile and are not due any more.

        Returns:
            Those that were dropped.

        Raises:
            CommitFailedError: A commit did not get through; those before it stay (retriable).
        """
        gone: list[PartitionValues] = []
        for start in range(0, len(planned), self.batch):
            portion = {each.text for each in planned[start : start + self.batch]}

            def chosen(
                found: Sequence[PartitionFiles], _: TableState, portion: set[str] = portion
            ) -> list[PartitionFiles]:
                return [each for each in found if each.text in portion and self._is_due(each)]

            gone += dropped(self.table, chosen).partitions
        return gone

    def is_over(self, row: bytes) -> bool | None:
        """Whether a partition (a serialised row) expires by its values; None: they do not say it, or do not count."""
        begin = None if self.times is None else self.times.nanos(row)
        return None if begin is None else begin < self.cut

    def _is_due(self, partition: PartitionFiles) -> bool | None:
        """Whether a partition expires; None: its time is not known."""
        if self.times is not None:
            return self.is_over(partition.stored[0])
        last, cut = partition.last_write_millis, self.table.zone.millis(self.cut // _NANOS_PER_MILLI)
        return None if last is None else last < cut
