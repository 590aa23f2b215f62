"""Something goes wrong at the n-th request of a read of Java's tables: rows stay exact.

See `support.corpus.follower`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from support.corpus.follower import TABLES, Batches, Face, Plans, builder_of, follow
from support.samples import SOAK, is_drawn, sample_seed, seeded, some
from support.stores.fault_file_io import FORBIDDEN, RESET, Call, Fault, FaultFileIO, failing, late, truncated

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EACH = 1 if SOAK else 320
"""Of how many requests one goes wrong, beside those of each kind."""
FAULTS: dict[str, Fault] = {
    "reset": failing(RESET),
    "403": failing(FORBIDDEN),
    "truncated": truncated,
    "answer lost": late,
}
PASSING = ("reset", "answer lost")


class Once:
    """The first request for a file goes wrong."""

    def __init__(self, path: str, fault: Fault) -> None:
        self.happened = False
        self._path = path
        self._fault = fault

    def __call__(self, call: Call) -> Any:
        if self.happened or call.path != self._path:
            return call.answer()
        self.happened = True
        return self._fault(call)


def kind_of(path: str) -> str:
    """What a request asks for: `snapshot`, `manifest-list`, `index`, `data`, ..."""
    return re.sub(r"-?([0-9a-f]{8}-.*|[0-9]+)$", "", path.rpartition("/")[2])


def one_of_each_kind(paths: list[str], where: str, turn: int) -> Iterator[tuple[str, str]]:
    """One path of each kind and the name of a fault: another one for each kind, and at the next turn."""
    drawn = seeded(where)
    kinds = sorted({kind_of(path) for path in paths})
    for index, kind in enumerate(kinds, sample_seed() + turn):
        yield drawn.choice([path for path in paths if kind_of(path) == kind]), list(FAULTS)[index % len(FAULTS)]


CASES = [(scenario, face) for scenario in TABLES for face in (Plans, Batches)]


@pytest.mark.parametrize(("scenario", "face"), some("tables where requests fail", CASES, 4))
def test_a_fault_at_any_request_leaves_the_rows_as_they_are(scenario: str, face: Face) -> None:
    """One request of each kind, and some others, of some of the tables; in the long form each with each fault."""
    file_io = FaultFileIO()
    fine, errors = follow(builder_of(scenario, file_io), face)
    paths = [path for kind, path in file_io.calls if kind == "read"]
    calls = len(file_io.calls)
    assert fine and not errors and calls > 20

    def check(name: str, where: Any, prepare: Callable[[FaultFileIO], None]) -> None:
        file_io = FaultFileIO()
        builder = builder_of(scenario, file_io)
        prepare(file_io)
        found, errors = follow(builder, face)
        assert found == fine, (name, where)
        assert not (errors and name in PASSING), (name, where)

    for path, name in one_of_each_kind(paths, f"{scenario} {face.__name__}", CASES.index((scenario, face))):
        once = Once(path, FAULTS[name])
        check(name, path, partial(FaultFileIO.wherever, fault=once))
        assert once.happened
    for name, fault in FAULTS.items():
        for number in range(1, calls + 1):
            if is_drawn(f"{scenario} {face.__name__} {name} {number}", EACH):
                check(name, number, partial(FaultFileIO.at, number=number, fault=fault))


def test_the_requests_of_these_tables_are_of_every_kind() -> None:
    """Deletion vectors among them."""
    kinds = set()
    for scenario in TABLES:
        file_io = FaultFileIO()
        follow(builder_of(scenario, file_io), Plans)
        kinds |= {kind_of(path) for kind, path in file_io.calls if kind == "read"}
    assert kinds >= {"snapshot", "schema", "manifest-list", "manifest", "index-manifest", "index", "data", "changelog"}
    assert kinds >= {"EARLIEST", "compacted-changelog"}, kinds
