"""Does a read equal what was wanted? Every difference, by the rules of the corpus and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff

from support.corpus.outcome import End, Failure, Outcome, PlanRows, Row, row_text

ACCEPTED: dict[End, tuple[str, ...]] = {
    End.EXPIRED: ("PositionExpiredError",),
    End.BEYOND_LATEST: ("PositionBeyondLatestError", "TableChangedError"),
    End.REJECTED: ("StreamConfigError", "UnsupportedTableError"),
    End.DAMAGED: ("CorruptTableError",),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a comparison depends on the read.

    Attributes:
        first_plan_unordered: The order of rows in the first plan is not asked for (a full one without buckets).
        whole_buckets: A (partition, bucket) is one split of a plan: splits may be read side by side.
        partition_order: The order of partitions within a plan is asked for (`scan.plan-sort-partition`).
    """

    first_plan_unordered: bool = False
    whole_buckets: bool = False
    partition_order: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as wanted.

    Attributes:
        what: Which rule: `plans`, `empty plan`, `rows`, `kinds`, `order`, `splits`, `columns`, `watermark`, `position`,
            `partition order`, `end`, `message`, `final_next` or `consumer files`.
        lines: More than one line of detail, for printing.
    """

    what: str
    text: str
    lines: tuple[str, ...] = field(default=())


def differences(wanted: Outcome, had: Outcome, rules: Rules) -> list[Difference]:
    """All differences, the gravest first; empty if the read is right."""
    return [
        *_ends(wanted, had),
        *_columns(wanted, had),
        *_plans(wanted, had, rules),
        *_final_position(wanted, had),
        *_consumer_files(wanted, had),
    ]


def is_accepted(end: End, failure: Failure) -> bool:
    """Whether an error of ours is of the wanted category."""
    if "CorruptTableError" in failure.names and not failure.path:
        return False
    return any(name in ACCEPTED.get(end, ()) for name in failure.names)


def _ends(wanted: Outcome, had: Outcome) -> Iterator[Difference]:
    assert wanted.end is not None
    if had.failure is None:
        if had.end is not wanted.end:
            assert had.end is not None
            yield Difference("end", f"wanted: {wanted.end.value}; had: {had.end.value}")
    elif not is_accepted(wanted.end, had.failure):
        trace = tuple(had.failure.trace.splitlines())
        yield Difference("end", f"wanted: {wanted.end.value}; had: {had.failure}", trace)
    elif not had.failure.message.startswith(wanted.message or ""):
        yield Difference("message", f"wanted: {wanted.message}...; had: {had.failure}")


def _columns(wanted: Outcome, had: Outcome) -> Iterator[Difference]:
    if had.columns is not None and wanted.columns is not None and had.columns != wanted.columns:
        yield Difference("columns", f"wanted: {', '.join(wanted.columns)}; had: {', '.join(had.columns)}")


def _plans(wanted: Outcome, had: Outcome, rules: Rules) -> Iterator[Difference]:
    theirs, ours = wanted.plans_with_rows(), had.plans_with_rows()
    positions = [plan.next for plan in theirs], [plan.next for plan in ours]
    if positions[0] != positions[1]:
        yield Difference("plans", f"wanted plans with next {positions[0]}; had {positions[1]}")
    held = {plan.next for plan in wanted.plans if plan.splits}
    for plan in had.plans:
        if not plan.splits or not (plan.has_rows() or plan.next in held):
            yield Difference("empty plan", f"with next {plan.next}")
    counterparts = {plan.next: plan for plan in ours}
    for index, plan in enumerate(theirs):
        if plan.next in counterparts:
            unordered = rules.first_plan_unordered and index == 0
            yield from _plan(
                plan, counterparts[plan.next], wanted.columns or (), replace(rules, first_plan_unordered=unordered)
            )


def _plan(wanted: PlanRows, had: PlanRows, columns: Sequence[str], rules: Rules) -> Iterator[Difference]:
    if wanted.position is not None and had.position != wanted.position:
        yield Difference("position", f"plan with next {wanted.next}: wanted {wanted.position}, had {had.position}")
    if wanted.watermark != had.watermark:
        yield Difference("watermark", f"plan with next {wanted.next}: wanted {wanted.watermark}, had {had.watermark}")
    if not wanted.has_places():
        wanted, had = wanted.numbered(), had.numbered()
    ours, theirs = had.by_bucket(), wanted.by_bucket()
    for key in dict.fromkeys((*theirs, *ours)):
        place = f"plan with next {wanted.next}, partition {key[0]}, bucket {key[1]}"
        yield from _rows(place, columns, theirs.get(key, []), ours.get(key, []), rules.first_plan_unordered)
    spread = {
        key for key, count in Counter((split.partition, split.bucket) for split in had.splits).items() if count > 1
    }
    if rules.whole_buckets and spread:
        yield Difference("splits", f"plan with next {wanted.next}: several splits of one bucket: {spread}")
    if rules.partition_order and wanted.partitions() != had.partitions():
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
