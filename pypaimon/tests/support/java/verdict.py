"""What a read beside Java's must come to, by the rules of the corpus, and what differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.corpus.cases import Read, Scenario
from support.corpus.compare import Difference, Rules, differences
from support.corpus.judgement import rules_for
from support.corpus.outcome import BucketRows, Outcome, PlanRows, Row
from support.corpus.values import matches
from support.java.families import SETS

RETRACTING = ("none", "input")
"""Changelog producers whose streams carry unmerged records."""


def compare(wanted: Outcome, had: Outcome, scenario: Scenario, read: Read) -> tuple[Rules, list[Difference]]:
    """By the rules of the corpus, and those of pending records."""
    unordered = read.starts_full and not scenario.has_buckets()
    rules = replace(rules_for(scenario, read), first_plan_unordered=unordered)
    if read.system_table == "binlog":
        wanted = wanted.with_rows(lambda split, _: _packed(split.rows))
    if scenario.table_options.get("data-evolution.enabled") == "true":
        wanted = wanted.with_rows(lambda split, _: _in_partition(split, read))
    wanted, had = (_ordered(outcome, scenario, read) for outcome in (wanted, had))
    pending = scenario.table_options.get("bucket") == "-2"
    # Java's first plan may be empty; ours is then left out, and our first one is a follow-up.
    if read.starts_full and pending and any(split.rows for split in wanted.plans[0].splits):
        # Java sorts the files of pending records by key, and shows +U as +I where there is but one file;
        # ours leave as they were written.
        rules = replace(rules, first_plan_unordered=True)
        return rules, differences(_without_updates(wanted), _without_updates(had), rules)
    return rules, differences(wanted, had, rules)


def joined(outcome: Outcome) -> Outcome:
    """All plans as one: rows per bucket, in order."""
    splits = tuple(split for plan in outcome.plans for split in plan.splits)
    return replace(outcome, plans=(PlanRows(None, None, splits),))


def scenario_of(warehouse: Path, schema: dict[str, Any]) -> Scenario:
    return Scenario(
        archive="live",
        name="live",
        description="",
        warehouse=warehouse,
        table_options=schema["options"],
        fields=tuple((each["name"], each["type"]) for each in schema["fields"]),
        partition_keys=tuple(schema["partition_keys"]),
        primary_keys=tuple(schema["primary_keys"]),
        reads={},
    )


def _in_partition(split: BucketRows, read: Read) -> list[Row]:
    """Rows of data evolution with the partition that Java leaves null where several files hold none of its columns."""
    partition = json.loads(split.partition)
    names = [None, *(name for name, _ in read.columns)]
    return [
        [partition.get(name) if each is None else each for name, each in zip(names, row, strict=True)]
        for row in split.rows
    ]


def _packed(rows: list[Row]) -> list[Row]:
    """Rows of Java's `$binlog` as ours are: it takes any record behind a -U, also one of another key, for its +U."""
    records: list[tuple[str, list[Any]]] = []
    for _, kind, *columns in rows:
        pair = len(columns[0]) == 2
        records += [("-U" if pair and not i else kind, [[each[i]] for each in columns]) for i in range(1 + pair)]
    packed: list[tuple[str, list[Any]]] = []
    for kind, columns in records:
        if kind == "+U" and packed and packed[-1][0] == "-U":
            packed[-1] = kind, [before + after for before, after in zip(packed[-1][1], columns, strict=True)]
        else:
            packed.append((kind, columns))
    return [["+I", kind, *columns] for kind, columns in packed]


def _ordered(outcome: Outcome, scenario: Scenario, read: Read) -> Outcome:
    """The elements of sets in one order: those of Java have that of a hash."""
    prefix = "fields.{}.".format
    options = scenario.table_options

    def is_set(name: str) -> bool:
        function = options.get(prefix(name) + "aggregate-function")
        return function in SETS or (function == "collect" and options.get(prefix(name) + "distinct") == "true")

    sets = {index for index, (name, _) in enumerate(read.columns, 1) if is_set(name)}
    if not sets:
        return outcome

    def sorted_set(value: Any) -> Any:
        if read.system_table == "binlog":
            return [_sorted(each) for each in value]
        return _sorted(value)

    def rows(split: BucketRows, first: bool) -> list[Row]:
        return [[sorted_set(each) if index in sets else each for index, each in enumerate(row)] for row in split.rows]

    return outcome.with_rows(rows)


def _sorted(values: Any) -> Any:
    return None if values is None else sorted(values, key=json.dumps)


def _without_updates(outcome: Outcome) -> Outcome:
    def rows(split: BucketRows, first: bool) -> list[Row]:
        return [["+I", *row[1:]] if first and row[0] == "+U" else row for row in split.rows]

    return outcome.with_rows(rows)


def filtered(outcome: Outcome, scenario: Scenario, read: Read) -> Outcome:
    """Row by row; on streams of unmerged records what does not match by more than its key comes as -D."""
    assert read.filter is not None
    name, op, wanted = read.filter
    sql_types = dict(read.columns)
    index = list(sql_types).index(name) + 1
    stays = {*scenario.primary_keys, *scenario.partition_keys}
    producer = scenario.table_options.get("changelog-producer", "none")
    retracts = bool(scenario.primary_keys) and producer in RETRACTING and name not in stays and not read.execute_filter

    def rows(split: BucketRows, first: bool) -> list[Row]:
        records = retracts and not (first and read.starts_full and split.bucket >= 0)
        kept = []
        for row in split.rows:
            if matches(row[index], op, wanted, sql_types[name]):
                kept.append(row)
            elif records:
                kept.append(["-D", *row[1:]])
        return kept

    return outcome.with_rows(rows)
