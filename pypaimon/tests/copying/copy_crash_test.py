"""Copies of a table that are killed, at any request of either side: each row once, each commit once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.crash import copy_crash
from support.programs import JsonProgram
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]

"""Above 0: every step, and so many times as many pairs of deaths."""
DRAWN = 1
KINDS = ["append", "keyed", "append, shared commits", "keyed, shared commits"]
"""The second and the third in `make test`: each way of writing, and each of committing."""


class Copies(JsonProgram):
    """Forks copies of one kind of table, see `copy_crash`: asked with steps to die at, it tells what came of them."""

    def __init__(self, directory: Path, kind: str, is_shared: bool) -> None:
        self.is_shared = is_shared
        super().__init__("support.crash.copy_crash", str(directory), kind, *(["1000"] if is_shared else []))


@pytest.fixture(params=KINDS if SOAK else KINDS[1:3])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copies]:
    kind, _, shared = request.param.partition(", ")
    with Copies(tmp_path, kind, bool(shared)) as made:
        yield made


def check(found: dict[str, Any], is_shared: bool) -> None:
    """The target holds what the source holds. Each commit names the position after its last plan."""
    source, target = found["rows"]
    assert target == source
    identifiers, positions = zip(*found["commits"], strict=True)
    assert list(identifiers) == list(range(len(identifiers)))
    whole = list(range(2, copy_crash.COMMITS + 2))
    if is_shared:
        # A copy that died after its only commit has copied everything.
        assert len(positions) == 1 and list(positions) == whole[-1:]
    else:
        assert list(positions) == whole
    if found["changelog"]:
        source, target = found["changelog"]
        assert target == source


def test_a_copy_dies_at_any_step(copies: Copies, request: pytest.FixtureRequest) -> None:
    undisturbed = copies.ask([])
    check(undisturbed, copies.is_shared)
    (steps,) = undisturbed["steps"]
    assert steps > 50
    drawn = seeded(request.node.name)
    if SOAK:
        jobs = [[step] for step in range(1, steps + 1)]
        jobs += [[drawn.randint(1, steps), drawn.randint(1, steps)] for _ in range(SOAK * steps)]
    else:
        jobs = [[drawn.randint(1, steps) for _ in range(count)] for count in [1] * DRAWN + [2]]
    died = 0
    for deaths in jobs:
        found = copies.ask(deaths)
        try:
            check(found, copies.is_shared)
        except AssertionError as error:
            raise AssertionError(f"deaths at steps {deaths}: {found}") from error
        died += found["steps"].count(0)
    assert died >= len(jobs) * 0.8
