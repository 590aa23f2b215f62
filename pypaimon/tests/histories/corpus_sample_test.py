"""Which reads of the corpus a run makes."""

from __future__ import annotations

import pytest

from support.corpus import deviations as corpus_deviations
from support.corpus import judgement
from support.corpus.cases import load
from support.corpus.judgement import ONE_IN, is_sampled, select
from support.samples import is_drawn

pytestmark = pytest.mark.slow


def test_deviations_and_what_writes_is_always_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "SOAK", False)
    for case in select():
        scenario = load(case.archive, case.scenario)
        read = scenario.reads[case.read]
        always = read.notify or "consumer-id" in read.options or corpus_deviations.find(scenario, read) is not None
        assert is_sampled(case) == (always or is_drawn(str(case), ONE_IN[case.archive]))


def test_the_long_form_makes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "SOAK", True)
    assert all(is_sampled(case) for case in select())
