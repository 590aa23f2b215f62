"""`MaintenancePolicy`: what a caller wants kept; `KeepRules`: that, completed by the options of the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import finite_seconds
from pypaimon.streaming.options.option_key import OptionKey, TableOptions
from pypaimon.streaming.options.table_traits import changelogs_outlive

_DAY = 86_400
_NO_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class MaintenancePolicy:
    """What to keep. None: as an option of the table says, which is named in parentheses with its default.

    Ages are numbers of seconds or timedeltas.

    Attributes:
        min_snapshots: The latest snapshots, which are kept at any age (`snapshot.num-retained.min`, 10); at least 1.
        max_snapshots: Snapshots that are kept at most (`snapshot.num-retained.max`, no limit).
        snapshot_age: How long other snapshots are kept (`snapshot.time-retained`, 1 hour).
        min_changelogs: As `min_snapshots`, for long-lived changelogs (`changelog.num-retained.min`).
        max_changelogs: As `max_snapshots` (`changelog.num-retained.max`).
        changelog_age: As `snapshot_age` (`changelog.time-retained`).
        expire_limit: Snapshots, and changelogs, that one run expires at most. `snapshot.expire.limit` counts only if
            the table sets it: its default of 50 is meant for the expiry after each commit.
        expire_tags: Whether tags go whose own retention has passed (`tag.time-expire-enabled`, true).
        expire_partitions: Whether partitions expire.
        partition_age: Age at which they do, after their begin or their last write (`partition.expiration-time`,
            never).
        rewrite_manifests: Merge all manifests that are small or hold deletes.
        compact: Compact what is due before anything expires, as `compact` does. Partitions that expire are left out.
        orphan_age: Files that nothing names go if they are this old; None: they stay. At least a day, unless
            `young_orphans`: a commit that is still to come may name a younger file.
        young_orphans: Allow an `orphan_age` below a day, because no writer is running.
        protect: Positions, or ids of snapshots, from which a stream will still be read: checkpoints of Spark, progress
            in targets, saved positions. What consumer files record is protected without being named here.
    """

    min_snapshots: int | None = None
    max_snapshots: int | None = None
    snapshot_age: float | timedelta | None = None
    min_changelogs: int | None = None
    max_changelogs: int | None = None
    changelog_age: float | timedelta | None = None
    expire_limit: int | None = None
    expire_tags: bool | None = None
    expire_partitions: bool = True
    partition_age: float | timedelta | None = None
    rewrite_manifests: bool = False
    compact: bool = False
    orphan_age: float | timedelta | None = None
    young_orphans: bool = False
    protect: tuple[Position | int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("min_snapshots", "max_snapshots", "min_changelogs", "max_changelogs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise StreamConfigError(f"{name}: expected at least 1, got {value}.")
        for name in ("snapshot_age", "changelog_age", "partition_age", "orphan_age"):
            _seconds(name, getattr(self, name))
        oldest = _seconds("orphan_age", self.orphan_age)
        if oldest is not None and oldest < _DAY and not self.young_orphans:
            raise StreamConfigError(
                f"orphan_age: {timedelta(seconds=oldest)} is less than a day, and a running writer may still commit "
                "such files.",
                advice="Give a day or more, or, if no writer is running, young_orphans=True as well.",
                option="orphan_age",
            )
        if self.expire_limit is not None and self.expire_limit < 0:
            raise StreamConfigError(f"expire_limit: expected a number from 0, got {self.expire_limit}.")

    @property
    def partition_seconds(self) -> float | None:
        """`partition_age` in seconds."""
        return _seconds("partition_age", self.partition_age)

    @property
    def protected_ids(self) -> tuple[int, ...]:
        """The first snapshots that the protected positions still read."""
        return tuple(_next_of(each) if isinstance(each, Position) else each for each in self.protect)


def _next_of(position: Position) -> int:
    # A range that is one plan begins after a snapshot before `position.snapshot`, whose state is compared.
    return position.snapshot if position.since is None else position.since + 1


@dataclass(frozen=True, slots=True)
class KeepRule:
    """How many snapshots, or changelogs, are kept, and how long.

    Attributes:
        least: The latest ones that are kept at any age.
        most: How many are kept at most.
        millis: How long the others are kept.
    """

    least: int
    most: int
    millis: int


@dataclass(frozen=True, slots=True)
class KeepRules:
    """A policy completed by the options of a table.

    Attributes:
        snapshots: For snapshots.
        changelogs: For long-lived changelogs; None: the changelog of a snapshot goes with it.
        limit: Snapshots, and changelogs, that one run expires at most.
        consumer_millis: Age after the last save at which a consumer file is deleted; None: never.
        changelog_only: Whether consumers keep only long-lived changelogs (`consumer.changelog-only`).
        expire_tags: Whether tags go whose own retention has passed.
        orphan_seconds: Age from which a file that nothing names goes; None: all stay.
    """

    snapshots: KeepRule
    changelogs: KeepRule | None
    limit: int
    consumer_millis: int | None
    changelog_only: bool
    expire_tags: bool
    orphan_seconds: float | None

    def orphans_before(self, now: float) -> datetime | None:
        """The time before which files that nothing names were written if they go now, in epoch seconds."""
        if self.orphan_seconds is None:
            return None
        return datetime.fromtimestamp(max(now - self.orphan_seconds, 0), timezone.utc)

    @staticmethod
    def of(policy: MaintenancePolicy, options: TableOptions) -> KeepRules:
        """Complete a policy.

        Raises:
            StreamConfigError: An option cannot be parsed, or fewer snapshots may be kept than must be.
        """
        snapshots = _rule(
            _SNAPSHOTS, policy.min_snapshots, policy.max_snapshots, policy.snapshot_age, options, _DEFAULT
        )
        given = (policy.min_changelogs, policy.max_changelogs, policy.changelog_age)
        outlive = changelogs_outlive(options) or any(each is not None for each in given)
        changelogs = _rule(_CHANGELOGS, *given, options, snapshots) if outlive else None
        limit = policy.expire_limit
        if limit is None and option_keys.SNAPSHOT_EXPIRE_LIMIT.set_as(options):
            limit = option_keys.SNAPSHOT_EXPIRE_LIMIT.of(options)
        return KeepRules(
            snapshots,
            changelogs,
            _NO_LIMIT if limit is None else limit,
            option_keys.CONSUMER_EXPIRATION_TIME.of(options),
            outlive and option_keys.CONSUMER_CHANGELOG_ONLY.of(options),
            option_keys.TAG_TIME_EXPIRE_ENABLED.of(options) if policy.expire_tags is None else policy.expire_tags,
            _seconds("orphan_age", policy.orphan_age),
        )


_Keys = tuple[OptionKey[int, Any], OptionKey[int, Any], OptionKey[int, Any]]
_SNAPSHOTS: _Keys = (
    option_keys.SNAPSHOT_NUM_RETAINED_MIN,
    option_keys.SNAPSHOT_NUM_RETAINED_MAX,
    option_keys.SNAPSHOT_TIME_RETAINED,
)
_CHANGELOGS: _Keys = (
    option_keys.CHANGELOG_NUM_RETAINED_MIN,
    option_keys.CHANGELOG_NUM_RETAINED_MAX,
    option_keys.CHANGELOG_TIME_RETAINED,
)
_DEFAULT = KeepRule(*(key.default for key in _SNAPSHOTS))


def _rule(
    keys: _Keys,
    least: int | None,
    most: int | None,
    age: float | timedelta | None,
    options: TableOptions,
    default: KeepRule,
) -> KeepRule:
    of_least, of_most, of_age = keys
    seconds = _seconds(of_age.name, age)
    millis = None if seconds is None else int(1000 * seconds)
    found = KeepRule(
        _first(least, of_least.of(options), default.least),
        _first(most, of_most.of(options), default.most),
        _first(millis, of_age.of(options), default.millis),
    )
    if found.most < found.least:
        raise StreamConfigError(
            f"At most {found.most} {of_least.name.partition('.')[0]}s may be kept, but at least {found.least} must be.",
            option=of_least.name,
        )
    return found


def _seconds(name: str, age: float | timedelta | None) -> float | None:
    return None if age is None else finite_seconds(name, age)


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
