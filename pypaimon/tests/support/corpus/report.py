"""Command: run reads of the corpus; print the scoreboard, the causes of what is wrong, or all about one read."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable

from support.corpus import board as corpus_board
from support.corpus import deviations as corpus_deviations
from support.corpus.board import Judgement, Verdict
from support.corpus.cases import ARCHIVES, Read, Scenario, load
from support.corpus.outcome import Outcome, PlanRows, row_text
from support.corpus.runner import settings_for

READS_LISTED = 100


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code is 1 if a read went back or, where only some were asked for, one is not right."""
    options = _parser().parse_args(arguments)
    archives = [name for name in ARCHIVES if options.archive in (None, name, name.removeprefix("java-"))]
    cases = corpus_board.select(archives, options.scenario, options.read)
    if not cases:
        print("no read fits")
        return 2
    if options.open:
        cases = [case for case in cases if not corpus_board.is_right_on_board(case)]
    if options.list:
        for case in cases:
            print(f"{case}: {load(case.archive, case.scenario).reads[case.read].describe()}")
        return 0
    started = time.perf_counter()
    judgements = list(corpus_board.progress(corpus_board.run(cases, options.processes), len(cases)))
    judgements.sort(key=lambda item: (ARCHIVES.index(item.case.archive), item.case.scenario, item.case.read))
    everything = len(cases) == len(corpus_board.select())
    if options.diff:
        shown = judgements if options.all else [item for item in judgements if not item.verdict.is_right()]
        shown = [item for item in shown if options.cause in item.cause()] or judgements[:1]
        for judgement in shown[: options.most]:
            print_read(judgement, options.rows)
    elif len(judgements) <= READS_LISTED:
        print_reads(judgements)
    else:
        print_scenarios(judgements)
    print_causes(judgements, options.examples)
    print(_totals(judgements), f"in {time.perf_counter() - started:.0f} s")
    back = corpus_board.setbacks(judgements)
    for judgement in back:
        print(f"WENT BACK: {judgement.case}: {judgement.cause()}")
    if options.update and everything and not back:
        corpus_board.save_board(corpus_board.board(judgements))
    return int(bool(back) or (not everything and any(not item.verdict.is_right() for item in judgements)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", help="2.1, 1.4 or 0.9; default: all")
    parser.add_argument("--scenario", default="*", help="name of scenarios, * is any text")
    parser.add_argument("--read", default="*", help="name of reads, * is any text")
    parser.add_argument("--open", action="store_true", help="only reads that are not right on the scoreboard")
    parser.add_argument("--diff", action="store_true", help="print in full what is not as wanted")
    parser.add_argument("--cause", default="", help="with --diff: only reads whose cause holds this text")
    parser.add_argument("--most", type=int, default=10, help="with --diff: at most so many reads")
    parser.add_argument("--rows", action="store_true", help="with --diff: all rows, wanted and had")
    parser.add_argument("--all", action="store_true", help="with --diff: also reads that are right")
    parser.add_argument("--list", action="store_true", help="only print the reads and their settings")
    parser.add_argument("--examples", type=int, default=6, help="reads named per cause")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--update", action="store_true", help="run everything; write the scoreboard unless a read went back"
    )
    return parser


def print_scenarios(judgements: Iterable[Judgement]) -> None:
    """One line per scenario: how many of each verdict."""
    print(f"{'scenario':<46}" + "".join(f"{verdict.value:>10}" for verdict in Verdict) + f"{'seconds':>10}")
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        groups[f"{judgement.case.archive} {judgement.case.scenario}"].append(judgement)
    for name, group in groups.items():
        counts = corpus_board.count(group)
        numbers = "".join(f"{counts[verdict] or '.':>10}" for verdict in Verdict)
        print(f"{name:<46}{numbers}{sum(item.seconds for item in group):>10.1f}")


def print_reads(judgements: Iterable[Judgement]) -> None:
    """One line per read: verdict and first difference."""
    for judgement in judgements:
        first = f"  {judgement.found[0].what}: {judgement.found[0].text[:200]}" if judgement.found else ""
        print(f"{judgement.verdict.value:<9} {judgement.case}{first}")


def print_causes(judgements: Iterable[Judgement], examples: int) -> None:
    """What is not right, grouped by what looks like one cause, the most frequent first."""
    groups: dict[tuple[str, str], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        if not judgement.verdict.is_right():
            groups[judgement.verdict.value, judgement.cause()].append(judgement)
    for (verdict, cause), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(group)} {verdict}: {cause}")
        scenarios = sorted({item.case.scenario for item in group})
        print(f"    {len(scenarios)} scenarios: {', '.join(scenarios)}"[:240])
        for item in _spread(group)[:examples]:
            print(f"    {item.case}")
    if groups:
        print()


def _spread(group: list[Judgement]) -> list[Judgement]:
    first = {item.case.scenario: item for item in reversed(group)}
    return [*first.values(), *(item for item in group if item not in first.values())]


def _totals(judgements: Iterable[Judgement]) -> str:
    counts = corpus_board.count(judgements)
    return f"{counts.total()} reads: " + ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)


