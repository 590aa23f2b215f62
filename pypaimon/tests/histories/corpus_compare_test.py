"""The referee itself: it accepts what it should, and sees every way in which a read can be wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import pytest
from pypaimon import CatalogFactory

from support.corpus import deviations as corpus_deviations
from support.corpus.cases import ARCHIVES, Read, Scenario, load, scenario_names
from support.corpus.compare import ACCEPTED, Rules, differences
from support.corpus.judgement import Case, is_sampled, rules_for
from support.corpus.outcome import BucketRows, End, Failure, Outcome, PlanRows, row_text
from support.corpus.values import column_values, matches, wanted_value
from support.samples import SOAK, every

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def every_read() -> Iterator[tuple[Scenario, Read]]:
    for archive in ARCHIVES:
        for name in scenario_names(archive):
            scenario = load(archive, name)
            for read in scenario.reads.values():
                yield scenario, read


def as_ours(wanted: Outcome) -> Outcome:
    """An outcome of ours that is exactly as wanted: no plans without rows, each bucket in one split."""
    plans = (replace(item, splits=_one_each(item), position=item.position or {}) for item in wanted.plans_with_rows())
    ours = replace(wanted, plans=tuple(plans), message=None)
    if wanted.end in (End.WAITING, End.END_OF_SCAN):
        return ours
    assert wanted.end is not None
    failure = Failure((ACCEPTED[wanted.end][0],), f"{wanted.message or ''} and what to do", "plan", "/a/file")
    return replace(ours, end=None, failure=failure)


def _one_each(item: PlanRows) -> tuple[BucketRows, ...]:
    if not item.has_places():
        return item.splits
    return tuple(BucketRows(partition, bucket, rows) for (partition, bucket), rows in item.by_bucket().items())


def fits(scenario: Scenario, read: Read, scenario_name: str, read_name: str) -> bool:
    return fnmatchcase(scenario.name, scenario_name) and fnmatchcase(read.name, read_name)


def what(wanted: Outcome, had: Outcome, rules: Rules | None = None) -> list[str]:
    return [difference.what for difference in differences(wanted, had, rules or Rules())]


def plan(position: int, *rows: list[object]) -> PlanRows:
    place = {"snapshot": position, "fingerprint": f"of {position - 1}", "phase": "follow"}
    return PlanRows(position, None, (BucketRows("{}", 0, list(rows)),), place)


def standing(**changes: object) -> PlanRows:
    """The first plan with a position that says something else."""
    return replace(FIRST, position={**(FIRST.position or {}), **changes})


WANTED = Outcome(
    plans=(plan(2, ["+I", 1, "a"], ["-U", 2, "b"], ["+U", 2, "c"]), plan(4, ["+I", 3, "d"], ["-D", 1, "a"])),
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
    "a plan is empty": (replace(WANTED, plans=(FIRST, PlanRows(3, None, ()), SECOND)), ["empty plan"]),
    "a plan has files and no rows": (replace(WANTED, plans=(FIRST, plan(3), SECOND)), ["empty plan"]),
    "a wanted plan is empty": (replace(WANTED, plans=(replace(FIRST, splits=()), SECOND)), ["plans", "empty plan"]),
    "the position is inside a snapshot": (with_first(standing(unit={"partition": []})), ["position"]),
    "the position is in the full plan": (with_first(standing(phase="full")), ["position"]),
    "the position is of another history": (with_first(standing(fingerprint="of another")), ["position"]),
    "the position is of another snapshot": (with_first(standing(snapshot=3)), ["position"]),
    "the position knows no fingerprint": (
        with_first(replace(FIRST, position={"snapshot": 2, "phase": "follow"})),
        ["position"],
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


def test_a_bucket_whose_rows_have_an_order_is_one_split() -> None:
    """Others may be read in pieces, and Java's may come in pieces too."""
    halves = (
        replace(SPLIT, rows=SPLIT.rows[:1]),
        replace(SPLIT, bucket=9, rows=[]),
        replace(SPLIT, rows=SPLIT.rows[1:]),
    )
    had = with_first(replace(FIRST, splits=halves))
    assert what(WANTED, had) == []
    assert what(WANTED, had, Rules(whole_buckets=True)) == ["splits"]
    assert what(had, WANTED, Rules(whole_buckets=True)) == []
    with_none = with_first(replace(FIRST, splits=(SPLIT, replace(SPLIT, rows=[]))))
    assert what(WANTED, with_none, Rules(whole_buckets=True)) == ["splits"]


