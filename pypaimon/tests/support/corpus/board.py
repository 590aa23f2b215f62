"""Judges the reads of the corpus, side by side on a few processes, and keeps the scoreboard, which never goes back."""

from __future__ import annotations

import json
import logging
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from support.corpus import deviations as corpus_deviations
from support.corpus.cases import ARCHIVES, Read, Scenario, load, scenario_names, unpack
from support.corpus.compare import Difference, Rules, differences, is_accepted
from support.corpus.outcome import End, Outcome
from support.corpus.runner import run_read, settings_for
from support.repository import TESTS

FILE = TESTS / "scoreboard.json"
REFUSAL = "streaming reading is not supported. You can use 'lookup' or 'full-compaction'"
"""What Flink says of tables whose stream would be records that are not merged."""


class Verdict(str, Enum):
    """What a read is worth."""

    EQUAL = "equal"
    """As Java."""
    DEVIATES = "deviates"
    """Not as Java, but as `deviations.toml` wants it."""
    WRONG = "wrong"
    """Neither."""
    NOT_YET = "not yet"
    """Refused by name, as `deviations.toml` says, though it must be read."""

    def is_right(self) -> bool:
        """Whether the read passes."""
        return self in (Verdict.EQUAL, Verdict.DEVIATES)


@dataclass(frozen=True, slots=True)
class Case:
    """Name of one read."""

    archive: str
    scenario: str
    read: str

    def __str__(self) -> str:
        return f"{self.archive} {self.scenario}/{self.read}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a read fared.

    Attributes:
        found: What is not as wanted; empty if the read is right.
    """

    case: Case
    verdict: Verdict
    found: tuple[Difference, ...]
    wanted: Outcome
    had: Outcome
    seconds: float

    def cause(self) -> str:
        """A short text that reads with the same defect are likely to share."""
        failure = self.had.failure
        if failure is not None and any(difference.what == "end" for difference in self.found):
            lines = [line.strip() for line in failure.trace.splitlines() if line.lstrip().startswith("File ")]
            place = re.sub(r'File ".*/([^/"]+)", line \d+, in (\w+)', r"\1:\2", lines[-1]) if lines else ""
            message = re.sub(r"\d+", "N", re.sub(r"'?/[^\s']+'?", "<path>", failure.message))[:110]
            return f"{failure.names[0]} at {failure.stage} ({place}): {message}"
        kinds = list(dict.fromkeys(difference.what for difference in self.found))
        ends = [difference.text for difference in self.found if difference.what == "end"]
        return " + ".join(kinds) + (f": {ends[0]}" if ends else "")


def select(archives: Iterable[str] = ARCHIVES, scenario: str = "*", read: str = "*") -> list[Case]:
    """The reads whose names fit the patterns (`*` is any text)."""
    return [
        Case(archive, name, read_name)
        for archive in archives
        for name in scenario_names(archive)
        if fnmatchcase(name, scenario)
        for read_name in load(archive, name).reads
        if fnmatchcase(read_name, read)
    ]


def judge(case: Case, process_zone: str = "UTC") -> Judgement:
    """Run one read and compare it with Java, or with what is wanted instead."""
    scenario = load(case.archive, case.scenario)
    read = scenario.reads[case.read]
    started = time.perf_counter()
    settings = replace(settings_for(scenario, read), process_zone=process_zone)
    had = run_read(scenario, read, settings)
    entry = corpus_deviations.find(scenario, read)
    wanted = read.java if entry is None else entry.wanted(scenario, read)
    rules = rules_for(scenario, read)
    found = differences(wanted, had, rules)
    if entry is not None and not found and entry.wanted_without_raw() is not None:
        unasked = run_read(scenario, read, replace(settings, raw=False))
        found = _not_refused(unasked, entry.wanted_without_raw())
    verdict = _verdict(read, had, tuple(found), entry, rules)
    return Judgement(case, verdict, tuple(found), wanted, had, time.perf_counter() - started)


def rules_for(scenario: Scenario, read: Read) -> Rules:
    """What of the comparison depends on the read."""
    return Rules(
        whole_buckets=scenario.has_buckets(),
        partition_order=read.options.get("scan.plan-sort-partition") == "true",
    )


def _not_refused(unasked: Outcome, end: End | None) -> list[Difference]:
    assert end is not None
    failure = unasked.failure
    if failure is not None and is_accepted(end, failure) and REFUSAL in failure.message:
        return []
    return [Difference("end", f"without raw=True wanted: {end.value}; had: {failure or unasked.end}")]


def _verdict(
    read: Read, had: Outcome, found: tuple[Difference, ...], entry: corpus_deviations.Deviation | None, rules: Rules
) -> Verdict:
    if found:
        refused = entry is not None and entry.refused is not None and _is_refused(read, had, entry.refused, rules)
        return Verdict.NOT_YET if refused else Verdict.WRONG
    if entry is None:
        return Verdict.EQUAL
    needs_raw = entry.wanted_without_raw() is not None and read.java.end is not End.REJECTED
    return Verdict.DEVIATES if needs_raw or differences(read.java, had, rules) else Verdict.EQUAL


def _is_refused(read: Read, had: Outcome, name: str, rules: Rules) -> bool:
    """Whether a read was refused by name, and gave Java's plans up to there."""
    failure = had.failure
    if failure is None or "UnsupportedTableError" not in failure.names or name not in failure.message:
        return False
    count = len(had.plans_with_rows())
    before = replace(had, end=End.WAITING, failure=None)
    first = replace(read.java, plans=tuple(read.java.plans_with_rows()[:count]), final_next=had.final_next)
    return not differences(replace(first, end=End.WAITING, message=None), before, rules)


