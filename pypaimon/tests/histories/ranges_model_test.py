"""Random histories: what a range holds, cut and gone on with anywhere, is what the model says; kinds lead from state to
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pypaimon.streaming import Plan, StreamReadBuilder, stream_read_builder
from pypaimon.streaming.model.position import Position
from support.models.table import ADDS, POSTPONED, DataFile, StreamModel, by_place, merged
from support.samples import SOAK, seeded, some
from support.tables.crafted_table import CraftedTable
from support.tables.crafted_writer import TABLES, CraftedWriter

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HISTORIES = 60 if SOAK else 1
RANGES = 6
ACTIONS = [*["append"] * 5, *["compact"] * 4, "overwrite", "nothing", "alter", "hurry"]
Rows = Counter[tuple[Any, ...]]


class History:
    """A table with a random history."""

    def __init__(self, warehouse: Path, kind: str, random: Random) -> None:
        chosen = TABLES[kind]
        buckets, producer = chosen["buckets"], chosen.get("producer", "none")
        postponed, keyed = chosen.get("postponed", False), chosen.get("keyed", False)
        options = {"bucket": "-2" if postponed else str(buckets or -1), **chosen.get("options", {})}
        if keyed:
            options["changelog-producer"] = producer
        self.random, self.keyed, self.producer = random, keyed, producer
        self.table = CraftedTable(
            warehouse, keyed=keyed, partitioned=random.random() < 0.5, buckets=buckets, options=options
        )
        writer = CraftedWriter(self.table, buckets=buckets, producer=producer, postponed=postponed)
        writer.act("append", random.randrange(1 << 16))
        for _ in range(random.randint(3, 10)):
            writer.act(random.choice(ACTIONS), random.randrange(1 << 16))

    def builder(self, start: int, end: int, mode: Any) -> StreamReadBuilder:
        """A range of a fresh handle, with kinds."""
        return stream_read_builder(self.table.handle()).with_range(start, end, mode).with_include_row_kind(True)

    # ---- what the model says ----

    def values(self, kind: str, record: Any) -> tuple[Any, ...]:
        return kind, *(column.value(record) for column in self.table.columns.columns)

    def state(self, number: int) -> Rows:
        """All that is committed at a snapshot, but what waits in bucket -2."""
        live = [file for file in self.table.commits[number].live if file.place[1] != POSTPONED]
        records = [record for file in live for record in file.records]
        if self.keyed:
            records = [record for files in by_place(live).values() for record in merged(files).values()]
        return Counter(self.values("", record)[1:] for record in records)

    def changes(self, start: int, end: int, mode: str) -> Rows:
        """The records of the snapshots of a range, as they were committed."""
        model = StreamModel(self.keyed, "none" if mode == "delta" else "input")
        commits = [self.table.commits[number] for number in range(start + 1, end + 1)]
        files: list[DataFile] = []
        for commit in commits:
            if model.is_read(commit, overwrites=False) and commit.kind != "OVERWRITE":
                files += commit.added if mode == "delta" else commit.changelog
        return Counter(
            self.values(record.kind if self.keyed else "+I", record)
            for file in files
            if file.place[1] != POSTPONED
            for record in file.records
        )


def read(builder: StreamReadBuilder, plans: Iterable[Plan]) -> list[tuple[Any, ...]]:
    return [row for rows in read_by_bucket(builder, plans).values() for row in rows]


def read_by_bucket(builder: StreamReadBuilder, plans: Iterable[Plan]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    reader = builder.new_read()
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for split in (split for plan in plans for split in plan.splits()):
        rows = [tuple(row.values()) for row in reader.to_arrow([split]).to_pylist()]
        found.setdefault((*split.partition.values, split.bucket), []).extend(rows)
    return found


def plans_of(builder: StreamReadBuilder) -> Iterator[Plan]:
    with builder.new_streaming_scan() as scan:
        yield from scan.stream_sync()


def restarted(builder: StreamReadBuilder) -> Iterator[Plan]:
    """All plans of a range, each of a scan of its own that goes on at the position of the one before."""
    position: Position | None = None
    while True:
        goes_on = builder.copy()
        if position is not None:
            goes_on.with_start(position=position.to_json())
        plan = next(plans_of(goes_on), None)
        if plan is None:
            return
        yield plan
        assert position is None or position < plan.position
        position = plan.position


@pytest.mark.parametrize("kind", some("kinds of tables with ranges", sorted(TABLES), 2))
def test_ranges_of_random_histories(kind: str, tmp_path: Path) -> None:
    random = seeded(f"ranges {kind}")
    for number in range(HISTORIES):
        history = History(tmp_path / str(number), kind, random)
        for _ in range(RANGES):
            start, end = sorted(random.sample(range(history.table.latest + 1), 2))
            check_changes(history, start, end, random.choice(["delta", "changelog"]))
            if start:
                check_difference(history, start, end)
            check_parts(history, start, end, "diff" if start else "auto")


def check_changes(history: History, start: int, end: int, mode: str) -> None:
    builder = history.builder(start, end, mode)
    assert Counter(read(builder, plans_of(builder))) == history.changes(start, end, mode), (start, end, mode)


def check_difference(history: History, start: int, end: int) -> None:
    """The kinds of a difference turn one state into the other; without them append tables give the files that came.

    What Java gives of other tables without kinds is told by the corpus.
    """
    builder = history.builder(start, end, "diff")
    rows = read(builder, plans_of(builder))
    gone, came = (Counter(row[1:] for row in rows if (row[0] in ADDS) is adds) for adds in (False, True))
    before, after = history.state(start), history.state(end)
    assert not gone - before, (start, end)
    assert before - gone + came == after, (start, end)
    if history.keyed:
        assert not gone & came, (start, end)
        return
    plain = history.builder(start, end, "diff").with_include_row_kind(False)
    added = set(history.table.commits[end].live) - set(history.table.commits[start].live)
    expected = Counter(history.values("", record)[1:] for file in added for record in file.records)
    assert Counter(read(plain, plans_of(plain))) == expected, (start, end)


def check_parts(history: History, start: int, end: int, mode: str) -> None:
    """Limits, restarts and shards change nothing of the rows, nor of their order in a bucket."""
    whole = history.builder(start, end, mode)
    rows = read_by_bucket(whole, plans_of(whole))
    cut = history.builder(start, end, mode).with_limits(max_splits=history.random.randint(1, 3))
    assert read_by_bucket(cut, restarted(cut)) == rows
    shards = [history.builder(start, end, mode).with_shard(index, 2) for index in range(2)]
    expected = Counter(row for each in rows.values() for row in each)
    assert Counter(row for each in shards for row in read(each, plans_of(each))) == expected
