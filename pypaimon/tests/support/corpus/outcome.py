"""What a read of the corpus comes to, wanted or had: plain values that can be compared, stored and printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

Row = list[Any]
"""Row kind, then one JSON value per column, as in `expect.json`."""
NO_PLACE = "null"
"""The partition of a split that is not known."""


class End(str, Enum):
    """How a read of the corpus ends, by category."""

    WAITING = "waiting"
    """Nothing more comes, and no error."""
    END_OF_SCAN = "end of scan"
    """The bound was reached."""
    EXPIRED = "expired"
    """The position is no longer in the table."""
    BEYOND_LATEST = "beyond the latest"
    """The position lies too far ahead."""
    REJECTED = "rejected"
    """Settings, or the table, are refused before any row."""
    DAMAGED = "damaged"
    """A file of the table is broken or missing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that ended a read of ours.

    Attributes:
        names: The class of the error and those above it, the most special first.
        stage: `open` (table, options, builder, scan), `plan` or `read`.
        path: The file that the error names, or None.
    """

    names: tuple[str, ...]
    message: str
    stage: str
    path: str | None = None
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.names[0]} at stage {self.stage}: {self.message}"


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Rows of one split, in order. `partition` is JSON text, so that it can be a key."""

    partition: str
    bucket: int
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class PlanRows:
    """One plan.

    Attributes:
        next: The position after it: the next snapshot to read.
        position: The same position with all that it says but the table: snapshot, phase, fingerprint, unit as
            `Position.to_json` writes them. None where it is not known, or not asked for.
    """

    next: int | None
    watermark: int | None
    splits: tuple[BucketRows, ...]
    position: dict[str, Any] | None = None

    def has_rows(self) -> bool:
        return any(split.rows for split in self.splits)

    def by_bucket(self) -> dict[tuple[str, int], list[Row]]:
        """Rows per (partition, bucket), splits concatenated in plan order; buckets without rows are left out."""
        buckets: dict[tuple[str, int], list[Row]] = {}
        for split in self.splits:
            if split.rows:
                buckets.setdefault((split.partition, split.bucket), []).extend(split.rows)
        return buckets

    def has_places(self) -> bool:
        """Whether it is known of which partition and bucket each split is; not of the first plan of a chain table."""
        return all(split.partition != NO_PLACE for split in self.splits)

    def numbered(self) -> PlanRows:
        """The same with numbers in the place of partition and bucket, by the rows of each split; those without none."""
        rows = sorted((split.rows for split in self.splits if split.rows), key=lambda each: list(map(row_text, each)))
        return replace(self, splits=tuple(BucketRows(NO_PLACE, number, each) for number, each in enumerate(rows)))

    def partitions(self) -> list[str]:
        return list(dict.fromkeys(split.partition for split in self.splits if split.rows))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a read came to.

    Attributes:
        end: Category for a wanted outcome; for one of ours WAITING or END_OF_SCAN, None where `failure` says more.
        columns: Names of the columns, None where not known.
        consumer_files: Path in the warehouse to next snapshot, after the read was closed; None if not asked for.
        message: How the message of the error must begin (a wanted one, where Java's is for users); None: not asked for.
    """

    plans: tuple[PlanRows, ...]
    end: End | None
    final_next: int | None
    failure: Failure | None = None
    columns: tuple[str, ...] | None = None
    consumer_files: dict[str, int] | None = None
    message: str | None = None

    def with_rows(self, rows: Callable[[BucketRows, bool], list[Row]]) -> Outcome:
        """The outcome with other rows per split, which may depend on whether it is one of the first plan."""
        plans = tuple(
            replace(plan, splits=tuple(replace(split, rows=rows(split, index == 0)) for split in plan.splits))
            for index, plan in enumerate(self.plans)
        )
        return replace(self, plans=plans)

    def of_shard(self, shard: tuple[int, int]) -> Outcome:
        """Only what is in the buckets of a shard: its index, and how many there are."""
        index, count = shard
        return self.with_rows(lambda split, _: split.rows if split.bucket % count == index else [])

    def plans_with_rows(self) -> list[PlanRows]:
        return [plan for plan in self.plans if plan.has_rows()]


def row_text(row: Row) -> str:
    """A row as one line of JSON: two rows are the same if and only if their texts are."""
    return json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
