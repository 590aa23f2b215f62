"""Which reads of the corpus a run makes: a sample, and some in every run."""

from __future__ import annotations

from support.corpus import deviations as corpus_deviations
from support.corpus.board import Case
from support.corpus.cases import load
from support.samples import SOAK, is_drawn

ONE_IN = {"java-2.1": 14, "java-1.4": 10, "java-0.9": 10, "java-2.1-more": 32}
"""One in this many reads of an archive is in the sample."""


def is_sampled(case: Case) -> bool:
    """Whether a read is made: all in the long form, else those that are always made and those that are drawn."""
    return SOAK or is_always_made(case) or is_drawn(str(case), ONE_IN[case.archive])


def is_always_made(case: Case) -> bool:
    """Reads that must differ from Java's, and those that write."""
    scenario = load(case.archive, case.scenario)
    read = scenario.reads[case.read]
    entry = corpus_deviations.find(scenario, read)
    return "consumer-id" in read.options or (entry is not None and entry.refused is None)
