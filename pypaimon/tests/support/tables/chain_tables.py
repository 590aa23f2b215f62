"""Chain tables that pypaimon writes branch by branch, and the rows of their first plan."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import Plan, StreamReadBuilder, StreamTableRead, stream_read_builder
from pypaimon.streaming.stream_types import PlanKind
from support.tables.handles import option_names
from support.tables.streamed_table import Table, available, expire

SNAPSHOT, DELTA = "snap", "Delta"
MERGED = {"chain_table__streaming__merge_snapshot": "true"}
_COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("day", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("seq", pa.int64()),
        ("v", pa.string()),
        ("kind", pa.string()),
    ]
)

Change = tuple[str, str, int, int, int]
"""Row kind, region, day, key, sequence; the value of a row is `v<sequence>`."""
Row = tuple[str, str, int, int, str]
"""Row kind, region, day, key, value."""


class ChainTable:
    """A `Table` `db.t` of (region, day, k, seq, v) with two branches, and the changes that were written to each.

    Each region is a chain of days, unless options say otherwise.

    Attributes:
        written: Every change of each branch, in the order of the commits.
    """

    def __init__(self, warehouse: Path, **options: str) -> None:
        chain = {
            "bucket": "2",
            "bucket-key": "k",
            "sequence.field": "seq",
            "rowkind.field": "kind",
            "metadata.stats-mode": "full",
            "chain-table.enabled": "true",
            "chain-table.chain-partition-keys": "day",
            "scan.fallback-snapshot-branch": SNAPSHOT,
            "scan.fallback-delta-branch": DELTA,
        }
        self._table = Table(
            warehouse,
            columns=_COLUMNS,
            primary_keys=["region", "day", "k"],
            partition_keys=["region", "day"],
            **(chain | option_names(options)),
        )
        self.path = self._table.path
        self.written: dict[str, list[Change]] = {SNAPSHOT: [], DELTA: []}
        for branch in self.written:
            shutil.copytree(self.path / "schema", self.branch_path(branch) / "schema")

    def branch_path(self, branch: str) -> Path:
        return self.path / "branch" / f"branch-{branch}"

    def branch(self, branch: str) -> Any:
        return self._table.catalog.get_table(f"{self._table.name}$branch_{branch}")

    def handle(self, **options: str) -> Any:
        return self._table.handle(**options)

    def builder(self, **options: str) -> StreamReadBuilder:
        return stream_read_builder(self.handle(**options))

    def commit(self, branch: str, changes: Iterable[Change]) -> None:
        self.write(branch, changes, {"v": "v"})

    def write(self, branch: str, changes: Iterable[Change], names: dict[str, str]) -> None:
        """Commit changes to a branch with other columns: `names` has the name of `v` there, and perhaps `extra`."""
        rows = list(changes)
        kinds, regions, days, keys, sequences = map(list, zip(*rows, strict=True))
        columns = [regions, days, keys, sequences, [f"v{each}" for each in sequences], kinds]
        data = pa.table(columns, schema=_COLUMNS)
        data = data.rename_columns([names["v"] if name == "v" else name for name in data.column_names])
        if "extra" in names:
            data = data.append_column("extra", pa.array(sequences, pa.int32()))
        self._table.write(data, table=self.branch(branch))
        self.written[branch] += rows

    def alter(self, branch: str, *changes: SchemaChange) -> None:
        self._table.catalog.alter_table(f"{self._table.name}$branch_{branch}", list(changes), False)

    def latest(self, branch: str) -> dict[str, Any]:
        directory = self.branch_path(branch) / "snapshot"
        newest = max(directory.glob("snapshot-*"), key=lambda path: int(path.name.removeprefix("snapshot-")))
        found: dict[str, Any] = json.loads(newest.read_text())
        return found

    def expire(self, branch: str, keep_from: int) -> None:
        """Remove the snapshots of a branch before one, with their manifest lists."""
        expire(self.branch_path(branch), keep_from, self.path / "manifest")

    def first_plan(self, *, merged: bool = False, one_chain: bool = False) -> list[Row]:
        """The rows that the first plan must hold, sorted."""
        parts = {branch: _by_partition(changes) for branch, changes in self.written.items()}

        def chain(partition: tuple[str, int]) -> str:
            return "" if one_chain else partition[0]

        def place(partition: tuple[str, int]) -> tuple[str, int]:
            return partition if one_chain else ("", partition[1])

        newest: dict[str, tuple[str, int]] = {}
        for partition in sorted(parts[SNAPSHOT], key=place):
            newest[chain(partition)] = partition
        chosen = {partition: parts[SNAPSHOT][partition] for partition in newest.values()}
        for partition, changes in parts[DELTA].items():
            base = newest.get(chain(partition))
            if base is None or place(partition) > place(base):
                chosen[partition] = changes
        if merged:
            together: dict[str, list[tuple[str, int]]] = {}
            for partition in sorted(chosen, key=place):
                together.setdefault(chain(partition), []).append(partition)
            chosen = {
                members[-1]: [change for each in members for change in chosen[each]] for members in together.values()
            }
        rows = [(partition, row) for partition, changes in chosen.items() for row in _state(changes)]
        return sorted((kind, *partition, key, value) for partition, (kind, key, value) in rows)


def _by_partition(changes: Iterable[Change]) -> dict[tuple[str, int], list[Change]]:
    found: dict[tuple[str, int], list[Change]] = {}
    for change in changes:
        found.setdefault((change[1], change[2]), []).append(change)
    return found


def _state(changes: list[Change]) -> list[tuple[str, int, str]]:
    newest: dict[int, Change] = {}
    for change in changes:
        if change[3] not in newest or change[4] >= newest[change[3]][4]:
            newest[change[3]] = change
    return [(each[0], key, f"v{each[4]}") for key, each in newest.items() if each[0] in ("+I", "+U")]


def rows(read: StreamTableRead, plan: Plan) -> list[Row]:
    table = read.to_arrow(plan.splits())
    return sorted(zip(*(table[name].to_pylist() for name in ("_row_kind", "region", "day", "k", "v")), strict=True))


def next_plan(builder: StreamReadBuilder) -> Plan | None:
    """The first plan that a stream finds; None: nothing is there yet."""
    with builder.new_streaming_scan() as scan:
        return scan.plan()


def read_all(builder: StreamReadBuilder) -> list[tuple[PlanKind, list[Row]]]:
    """Every plan there is, with its rows; splits go through a pickle."""
    with builder.new_streaming_scan() as scan:
        read = builder.new_read()
        return [(plan.kind, rows(read, _pickled(plan))) for plan in available(scan)]


def _pickled(plan: Plan) -> Any:
    class Copy:
        @staticmethod
        def splits() -> Any:
            return pickle.loads(pickle.dumps(plan.splits()))

    return Copy


def in_parts(builder: StreamReadBuilder) -> tuple[list[Row], list[Row]]:
    """The first plan, and what follows, where each unit is a plan and each plan is read by another stream."""
    first, later = [], []
    position: str | None = None
    while True:
        here = builder.copy().with_limits(max_splits=1)
        if position is not None:
            here.with_start(position=position)
        with here.new_streaming_scan() as scan:
            plan = scan.plan()
            if plan is None:
                return sorted(first), later
            (first if plan.kind is PlanKind.FULL else later).extend(rows(here.new_read(), plan))
            position = plan.position.to_json()


def two_regions(warehouse: Path) -> ChainTable:
    """Two regions: whole days 9 and 10 of one, none of the other; changes before and after."""
    table = ChainTable(warehouse)
    table.commit(SNAPSHOT, [("+I", "eu", 9, key, 1) for key in range(4)])
    table.commit(SNAPSHOT, [("+I", "eu", 10, key, 2) for key in range(4)])
    table.commit(DELTA, [("+I", "eu", 10, 7, 3), ("+I", "eu", 9, 8, 3), ("+I", "us", 3, 1, 3)])
    table.commit(DELTA, [("+U", "eu", 11, 1, 4), ("-D", "eu", 11, 2, 4), ("+I", "us", 12, 5, 4)])
    table.commit(DELTA, [("-D", "eu", 100, 3, 5), ("+I", "eu", 100, 6, 5), ("-D", "us", 12, 1, 5)])
    return table
