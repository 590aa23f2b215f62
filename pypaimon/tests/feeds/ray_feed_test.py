"""Datasets of Ray Data: the state of a table, ranges of it, and plan by plan, by a real Ray of this machine."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# Its names of Ray import that, for seconds, when they are first used.
from pypaimon.streaming import (
    Position,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    feeds,
    stream_read_builder,
)
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, blocks
from support.repository import ROOT
from support.tables.fed_tables import FedTable
from support.tables.handles import read_with

# Ray leaves the processes of a node that it starts to themselves, and its own files to the garbage collector.
# What it deprecates it uses itself.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning:ray.*"
    ),
]
ATTEMPTS = 8
"""Ray gives a node 30 seconds to start, which a busy machine may not have."""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    for attempt in range(1, ATTEMPTS + 1):
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
            break
        except Exception as error:
            ray.shutdown()
            # What was begun of a node would go on beside the next one.
            subprocess.run(["pkill", "-9", "-P", str(os.getpid()), "-f", "/ray/"], check=False)
            if attempt == ATTEMPTS or "timed out during startup" not in str(error):
                raise
    yield ray
    ray.shutdown()


@pytest.fixture(params=["unaware", "partitions"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> FedTable:
    table = FedTable(tmp_path / "w", request.param)
    table.append(40, files=4)
    table.append(30, files=2)
    return table


def rows_of(dataset: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in dataset.take_all())


def streamed(builder: StreamReadBuilder) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in read_with(builder.copy().with_end(latest=True)))


@pytest.mark.parametrize("start", ["latest-full", "earliest"])
def test_tasks_that_travel_read_every_row_once_and_a_bucket_in_order(table: FedTable, start: Any) -> None:
    from ray import cloudpickle

    from pypaimon.streaming.feeds.ray_feed import bounded_source

    builder = stream_read_builder(table.handle).with_start(start)
    source, expected = bounded_source(builder), streamed(builder)
    table.append(10)
    for parallelism in (1, 3, 100):
        tasks = [cloudpickle.loads(cloudpickle.dumps(task)) for task in source.get_read_tasks(parallelism)]
        parts = [[tuple(row.values()) for block in task() for row in block.to_pylist()] for task in tasks]
        assert Counter(row for part in parts for row in part) == expected
        assert len(tasks) == 1 or all(parts)
        assert sum(task.metadata.size_bytes for task in tasks) == source.estimate_inmemory_data_size()


@pytest.mark.parametrize("start", ["latest-full", "earliest"])
def test_a_dataset_has_the_rows_of_the_stream(table: FedTable, start: Any, ray: Any) -> None:
    builder = stream_read_builder(table.handle).with_start(start).with_filter("k > 4")
    dataset = feeds.ray_dataset(builder)
    expected = streamed(builder)
    table.append(10)
    assert rows_of(dataset) == expected
    assert dataset.count() == expected.total()
    assert dataset.limit(3).count() == 3


def test_a_task_that_dies_in_the_middle_gives_its_rows_once(
    tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pypaimon.streaming.feeds.ray_feed import bounded_source, dataset_of

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(ray.data.DataContext.get_current(), "target_max_block_size", 1)
    table, died = FedTable(tmp_path / "w", "unaware"), tmp_path / "died"
    table.append(80, files=8)
    builder = stream_read_builder(table.handle)
    source = bounded_source(builder)
    tasks = [dying_once(task, died) for task in source.get_read_tasks(1)]
    monkeypatch.setattr(source, "get_read_tasks", lambda *_given, **_named: tasks)
    assert rows_of(dataset_of(source)) == streamed(builder)
    assert died.exists()


def dying_once(task: Any, died: Path) -> Any:
    """A task that kills its process behind its first block, unless that has died before."""
    from ray.data import ReadTask

    def blocks() -> Iterator[Any]:
        for number, block in enumerate(task()):
            if number == 1 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield block

    return ReadTask(blocks, task.metadata, schema=task.schema)


def test_a_dataset_without_rows_has_its_columns(tmp_path: Path, ray: Any) -> None:
    dataset = feeds.ray_dataset(stream_read_builder(FedTable(tmp_path, "unaware").handle))
    assert dataset.take_all() == []
    assert dataset.schema().names == ["k", "p", "v"]


def test_each_plan_is_a_dataset_that_a_restart_gives_again_until_it_is_done(table: FedTable, ray: Any) -> None:
    builder = stream_read_builder(table.handle).with_start("earliest").with_end(latest=True)
    feed, given = feeds.RayFeed(builder), list[tuple[int, int]]()
    assert feed.state_dict() == {}

    def take(dataset: Any, position: Position) -> None:
        given.append((position.snapshot, dataset.count()))
        if len(given) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feed.for_each(take)
    again = feeds.RayFeed(builder)
    again.load_state_dict(json.loads(json.dumps(feed.state_dict())))
    again.for_each(take)
    assert given == [(2, 40), (3, 30), (3, 30)]
    exact = feeds.RayFeed(builder.copy().with_start(position=Position(feed.state_dict()["table"], 3)))
    assert list(exact) == []
    feeds.RayFeed(builder).load_state_dict({})


def test_states_and_settings_that_cannot_be_are_refused(tmp_path: Path, ray: Any) -> None:
    tables = [FedTable(tmp_path / name, "fixed") for name in ("a", "b")]
    for table in tables:
        table.append(3)
    builder, other = (stream_read_builder(table.handle).with_end(latest=True) for table in tables)
    feed = feeds.RayFeed(builder)
    feed.load_state_dict({})
    positions = [position for _, position in feed]
    assert len(positions) == 1
    state = feed.state_dict()
    with pytest.raises(TableChangedError, match="another table"):
        feeds.RayFeed(other).load_state_dict({**state, "table": "another"})
    with pytest.raises(StreamConfigError, match="filter was none"):
        feeds.RayFeed(builder.copy().with_filter("k > 1")).load_state_dict(state)
    for make in (feeds.RayFeed, feeds.ray_dataset):
        with pytest.raises(StreamConfigError, match="consumer id"):
            make(builder.copy().with_consumer_id("c"))
    with pytest.raises(StreamConfigError, match="does not exist yet"):
        feeds.ray_dataset(stream_read_builder(tables[0].handle).with_end(snapshot_id=9))


def test_the_example_scores_each_row_once_wherever_it_ends(
    tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("ray_new_rows")
    ray.cloudpickle.register_pickle_by_value(example)  # as a program's own functions are
    columns, folder = pa.schema([("x", pa.float64())]), tmp_path / "scores"
    table = SmallTable(tmp_path / "w", keys=(), columns=columns, options={"bucket": "-1"})
    moves, replace = iter([True, False, True, True]), os.replace

    def moved(begun: Path, to: Path) -> None:
        if Path(begun).name == "begun" and not next(moves):
            raise KeyboardInterrupt
        replace(begun, to)

    monkeypatch.setattr(os, "replace", moved)
    table.commit({"x": 1.0}, {"x": 2.0})
    example.score_new_rows(stream_read_builder(table.table), folder)
    for x in (3.0, 4.0):
        table.commit({"x": x})
    with pytest.raises(KeyboardInterrupt):
        example.score_new_rows(stream_read_builder(table.table), folder)
    example.score_new_rows(stream_read_builder(table.table), folder)
    rows = [row for file in folder.glob("[0-9]*/*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted(row["x"] for row in rows) == [1.0, 2.0, 3.0, 4.0]
    assert all(row["score"] == 2 * row["x"] for row in rows)
    assert example.newest(folder).name == "4"


def test_what_the_page_shows_runs(tmp_path: Path, ray: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = SmallTable(tmp_path, keys=(), options={"bucket": "-1"})
    table.commit({"id": 1}, {"id": 2})
    table.commit({"id": 3})
    (block,) = (block.text for block in blocks(DOCS / "feeds.md") if "RayFeed(" in block.text)
    exec(block, {"table": table.table, "stream_read_builder": stream_read_builder})
    assert capsys.readouterr().out.splitlines() == ["3", "3 3"]


def test_the_notebook_runs(ray: Any) -> None:
    cells = json.loads((DOCS / "notebooks" / "ray.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    exec("\n".join(code), {"__name__": "__main__"})