def run(cases: list[Case], processes: int = 2) -> Iterator[Judgement]:
    """Judge reads, a scenario at a time, on several processes; judgements come as they are made."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.archive, case.scenario), []).append(case)
    if processes <= 1 or len(groups) == 1:
        for case in cases:
            yield judge(case)
        return
    for archive in {case.archive for case in cases}:
        unpack(archive)  # once, not in every process
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        biggest_first = sorted(groups.values(), key=len, reverse=True)
        for done in as_completed([pool.submit(_judge_all, group) for group in biggest_first]):
            yield from done.result()


def _judge_all(cases: list[Case]) -> list[Judgement]:
    logging.disable(logging.WARNING)  # what the stream warns of is meant here, and would drown the report
    return [judge(case) for case in cases]


Board = dict[str, dict[str, dict[str, Any]]]
"""archive, scenario -> counts of right reads, names of those that are not right (yet)."""


def board(judgements: Iterable[Judgement]) -> Board:
    """The scoreboard of these reads."""
    result: Board = {}
    for judgement in sorted(judgements, key=lambda judgement: str(judgement.case)):
        scenarios = result.setdefault(judgement.case.archive, {})
        line = scenarios.setdefault(judgement.case.scenario, {"equal": 0, "deviates": 0, "wrong": [], "not yet": []})
        if judgement.verdict.is_right():
            line[judgement.verdict.value] += 1
        else:
            line[judgement.verdict.value].append(judgement.case.read)
    return result


def load_board() -> Board:
    """The scoreboard that is on file."""
    return _parsed(FILE.read_text()) if FILE.exists() else {}


@lru_cache(maxsize=1)
def _parsed(text: str) -> Board:
    # It is asked for with each of ten thousand reads.
    loaded: Board = json.loads(text)
    return loaded


def save_board(new: Board) -> None:
    """Write the scoreboard."""
    lines = []
    for archive in (name for name in ARCHIVES if name in new):
        rows = [f"  {json.dumps(name)}: {json.dumps(line)}" for name, line in sorted(new[archive].items())]
        lines.append(f"{json.dumps(archive)}: {{\n" + ",\n".join(rows) + "\n}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def setbacks(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Reads that are not right, though the scoreboard on file says that they are."""
    known = load_board()
    return [item for item in judgements if not item.verdict.is_right() and is_right_on_board(item.case, known)]


def untrue(judgements: Iterable[Judgement]) -> list[str]:
    """What the scoreboard on file says otherwise: right reads that it does not know as right, and how many deviate.

    Of each table that was read at all, every read with an entry in `deviations.toml` must be among them.
    """
    known, made = load_board(), board(judgements := list(judgements))
    found = [
        str(item.case) for item in judgements if item.verdict.is_right() and not is_right_on_board(item.case, known)
    ]
    for archive, scenarios in made.items():
        for name, line in scenarios.items():
            wanted = known.get(archive, {}).get(name, {}).get("deviates")
            if line["deviates"] != wanted:
                found.append(f"{archive} {name}: {line['deviates']} deviate, not {wanted}")
    return found


def is_right_on_board(case: Case, known: Board | None = None) -> bool:
    """Whether the scoreboard on file says that a read is right."""
    line = (load_board() if known is None else known).get(case.archive, {}).get(case.scenario)
    return line is not None and case.read not in line["wrong"] and case.read not in line["not yet"]


def count(judgements: Iterable[Judgement]) -> Counter[Verdict]:
    """How many of each verdict."""
    return Counter(judgement.verdict for judgement in judgements)


def progress(judgements: Iterable[Judgement], total: int) -> Iterator[Judgement]:
    """The same judgements, with a line on standard error that shows how far they are."""
    counts: Counter[Verdict] = Counter()
    for number, judgement in enumerate(judgements, 1):
        counts[judgement.verdict] += 1
        if sys.stderr.isatty() and (number % 10 == 0 or number == total):
            shown = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
            sys.stderr.write(f"\r{number} of {total}: {shown}   " + ("\n" if number == total else ""))
        yield judgement
