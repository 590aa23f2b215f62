"""Which reads a run makes, and what it finds in the scoreboard."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from support import samples as commit_seed
from support.corpus import board as corpus_board
from support.corpus import deviations as corpus_deviations
from support.corpus.board import Case, Judgement, Verdict
from support.corpus.cases import ARCHIVES, load
from support.corpus.outcome import Outcome
from support.corpus.sample import ONE_IN, is_sampled


@pytest.mark.by_commit(one_in=4)
def test_reads_are_drawn_by_some_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of a read falls in step with the sample, and each commit draws its share."""
    for archive in ARCHIVES:
        cases, samples = corpus_board.select([archive]), []
        for seed in range(3 * ONE_IN[archive]):
            monkeypatch.setattr(commit_seed, "commit_seed", partial(int, seed))
            samples.append({case for case in cases if commit_seed.is_drawn(str(case), ONE_IN[archive])})
        # Drawn at random that is one in twenty.
        assert len(set(cases) - set.union(*samples)) < 0.07 * len(cases)
        share = len(cases) / ONE_IN[archive]
        # Five standard deviations of what is drawn at random.
        assert all(abs(len(sample) - share) < 5 * share**0.5 for sample in samples)


def test_deviations_and_what_writes_is_always_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAK", raising=False)
    for case in corpus_board.select():
        scenario = load(case.archive, case.scenario)
        read = scenario.reads[case.read]
        entry = corpus_deviations.find(scenario, read)
        deviates = entry is not None and not entry.refused
        always = read.notify or "consumer-id" in read.options or deviates
        assert is_sampled(case) == (always or commit_seed.is_drawn(str(case), ONE_IN[case.archive]))


def test_the_long_form_makes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOAK", "1")
    assert all(is_sampled(case) for case in corpus_board.select())


NOTHING = Outcome((), None, None)
CASE = Case("java-2.1", "tags", "scan_tag")
RIGHT = Judgement(CASE, Verdict.EQUAL, (), NOTHING, NOTHING, 0.0)
WRONG = Judgement(CASE, Verdict.WRONG, (), NOTHING, NOTHING, 0.0)
DEVIATING = Judgement(CASE, Verdict.DEVIATES, (), NOTHING, NOTHING, 0.0)
GOOD_LINE = {"equal": 3, "deviates": 0, "wrong": [], "not yet": []}
BAD_LINE = {"equal": 2, "deviates": 0, "wrong": ["scan_tag"], "not yet": []}


def test_the_scoreboard_is_held_against_what_was_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpus_board, "FILE", tmp_path / "board.json")

    def put(line: object) -> None:
        corpus_board.FILE.write_text(json.dumps({"java-2.1": {"tags": line}}))

    put(GOOD_LINE)
    assert corpus_board.untrue([RIGHT]) == corpus_board.setbacks([RIGHT]) == []
    assert corpus_board.setbacks([WRONG]) == [WRONG]
    assert corpus_board.untrue([DEVIATING])
    put(BAD_LINE)
    assert corpus_board.untrue([WRONG]) == corpus_board.setbacks([WRONG]) == []
    assert corpus_board.untrue([RIGHT])
    put({**GOOD_LINE, "deviates": 1})
    assert corpus_board.untrue([RIGHT]) and not corpus_board.untrue([DEVIATING])
