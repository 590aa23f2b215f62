"""A start mode is described in two modules: its facts and option rule in one, its finder in the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pypaimon.streaming
from pypaimon.streaming.options.start import _FACTS, Start, StartMode, chooses_files, start_of_options
from pypaimon.streaming.planning.start import _FINDERS

PRODUCT = Path(pypaimon.streaming.__file__).parents[1]
DESCRIBED_IN = {"streaming/options/start.py", "streaming/planning/start.py"}
COMPARISON = re.compile(r"(\bis|\bin|==|!=) \(?StartMode\.")


@pytest.mark.parametrize("mode", StartMode)
def test_each_mode_has_facts_and_a_finder(mode: StartMode) -> None:
    assert mode in _FACTS
    # A tag, a position and a range are found without the latest snapshot.
    assert (mode in _FINDERS) != (mode in (StartMode.FROM_TAG, StartMode.FROM_POSITION, StartMode.BETWEEN))


def test_no_other_module_compares_modes() -> None:
    files = (path for folder in ("streaming", "spark") for path in (PRODUCT / folder).rglob("*.py"))
    found = {path.relative_to(PRODUCT).as_posix() for path in files if COMPARISON.search(path.read_text())}
    assert found <= DESCRIBED_IN


@pytest.mark.parametrize(
    ("mode", "in_first_plan", "afterwards"),
    [
        (StartMode.FROM_FILE_CREATION_TIME, 7, 7),
        (StartMode.FROM_CREATION_TIMESTAMP, 7, None),
        (StartMode.FROM_TIMESTAMP, None, None),
        (StartMode.LATEST_FULL, None, None),
    ],
)
def test_files_are_chosen_by_creation_time_in_these_plans(
    mode: StartMode, in_first_plan: int | None, afterwards: int | None
) -> None:
    start = Start(mode, millis=7)
    found = (start.created_after(in_first_plan=True), start.created_after(in_first_plan=False))
    assert found == (in_first_plan, afterwards)
    assert chooses_files(start.text) == (in_first_plan is not None)


def test_a_state_comes_first_with_a_full_tag_alone() -> None:
    assert Start(StartMode.FROM_TAG, tag="t", full=True).has_state
    assert not Start(StartMode.FROM_TAG, tag="t").has_state


def test_of_several_options_the_first_rule_is_taken() -> None:
    """As in Java: without `scan.mode` a time decides before a snapshot id, and is then refused next to it."""
    with pytest.raises(ValueError, match=r"\[scan.snapshot-id\] must be null when you set"):
        start_of_options({"scan.timestamp-millis": "1", "scan.snapshot-id": "2"})
