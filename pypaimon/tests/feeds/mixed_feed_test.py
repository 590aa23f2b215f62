"""Several tables in one pass, and equal numbers of batches on each rank, in real loaders and processes."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError, stream_read_builder
from pypaimon.streaming.feeds.feed_state import with_checksum
from support.samples import seeded
from support.tables.fed_tables import FedTable

pytestmark = [
    pytest.mark.torch,
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

SECONDS_OF_A_FAILURE = 60
NAMES = ["one", "other", "third"]


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, FedTable]:
    """Of 90, 60 and 30 rows, the third one with a key."""
    found = {}
    for number, (name, kind) in enumerate(zip(NAMES, ["unaware", "fixed append", "fixed"], strict=True)):
        found[name] = FedTable(tmp_path / name, kind)
        for _ in range(3 - number):
            found[name].append(30, files=4)
    return found


def feeds_of(tables: dict[str, FedTable], **arguments: Any) -> dict[str, Any]:
    from pypaimon.streaming.feeds import TorchFeed

    builders = {name: stream_read_builder(table.handle).with_end(latest=True) for name, table in tables.items()}
    return {name: TorchFeed(builder, **{"batch_rows": 3, **arguments}) for name, builder in builders.items()}


def loader_of(feed: Any, workers: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(
        feed, batch_size=None, num_workers=workers, multiprocessing_context="fork" if workers else None
    )


def drawn(batches: Any) -> list[tuple[str, list[int]]]:
    return [(name, batch["k"].tolist()) for name, batch in batches]


def rows_of(batches: list[tuple[str, list[int]]]) -> dict[str, list[int]]:
    return {name: sorted(key for each, keys in batches if each == name for key in keys) for name in NAMES}


ALL = {"one": list(range(90)), "other": list(range(60)), "third": list(range(30))}


@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_of_every_table_comes_once_and_any_state_resumes(tables: dict[str, FedTable], workers: int) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    weights = {"one": 4, "other": 2, "third": 1}
    mixed = MixedFeed(feeds_of(tables, shuffle_rows=20), weights, seed=1)
    loader, given, states = loader_of(mixed, workers), list[tuple[str, list[int]]](), []
    for name, batch in loader:
        given.append((name, batch["k"].tolist()))
        states.append(json.dumps(loader.state_dict()))
    assert rows_of(given) == ALL
    assert drawn(loader_of(MixedFeed(feeds_of(tables, shuffle_rows=20), weights, seed=1), workers)) == given
    for count in seeded("mixed").sample(range(1, len(states)), 3):
        resumed = loader_of(MixedFeed(feeds_of(tables, shuffle_rows=20), weights, seed=1), workers)
        resumed.load_state_dict(json.loads(states[count - 1]))
        assert given[:count] + drawn(resumed) == given
    mixed.set_epoch(1)
    other = drawn(loader_of(mixed, workers))
    assert other != given and rows_of(other) == ALL


def test_feeds_are_drawn_by_their_weights(tables: dict[str, FedTable]) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    tables["other"].append(600)
    tables["third"].append(600)
    mixed = MixedFeed(feeds_of(tables, batch_rows=1), {"one": 1, "other": 3, "third": 6}, seed=3)
    counts = Counter(name for name, _ in drawn(mixed)[:400])
    assert counts["one"] == pytest.approx(40, abs=20)
    assert counts["other"] == pytest.approx(120, abs=30)
    assert counts["third"] == pytest.approx(240, abs=35)


def test_a_pass_may_end_with_the_first_table(tables: dict[str, FedTable]) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    feeds = list(feeds_of(tables).values())
    keys = [batch["k"].tolist() for batch in MixedFeed(feeds, [1, 1, 8], stop="first")]
    assert sum(map(len, keys)) < 180
    # All of the last one, which is drawn most often and is short.
    assert {key for each in keys for key in each} >= set(range(30))


def test_what_cannot_be_mixed_is_refused(tables: dict[str, FedTable]) -> None:
    from torch.utils.data import DataLoader

    from pypaimon.streaming.feeds import MixedFeed, TorchFeed

    feeds = feeds_of(tables)
    endless = TorchFeed(stream_read_builder(tables["one"].handle))
    builder = stream_read_builder(tables["one"].handle).with_start(snapshot_id=1).with_end(snapshot_id=3)
    ranked = TorchFeed(builder, rank=1, world_size=2)
    for given, more, words in [
        ({}, {}, "at least one feed"),
        (3, {}, "a mapping or a sequence"),
        ({**feeds, "endless": endless}, {}, "'endless' has no end"),
        ({**feeds, "again": feeds["one"]}, {}, "given twice"),
        ({**feeds, "ranked": ranked}, {}, "different ranks: .*'ranked' is 1 of 2"),
        ({"one": 1}, {}, "expected TorchFeed"),
        (feeds, {"weights": {"one": 1}}, "weights are for"),
        (feeds, {"weights": dict.fromkeys(NAMES, 0)}, "a number above 0"),
        (feeds, {"stop": "never"}, "'all' or 'first'"),
        (feeds, {"seed": "x"}, "MixedFeed: seed"),
    ]:
        with pytest.raises(StreamConfigError, match=words):
            MixedFeed(given, **more)  # type: ignore[arg-type]
    mixed = MixedFeed(feeds)
    with pytest.raises(StreamConfigError, match=r"MixedFeed gives batches.*batch_size=None"):
        next(iter(DataLoader(mixed)))
    state = mixed.state_dict()
    for wrong, words in [
        ({}, "Invalid state of a MixedFeed"),
        ({**state, "version": 9}, "version 9"),
        ({**state, "settings": {}}, "other settings"),
    ]:
        with pytest.raises(StreamConfigError, match=words):
            mixed.load_state_dict(wrong)
    two = {name: {**each, "workers": 2} for name, each in state["feeds"].items()}
    with pytest.raises(StreamConfigError, match="use as many workers and ranks as before"):
        mixed.load_state_dict(_with_checksum({**state, "feeds": two}))
    for altered in ({"drawn": 3}, {"ended": ["second"]}, {"epoch": 1}):
        with pytest.raises(StreamConfigError, match="state of the MixedFeed was altered"):
            mixed.load_state_dict({**state, **altered})


def _with_checksum(state: dict[str, Any]) -> dict[str, Any]:
    """A changed state with the checksum of what it is now."""
    del state["checksum"]
    return with_checksum(state)


def test_a_state_that_one_feed_refuses_moves_none(tables: dict[str, FedTable]) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    mixed = MixedFeed(feeds_of(tables))
    drawn(islice(mixed, 9))
    state = mixed.state_dict()
    state["feeds"]["third"]["settings"]["filter"] = "#0 > 3"
    other = MixedFeed(feeds_of(tables))
    with pytest.raises(StreamConfigError, match="filter was #0 > 3, now none"):
        other.load_state_dict(_with_checksum(state))
    assert rows_of(drawn(other)) == ALL


def test_a_state_has_the_epoch_of_its_pass(tables: dict[str, FedTable]) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    whole = drawn(MixedFeed(feeds_of(tables, shuffle_rows=20)))
    mixed = MixedFeed(feeds_of(tables, shuffle_rows=20))
    begun = drawn(islice(mixed, 9))
    state_before = mixed.state_dict()
    mixed.set_epoch(1)
    assert mixed.state_dict() == state_before
    resumed = MixedFeed(feeds_of(tables, shuffle_rows=20))
    resumed.load_state_dict(mixed.state_dict())
    assert begun + drawn(resumed) == whole


def test_another_epoch_than_that_of_a_loaded_state_is_refused(tables: dict[str, FedTable]) -> None:
    from pypaimon.streaming.feeds import MixedFeed

    mixed = MixedFeed(feeds_of(tables))
    mixed.load_state_dict(mixed.state_dict())
    with pytest.raises(StreamConfigError, match="the loaded state is of epoch 0"):
        mixed.set_epoch(1)
    mixed.set_epoch(0)


# ---- as many batches on each rank ----


def in_ranks(function: Any, tmp_path: Path, *arguments: Any, count: int = 3) -> list[Any]:
    """What a function returns, or the error that it raises, on each rank of a job."""
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    ranks = [
        context.Process(target=_ranked, args=(function, rank, count, tmp_path / "store", answers, arguments))
        for rank in range(count)
    ]
    for process in ranks:
        process.start()
    found = dict(answers.get(timeout=SECONDS_OF_A_FAILURE) for _ in ranks)
    for process in ranks:
        process.join(SECONDS_OF_A_FAILURE)
    return [found[rank] for rank in range(count)]


def _ranked(function: Any, rank: int, count: int, store: Path, answers: Any, arguments: Any) -> None:
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    try:
        answers.put((rank, function(rank, *arguments)))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        answers.put((rank, repr(error)))
    torch.distributed.destroy_process_group()


def _keys(_: int, table: FedTable, at_end: Any) -> list[list[int]]:
    from pypaimon.streaming.feeds import TorchFeed, equal_batches

    feed = TorchFeed(stream_read_builder(table.handle).with_end(latest=True), batch_rows=7)
    return [batch["k"].tolist() for batch in equal_batches(loader_of(feed, 0), at_end=at_end)]


def _own(_: int, table: FedTable) -> list[list[int]]:
    from pypaimon.streaming.feeds import TorchFeed

    feed = TorchFeed(stream_read_builder(table.handle).with_end(latest=True), batch_rows=7)
    return [batch["k"].tolist() for batch in feed]


@pytest.mark.parametrize("kind", ["unaware", "fixed"])
def test_ranks_get_as_many_batches(tmp_path: Path, kind: str) -> None:
    table = FedTable(tmp_path / "w", kind)
    table.append(100, files=7)
    table.append(3)
    own = in_ranks(_own, _made(tmp_path / "own"), table)
    counts = [len(batches) for batches in own]
    assert len(set(counts)) > 1, "otherwise there is nothing to make equal"
    least, most = min(counts), max(counts)
    dropped = in_ranks(_keys, _made(tmp_path / "drop"), table, "drop")
    assert dropped == [batches[:least] for batches in own]
    repeated = in_ranks(_keys, _made(tmp_path / "repeat"), table, "repeat")
    assert repeated == [(batches * most)[:most] for batches in own]


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _failing(rank: int) -> int:
    from pypaimon.streaming.feeds import equal_batches

    def batches() -> Iterator[int]:
        yield from range(2 + rank)
        if rank == 1:
            raise ValueError("wrong")
        yield from range(9)

    return len(list(equal_batches(batches())))


def test_an_error_of_one_rank_ends_the_others(tmp_path: Path) -> None:
    failed = in_ranks(_failing, tmp_path)
    assert "wrong" in failed[1]
    assert all("another rank has failed" in failed[rank] for rank in (0, 2))


def _repeating_nothing(rank: int) -> int:
    import torch

    from pypaimon.streaming.feeds import equal_batches

    # As in a job that makes its tensors on a GPU.
    torch.set_default_device("meta")
    return len(list(equal_batches([1] * rank, at_end="repeat")))


def test_a_rank_without_rows_is_named(tmp_path: Path) -> None:
    failed = in_ranks(_repeating_nothing, tmp_path, count=2)
    assert "rank 0 has no rows to repeat: use fewer ranks" in failed[0]


def test_equal_batches_needs_ranks() -> None:
    from pypaimon.streaming.feeds import equal_batches

    with pytest.raises(StreamConfigError, match=r"initialise it first"):
        equal_batches([])
    with pytest.raises(StreamConfigError, match="'drop' or 'repeat'"):
        equal_batches([], at_end="wait")  # type: ignore[arg-type]
