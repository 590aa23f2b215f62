"""`TorchFeed`: the rows of a table for data loaders of PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from types import FrameType
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.distributed
from torch.utils.data import IterableDataset, default_collate, get_worker_info
from torch.utils.dlpack import from_dlpack

from pypaimon.streaming.errors import NullColumnError, StreamConfigError
from pypaimon.streaming.feeds.feed import Feed, FeedReader, refuse_moving_ends
from pypaimon.streaming.feeds.feed_state import FeedState, Share
from pypaimon.streaming.feeds.shuffle import Shuffle, ShuffledReader
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import at_least, typed
from pypaimon.streaming.read_builder import StreamReadBuilder


def tensors(batch: pa.RecordBatch, fill_nulls: Mapping[str, Any]) -> dict[str, torch.Tensor | list[Any]]:
    """The columns of a batch by name: tensors if the type allows it, otherwise lists of Python values.

    Raises:
        NullColumnError: A column that becomes a tensor has nulls without a value to use instead.
    """
    return {name: _column(name, batch.column(name), fill_nulls) for name in batch.schema.names}


def _column(name: str, column: pa.Array, fill_nulls: Mapping[str, Any]) -> torch.Tensor | list[Any]:
    if name in fill_nulls and column.null_count:
        column = pc.fill_null(column, fill_nulls[name])
    kind = column.type
    if _is_number(kind):
        _refuse_nulls(name, column)
        return _tensor(column)
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        _refuse_nulls(name, column)
        values = column.flatten()
        _refuse_nulls(name, values)
        return _tensor(values).reshape(-1, kind.list_size)
    return list(column.to_pylist())


def _refuse_nulls(name: str, values: pa.Array) -> None:
    if values.null_count:
        raise NullColumnError(name, values.null_count)


@cache
def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_temporal(kind):
        return not pa.types.is_interval(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _tensor(values: pa.Array) -> torch.Tensor:
    kind = values.type
    if kind == pa.bool_():
        # Arrow stores booleans as bits, torch as bytes.
        return torch.from_numpy(values.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return from_dlpack(values)


_Make = Callable[[pa.RecordBatch], Any]


class TorchFeed(IterableDataset[Any]):
    """The rows of a table in batches, for `DataLoader(feed, batch_size=None, num_workers=4)` (extra `torch`).

    The workers of the loader and the ranks of a job share the table: each row comes once. Which worker reads a row
    depends only on the table. The files of a table without buckets are distributed snapshot by snapshot. In other
    tables, a bucket of a partition belongs to one worker, so that the changes of a key keep their order. The start, and
    the end of `with_end(latest=True)`, are found once, here; then each worker plans for itself.

    A second `iter()` begins at the start again. An unbounded feed never ends. If a worker finds nothing new for a poll
    interval, it hands out an empty batch: a loader asks its workers in turn, and must not wait for one while others
    have rows. The workers end with their loader.

    `state_dict()` is the state after the batch that was handed out last, and `load_state_dict()` continues exactly
    there. Each worker has a state of its own; `StatefulDataLoader` of torchdata saves them all.

    Args:
        builder: The stream, with its current settings. It must not have a consumer id, shard, chosen buckets, limits,
            range (`with_range`) or policy for expired snapshots.
        batch_rows: Rows of a batch.
        shuffle_rows: Shuffle blocks of this many consecutive rows of a worker, also across snapshots; each is held in
            memory. 0: the rows come in the order of the table.
        seed: Another seed gives another order; `set_epoch` does too.
        full_batches: Whether every batch but the last has `batch_rows` rows, of as many snapshots as needed. Otherwise
            the last batch of each snapshot may be smaller, and no rows wait for later snapshots.
        format: The form of a batch: `"tensors"`, a dict of tensors by column; `"arrow"`, a record batch of Arrow; or a
            function of a record batch, which runs in the workers. Numbers, booleans, dates and times become tensors
            (times as integers in their unit), as do fixed-size lists of them. Other columns are lists of Python values.
        fill_nulls: Values to use instead of null in `"tensors"`, by column.
        rank: The number of this process among those that share the table, from 0. The default for `rank` and
            `world_size` is that of `torch.distributed`, whose rank 0 finds the start and the end for all ranks; without
            `torch.distributed` it is one process.
        world_size: The number of these processes; all must have the same number of workers.

    Raises:
        StreamConfigError: Invalid setting or argument; the start does not exist yet; or with `rank`, the start or end
            is not fixed.
        PaimonStreamError: See `StreamReadBuilder.open`.
    """

    def __init__(
        self,
        builder: StreamReadBuilder,
        *,
        batch_rows: int = 1024,
        full_batches: bool = False,
        shuffle_rows: int = 0,
        seed: int = 0,
        format: Literal["tensors", "arrow"] | Callable[[pa.RecordBatch], Any] = "tensors",
        fill_nulls: Mapping[str, Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        typed(StreamReadBuilder, "TorchFeed: builder", builder)
        self._batch_rows = at_least(1, "TorchFeed: batch_rows", batch_rows)
        self._full_batches = typed(bool, "TorchFeed: full_batches", full_batches)
        rows = at_least(0, "TorchFeed: shuffle_rows", shuffle_rows)
        self._shuffle = Shuffle(rows, typed(int, "TorchFeed: seed", seed)) if rows else None
        self._make = _maker(format, _fitting(dict(fill_nulls or {}), builder))
        self._rank, self._world_size, is_shared = _ranks(rank, world_size)
        if is_shared:
            self._feed = _feed_of_rank_0(builder)
        else:
            if self._world_size > 1:
                refuse_moving_ends(builder)
            self._feed = Feed.of(builder, "TorchFeed")
        if self._shuffle is not None:
            shuffled = {**self._feed.identity.settings, "shuffle": f"{rows} rows, seed {seed}"}
            self._feed = replace(self._feed, identity=replace(self._feed.identity, settings=shuffled))
        self._loaded: FeedState | None = None
        self._batches: _Batches | None = None

    @property
    def start(self) -> Position:
        """Where the feed begins."""
        return self._feed.start

    @property
    def end(self) -> Position | None:
        """Where the next feed begins after the end of this one; None without an end, or if it does not exist yet."""
        return self._feed.end

    @property
    def shuffles(self) -> bool:
        """Whether rows are shuffled."""
        return self._shuffle is not None

    def set_epoch(self, epoch: int) -> None:
        """Have the next `iter()` shuffle in another order. A loader with `persistent_workers` keeps its first one.

        Raises:
            StreamConfigError: The feed does not shuffle, or a loaded state is of another epoch.
        """
        at_least(0, "TorchFeed: epoch", epoch)
        if self._shuffle is None:
            raise StreamConfigError("TorchFeed: set_epoch: the feed does not shuffle: give it shuffle_rows")
        if self._loaded is not None:
            check_epoch("TorchFeed", self._shuffle.epoch, epoch)
        self._shuffle = replace(self._shuffle, epoch=epoch)

    def __iter__(self) -> Iterator[Any]:
        refuse_batches_of_batches("TorchFeed", sys._getframe(1))
        share = self._share()
        place, self._loaded = self._loaded or self._feed.begin, None
        across_plans = self._full_batches or self._shuffle is not None
        reader = self._feed.open(share, place, self._batch_rows, across_plans, self._shuffle)
        self._batches = _Batches(reader, self._make, self._shuffle)
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        """The state after the batch that was handed out last, of this process, as values for JSON."""
        place, shuffle = self._loaded or self._feed.begin, self._shuffle
        if self._loaded is None and self._batches is not None:
            # `set_epoch` may have been called for the next pass.
            place, shuffle = self._batches.place, self._batches.shuffle
        epoch = {} if shuffle is None else {"epoch": shuffle.epoch}
        return self._feed.identity.state(self._share(), place, **epoch)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` continue from a state.

        Raises:
            StreamConfigError: The state is invalid, or belongs to a feed with other settings or another number of
                workers.
            TableChangedError: The state belongs to another table.
        """
        self._take(self._placed(state))

    def _placed(self, state: Mapping[str, Any]) -> tuple[FeedState, Shuffle | None]:
        place, shuffle = self._feed.identity.place(self._share(), state), self._shuffle
        if shuffle is not None:
            shuffle = replace(shuffle, epoch=at_least(0, "TorchFeed: epoch", state.get("epoch", 0)))
        return place, shuffle

    def _take(self, placed: tuple[FeedState, Shuffle | None]) -> None:
        self._loaded, self._shuffle = placed

    def _share(self) -> Share:
        worker = get_worker_info()
        index, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return Share(self._rank * count + index, self._world_size * count)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open reader, which cannot be pickled."""
        return self.__dict__ | {"_batches": None}


class _Batches(Iterator[Any]):
    def __init__(self, reader: FeedReader | ShuffledReader, make: _Make, shuffle: Shuffle | None) -> None:
        self.place = reader.place
        self.shuffle = shuffle
        self._reader = reader
        self._make = make
        self._held: tuple[pa.RecordBatch, FeedState] | None = None

    def __next__(self) -> Any:
        if self._held is None:
            try:
                self._held = next(self._reader)
            except StopIteration:
                self.place = self._reader.place
                raise
        rows, place = self._held
        made = self._make(rows)
        self.place, self._held = place, None
        return made


def share_of(feed: TorchFeed) -> Share:
    """The share that a feed reads in this process."""
    return feed._share()


def check_epoch(what: str, loaded: int, epoch: int) -> None:
    """Refuse another epoch than that of a loaded state: its rest would repeat and leave out rows in another order."""
    if epoch != loaded:
        raise StreamConfigError(
            f"{what}: set_epoch({epoch}): the loaded state is of epoch {loaded}: read that pass first, or start "
            "without the state."
        )


def load_states(feeds: Mapping[str, TorchFeed], states: Mapping[str, Any]) -> None:
    """Load the state of each feed. If one is refused, no feed changes."""
    placed = {name: feed._placed(states.get(name, {})) for name, feed in feeds.items()}
    for name, feed in feeds.items():
        feed._take(placed[name])


def refuse_batches_of_batches(what: str, caller: FrameType) -> None:
    """Refuse a loader without `batch_size=None`, which would stack batches: `[1, 1024]` in the place of `[1024]`.

    A dataset does not know the loader that reads it. The loader is found as the caller of `iter()`; another caller, or
    a `collate_fn` of the user, is not refused.
    """
    fetcher = caller.f_locals.get("self")
    if getattr(fetcher, "auto_collation", False) and getattr(fetcher, "collate_fn", None) is default_collate:
        raise StreamConfigError(
            f"{what} gives batches, and this DataLoader would make batches of them: give it batch_size=None, and "
            "the number of rows as TorchFeed(..., batch_rows=...)."
        )


def _maker(format: Any, fill_nulls: Mapping[str, Any]) -> _Make:
    if fill_nulls and format != "tensors":
        raise StreamConfigError("TorchFeed: fill_nulls needs format='tensors'; leave it out")
    if format == "tensors":
        return partial(tensors, fill_nulls=fill_nulls)
    if format == "arrow":
        return _as_it_is
    if not callable(format):
        raise StreamConfigError(f"TorchFeed: format={format!r}: give 'tensors', 'arrow' or a function of a RecordBatch")
    make: _Make = format
    return make


def _fitting(fill_nulls: Mapping[str, Any], builder: StreamReadBuilder) -> Mapping[str, Any]:
    if not fill_nulls:
        return fill_nulls
    schema = builder.new_read().schema
    for name, value in fill_nulls.items():
        if name not in schema.names:
            raise StreamConfigError(f"TorchFeed: fill_nulls: unknown column {name!r}; the columns are {schema.names}")
        try:
            pa.scalar(value, schema.field(name).type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise StreamConfigError(
                f"TorchFeed: fill_nulls: {value!r} does not fit column {name!r} of type {schema.field(name).type}"
            ) from error
    return fill_nulls


def _as_it_is(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int, bool]:
    if (rank is None) != (world_size is None):
        raise StreamConfigError(f"TorchFeed: rank={rank!r}, world_size={world_size!r}: give both, or neither")
    if rank is not None and world_size is not None:
        at_least(1, "TorchFeed: world_size", world_size)
        if at_least(0, "TorchFeed: rank", rank) >= world_size:
            raise StreamConfigError(f"TorchFeed: rank={rank} must be from 0 to {world_size - 1}")
        return rank, world_size, False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size(), True
    return 0, 1, False


def _feed_of_rank_0(builder: StreamReadBuilder) -> Feed:
    answer: list[Feed | Exception | None] = [None]
    if torch.distributed.get_rank() == 0:
        try:
            answer[0] = Feed.of(builder, "TorchFeed")
        except Exception as error:  # noqa: BLE001 - raised by all ranks below
            answer[0] = error
    torch.distributed.broadcast_object_list(answer, src=0)
    (found,) = answer
    if isinstance(found, Exception):
        raise found
    assert found is not None
    return found
