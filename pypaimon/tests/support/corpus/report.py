"""Command: run reads of the corpus; print the causes of what is wrong, or all about one read."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from support.corpus import deviations as corpus_deviations
from support.corpus.cases import ARCHIVES, load, unpack
from support.corpus.judgement import Case, Judgement, judge, select
from support.corpus.outcome import PlanRows
from support.corpus.runner import settings_for

READS_LISTED = 100


def main() -> int:
    """Run the command; the exit code is 1 if a read is not right."""
    options = _parser().parse_args()
    archives = [name for name in ARCHIVES if options.archive in (None, name, name.removeprefix("java-"))]
    cases = select(archives, options.scenario, options.read)
    if not cases:
        print("no read fits")
        return 2
    started = time.perf_counter()
    judgements = sorted(_judgements(cases, options.processes), key=lambda item: cases.index(item.case))
    wrong = [item for item in judgements if item.found]
    if options.diff:
        for judgement in wrong[: options.most] or judgements[:1]:
            print_read(judgement)
    elif len(judgements) <= READS_LISTED:
        for judgement in judgements:
            first = f"  {judgement.found[0].what}: {judgement.found[0].text[:200]}" if judgement.found else ""
            print(f"{'wrong' if first else 'right'} {judgement.case}{first}")
    print_causes(wrong)
    print(f"{len(judgements)} reads, {len(wrong)} wrong, in {time.perf_counter() - started:.0f} s")
    return int(bool(wrong))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", help="2.1, 1.4 or 0.9; default: all")
    parser.add_argument("--scenario", default="*", help="name of scenarios, * is any text")
    parser.add_argument("--read", default="*", help="name of reads, * is any text")
    parser.add_argument("--diff", action="store_true", help="print in full what is not as wanted")
    parser.add_argument("--most", type=int, default=10, help="with --diff: at most this many reads")
    parser.add_argument("--processes", type=int, default=2)
    return parser


def _judgements(cases: list[Case], processes: int) -> Iterator[Judgement]:
    """Judge reads, a scenario at a time, on several processes."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.archive, case.scenario].append(case)
    for archive in {case.archive for case in cases}:
        unpack(archive)  # once, not in every process
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        biggest_first = sorted(groups.values(), key=len, reverse=True)
        for done in as_completed([pool.submit(_judge_all, group) for group in biggest_first]):
            yield from done.result()


def _judge_all(cases: list[Case]) -> list[Judgement]:
    logging.disable(logging.WARNING)  # what the stream warns of is meant here, and would drown the report
    return [judge(case) for case in cases]


def print_causes(wrong: Iterable[Judgement]) -> None:
    """What is not right, grouped by what looks like one cause, the most frequent first."""
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in wrong:
        groups[judgement.cause()].append(judgement)
    for cause, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(group)}: {cause}")
        for item in {item.case.scenario: item for item in group}.values():
            print(f"    {item.case}")


def print_read(judgement: Judgement) -> None:
    """All there is to know about one read: its table, its settings, both outcomes side by side, every difference."""
    scenario = load(judgement.case.archive, judgement.case.scenario)
    read = scenario.reads[judgement.case.read]
    print("=" * 120, judgement.case, sep="\n")
    print(f"table:   {scenario.warehouse / 'd.db' / 't'}: {scenario.description}")
    print(f"fields:  {', '.join(f'{name} {kind}' for name, kind in scenario.fields)}")
    print(f"keys:    primary {list(scenario.primary_keys)}, partition {list(scenario.partition_keys)}")
    print(f"options: {scenario.table_options}")
    print(f"read:    {read.describe() or 'no settings'}; ours with {settings_for(scenario, read)}")
    if (entry := corpus_deviations.find(scenario, read)) is not None:
        print(f"deviation: {entry.rule}, {entry.reason}; expect {entry.expect}")
    print(f"Java ends: {read.java_error or (read.java.end.value if read.java.end else '')}")
    for name, outcome in (("wanted", judgement.wanted), ("had", judgement.had)):
        end = str(outcome.failure or outcome.end).splitlines()[0]
        print(f"{name}: {'; '.join(map(_summary, outcome.plans_with_rows()))}; {end}, next {outcome.final_next}")
    for difference in judgement.found:
        print(f"\n* {difference.what}: {difference.text}", *difference.lines, sep="\n    ")


def _summary(plan: PlanRows) -> str:
    counts = [f"{partition}b{bucket}:{len(rows)}" for (partition, bucket), rows in plan.by_bucket().items()]
    return f"next {plan.next}: {', '.join(counts)}"


if __name__ == "__main__":
    sys.exit(main())
