"""Random histories, written and streamed by live Java Paimon, streamed by ours: equal but for the listed deviations.

`make differential` and `make soak` run the same tests with more histories; the machine needs Maven and a JDK.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.java.compare import examine
from support.java.families import FAMILIES
from support.java.findings import Tally
from support.java.histories import History, histories
from support.java.live import COMMANDS, LiveJava, missing_commands
from support.repository import TESTS
from support.samples import sample_seed

pytestmark = [pytest.mark.java, pytest.mark.soak]

LONG = "DIFFERENTIAL_HISTORIES" in os.environ
HISTORIES = int(os.environ.get("DIFFERENTIAL_HISTORIES", "14"))
DRAWN = FAMILIES if LONG else random.Random(f"{sample_seed()} families").sample(FAMILIES, 7)
"""Which kinds of tables are looked at: some in the short form."""
FOUND = json.loads((TESTS / "live_java" / "found.json").read_text())
BUDGET = settings(
    deadline=None,
    derandomize=not LONG,
    max_examples=max(1, HISTORIES // len(DRAWN)),
    phases=(Phase.generate, Phase.shrink),
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def test_where_a_live_java_can_run(tmp_path: Path) -> None:
    assert missing_commands(path=str(tmp_path)) == list(COMMANDS)
    for name in COMMANDS:
        (tmp_path / name).touch(mode=0o755)
    assert missing_commands(path=str(tmp_path)) == []


@pytest.mark.parametrize("found", FOUND, ids=[each["name"] for each in FOUND])
def test_histories_that_once_differed(java: LiveJava, found: dict[str, object]) -> None:
    """Every difference that was found, shrunk."""
    history = History.from_json(found["history"])  # type: ignore[arg-type]
    assert not [str(finding) for finding in examine(java, history, Tally())]


@pytest.mark.parametrize("family", DRAWN)
def test_random_histories(java: LiveJava, family: str) -> None:
    """Histories of one kind of table."""
    tally = Tally()

    @BUDGET
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        history = data.draw(histories(family))
        findings = [str(finding) for finding in examine(java, history, tally)]
        if findings:
            pytest.fail("\n".join([json.dumps(history.to_json()), *findings]), pytrace=False)

    try:
        compare()
    finally:
        print(f"{family}: {tally}", *tally.most_common(), sep="\n    ")
    assert tally.reads > tally.histories
