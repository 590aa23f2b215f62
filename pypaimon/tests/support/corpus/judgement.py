"""Reads of the corpus, each held against what Java returned, or against what `deviations.toml` wants instead."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from support.corpus import deviations as corpus_deviations
from support.corpus.cases import ARCHIVES, Read, Scenario, load, scenario_names
from support.corpus.compare import Difference, Rules, differences, is_accepted
from support.corpus.outcome import End, Outcome
from support.corpus.runner import run_read, settings_for
from support.samples import SOAK, is_drawn

REFUSAL = "streaming reading is not supported. You can use 'lookup' or 'full-compaction'"
"""What Flink says of tables whose stream would be records that are not merged."""
ONE_IN = {"java-2.1": 14, "java-1.4": 10, "java-0.9": 10, "java-2.1-more": 32}
"""One in this many reads of an archive is in the sample."""


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
    """What is not as wanted of a read; nothing of one that is right."""

    case: Case
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


def is_sampled(case: Case) -> bool:
    """Whether a run makes a read: what differs from Java or writes always, all in the long form, else what is drawn."""
    scenario = load(case.archive, case.scenario)
    read = scenario.reads[case.read]
    is_always_made = "consumer-id" in read.options or corpus_deviations.find(scenario, read) is not None
    return SOAK or is_always_made or is_drawn(str(case), ONE_IN[case.archive])


def judge(case: Case, process_zone: str = "UTC") -> Judgement:
    """Run one read and compare it with Java, or with what is wanted instead."""
    scenario = load(case.archive, case.scenario)
    read = scenario.reads[case.read]
    started = time.perf_counter()
    settings = replace(settings_for(scenario, read), process_zone=process_zone)
    had = run_read(scenario, read, settings)
    entry = corpus_deviations.find(scenario, read)
    wanted = read.java if entry is None else entry.wanted(scenario, read)
    found = differences(wanted, had, rules_for(scenario, read))
    if entry is not None and not found and (end := entry.wanted_without_raw()) is not None:
        found = _not_refused(run_read(scenario, read, replace(settings, raw=False)), end)
    return Judgement(case, tuple(found), wanted, had, time.perf_counter() - started)


def rules_for(scenario: Scenario, read: Read) -> Rules:
    """What of the comparison depends on the read."""
    return Rules(
        whole_buckets=scenario.has_buckets(), partition_order=read.options.get("scan.plan-sort-partition") == "true"
    )


def _not_refused(unasked: Outcome, end: End) -> list[Difference]:
    failure = unasked.failure
    if failure is not None and is_accepted(end, failure) and REFUSAL in failure.message:
        return []
    return [Difference("end", f"without raw=True wanted: {end.value}; had: {failure or unasked.end}")]
