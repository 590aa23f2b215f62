"""The referee itself: it accepts what it should, and sees every way in which a read can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import corpus_board
import corpus_deviations
import pytest
from corpus_cases import ARCHIVES, Read, Scenario, load, scenario_names
from corpus_compare import ACCEPTED, Rules, differences
from corpus_outcome import BucketRows, End, Failure, Outcome, PlanRows
from corpus_values import column_values, matches, wanted_value
from pypaimon import CatalogFactory


def every_read() -> Iterator[tuple[Scenario, Read]]:
    for archive in ARCHIVES:
        for name in scenario_names(archive):
            scenario = load(archive, name)
            for read in scenario.reads.values():
                yield scenario, read


def as_ours(wanted: Outcome) -> Outcome:
    """An outcome of ours that is exactly as wanted."""
    if wanted.end in (End.WAITING, End.END_OF_SCAN):
        return wanted
    assert wanted.end is not None
    failure = Failure((ACCEPTED[wanted.end][0],), "as wanted", "plan", "/a/file")
    return replace(wanted, end=None, failure=failure)


def what(wanted: Outcome, had: Outcome, rules: Rules | None = None) -> list[str]:
    return [difference.what for difference in differences(wanted, had, rules or Rules())]


def plan(position: int, *rows: list[object]) -> PlanRows:
    return PlanRows(position, None, (BucketRows("{}", 0, list(rows)),))


WANTED = Outcome(
    plans=(
        plan(2, ["+I", 1, "a"], ["-U", 2, "b"], ["+U", 2, "c"]),
        plan(4, ["+I", 3, "d"], ["-D", 1, "a"]),
    ),
    end=End.WAITING,
    final_next=5,
    columns=("id", "v"),
    consumer_files={"d.db/t/consumer/consumer-c": 5},
)
FIRST, SECOND = WANTED.plans
SPLIT = FIRST.splits[0]


def with_first(change: PlanRows) -> Outcome:
    return replace(WANTED, plans=(change, SECOND))


def with_second(change: PlanRows) -> Outcome:
    return replace(WANTED, plans=(FIRST, change))


MUTATIONS: dict[str, tuple[Outcome, list[str]]] = {
    "a row is missing": (with_first(plan(2, ["+I", 1, "a"], ["-U", 2, "b"])), ["rows"]),
    "a row comes twice": (with_second(plan(4, ["+I", 3, "d"], ["+I", 3, "d"], ["-D", 1, "a"])), ["rows"]),
    "a value differs": (with_first(plan(2, ["+I", 1, "A"], ["-U", 2, "b"], ["+U", 2, "c"])), ["rows"]),
    "an int is a float": (with_first(plan(2, ["+I", 1.0, "a"], ["-U", 2, "b"], ["+U", 2, "c"])), ["rows"]),
    "an int is a bool": (with_first(plan(2, ["+I", True, "a"], ["-U", 2, "b"], ["+U", 2, "c"])), ["rows"]),
    "a kind differs": (with_first(plan(2, ["+I", 1, "a"], ["-D", 2, "b"], ["+I", 2, "c"])), ["kinds"]),
    "order differs": (with_first(plan(2, ["+I", 1, "a"], ["+U", 2, "c"], ["-U", 2, "b"])), ["order"]),
    "another bucket": (with_first(replace(FIRST, splits=(replace(SPLIT, bucket=1),))), ["rows", "rows"]),
    "another partition": (with_first(replace(FIRST, splits=(replace(SPLIT, partition='{"p":1}'),))), ["rows", "rows"]),
    "a plan is missing": (replace(WANTED, plans=(FIRST,)), ["plans"]),
    "a plan comes twice": (replace(WANTED, plans=(FIRST, FIRST, SECOND)), ["plans"]),
    "plans are swapped": (replace(WANTED, plans=(SECOND, FIRST)), ["plans"]),
    "a position differs": (with_first(replace(FIRST, next=3)), ["plans"]),
    "two snapshots in one plan": (
        replace(WANTED, plans=(replace(SECOND, splits=FIRST.splits + SECOND.splits),)),
        ["plans", "rows"],
    ),
    "the watermark differs": (with_first(replace(FIRST, watermark=7)), ["watermark"]),
    "the end is early": (replace(WANTED, end=End.END_OF_SCAN), ["end"]),
    "it fails": (replace(WANTED, end=None, failure=Failure(("KeyError",), "x", "plan")), ["end"]),
    "the last position differs": (replace(WANTED, final_next=4), ["final_next"]),
    "columns are swapped": (replace(WANTED, columns=("v", "id")), ["columns"]),
    "a consumer file lags": (replace(WANTED, consumer_files={"d.db/t/consumer/consumer-c": 4}), ["consumer files"]),
    "a file is left": (replace(WANTED, consumer_files={**(WANTED.consumer_files or {}), "x": 1}), ["consumer files"]),
    "no consumer file": (replace(WANTED, consumer_files={}), ["consumer files"]),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_kind_of_fault_is_seen(name: str) -> None:
    had, expected = MUTATIONS[name]
    assert what(WANTED, had) == expected


def test_what_is_not_asked_for_is_not_compared() -> None:
    split = FIRST.splits[0]
    halves = (
        replace(split, rows=split.rows[:1]),
        replace(split, bucket=9, rows=[]),
        replace(split, rows=split.rows[1:]),
    )
    had = replace(WANTED, plans=(PlanRows(1, None, ()), replace(FIRST, splits=halves), plan(3), SECOND))
    assert what(WANTED, had) == []


def test_order_between_buckets_is_free_and_of_partitions_only_when_asked() -> None:
    left, right = BucketRows('{"p":1}', 0, [["+I", 1]]), BucketRows('{"p":2}', 0, [["+I", 2]])
    wanted = replace(WANTED, plans=(PlanRows(2, None, (left, right)),))
    had = replace(WANTED, plans=(PlanRows(2, None, (right, left)),))
    assert what(wanted, had) == []
    assert what(wanted, had, Rules(partition_order=True)) == ["partition order"]


def test_order_in_a_full_plan_without_buckets_is_free_in_the_first_plan_only() -> None:
    rules = Rules(first_plan_unordered=True)
    first = with_first(plan(2, ["-U", 2, "b"], ["+U", 2, "c"], ["+I", 1, "a"]))
    second = with_second(plan(4, ["-D", 1, "a"], ["+I", 3, "d"]))
    assert what(WANTED, first, rules) == []
    assert what(WANTED, second, rules) == ["order"]


def test_errors_count_by_category() -> None:
    def had(name: str, path: str | None = None) -> Outcome:
        return Outcome((), None, 0, Failure((name, "PaimonStreamError"), "", "plan", path))

    def wanted(end: End) -> Outcome:
        return Outcome((), end, 0)

    assert what(wanted(End.EXPIRED), had("PositionExpiredError")) == []
    assert what(wanted(End.EXPIRED), had("StreamConfigError")) == ["end"]
    assert what(wanted(End.EXPIRED), had("StreamConfigError"), Rules(position_zero=True)) == []
    assert what(wanted(End.BEYOND_LATEST), had("TableChangedError")) == []
    assert what(wanted(End.BEYOND_LATEST), had("PositionExpiredError")) == ["end"]
    assert what(wanted(End.REJECTED), had("UnsupportedTableError")) == []
    assert what(wanted(End.REJECTED), had("ValueError")) == ["end"]
    assert what(wanted(End.DAMAGED), had("CorruptTableError", "/a/file")) == []
    assert what(wanted(End.DAMAGED), had("CorruptTableError")) == ["end"]
    assert what(wanted(End.WAITING), had("CorruptTableError", "/a/file")) == ["end"]


def test_every_expectation_equals_itself_and_nothing_else() -> None:
    """Java's own outcomes pass, and lose when their last row, kind or position is changed."""
    for scenario, read in every_read():
        rules = corpus_board.rules_for(scenario, read)
        ours = as_ours(read.java)
        assert not differences(read.java, ours, rules)
        if not ours.plans_with_rows():
            continue
        for change in (_without_last_row, _with_other_kind, _with_other_position):
            assert differences(read.java, change(ours), rules), (
                f"{scenario.name}/{read.name}: {change.__name__} not seen"
            )


