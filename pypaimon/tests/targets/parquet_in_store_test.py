"""A directory of Parquet files in an object store holds what an append table holds, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector

from pypaimon.streaming import ParquetTarget, StreamConfigError, replicate
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.testing import SmallTable, check_target
from support.samples import sample_seed
from support.stores.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.server


class Stored:
    """Directories of an object store."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server, self.options = server, server.options()
        self.name = name

    def opened(self, name: str = "copy", *, replace: bool = False) -> ParquetTarget:
        return ParquetTarget(f"s3://{BUCKET}/{self.name}/{name}", options=self.options, replace=replace)

    def files(self, name: str = "copy") -> list[str]:
        """The names of the files, in order."""
        found = self.server.file_system().get_file_info(
            FileSelector(f"{BUCKET}/{self.name}/{name}", allow_not_found=True)
        )
        return sorted(each.base_name for each in found)

    def rows(self, name: str = "copy") -> list[dict[str, Any]]:
        paths = [f"{BUCKET}/{self.name}/{name}/{file}" for file in self.files(name)]
        system = self.server.file_system()
        return [row for path in paths for row in pq.read_table(path, filesystem=system).to_pylist()]


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """An append table of two commits."""
    table = SmallTable(tmp_path / "w", keys=())
    for number in range(2):
        table.commit({"id": number})
    return table


@pytest.fixture
def stored(server: S3Server, request: pytest.FixtureRequest) -> Stored:
    return Stored(server, f"{abs(hash(request.node.name))}")


@pytest.mark.usefixtures("few_kills")
def test_it_is_right(stored: Stored) -> None:
    check_target(stored.opened, stored.rows, keys=(), schema_changes=False, histories=1, seed=sample_seed())


@pytest.mark.parametrize("fault", ["lost", "reset", 500])
def test_a_plan_whose_write_fails_or_loses_its_answer_is_there_once(
    source: SmallTable, stored: Stored, fault: Any
) -> None:
    replicate(source.builder(), stored.opened())
    for number in (2, 3):
        source.commit({"id": number})
        with stored.server.failing("plan-", fault, method="PUT"):
            replicate(source.builder(), stored.opened())
    assert sorted(row["id"] for row in stored.rows()) == [0, 1, 2, 3]
    assert stored.files() == [f"plan-{number:012}.parquet" for number in (1, 2, 3)]


def test_a_store_that_keeps_failing_is_an_error_that_may_pass(source: SmallTable, stored: Stored) -> None:
    replicate(source.builder(), target := stored.opened())
    source.commit({"id": 2})
    with stored.server.failing("plan-", *["lost", *[500] * 50]), pytest.raises(StoreError):
        replicate(source.builder(), target)
    replicate(source.builder(), target)
    assert sorted(row["id"] for row in stored.rows()) == [0, 1, 2]


def test_of_two_programs_one_writes_a_plan_and_the_other_may_have_the_same(source: SmallTable, stored: Stored) -> None:
    targets = stored.opened(), stored.opened()
    for target in targets:
        replicate(source.builder(), target)
    source.commit({"id": 2})
    streams = [source.builder().with_start(position=each.load_position()) for each in targets]
    for target, stream in zip(targets, streams, strict=True):
        with stream.open_sync() as opened:
            target.apply(next(opened))
    source.commit(*({"id": number} for number in range(3, 10)))
    behind = source.builder().with_start(position=targets[1].load_position()).with_limits(max_rows=1)
    replicate(source.builder(), targets[0])
    with behind.open_sync() as opened, pytest.raises(StreamConfigError, match="others write to it"):
        targets[1].apply(next(opened))
    assert sorted(row["id"] for row in stored.rows()) == list(range(10))


def test_a_state_in_a_store_replaces_the_files_before_it(source: SmallTable, stored: Stored) -> None:
    replicate(source.builder().with_filter("id = 0"), stored.opened())
    replicate(source.builder(), stored.opened(replace=True))
    assert stored.files() == ["plan-000000000002.parquet"]
    assert sorted(row["id"] for row in stored.rows()) == [0, 1]


def test_a_store_that_would_overwrite_is_refused(stored: Stored) -> None:
    with (
        stored.server.behaving(heeds_conditions=False),
        pytest.raises(StreamConfigError, match="only if there is none"),
    ):
        stored.opened()