def test_plans_without_rows_are_nothing_that_ours_must_have() -> None:
    """Java hands them out for passed-over snapshots; where its plan has files, ours may have them too."""
    wanted = replace(WANTED, plans=(PlanRows(1, None, ()), FIRST, plan(3), SECOND))
    assert what(wanted, WANTED) == []
    assert what(wanted, replace(WANTED, plans=(FIRST, plan(3), SECOND))) == []
    assert what(wanted, replace(WANTED, plans=(PlanRows(1, None, ()), FIRST, SECOND))) == ["empty plan"]


def test_a_position_is_compared_where_it_is_known() -> None:
    unknown = replace(WANTED, plans=tuple(replace(item, position=None) for item in WANTED.plans))
    assert what(unknown, WANTED) == []
    assert what(WANTED, unknown) == ["position", "position"]


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
    assert what(wanted(End.BEYOND_LATEST), had("TableChangedError")) == []
    assert what(wanted(End.BEYOND_LATEST), had("PositionExpiredError")) == ["end"]
    assert what(wanted(End.REJECTED), had("UnsupportedTableError")) == []
    assert what(wanted(End.REJECTED), had("ValueError")) == ["end"]
    assert what(wanted(End.DAMAGED), had("CorruptTableError", "/a/file")) == []
    assert what(wanted(End.DAMAGED), had("CorruptTableError")) == ["end"]
    assert what(wanted(End.DAMAGED), had("PositionExpiredError", "/a/file")) == ["end"]
    assert what(wanted(End.WAITING), had("CorruptTableError", "/a/file")) == ["end"]


def test_what_java_says_is_said_first() -> None:
    def had(message: str) -> Outcome:
        return Outcome((), None, 0, Failure(("StreamConfigError",), message, "open"))

    wanted = Outcome((), End.REJECTED, 0, message="a must be null")
    assert what(wanted, had("a must be null when you set b")) == []
    assert what(wanted, had("b must be null")) == ["message"]
    assert what(replace(wanted, message=None), had("whatever")) == []


def test_the_state_of_a_snapshot_that_is_not_there_has_expired_or_is_to_come_or_was_lost() -> None:
    scenario = load("java-2.1", "lost_snapshot_file")
    assert scenario.reads["from_snapshot_full_3"].java.end is End.DAMAGED
    assert load("java-2.1", "append_compact").reads["from_snapshot_full_14"].java.end is End.BEYOND_LATEST


def test_every_expectation_equals_itself_and_nothing_else() -> None:
    """Java's own outcomes pass, and lose (a sample of them) when anything of them is changed."""
    seen: Counter[str] = Counter()
    for scenario, read in every(6, list(every_read())):
        rules = rules_for(scenario, read)
        ours = as_ours(read.java)
        assert not differences(read.java, ours, rules)
        if read.java.message:
            assert ours.failure is not None
            silent = replace(ours, failure=replace(ours.failure, message="refused"))
            assert {found.what for found in differences(read.java, silent, rules)} == {"message"}
        if not ours.plans_with_rows() or not is_sampled(Case(scenario.archive, scenario.name, read.name)):
            continue
        changes = [_without_last_row, _with_other_kind, _with_other_position, _with_empty_plan]
        if len({row_text(row) for row in ours.plans_with_rows()[0].splits[0].rows}) > 1:
            changes.append(_with_first_rows_turned)
        if any(item.position for item in read.java.plans_with_rows()):
            changes.append(_of_another_history)
        if scenario.has_buckets() and any(len(split.rows) > 1 for split in ours.plans[0].splits):
            changes.append(_with_a_bucket_in_two)
        for change in changes:
            found = differences(read.java, change(ours), rules)
            assert found, f"{scenario.name}/{read.name}: {change.__name__} not seen"
            seen[change.__name__] += 1
    assert len(seen) == 7 and min(seen.values()) > (300 if SOAK else 40), seen


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


