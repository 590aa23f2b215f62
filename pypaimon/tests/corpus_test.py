"""Reads of the golden corpus against Java, and against the scoreboard, which never goes back.

Half the reads of each table of the newest archive, other kinds of reads with each table, and a quarter of those of the
older ones; in the long form, and in `make corpus`, all.
"""

from __future__ import annotations

import os

import corpus_board
import pytest
from corpus_board import Verdict
from corpus_cases import ARCHIVES, packed_files, scenario_names, unpacked_files

STRIDES = {} if os.environ.get("SOAK") else {"java-2.1": 2, "java-1.4": 4, "java-0.9": 4}
TABLES = [(archive, name) for archive in ARCHIVES for name in scenario_names(archive)]


@pytest.mark.parametrize(("archive", "scenario"), TABLES)
def test_reads_of_a_table(archive: str, scenario: str) -> None:
    """No read is wrong or went back; the scoreboard tells the truth; reading wrote nothing into the table."""
    cases = [case for case in corpus_board.select([archive], scenario) if case.scenario == scenario]
    stride = STRIDES.get(archive, 1)
    cases = cases[TABLES.index((archive, scenario)) % stride :: stride]
    judgements = [corpus_board.judge(case) for case in cases]

    bad = {item.case.read: item.cause() for item in judgements if item.verdict is Verdict.WRONG}
    bad.update({item.case.read: item.cause() for item in corpus_board.setbacks(judgements)})
    assert not bad, f"corpus_report.py --archive {archive} --scenario {scenario} --diff tells more"

    if archive not in STRIDES:
        known = corpus_board.load_board()[archive][scenario]
        assert corpus_board.board(judgements)[archive][scenario] == known, "run corpus_report.py --update"
    assert unpacked_files(archive, scenario) == packed_files(archive, scenario)
