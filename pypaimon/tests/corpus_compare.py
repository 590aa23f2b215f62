"""Does a read equal what was wanted? Every difference, by the rules of the corpus and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff

from corpus_outcome import End, Failure, Outcome, PlanRows, Row, row_text

BEYOND = ("PositionBeyondLatestError", "TableChangedError")
REFUSED = ("StreamConfigError", "UnsupportedTableError")
ACCEPTED: dict[End, tuple[str, ...]] = {
    End.EXPIRED: ("PositionExpiredError",),
    End.BEYOND_LATEST: BEYOND,
    End.NO_SUCH_SNAPSHOT: ("PositionExpiredError", *BEYOND, "StreamConfigError", "CorruptTableError"),
    End.REJECTED: REFUSED,
    End.DAMAGED: ("CorruptTableError", "PositionExpiredError"),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a comparison depends on the read.

    Attributes:
        first_plan_unordered: The order of rows in the first plan is not asked for (a full one without buckets).
        partition_order: The order of partitions within a plan is asked for (`scan.plan-sort-partition`).
        position_zero: The read starts at position 0, which may be refused as a setting too.
    """

    first_plan_unordered: bool = False
    partition_order: bool = False
    position_zero: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as wanted.

    Attributes:
        what: Which rule: `plans`, `rows`, `kinds`, `order`, `columns`, `watermark`, `partition order`, `end`,
            `final_next` or `consumer files`.
        lines: More than one line of detail, for printing.
    """

    what: str
    text: str
    lines: tuple[str, ...] = field(default=())


def differences(wanted: Outcome, had: Outcome, rules: Rules) -> list[Difference]:
    """All differences, the gravest first; empty if the read is right."""
    return [
        *_ends(wanted, had, rules),
        *_columns(wanted, had),
        *_plans(wanted, had, rules),
        *_final_position(wanted, had),
        *_consumer_files(wanted, had),
    ]


def is_accepted(end: End, failure: Failure, position_zero: bool = False) -> bool:
    """Whether an error of ours is of the wanted category."""
    accepted = ACCEPTED.get(end, ())
    if end is End.EXPIRED and position_zero:
        accepted = (*accepted, "StreamConfigError")
    if "CorruptTableError" in failure.names and not failure.path:
        return False
    return any(name in accepted for name in failure.names)


def _ends(wanted: Outcome, had: Outcome, rules: Rules) -> Iterator[Difference]:
    assert wanted.end is not None
    if had.failure is None:
        if had.end is not wanted.end:
            assert had.end is not None
            yield Difference("end", f"wanted: {wanted.end.value}; had: {had.end.value}")
    elif not is_accepted(wanted.end, had.failure, rules.position_zero):
        trace = tuple(had.failure.trace.splitlines())
        yield Difference("end", f"wanted: {wanted.end.value}; had: {had.failure}", trace)


def _columns(wanted: Outcome, had: Outcome) -> Iterator[Difference]:
    if had.columns is not None and wanted.columns is not None and had.columns != wanted.columns:
        yield Difference("columns", f"wanted: {', '.join(wanted.columns)}; had: {', '.join(had.columns)}")


def _plans(wanted: Outcome, had: Outcome, rules: Rules) -> Iterator[Difference]:
    theirs, ours = wanted.plans_with_rows(), had.plans_with_rows()
    positions = [plan.next for plan in theirs], [plan.next for plan in ours]
    if positions[0] != positions[1]:
        yield Difference("plans", f"wanted plans with next {positions[0]}; had {positions[1]}")
    counterparts = {plan.next: plan for plan in ours}
    for index, plan in enumerate(theirs):
        if plan.next in counterparts:
            unordered = rules.first_plan_unordered and index == 0
            columns = wanted.columns or ()
            yield from _plan(plan, counterparts[plan.next], columns, unordered, rules.partition_order)


def _plan(
    wanted: PlanRows, had: PlanRows, columns: Sequence[str], unordered: bool, partition_order: bool
) -> Iterator[Difference]:
    if wanted.watermark != had.watermark:
        yield Difference("watermark", f"plan with next {wanted.next}: wanted {wanted.watermark}, had {had.watermark}")
    ours, theirs = had.by_bucket(), wanted.by_bucket()
    for key in dict.fromkeys((*theirs, *ours)):
        place = f"plan with next {wanted.next}, partition {key[0]}, bucket {key[1]}"
        yield from _rows(place, columns, theirs.get(key, []), ours.get(key, []), unordered)
    if partition_order and wanted.partitions() != had.partitions():
        yield Difference(
            "partition order", f"plan with next {wanted.next}: wanted {wanted.partitions()}, had {had.partitions()}"
        )


def _rows(
    place: str, columns: Sequence[str], wanted: list[Row], had: list[Row], unordered: bool
) -> Iterator[Difference]:
    theirs, ours = [row_text(row) for row in wanted], [row_text(row) for row in had]
    if theirs == ours:
        return
    if Counter(theirs) == Counter(ours):
        if unordered:
            return
        what = "order"
    elif Counter(row_text(row[1:]) for row in wanted) == Counter(row_text(row[1:]) for row in had):
        what = "kinds"
    else:
        what = "rows"
    lines = list(unified_diff(theirs, ours, "wanted", "had", lineterm="", n=1))[2:] + _cells(columns, wanted, had)
    yield Difference(what, f"{place}: wanted {len(theirs)} rows, had {len(ours)}", tuple(lines))


def _cells(columns: Sequence[str], wanted: list[Row], had: list[Row]) -> list[str]:
    """Where rows face each other and most columns are right: the values that differ, by name of the column."""
    names = ("row kind", *columns)
    if len(wanted) != len(had) or any(len(row) != len(names) for row in had):
        return []
    lines = []
    for number, (theirs, ours) in enumerate(zip(wanted, had, strict=True)):
        wrong = [i for i in range(len(names)) if row_text([theirs[i]]) != row_text([ours[i]])]
        if len(wrong) <= len(names) // 3:
            lines += [f"row {number}, {names[i]}: wanted {theirs[i]!r}, had {ours[i]!r}" for i in wrong]
    return lines


def _final_position(wanted: Outcome, had: Outcome) -> Iterator[Difference]:
    if wanted.end is not End.REJECTED and wanted.final_next != had.final_next:
        yield Difference("final_next", f"wanted {wanted.final_next}, had {had.final_next}")


def _consumer_files(wanted: Outcome, had: Outcome) -> Iterator[Difference]:
    if wanted.consumer_files is not None and wanted.consumer_files != had.consumer_files:
        yield Difference(
            "consumer files", f"wanted {json.dumps(wanted.consumer_files)}, had {json.dumps(had.consumer_files)}"
        )
