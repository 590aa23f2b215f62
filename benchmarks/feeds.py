"""Feeds for training: rows a second through PyTorch's loader, compared with pyarrow's dataset of the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks.measuring import Figure, compared, timed
from benchmarks.tables import catalog, commit, create, some_rows
from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.feeds import TorchFeed
from pypaimon.streaming.feeds.torch_feed import tensors

ROWS = 1_000_000
COMMITS = 32
BATCH_ROWS = 4096
ROUNDS = 9
COLUMNS = ["id", "amount"]
GOAL = 0.9
PLAIN = "pyarrow.dataset, same files"


class PlainDataset(IterableDataset[Any]):
    """What one writes without a feed: files of Parquet, dealt out to workers, as the same tensors.

    Args:
        files: Their paths.
    """

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        index, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        dataset = ds.dataset(self._files[index::count], format="parquet")
        for batch in dataset.to_batches(columns=COLUMNS, batch_size=BATCH_ROWS):
            yield tensors(batch, {})


def figures(directory: Path) -> list[Figure]:
    """All of this area."""
    table = create(catalog(directory), "t")
    rows = some_rows(ROWS)
    for _ in range(COMMITS):
        commit(table, rows)
    builder = stream_read_builder(table).with_projection(COLUMNS).with_end(latest=True)
    feed, plain = TorchFeed(builder, batch_rows=BATCH_ROWS), PlainDataset(_files(builder))
    return [_first_batch(feed, plain), *(_figure(feed, plain, workers) for workers in (0, 2))]


def _first_batch(feed: TorchFeed, plain: PlainDataset) -> Figure:
    candidates = {"ours": lambda: next(iter(feed)), "plain": lambda: next(iter(plain))}
    seconds, ratio = compared(candidates, clock=timed)
    measure = f"feed, first batch of a table of {COMMITS} commits"
    return Figure(measure, seconds * 1000, "ms", "-", None, seconds * 1000 * ratio, PLAIN)


def _figure(feed: TorchFeed, plain: PlainDataset, workers: int) -> Figure:
    candidates = {"ours": lambda: _read(feed, workers), "plain": lambda: _read(plain, workers)}
    seconds, ratio = compared(candidates, ROUNDS, clock=timed)
    rate = ROWS * COMMITS / seconds
    return Figure(
        f"feed, {workers} workers, batches of {BATCH_ROWS}",
        rate,
        "rows/s",
        f"{GOAL:g} of it",
        ratio >= GOAL,
        rate / ratio,
        PLAIN,
        more_is_better=True,
    )


def _read(dataset: IterableDataset[Any], workers: int) -> None:
    rows = sum(len(batch["id"]) for batch in DataLoader(dataset, batch_size=None, num_workers=workers))
    assert rows == ROWS * COMMITS


def _files(builder: StreamReadBuilder) -> list[str]:
    with builder.new_streaming_scan() as scan:
        plan = next(scan.stream_sync())
    return [str(file.file_path) for split in plan.splits() for file in split.files]
