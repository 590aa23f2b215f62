"""`Retention`: how long a table's options have its writers keep snapshots, and how consumers change that."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots writers expire. Java's rules: docs/java-semantics.md#consumers.

    Attributes:
        least: Snapshots that are kept at any age.
        most: Snapshots that are kept at most.
        millis: How long other snapshots are kept.
        consumer_millis: Age after the last save at which writers delete a consumer file; None: never.
        changelogs_outlive: Whether changelogs are kept longer than their snapshots.
        changelog_only: Whether consumers keep only changelogs.
    """

    least: int
    most: int
    millis: int
    consumer_millis: int | None
    changelogs_outlive: bool
    changelog_only: bool

    @staticmethod
    def of(options: TableOptions) -> Retention:
        """The retention of a table's options.

        Raises:
            StreamConfigError: An option cannot be parsed.
        """
        outlive = changelogs_outlive(options)
        return Retention(
            least=option_keys.SNAPSHOT_NUM_RETAINED_MIN.of(options),
            most=option_keys.SNAPSHOT_NUM_RETAINED_MAX.of(options),
            millis=option_keys.SNAPSHOT_TIME_RETAINED.of(options),
            consumer_millis=option_keys.CONSUMER_EXPIRATION_TIME.of(options),
            changelogs_outlive=outlive,
            changelog_only=outlive and option_keys.CONSUMER_CHANGELOG_ONLY.of(options),
        )

    def lets_go(self, snapshot_id: int, time_millis: int, latest_id: int, now_millis: int) -> bool:
        """Whether the next commit may expire a snapshot that no consumer keeps.

        Args:
            time_millis: When it was committed.
            latest_id: The latest snapshot.
            now_millis: The current time.
        """
        age = latest_id - snapshot_id
        return age >= self.least and (age >= self.most or time_millis < now_millis - self.millis)


def changelogs_outlive(options: TableOptions) -> bool:
    """Whether a changelog retention is larger than its snapshot twin (docs/java-semantics.md#long-lived-changelogs)."""
    for of_changelogs, of_snapshots in (
        (option_keys.CHANGELOG_NUM_RETAINED_MIN, option_keys.SNAPSHOT_NUM_RETAINED_MIN),
        (option_keys.CHANGELOG_NUM_RETAINED_MAX, option_keys.SNAPSHOT_NUM_RETAINED_MAX),
        (option_keys.CHANGELOG_TIME_RETAINED, option_keys.SNAPSHOT_TIME_RETAINED),
    ):
        retained = of_changelogs.of(options)
        if retained is not None and retained > of_snapshots.of(options):
            return True
    return False
