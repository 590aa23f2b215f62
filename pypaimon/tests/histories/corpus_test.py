"""Reads of the golden corpus against Java, and against the scoreboard, which tells the truth and never goes back.

A sixth of the tables, and a sample of their reads; in `make corpus` all, and in the long form all in three time zones
of the process.
"""

from __future__ import annotations

import pytest

from support.corpus import board as corpus_board
from support.corpus.board import Verdict
from support.corpus.cases import ARCHIVES, load, packed_files, scenario_names, unpacked_files
from support.corpus.sample import is_sampled
from support.samples import SOAK, some
from support.tables.orc_timestamps import refused_by_pyarrow

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TABLES = [(archive, name) for archive in ARCHIVES for name in scenario_names(archive)]
ZONES = ("UTC", "Asia/Shanghai", "America/New_York") if SOAK else ("UTC",)
DRAWN = some("tables of the corpus", TABLES, len(TABLES) // 9)
CASES = [pytest.param(*table, marks=refused_by_pyarrow if "types_append_orc" in table else ()) for table in DRAWN]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("archive", "scenario"), CASES)
def test_reads_of_a_table(archive: str, scenario: str, zone: str) -> None:
    """No read is wrong or went back, the scoreboard is right about each; reading wrote nothing into the table."""
    cases = [case for case in corpus_board.select([archive], scenario) if case.scenario == scenario]
    judgements = [corpus_board.judge(case, zone) for case in cases if is_sampled(case)]

    bad = {item.case.read: item.cause() for item in judgements if item.verdict is Verdict.WRONG}
    bad.update({item.case.read: item.cause() for item in corpus_board.setbacks(judgements)})
    assert not bad, f"make corpus ARGS='--archive {archive} --scenario {scenario} --diff' shows more"
    assert not corpus_board.untrue(judgements), "run make corpus ARGS=--update"
    assert unpacked_files(archive, scenario) == packed_files(archive, scenario)


def test_the_scoreboard_counts_every_read_once() -> None:
    """One line per table, whose numbers are those of the table's reads."""
    known = corpus_board.load_board()
    assert [(archive, name) for archive in known for name in known[archive]] == [
        (archive, name) for archive in ARCHIVES for name in sorted(scenario_names(archive))
    ]
    for archive, name in TABLES:
        line, reads = known[archive][name], load(archive, name).reads
        named = [*line["wrong"], *line["not yet"]]
        assert line["equal"] + line["deviates"] + len(named) == len(reads)
        assert len(set(named)) == len(named) and set(named) <= set(reads)
