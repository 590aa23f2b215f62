"""`Retention`: how long a table's options have its writers keep snapshots, and how consumers change that."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.options.option_values import OptionValues

_LEAST, _MOST, _MILLIS = "num-retained.min", "num-retained.max", "time-retained"
_DEFAULTS = {_LEAST: 10, _MOST: 2**31 - 1, _MILLIS: 3_600_000}


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
    def of(options: OptionValues) -> Retention:
        """The retention of a table's options.

        Raises:
            StreamConfigError: An option cannot be parsed.
        """
        least, most, millis = (_retained(options, "snapshot", suffix) for suffix in _DEFAULTS)
        outlive = changelogs_outlive(options)
        return Retention(
            least=least,
            most=most,
            millis=millis,
            consumer_millis=options.duration_millis("consumer.expiration-time"),
            changelogs_outlive=outlive,
            changelog_only=outlive and options.boolean("consumer.changelog-only", False),
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


def changelogs_outlive(options: OptionValues) -> bool:
    """Whether a changelog retention is larger than its snapshot twin (docs/java-semantics.md#long-lived-changelogs)."""
    for suffix in _DEFAULTS:
        changelog = _given(options, f"changelog.{suffix}")
        if changelog is not None and changelog > _retained(options, "snapshot", suffix):
            return True
    return False


def _retained(options: OptionValues, what: str, suffix: str) -> int:
    given = _given(options, f"{what}.{suffix}")
    return _DEFAULTS[suffix] if given is None else given


def _given(options: OptionValues, key: str) -> int | None:
    return options.duration_millis(key) if key.endswith(_MILLIS) else options.integer(key)
