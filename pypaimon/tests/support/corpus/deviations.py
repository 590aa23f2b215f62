"""Wanted differences from Java: which reads they hold for, and what those reads must come to instead."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from support.corpus.cases import Read, Scenario
from support.corpus.outcome import BucketRows, End, Outcome, PlanRows, Row
from support.corpus.values import matches
from support.repository import TESTS, read_toml

FILE = TESTS / "deviations.toml"
STEPS = set("like own_first keep_buckets drop_row reorder filter columns nulls end without_raw".split())


@dataclass(frozen=True, slots=True)
class Deviation:
    """An entry of `deviations.toml`; see there."""

    rule: str
    scenario: tuple[str, ...]
    read: tuple[str, ...]
    reason: str
    expect: dict[str, Any]
    executed: bool | None = None

    def fits(self, scenario: Scenario, read: Read) -> bool:
        if self.executed not in (None, read.execute_filter):
            return False
        return any(fnmatchcase(scenario.name, name) for name in self.scenario) and any(
            fnmatchcase(read.name, name) for name in self.read
        )

    def wanted_without_raw(self) -> End | None:
        """How the read must end when raw records are not asked for; None if that is not asked."""
        end = self.expect.get("without_raw")
        return None if end is None else End(end)

    def wanted(self, scenario: Scenario, read: Read) -> Outcome:
        expect, base, outcome = self.expect, read, read.java
        if "like" in expect:
            base = scenario.reads[self._other(expect["like"], read.name)]
            outcome = base.java
        if "own_first" in expect:
            outcome = replace(outcome, plans=(_in_latest_schema(scenario, read, expect["own_first"]), *outcome.plans))
        if "keep_buckets" in expect:
            assert read.shard is not None
            outcome = outcome.of_shard(read.shard)
        if "drop_row" in expect:
            outcome = _drop_row(outcome, expect["drop_row"]["next"], expect["drop_row"]["row"])
        if "reorder" in expect:
            outcome = _reordered(outcome, **expect["reorder"])
        if "columns" in expect:
            names = tuple(expect["columns"].get(name, name) for name in outcome.columns or ())
            outcome = replace(outcome, columns=names)
        if "filter" in expect:
            outcome = _filtered(outcome, base, read, as_deletes=expect["filter"] == "delete")
        if "nulls" in expect:
            outcome = _nulled(outcome, expect["nulls"])
        if "end" in expect:
            outcome = replace(outcome, end=End(expect["end"]), message=None)
        return outcome

    def _other(self, pattern: str, name: str) -> str:
        if "*" not in pattern:
            return pattern
        found = (re.fullmatch(re.escape(read).replace(r"\*", "(.*)"), name) for read in self.read)
        return pattern.replace("*", next(match.group(1) for match in found if match))


@cache
def all_deviations() -> tuple[Deviation, ...]:
    entries = tuple(_entry(**raw) for raw in read_toml(FILE)["deviation"])
    for entry in entries:
        if unknown := entry.expect.keys() - STEPS:
            raise ValueError(f"{entry.scenario}/{entry.read}: no such step: {unknown}")
    return entries


def _entry(scenario: str | list[str], read: str | list[str], **rest: Any) -> Deviation:
    return Deviation(scenario=_names(scenario), read=_names(read), **rest)


def _names(given: str | list[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def find(scenario: Scenario, read: Read) -> Deviation | None:
    """The entry that holds for a read; the first that fits."""
    return next((entry for entry in _of_scenario(scenario.name) if entry.fits(scenario, read)), None)


@cache
def _of_scenario(name: str) -> tuple[Deviation, ...]:
    return tuple(entry for entry in all_deviations() if any(fnmatchcase(name, each) for each in entry.scenario))


def _filtered(outcome: Outcome, base: Read, read: Read, as_deletes: bool) -> Outcome:
    assert read.filter is not None
    name, op, value = read.filter
    names = [column for column, _ in base.columns]
    index, sql_type = names.index(name) + 1, dict(base.columns)[name]

    def kept(split: BucketRows, first: bool) -> list[Row]:
        retracts = as_deletes and not (first and base.starts_full)
        fitting = [(row, matches(row[index], op, value, sql_type)) for row in split.rows]
        return [row if fits else ["-D", *row[1:]] for row, fits in fitting if fits or retracts]

    return outcome.with_rows(kept)


def _drop_row(outcome: Outcome, position: int, row: Row) -> Outcome:
    held = [split for plan in outcome.plans if plan.next == position for split in plan.splits if row in split.rows]
    if len(held) != 1:
        raise ValueError(f"{row} is not once in the plan with next {position}")
    return outcome.with_rows(
        lambda split, _: [other for other in split.rows if other != row] if split is held[0] else split.rows
    )


def _nulled(outcome: Outcome, text: str) -> Outcome:
    return outcome.with_rows(lambda split, _: [[None if each == text else each for each in row] for row in split.rows])


def _reordered(outcome: Outcome, next: int, partition: str, bucket: int, order: list[int]) -> Outcome:
    """The rows of one bucket of a plan, by their places in Java's."""

    def change(plan: PlanRows) -> PlanRows:
        if plan.next != next:
            return plan
        buckets = plan.by_bucket()
        rows = buckets[partition, bucket]
        buckets[partition, bucket] = [rows[index] for index in order]
        return replace(plan, splits=tuple(BucketRows(*key, rows) for key, rows in buckets.items()))

    return replace(outcome, plans=tuple(map(change, outcome.plans)))


def _in_latest_schema(scenario: Scenario, read: Read, renamed: dict[str, str]) -> PlanRows:
    names = [renamed.get(name, name) for name, _ in read.columns]

    def change(row: Row) -> Row:
        values = dict(zip(names, row[1:], strict=True))
        return [row[0], *(_completed(values.get(name), sql_type) for name, sql_type in scenario.fields)]

    first = read.java.plans[0]
    splits = tuple(replace(split, rows=[change(row) for row in split.rows]) for split in first.splits)
    return replace(first, splits=splits)


def _completed(value: Any, sql_type: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: value.get(name) for name in re.findall("`(\\w+)`", sql_type)}
