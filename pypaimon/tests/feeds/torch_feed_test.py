"""The feed of PyTorch in real loaders: workers, states, ranks and deaths. Torch takes seconds: it is imported late."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import select
import signal
import sqlite3
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamConfigError, StreamReadBuilder, stream_read_builder
from pypaimon.streaming.errors import NullColumnError
from pypaimon.streaming.formats import parquet_reader
from pypaimon.streaming.reading import split_reader
from support.crash.steps import Steps
from support.samples import SOAK, seeded
from support.tables.fed_tables import FedTable
from support.tables.handles import catalog_with_database, create_table, write_by_pypaimon

pytestmark = [
    pytest.mark.torch,
    pytest.mark.soak,
    # What it says where there are fewer processors than workers.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # DataLoader forks its workers, beside threads of this process.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

WORKERS = 4
_FORK = multiprocessing.get_context("fork")


def start_training(warehouse: Path, database: Path, loop: int = 0, worker: int = 0) -> BaseProcess:
    """Read what is there of `db.t`, and end.

    Args:
        loop: At which step of the loop all are killed; 0: at none.
        worker: At which file that a worker opens all are killed; 0: at none.
    """
    process = _FORK.Process(target=_train, args=(warehouse, database, loop, worker))
    process.start()
    return process


def rows_in(database: Path) -> list[int]:
    """The keys that were kept, each as often as it came."""
    with sqlite3.connect(database) as connection:
        return [key for (key,) in connection.execute("SELECT k FROM rows ORDER BY k")]


def _train(warehouse: Path, database: Path, loop: int, worker: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from pypaimon.streaming import stream_read_builder
    from pypaimon.streaming.feeds import TorchFeed

    os.setpgid(0, 0)
    steps = Steps(loop, _kill_all)
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS rows (k INTEGER)")
    connection.execute("CREATE TABLE IF NOT EXISTS state (value TEXT)")
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.t")
    feed = TorchFeed(stream_read_builder(table).with_end(latest=True), batch_rows=7)
    loader: Any = StatefulDataLoader(
        feed, batch_size=None, num_workers=WORKERS, multiprocessing_context="fork", worker_init_fn=_dying(worker)
    )
    for (state,) in connection.execute("SELECT value FROM state"):
        loader.load_state_dict(json.loads(state))
    for batch in loader:
        steps()
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO rows VALUES (?)", [(key,) for key in batch["k"].tolist()])
        connection.execute("DELETE FROM state")
        connection.execute("INSERT INTO state VALUES (?)", [json.dumps(loader.state_dict())])
        steps()
        connection.execute("COMMIT")


def _kill_all() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _dying(number: int) -> Callable[[int], None]:
    """Has a worker kill all at one of the files that it opens."""

    def begin(worker: int) -> None:
        steps = Steps(number if worker == number % WORKERS else 0, _kill_all)

        def on_event(event: str, _: tuple[Any, ...]) -> None:
            if event == "open":
                steps()

        sys.addaudithook(on_event)

    return begin


KILLS = 200 if SOAK else 3
SECONDS_OF_A_FAILURE = 60


@pytest.fixture
def table(tmp_path: Path) -> FedTable:
    table = FedTable(tmp_path / "w", "unaware")
    for _ in range(3):
        table.append(40, files=4)
    return table


def builder_of(table: FedTable) -> StreamReadBuilder:
    return stream_read_builder(table.handle).with_start("earliest").with_end(latest=True)


def feed_of(builder: StreamReadBuilder, **arguments: Any) -> Any:
    from pypaimon.streaming.feeds import TorchFeed

    return TorchFeed(builder, **{"batch_rows": 8, **arguments})


def loader_of(feed: Any, workers: int, context: str = "fork", **arguments: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(
        feed, batch_size=None, num_workers=workers, multiprocessing_context=context if workers else None, **arguments
    )


def keys(batches: Any) -> list[int]:
    return [key for batch in batches for key in batch["k"].tolist()]


def crafted(tmp_path: Path, columns: dict[str, pa.Array]) -> StreamReadBuilder:
    rows = pa.table(columns)
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "t", rows.schema)
    write_by_pypaimon(table, rows)
    return stream_read_builder(table).with_end(latest=True)


def test_columns_become_tensors_or_lists(tmp_path: Path) -> None:
    import torch

    columns = {
        "small": pa.array([1, 2], pa.int8()),
        "large": pa.array([1 << 40, -1], pa.int64()),
        "real": pa.array([0.5, -0.5], pa.float32()),
        "flag": pa.array([True, False]),
        "day": pa.array([1, 2], pa.date32()),
        "at": pa.array([3, 4], pa.timestamp("us")),
        "text": pa.array(["a", None]),
        "many": pa.array([[1.0], [2.0, 3.0]], pa.list_(pa.float32())),
    }
    (batch,) = feed_of(crafted(tmp_path, columns))
    tensors = {name: (value.dtype, value.tolist()) for name, value in batch.items() if isinstance(value, torch.Tensor)}
    assert tensors == {
        "small": (torch.int8, [1, 2]),
        "large": (torch.int64, [1 << 40, -1]),
        "real": (torch.float32, [0.5, -0.5]),
        "flag": (torch.bool, [True, False]),
        "day": (torch.int32, [1, 2]),
        "at": (torch.int64, [3, 4]),
    }
    assert batch["text"] == ["a", None]
    assert batch["many"] == [[1.0], [2.0, 3.0]]


def test_vectors_are_rows_of_a_tensor_and_share_arrows_memory() -> None:
    from pypaimon.streaming.feeds.torch_feed import tensors

    numbers = pa.array(range(6), pa.float32())
    batch = pa.RecordBatch.from_arrays([pa.FixedSizeListArray.from_arrays(numbers, 2)], ["v"]).slice(1)
    found: Any = tensors(batch, {})["v"]
    assert found.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert found.data_ptr() == numbers.buffers()[1].address + 2 * 4


def test_nulls_are_an_error_that_names_the_column_and_lose_nothing(tmp_path: Path) -> None:
    builder = crafted(tmp_path, {"k": pa.array([1, 2, None, 4], pa.int64())})
    feed = feed_of(builder, batch_rows=2)
    rows = iter(feed)
    assert next(rows)["k"].tolist() == [1, 2]
    before = feed.state_dict()
    for _ in range(2):
        with pytest.raises(NullColumnError, match=r"'k' has 1 nulls .* fill_nulls=\{'k': ...\}"):
            next(rows)
    assert feed.state_dict() == before
    filled = feed_of(builder, batch_rows=2, fill_nulls={"k": -1})
    filled.load_state_dict(before)
    assert keys(filled) == [-1, 4]
    assert keys(feed_of(builder.copy().with_filter("k IS NOT NULL"))) == [1, 2, 4]


def test_a_format_of_ones_own_runs_in_the_workers(table: FedTable) -> None:
    makers = {number for _, number in loader_of(feed_of(builder_of(table), format=counted), 2)}
    assert os.getpid() not in makers
    assert sum(count for count, _ in feed_of(builder_of(table), format=counted)) == 120
    assert sum(batch.num_rows for batch in feed_of(builder_of(table), format="arrow")) == 120


def test_workers_decode_on_threads_though_forked_next_to_those_of_arrow(
    table: FedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parquet_reader, split_reader):
        monkeypatch.setattr(module, "_FEW_ROWS", 0)
    feed = feed_of(builder_of(table))
    assert sorted(keys(feed)) == list(range(120))
    assert sorted(keys(loader_of(feed, 2))) == list(range(120))


def counted(rows: pa.RecordBatch) -> tuple[int, int]:
    return rows.num_rows, os.getpid()


@pytest.mark.parametrize("workers", [0, 4])
def test_a_loader_continues_after_any_batch(table: FedTable, workers: int) -> None:
    feed, given, states = feed_of(builder_of(table)), list[int](), []
    loader = loader_of(feed, workers)
    for batch in loader:
        given += batch["k"].tolist()
        states.append((len(given), json.dumps(loader.state_dict())))
    assert sorted(given) == list(range(120))
    assert keys(loader) == given, "an epoch begins at the start"
    table.append(30, files=3)
    for count, state in seeded("torch feed").sample(states[:-1], 2) + states[-1:]:
        resumed = loader_of(feed, workers)
        resumed.load_state_dict(json.loads(state))
        assert given[:count] + keys(resumed) == given
        longer = loader_of(feed_of(builder_of(table)), workers)
        longer.load_state_dict(json.loads(state))
        assert sorted(given[:count] + keys(longer)) == list(range(150))


def test_workers_may_be_new_processes(table: FedTable) -> None:
    loader = loader_of(feed_of(builder_of(table)), 2, "spawn")
    first = keys([next(iter(loader))])
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert sorted(first + keys(loader)) == list(range(120))


def test_full_batches_are_cut_across_snapshots(table: FedTable) -> None:
    sizes = [len(batch["k"]) for batch in feed_of(builder_of(table), batch_rows=50, full_batches=True)]
    assert sizes == [50, 50, 20]
    assert [len(batch["k"]) for batch in feed_of(builder_of(table), batch_rows=50)] == [40, 40, 40]


def test_a_feed_that_travels_reads_from_its_start(table: FedTable) -> None:
    feed = feed_of(builder_of(table))
    rows = iter(feed)
    first = next(rows)["k"].tolist()
    assert keys(pickle.loads(pickle.dumps(feed)))[: len(first)] == first


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"batch_rows": 0}, "batch_rows: 0 is less than 1"),
        ({"format": "numpy"}, "format='numpy'"),
        ({"format": "arrow", "fill_nulls": {"k": 0}}, "fill_nulls needs"),
        ({"fill_nulls": {"nope": 0}}, "the columns are"),
        ({"fill_nulls": {"k": "x"}}, "does not fit column .k. of type int64"),
        ({"rank": 1}, "give both, or neither"),
        ({"rank": 2, "world_size": 2}, "from 0 to 1"),
        ({"rank": -1, "world_size": 2}, "rank: -1 is less than 0"),
        ({"rank": 0, "world_size": 0}, "world_size: 0 is less than 1"),
        ({"rank": 0, "world_size": 2}, "each rank finds the start"),
    ],
)
def test_arguments_that_cannot_be_are_refused(table: FedTable, arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(StreamConfigError, match=match):
        feed_of(stream_read_builder(table.handle).with_end(latest=True), **arguments)


def test_ranks_share_the_table(table: FedTable) -> None:
    builder = stream_read_builder(table.handle).with_start(snapshot_id=1).with_end(snapshot_id=3)
    parts = [keys(loader_of(feed_of(builder, rank=rank, world_size=2), 2)) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(120))
    assert all(parts)
    with pytest.raises(StreamConfigError, match="each rank finds the latest snapshot"):
        feed_of(builder.copy().with_end(latest=True), rank=0, world_size=2)


def test_ranks_of_torch_distributed_begin_where_rank_0_does(table: FedTable, tmp_path: Path) -> None:
    answers = multiprocessing.get_context("fork").Queue()
    starts = ["earliest", "latest-full"]
    ranks = [forked(ranked, rank, tmp_path / "store", table, start, answers) for rank, start in enumerate(starts)]
    found = [answers.get(timeout=SECONDS_OF_A_FAILURE) for _ in ranks]
    for rank in ranks:
        rank.join(SECONDS_OF_A_FAILURE)
    assert {start for start, _ in found} == {1}
    assert sorted(key for _, part in found for key in part) == list(range(120))


def ranked(rank: int, store: Path, table: FedTable, start: str, answers: Any) -> None:
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    feed = feed_of(builder_of(table).with_start(start))
    answers.put((feed.start.snapshot, keys(feed)))
    torch.distributed.destroy_process_group()


def forked(function: Callable[..., None], *arguments: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def ended(workers: list[int]) -> bool:
    for process in (os.pidfd_open(pid) for pid in workers):
        ready, _, _ = select.select([process], [], [], SECONDS_OF_A_FAILURE)
        os.close(process)
        if not ready:
            return False
    return True


def test_an_unbounded_feed_continues_and_its_workers_end_with_the_loader(table: FedTable) -> None:
    follow = stream_read_builder(table.handle).with_poll_interval_ms(10)
    loader = loader_of(feed_of(follow, batch_rows=1000), 3)
    batches = iter(loader)
    given: list[int] = []
    for count in (120, 130, 140):
        while len(given) < count:
            given += next(batches)["k"].tolist()
        table.append(10)
    assert sorted(given) == list(range(140))
    workers = [child.pid for child in multiprocessing.active_children() if child.pid]
    assert len(workers) == 3
    # A loader keeps its iterator.
    del batches, loader
    assert multiprocessing.active_children() == []


def test_workers_of_an_unbounded_feed_end_when_their_parent_is_killed(table: FedTable) -> None:
    answers = multiprocessing.get_context("fork").Queue()
    parent = forked(followed, table, answers)
    workers = answers.get(timeout=SECONDS_OF_A_FAILURE)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    assert ended(workers)


def followed(table: FedTable, answers: Any) -> None:
    loader = loader_of(feed_of(stream_read_builder(table.handle).with_poll_interval_ms(10)), 2)
    for number, _ in enumerate(loader):
        if number == 3:
            answers.put([child.pid for child in multiprocessing.active_children()])


def test_a_loader_that_is_killed_anywhere_gives_every_row_once(table: FedTable, tmp_path: Path) -> None:
    chance, database, made, kills = seeded("killed loader"), tmp_path / "rows.db", 120, 0
    while kills < KILLS:
        table.append(56, files=4)
        made += 56
        where = chance.choice(["loop", "worker"])
        process = start_training(tmp_path / "w", database, **{where: chance.randrange(1, 20)})
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
    process = start_training(tmp_path / "w", database)
    process.join()
    assert process.exitcode == 0
    assert rows_in(database) == list(range(made))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stateful", [False, True])
def test_a_loader_that_would_make_batches_of_batches_is_refused(table: FedTable, workers: int, stateful: bool) -> None:
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    kind: Any = StatefulDataLoader if stateful else DataLoader
    given = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    for arguments in ({}, {"batch_size": 16}):
        with pytest.raises(StreamConfigError, match=r"give it batch_size=None"):
            next(iter(kind(feed_of(builder_of(table)), **arguments, **given)))
    assert keys(kind(feed_of(builder_of(table)), batch_size=1, collate_fn=lambda batches: batches[0], **given))
    assert keys(feed_of(builder_of(table)))


def shuffled(table: FedTable, **arguments: Any) -> Any:
    return feed_of(builder_of(table), **{"shuffle_rows": 50, "seed": 3, **arguments})


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_feed_gives_each_row_once_in_the_same_order_for_a_seed_and_an_epoch(
    table: FedTable, workers: int
) -> None:
    first = keys(loader_of(shuffled(table), workers))
    assert sorted(first) == sorted(keys(feed_of(builder_of(table)))) != first
    assert keys(loader_of(shuffled(table), workers)) == first
    feed = shuffled(table)
    orders = [first]
    for epoch in (1, 2):
        feed.set_epoch(epoch)
        orders.append(keys(loader_of(feed, workers)))
    orders.append(keys(loader_of(shuffled(table, seed=4), workers)))
    assert len({tuple(order) for order in orders}) == 4
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(first))}
    # A block comes from several snapshots.
    assert {key // 40 for key in keys(shuffled(table))[:50]} == {0, 1}


@pytest.mark.parametrize("kind", ["unaware", "fixed"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_feed_resumes_after_each_batch(kind: str, workers: int, tmp_path: Path) -> None:
    table = FedTable(tmp_path / "w", kind)
    for _ in range(3):
        table.append(40)
    feed = shuffled(table)
    feed.set_epoch(5)
    loader = loader_of(feed, workers)
    begun: list[int] = []
    states = []
    for batch in loader:
        begun += batch["k"].tolist()
        states.append((list(begun), json.dumps(loader.state_dict())))
    # A feed with a later end, smaller batches and a fresh epoch: the block that was begun ends as it would have.
    table.append(40)
    for before, state in states[:: 6 if workers else 1]:
        resumed = loader_of(shuffled(table, batch_rows=5), workers)
        resumed.load_state_dict(json.loads(state))
        assert sorted(before + keys(resumed)) == list(range(160))
    resumed = loader_of(shuffled(table, seed=4), workers)
    with pytest.raises(StreamConfigError, match=r"shuffle was 50 rows, seed 3, now 50 rows, seed 4"):
        resumed.load_state_dict(json.loads(states[0][1]))
        next(iter(resumed))
    with pytest.raises(StreamConfigError, match="shuffle was 50 rows, seed 3, now None"):
        feed_of(builder_of(table)).load_state_dict(shuffled(table).state_dict())


def test_a_state_inside_a_block_keeps_its_epoch(table: FedTable) -> None:
    feed = shuffled(table)
    whole = keys(shuffled(table))
    batches = iter(feed)
    begun = next(batches)["k"].tolist()
    # The epoch of the next pass, set before this one has ended.
    feed.set_epoch(1)
    state = json.loads(json.dumps(feed.state_dict()))
    resumed = shuffled(table)
    resumed.load_state_dict(state)
    with pytest.raises(StreamConfigError, match=r"set_epoch\(1\): the loaded state is of epoch 0"):
        resumed.set_epoch(1)
    resumed.set_epoch(0)
    assert begun + keys(resumed) == whole
    resumed.set_epoch(1)
    assert sorted(keys(resumed)) == sorted(whole)


def test_a_refused_state_does_not_move_the_feed(table: FedTable) -> None:
    feed = shuffled(table)
    next(iter(feed))
    state = feed.state_dict()
    other = shuffled(table)
    with pytest.raises(StreamConfigError, match="state of the feed was altered"):
        other.load_state_dict({**state, "epoch": 3})
    del state["checksum"]
    with pytest.raises(StreamConfigError, match="epoch: -1"):
        other.load_state_dict({**state, "epoch": -1})
    assert keys(other) == keys(shuffled(table))


def test_wrong_arguments_of_shuffling_are_refused(table: FedTable) -> None:
    with pytest.raises(StreamConfigError, match="shuffle_rows"):
        shuffled(table, shuffle_rows=-1)
    with pytest.raises(StreamConfigError, match="seed"):
        shuffled(table, seed="x")
    with pytest.raises(StreamConfigError, match="the feed does not shuffle"):
        feed_of(builder_of(table)).set_epoch(1)
    with pytest.raises(StreamConfigError, match="epoch"):
        shuffled(table).set_epoch(-1)