def _change_last(outcome: Outcome, change: Callable[[PlanRows], PlanRows]) -> Outcome:
    plans = list(outcome.plans)
    index = max(i for i, item in enumerate(plans) if item.has_rows())
    plans[index] = change(plans[index])
    return replace(outcome, plans=tuple(plans))


def _without_last_row(outcome: Outcome) -> Outcome:
    return _change_last(outcome, lambda item: _rows_changed(item, lambda rows: rows[:-1]))


def _with_other_kind(outcome: Outcome) -> Outcome:
    return _change_last(outcome, lambda item: _rows_changed(item, lambda rows: [*rows[:-1], ["??", *rows[-1][1:]]]))


def _with_other_position(outcome: Outcome) -> Outcome:
    return _change_last(outcome, lambda item: replace(item, next=-1))


def _rows_changed(item: PlanRows, change: Callable[[list[list[object]]], list[list[object]]]) -> PlanRows:
    splits = list(item.splits)
    index = max(i for i, split in enumerate(splits) if split.rows)
    splits[index] = replace(splits[index], rows=change(splits[index].rows))
    return replace(item, splits=tuple(splits))


def test_deviations_are_all_in_use_and_most_differ_from_java() -> None:
    used = set()
    for scenario, read in every_read():
        entry = corpus_deviations.find(scenario, read)
        if entry is None:
            continue
        wanted = entry.wanted(scenario, read)
        rules = corpus_board.rules_for(scenario, read)
        if entry.wanted_without_raw() or any(differences(read.java, as_ours(item), rules) for item in wanted):
            used.add(entry.read + entry.scenario)
        assert all(not differences(item, as_ours(item), rules) for item in wanted)
    assert used == {entry.read + entry.scenario for entry in corpus_deviations.all_deviations()}


