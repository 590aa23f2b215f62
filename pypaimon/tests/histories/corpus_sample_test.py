"""Which reads a run makes, and what it finds in the scoreboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.corpus import board as corpus_board
from support.corpus import deviations as corpus_deviations
from support.corpus import sample
from support.corpus.board import Case, Judgement, Verdict
from support.corpus.cases import load
from support.corpus.outcome import Outcome
from support.corpus.sample import ONE_IN, is_sampled
from support.samples import is_drawn

pytestmark = pytest.mark.slow


def test_deviations_and_what_writes_is_always_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "SOAK", False)
    for case in corpus_board.select():
        scenario = load(case.archive, case.scenario)
        read = scenario.reads[case.read]
        entry = corpus_deviations.find(scenario, read)
        deviates = entry is not None and not entry.refused
        always = read.notify or "consumer-id" in read.options or deviates
        assert is_sampled(case) == (always or is_drawn(str(case), ONE_IN[case.archive]))


def test_the_long_form_makes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "SOAK", True)
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
