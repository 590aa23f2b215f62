"""Java's known defects of maintenance, as histories: a maintainer built like Java fails each, and this library none."""

from __future__ import annotations

import pytest

from support.groups.invariants import BrokenLawError
from support.maintenance.histories import HARMLESS, HISTORIES, History
from support.maintenance.stage import Stage, played


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_a_maintainer_like_java_fails(history: History) -> None:
    stage = Stage(history.options, history.forgets, history.judges_order)
    with pytest.raises(BrokenLawError, match=rf"\A{history.breaks}"):
        played(history.play, stage)


@pytest.mark.slow
@pytest.mark.parametrize("history", [*HISTORIES, *HARMLESS], ids=lambda history: history.name)
def test_maintenance_does_not(history: History) -> None:
    """It keeps what is needed, or refuses to maintain a table where that cannot be known."""
    stage = played(history.play, Stage(history.options, None))
    assert bool(stage.refused) is history.refused, stage.refused
