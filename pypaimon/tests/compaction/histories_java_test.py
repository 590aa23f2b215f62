"""Random tables that live Java and this library write and compact by turns, in either order.

`make differential` and `make soak` run more of them (`N=2000 KIND=tracked` for one kind), and the machine needs Maven
and a JDK. With `LIVE_JAVA_JARS` they run next to the Java of these jars, which has more kinds.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.java.compacted_tables import KINDS, CompactedTable, CompactedTally, kinds_of
from support.java.live import OTHER_JARS, LiveJava
from support.samples import IS_DIFFERENTIAL, drawn_kinds, histories, how_to_repeat, seeded

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

EXISTING = kinds_of(current=OTHER_JARS is not None)
DRAWN = drawn_kinds("compacted", EXISTING, len(EXISTING))
HISTORIES = histories(len(DRAWN), len(DRAWN))


@pytest.mark.parametrize("kind", DRAWN)
def test_both_continue_after_compactions_of_either(java: LiveJava, tmp_path: Path, kind: str) -> None:
    tally = CompactedTally()
    for number in range(HISTORIES):
        table = CompactedTable(java, KINDS[kind], seeded(f"compacted {kind} {number}"), tmp_path / "wh", tally)
        try:
            table.live()
        except Exception as error:
            steps = "\n".join(table.steps)
            raise AssertionError(f"history {number} ({how_to_repeat()}):\n{steps}\n{error}") from error
        shutil.rmtree(tmp_path / "wh")
    print(f"{kind}: {tally}")
    if IS_DIFFERENTIAL and HISTORIES >= 20:
        assert min(tally.compactions["ours"], tally.compactions["java"]) > HISTORIES // 2