def test_a_deviating_read_does_not_pass_as_java() -> None:
    scenario = load("java-2.1", "pk_dedup_none")
    read = scenario.reads["filter_value"]
    entry = corpus_deviations.find(scenario, read)
    assert entry is not None
    found, _ = corpus_board.nearest(entry.wanted(scenario, read), read.java, corpus_board.rules_for(scenario, read))
    assert found


def test_deletes_of_a_filter_and_dropping_agree_with_the_filtered_rows_of_java() -> None:
    """The records that match are those of Java's executed filter, in order."""
    scenario = load("java-2.1", "pk_dedup_none")
    read, executed = scenario.reads["filter_value"], scenario.reads["filter_value_executed"].java
    entry = corpus_deviations.find(scenario, read)
    assert entry is not None
    assert read.filter is not None
    (wanted,) = entry.wanted(scenario, read)
    kept = [
        row
        for item in wanted.plans
        for _, rows in sorted(item.by_bucket().items())
        for row in rows
        if matches(row[2], read.filter[1], read.filter[2], "STRING")
    ]
    assert kept == [row for item in executed.plans for _, rows in sorted(item.by_bucket().items()) for row in rows]


TYPES = ("types_append_parquet", "types_pk_input", "partition_types", "variant", "schema_type_changes")


@pytest.mark.parametrize("name", TYPES)
def test_values_of_arrow_are_those_of_java(name: str) -> None:
    """Every data type, by a batch read of pypaimon against Java's batch read."""
    scenario = load("java-2.1", name)
    java = json.loads((scenario.warehouse.parent / "expect.json").read_text())["latest_batch_read"]["rows"]
    builder = CatalogFactory.create({"warehouse": str(scenario.warehouse)}).get_table("d.t").new_read_builder()
    table = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    columns = [column_values(table.column(field), kind) for field, kind in scenario.fields]
    had = sorted(json.dumps(row, sort_keys=True) for row in zip(*columns, strict=True))
    types = [kind for _, kind in scenario.fields]
    wanted = [[wanted_value(value, kind) for value, kind in zip(row, types, strict=True)] for row in java]
    assert had == sorted(json.dumps(row, sort_keys=True) for row in wanted)