def print_read(judgement: Judgement, rows: bool) -> None:
    """All there is to know about one read: its table, its settings, both outcomes side by side, every difference."""
    scenario = load(judgement.case.archive, judgement.case.scenario)
    read = scenario.reads[judgement.case.read]
    print("=" * 120)
    print(f"{judgement.case}: {judgement.verdict.value.upper()}")
    _print_table(scenario, read)
    entry = corpus_deviations.find(scenario, read)
    if entry is not None:
        print(f"deviation: {entry.rule}, {entry.reason}; expect {entry.expect}")
    print(f"Java ends: {read.java_error or (read.java.end.value if read.java.end else '')}")
    _print_plans(judgement.wanted, judgement.had)
    if rows:
        _print_rows("wanted", judgement.wanted)
        _print_rows("had", judgement.had)
    for difference in judgement.found:
        print(f"\n* {difference.what}: {difference.text}")
        for line in difference.lines:
            print(f"    {line}")
    if judgement.had.failure is not None and not any(item.what == "end" for item in judgement.found):
        print(f"(ended as wanted by {judgement.had.failure})")


def _print_table(scenario: Scenario, read: Read) -> None:
    print(f"table:   {scenario.warehouse / 'd.db' / 't'}: {scenario.description}")
    print(f"fields:  {', '.join(f'{name} {kind}' for name, kind in scenario.fields)}")
    print(f"keys:    primary {list(scenario.primary_keys)}, partition {list(scenario.partition_keys)}")
    print(f"options: {scenario.table_options}")
    shown = [
        f"{item['id']}:{item['commit_kind']}{'+changelog' if item['has_changelog'] else ''}(schema {item['schema_id']})"
        for item in scenario.snapshots
    ]
    print(f"snapshots: {' '.join(shown)}")
    print(f"read:    {read.describe() or 'no settings'}; ours with {settings_for(scenario, read)}")


def _print_plans(wanted: Outcome, had: Outcome) -> None:
    print(f"{'plan':>5}  {'wanted: next, rows':<50} had: next, rows")
    left, right = wanted.plans_with_rows(), had.plans_with_rows()
    for index in range(max(len(left), len(right))):
        theirs = _summary(left[index]) if index < len(left) else "-"
        ours = _summary(right[index]) if index < len(right) else "-"
        print(f"{index:>5}  {theirs:<50} {ours}")
    end = wanted.end.value if wanted.end else ""
    ours = had.end.value if had.end else str(had.failure).splitlines()[0][:80]
    print(f"{'end':>5}  {f'{end}, next {wanted.final_next}':<50} {ours}, next {had.final_next}")


def _summary(plan: PlanRows) -> str:
    counts = [
        f"{'' if partition == '{}' else partition}b{bucket}:{len(rows)}"
        for (partition, bucket), rows in plan.by_bucket().items()
    ]
    return f"next {plan.next}: {', '.join(counts)}"


def _print_rows(title: str, outcome: Outcome) -> None:
    print(f"\n{title}:")
    for plan in outcome.plans_with_rows():
        print(f"  next {plan.next}, watermark {plan.watermark}")
        for (partition, bucket), rows in plan.by_bucket().items():
            print(f"    partition {partition}, bucket {bucket}")
            for row in rows:
                print(f"      {row_text(row)}")


if __name__ == "__main__":
    sys.exit(main())
