"""The sink as Spark calls it, without Spark: tasks that run twice, commits that fail, what is logged."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import MortalFileIO
from support.spark.sink_world import OTHER, World, write
from support.stores.lossy_store import SCHEME, LossyStore

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pyspark.sql.types import LongType, StructField, StructType

from pypaimon.spark.write.batch_writer import BatchTaskMessage, PaimonBatchWriter
from pypaimon.spark.write.sink import Sink, TaskFiles
from pypaimon.spark.write.stream_writer import PaimonStreamWriter, TaskMessage
from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.errors import CommitFailedError, UnsafeCommitError

ROWS = StructType([StructField("id", LongType()), StructField("v", LongType())])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def sink(world: World, overwrite: bool = False) -> Sink:
    options = {"warehouse": str(world.path.parents[1]), "table": "db.t"}
    return pickle.loads(pickle.dumps(Sink.of(options, ROWS, overwrite, streaming=True)))  # type: ignore[no-any-return]


def batches(*rows: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    columns = [pa.array(list(column), pa.int64()) for column in zip(*rows, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, ["id", "v"])


def test_of_a_task_that_ran_twice_the_files_of_one_attempt_count(world: World) -> None:
    speculative: TaskFiles = sink(world).write(batches((1, 1)), "query")
    winner = sink(world).write(batches((1, 1)), "query")
    sink(world).commit_once("query", 0, [winner])
    assert world.rows() == [(1, 1)]
    assert len(world.data_files() - world.live_files()) == len(speculative.messages) == 1


def test_a_micro_batch_without_a_task_appends_nothing_and_overwrites_nothing(world: World) -> None:
    world.run()
    before = world.rows()
    PaimonStreamWriter(sink(world)).commit([], 1)
    with pytest.raises(RuntimeError, match=r"Messages of \[\] came to the commit of batch 1"):
        PaimonStreamWriter(sink(world, overwrite=True)).commit([], 1)
    assert world.rows() == before and world.latest() == 1


def test_what_a_failed_task_and_its_finished_fellows_wrote_is_deleted(world: World) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches((1, 1))
        raise OSError("the executor has lost its disk")

    finished = sink(world).write(batches((2, 2)), "query")
    with pytest.raises(OSError, match="lost its disk"):
        sink(world).write(failing(), "query")
    assert len(world.data_files()) == 1
    sink(world).abort([finished, None])
    assert world.data_files() == set() and world.latest() == 0


def test_files_of_a_commit_that_may_have_succeeded_are_kept(world: World) -> None:
    finished = sink(world).write(batches((1, 1)), "query")
    sink(world).commit_once("query", 0, [finished])
    sink(world).abort([finished])
    assert world.rows() == [(1, 1)]


def test_each_commit_is_logged_with_its_figures(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    files = sink(world).write(batches((1, 1), (2, 2)), "query")
    for _ in range(2):
        sink(world).commit_once("query", 0, [files])
    first, second = (line for line in capfd.readouterr().err.splitlines() if line.startswith("pypaimon sink:"))
    size = sum(path.stat().st_size for path in world.path.rglob("data-*"))
    assert first == (
        f"pypaimon sink: db.t: batch 0 of query query committed; snapshot=1 rowsIn=2 rows=2 files=1 bytes={size}"
    )
    assert "batch 0 of query query was in the table already, nothing added; snapshot=1" in second
    assert world.rows() == [(1, 1), (2, 2)]


def test_a_conflict_that_cannot_be_retried_fails_the_batch_with_its_reason(world: World) -> None:
    class Crowded(MortalFileIO):
        """Another writer commits whenever this one is about to."""

        def new_output_stream(self, path: Any) -> Any:
            if "/manifest/manifest-" in str(path) and "list" not in str(path):
                world.other()
            return super().new_output_stream(path)

    world.run()
    table = world.table(Crowded()).copy({"commit.max-retries": "1"})
    messages = write(world.table(), world.rows_of(1), "query", False)
    with pytest.raises(CommitFailedError, match=r"Commit 1 of 'query' failed: .*retr.*was not committed") as caught:
        commit_once(CommitRequest(PaimonTable(table), "query", 1, messages, is_first_attempt=True))
    assert caught.value.retriable
    assert [row for row in world.rows() if row[0] != OTHER] == world.rows_of(0)
    assert world.data_files() == world.live_files()
    world.run()
    assert [row for row in world.rows() if row[0] != OTHER] == sorted([*world.rows_of(0), *world.rows_of(1)])


class Crowded(LossyStore):
    """A store that cannot arbitrate, in which another program commits while manifests are written."""

    def __init__(self, world: World) -> None:
        super().__init__("no", left=0)
        self._world: World | None = world

    def new_output_stream(self, path: Any) -> Any:
        world = self._world
        if "/manifest/" in str(path) and world is not None:
            self._world = None
            world.other()
        return super().new_output_stream(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["write", "numbered write", "stream"])
def test_a_commit_that_nobody_arbitrates_is_not_taken_for_one_to_retry(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The class and the message are those of the library, so that a job can tell it from a failure of the store."""
    numbers = {"query-id": "q", "batch-id": "0"} if kind == "numbered write" else {}
    options = {"warehouse": str(world.path.parents[1]), "table": "db.t", **numbers}
    opened = Sink.of(options, ROWS, False, streaming=kind == "stream")
    table = world.table(Crowded(world))
    table.table_path = f"{SCHEME}{world.path}"
    files = opened.write(batches((1, 1)), "q")
    monkeypatch.setattr(Sink, "_table", lambda _: PaimonTable(table))
    with pytest.raises(UnsafeCommitError, match=r"^db\.t: .*'other' has committed snapshot 1.*not committed") as caught:
        if kind == "stream":
            PaimonStreamWriter(opened).commit([TaskMessage("q", 0, files)], 0)
        else:
            PaimonBatchWriter(opened).commit([BatchTaskMessage(files, None)])
    assert not caught.value.retriable
    assert [row for row in world.rows() if row[0] != OTHER] == []
    assert world.data_files() == world.live_files()
