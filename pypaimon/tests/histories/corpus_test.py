"""Reads of the golden corpus against Java.

A sixth of the tables, and a sample of their reads; in `make corpus` all, and in the long form all in three time zones
of the process.
"""

from __future__ import annotations

import pytest

from support.corpus.cases import ARCHIVES, packed_files, scenario_names, unpacked_files
from support.corpus.judgement import is_sampled, judge, select
from support.pyarrow_limits import refused_by_pyarrow
from support.samples import SOAK, some

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TABLES = [(archive, name) for archive in ARCHIVES for name in scenario_names(archive)]
ZONES = ("UTC", "Asia/Shanghai", "America/New_York") if SOAK else ("UTC",)
DRAWN = some("tables of the corpus", TABLES, len(TABLES) // 9)
CASES = [pytest.param(*table, marks=refused_by_pyarrow if "types_append_orc" in table else ()) for table in DRAWN]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("archive", "scenario"), CASES)
def test_reads_of_a_table(archive: str, scenario: str, zone: str) -> None:
    """No read is wrong; reading wrote nothing into the table."""
    cases = [case for case in select([archive], scenario) if case.scenario == scenario]
    judgements = [judge(case, zone) for case in cases if is_sampled(case)]

    bad = {item.case.read: item.cause() for item in judgements if item.found}
    assert not bad, f"make corpus ARGS='--archive {archive} --scenario {scenario} --diff' shows more"
    assert unpacked_files(archive, scenario) == packed_files(archive, scenario)