def _with_empty_plan(outcome: Outcome) -> Outcome:
    return replace(outcome, plans=(*outcome.plans, PlanRows(-1, None, ())))


def _with_first_rows_turned(outcome: Outcome) -> Outcome:
    first, *rest = outcome.plans
    split, *others = first.splits
    turned = replace(split, rows=split.rows[::-1])
    if list(map(row_text, turned.rows)) == list(map(row_text, split.rows)):
        turned = replace(split, rows=[*split.rows[1:], split.rows[0]])
    return replace(outcome, plans=(replace(first, splits=(turned, *others)), *rest))


def _of_another_history(outcome: Outcome) -> Outcome:
    def change(item: PlanRows) -> PlanRows:
        return item if not item.position else replace(item, position={**item.position, "fingerprint": "another"})

    return replace(outcome, plans=tuple(map(change, outcome.plans)))


def _with_a_bucket_in_two(outcome: Outcome) -> Outcome:
    first, *rest = outcome.plans
    at, split = max(enumerate(first.splits), key=lambda each: len(each[1].rows))
    halves = (replace(split, rows=split.rows[:1]), replace(split, rows=split.rows[1:]))
    cut = (*first.splits[:at], *halves, *first.splits[at + 1 :])
    return replace(outcome, plans=(replace(first, splits=cut), *rest))


def _rows_changed(item: PlanRows, change: Callable[[list[list[object]]], list[list[object]]]) -> PlanRows:
    splits = list(item.splits)
    index = max(i for i, split in enumerate(splits) if split.rows)
    splits[index] = replace(splits[index], rows=change(splits[index].rows))
    return replace(item, splits=tuple(splits))


def test_deviations_are_all_in_use_and_each_read_of_theirs_differs_from_java() -> None:
    """An entry fits no read that equals Java, and none of its names is without a read."""
    entries = corpus_deviations.all_deviations()
    unused = {(number, *names) for number, each in enumerate(entries) for names in product(each.scenario, each.read)}
    for scenario, read in every_read():
        entry = corpus_deviations.find(scenario, read)
        if entry is None:
            continue
        wanted = entry.wanted(scenario, read)
        rules = rules_for(scenario, read)
        differs = entry.wanted_without_raw() or differences(read.java, as_ours(wanted), rules)
        assert differs, f"{scenario.name}/{read.name} equals Java"
        assert not differences(wanted, as_ours(wanted), rules)
        number = entries.index(entry)
        unused -= {names for names in unused if names[0] == number and fits(scenario, read, *names[1:])}
    assert not unused


def test_a_deviating_read_does_not_pass_as_java() -> None:
    scenario = load("java-2.1", "pk_dedup_none")
    read = scenario.reads["filter_value"]
    entry = corpus_deviations.find(scenario, read)
    assert entry is not None
    assert differences(entry.wanted(scenario, read), read.java, rules_for(scenario, read))


def test_deletes_of_a_filter_and_dropping_agree_with_the_filtered_rows_of_java() -> None:
    """The records that match are those of Java's executed filter, in order."""
    scenario = load("java-2.1", "pk_dedup_none")
    read, executed = scenario.reads["filter_value"], scenario.reads["filter_value_executed"].java
    entry = corpus_deviations.find(scenario, read)
    assert entry is not None
    assert read.filter is not None
    wanted = entry.wanted(scenario, read)
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
