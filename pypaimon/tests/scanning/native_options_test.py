"""pypaimon's options for its native reader change nothing in our streams, whether or not pypaimon-rust is there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pypaimon.common.options.core_options import CoreOptions

from pypaimon.streaming import PaimonTarget, Plan, StreamReadBuilder, stream_read_builder
from support.samples import SOAK
from support.tables.streamed_table import Row, Table, available, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

NATIVE = {"scan.native-plan.enabled": "true", "read.native.enabled": "true"}
WRITES = {"write.native.enabled": "true", "commit.native.enabled": "true"}

MAKE: dict[str, Callable[[Path], Table]] = {
    "append": lambda path: Table(path, bucket="2", bucket_key="k"),
    "unaware": lambda path: Table(path),
    "upserts": lambda path: Table(path, primary_key=True),
    "changelog": lambda path: Table(path, primary_key=True, changelog_producer="input"),
    "native by the table": lambda path: Table(path, primary_key=True, **NATIVE),
}


class Trap(ModuleType):
    """A pypaimon-rust of which nothing may be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError(f"pypaimon_rust.{name} was used")


RUST = ["as installed", "absent", "trap"]


@pytest.fixture(params=RUST)
def _rust(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "as installed":
        trap = None if request.param == "absent" else Trap("pypaimon_rust")
        for name in ("pypaimon_rust", "pypaimon_rust.datafusion"):
            monkeypatch.setitem(sys.modules, name, trap)


def read(builder: StreamReadBuilder) -> list[tuple[Plan, list[Row]]]:
    reader = builder.new_read()
    with builder.new_streaming_scan() as scan:
        return [(plan, rows(reader, plan)) for plan in available(scan)]


def told(found: list[tuple[Plan, list[Row]]]) -> list[tuple[Any, ...]]:
    return [(plan.kind, plan.snapshot_id, plan.position, sorted(of_plan)) for plan, of_plan in found]


SET_UPS: dict[str, list[Any]] = {
    "state": [lambda b: b],
    "changes": [lambda b: b.with_start("earliest")],
    "shards": [lambda b, i=i: b.with_shard(i, 2).with_start(snapshot_id=1) for i in range(2)],
    "filter": [lambda b: b.with_start("earliest").with_filter(b.new_predicate_builder().less_than("k", 3))],
    "catch up": [lambda b: b.with_start("earliest").with_catch_up("auto", after=2)],
    "limits": [lambda b: b.with_limits(max_splits=1)],
}
CASES = [
    (rust, make, read_as)
    for first, rust in enumerate(RUST)
    for second, make in enumerate(MAKE)
    for third, read_as in enumerate(SET_UPS)
    if SOAK or (first + second + third) % len(RUST) == 0
]
"""Each two values meet in a case; in the long form each three do."""


@pytest.mark.parametrize(("_rust", "make", "read_as"), CASES, indirect=["_rust"])
@pytest.mark.usefixtures("_rust")
def test_rows_plans_and_positions_are_the_same(tmp_path: Path, make: str, read_as: str) -> None:
    set_ups = SET_UPS[read_as]
    table = MAKE[make](tmp_path / "w")
    for number in range(1, 5):
        table.commit([number, number + 10])
    wanted = [read(set_up(table.builder())) for set_up in set_ups]
    assert any(of_plan for found in wanted for _, of_plan in found)
    native = [read(set_up(stream_read_builder(table.handle(**NATIVE)))) for set_up in set_ups]
    assert [told(found) for found in native] == [told(found) for found in wanted]


@pytest.mark.usefixtures("_rust")
def test_an_empty_table_is_waited_for_and_the_start_of_the_options_counts(tmp_path: Path) -> None:
    table = Table(tmp_path / "w")
    with stream_read_builder(table.handle(**NATIVE)).new_streaming_scan() as scan:
        assert scan.plan() is None
        table.commit([1])
        assert [plan.snapshot_id for plan in available(scan)] == [1]
    table.commit([2])
    options = {**NATIVE, "scan.mode": "from-snapshot", "scan.snapshot-id": "2"}
    found = read(stream_read_builder(table.handle(**options)))
    assert [of_plan for _, of_plan in found] == [[("+I", 2, "v2")]]


@pytest.mark.usefixtures("_rust")
def test_batches_on_threads_are_the_same(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True)
    for number in range(1, 5):
        table.commit([number, number + 10])

    def batches(**options: str) -> list[int]:
        with stream_read_builder(table.handle(**options)).with_end(latest=True).open_sync() as stream:
            return sorted(key for batch in stream for key in batch.data["k"].to_pylist())

    assert batches(**NATIVE) == batches() == [1, 2, 3, 4, 11, 12, 13, 14]


@pytest.mark.usefixtures("_rust")
@pytest.mark.parametrize("which", ["absent", "set"])
def test_a_target_is_written_whatever_its_options_say(tmp_path: Path, which: str) -> None:
    source = Table(tmp_path / "s", primary_key=True)
    source.commit([1, 2])
    target = Table(tmp_path / "t", primary_key=True)
    sink = PaimonTarget(target.handle(**({} if which == "absent" else {**NATIVE, **WRITES})))
    with source.builder().with_end(latest=True).open_sync() as stream:
        for batch in stream:
            sink.apply(batch)
    found = read(target.builder())
    assert [row for _, of_plan in found for row in of_plan] == [("+I", 1, "v1"), ("+I", 2, "v2")]


def test_the_options_are_those_of_pypaimon() -> None:
    keys = {each.key() for each in vars(CoreOptions).values() if callable(getattr(each, "key", None))}
    assert {*NATIVE, *WRITES} <= keys
