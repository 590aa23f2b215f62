"""Tables of every kind with random histories, for tests of followers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from pypaimon.streaming import StreamReadBuilder, compact, stream_write_builder
from support.tables.handles import EVOLUTION, batch_read
from support.tables.streamed_table import Table

IDS = 12
_PARTITIONS = ("a", "b", "c")


@dataclass(frozen=True)
class TableKind:
    """What a table is made of.

    Attributes:
        is_compacted: Whether batch reads and streams say the same only after a compaction.
        deletes: Whether it takes rows of the kind -D.
    """

    keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    is_compacted: bool = False
    deletes: bool = True

    @property
    def evolves(self) -> bool:
        """Whether columns of rows that exist are written by themselves."""
        return "data-evolution.enabled" in self.options


def _keyed(producer: str, *, partitions: tuple[str, ...] = (), deletes: bool = True, **options: str) -> TableKind:
    given = {"bucket": "2", "changelog-producer": producer, "num-sorted-run.stop-trigger": "99", **options}
    is_compacted = producer in ("lookup", "full-compaction") or "deletion-vectors.enabled" in options
    return TableKind((*partitions, "id"), partitions, given, is_compacted, deletes)


KINDS = {
    "append": TableKind(),
    "append, buckets": TableKind(options={"bucket": "2", "bucket-key": "id"}),
    "append, partitions": TableKind(partitions=("p",)),
    "data evolution": TableKind(options={**EVOLUTION, "deletion-vectors.enabled": "true"}),
    "none": _keyed("none"),
    "input": _keyed("input"),
    "lookup": _keyed("lookup"),
    "full compaction": _keyed("full-compaction"),
    "none, partitions": _keyed("none", partitions=("p",)),
    "lookup, partitions": _keyed("lookup", partitions=("p",)),
    "dynamic buckets": _keyed("none", bucket="-1", **{"dynamic-bucket.target-row-num": "5"}),
    "deletion vectors": _keyed("none", **{"deletion-vectors.enabled": "true"}),
    "partial update": _keyed("lookup", deletes=False, **{"merge-engine": "partial-update"}),
    "aggregation": _keyed(
        "lookup", deletes=False, **{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    ),
    "first row": _keyed("lookup", deletes=False, **{"merge-engine": "first-row"}),
}
"""Tables that can be followed."""

REFUSED = {
    f"{option} {value}, {producer}": (_keyed(producer, deletes=False, **{option: value}), word)
    for producer in ("none", "input")
    for option, value, word in (
        ("sequence.field", "n", "sequence.field"),
        ("merge-engine", "partial-update", "partial-update"),
        ("merge-engine", "aggregation", "aggregation"),
        ("merge-engine", "first-row", "first-row"),
    )
    if (value, producer) != ("first-row", "input")
} | {
    "rows expire": (
        _keyed("lookup", **{"record-level.expire-time": "1 d", "record-level.time-field": "n"}),
        "record-level.expire-time",
    )
}
"""Tables that are refused, and what the error names."""


class FollowedTable:
    """A table of one kind, and what changes it."""

    def __init__(self, warehouse: Path, kind: TableKind, random: Random) -> None:
        self.kind = kind
        self._random = random
        self._next = 0
        columns = [pa.field(name, type_, nullable=name not in kind.keys) for name, type_ in _COLUMNS.items()]
        self.table = Table(
            warehouse,
            "followed",
            columns=pa.schema(columns),
            primary_keys=kind.keys,
            partition_keys=kind.partitions,
            **kind.options,
        )

    def builder(self) -> StreamReadBuilder:
        """A stream that ends at the latest snapshot."""
        return self.table.builder().with_end(latest=True)

    def rows(self) -> list[dict[str, Any]]:
        """What a batch read gives: pypaimon's, where it reads tables of the kind."""
        if self.kind.options.get("merge-engine"):
            with self.table.state_builder().open_sync() as stream:
                return [row for batch in stream for row in batch.rows.to_pylist()]
        return batch_read(self.table.handle())

    @property
    def latest(self) -> int:
        return max(self.table.ids(), default=0)

    def change(self) -> str:
        """Change it in some way, and say how."""
        steps = ["write", "write", "write", "overwrite", "truncate", "compact", "overwrite with nothing new"]
        if self.kind.partitions:
            steps += ["overwrite a partition"] * 2
        if self.kind.evolves:
            steps = ["write", "write", "update columns", "delete rows", "overwrite", "compact"]
        step = self._random.choice(steps)
        getattr(self, step if step == "write" else f"_{step.replace(' ', '_')}")()
        if self.kind.is_compacted:
            self._compact()
        return step

    # ---- changes ----

    def write(self) -> None:
        self._commit(stream_write_builder(self.table.handle()), self._changes())

    def _overwrite(self) -> None:
        self._commit(stream_write_builder(self.table.handle()).with_overwrite(), self._rows(self._random.randint(1, 5)))

    def _overwrite_with_nothing_new(self) -> None:
        """The rows that are there, in other files, and some more."""
        kept = pa.Table.from_pylist(self.rows(), schema=self.table.columns)
        rows = pa.concat_tables([kept, self._rows(1)]) if not self.kind.keys else self._rows(3)
        self._commit(stream_write_builder(self.table.handle()).with_overwrite(), rows)

    def _overwrite_a_partition(self) -> None:
        chosen = self._random.choice(_PARTITIONS)
        rows = self._rows(self._random.randint(0, 3)).to_pylist()
        builder = stream_write_builder(self.table.handle()).with_overwrite({"p": chosen})
        given = pa.Table.from_pylist([{**row, "p": chosen} for row in rows], schema=self.table.columns)
        self._commit(builder, given)

    def _truncate(self) -> None:
        commit = self.table.handle().new_batch_write_builder().new_commit()
        commit.truncate_table()
        commit.close()

    def _compact(self) -> None:
        compact(self.table.handle(), full=True)

    def _update_columns(self) -> None:
        self._update(lambda update, ids: update.update_by_arrow_with_row_id(self._new_values(ids)), ["v"])

    def _delete_rows(self) -> None:
        self._update(lambda update, ids: update.delete_by_row_id(ids), None)

    def _update(self, change: Any, columns: list[str] | None) -> None:
        handle = self.table.handle()
        ids = [row["_ROW_ID"] for row in batch_read(handle, ["id", "_ROW_ID"])]
        chosen = self._random.sample(ids, min(len(ids), 2))
        if not chosen:
            return
        builder = handle.new_batch_write_builder()
        update = builder.new_update()
        if columns is not None:
            update = update.with_update_type(columns)
        commit = builder.new_commit()
        commit.commit(change(update, chosen))
        commit.close()

    def _new_values(self, ids: list[int]) -> pa.Table:
        return pa.table({"_ROW_ID": pa.array(ids, pa.int64()), "v": [f"new{self._drawn_id()}" for _ in ids]})

    # ---- rows ----

    def _commit(self, builder: Any, rows: pa.Table) -> None:
        with builder.open_sync() as writer:
            if rows.num_rows:
                writer.write(rows)
            writer.commit()

    def _rows(self, count: int) -> pa.Table:
        rows = {}
        for _ in range(count):
            row = self._row()
            rows[row["p"], row["id"]] = row
        return pa.Table.from_pylist(list(rows.values()), schema=self.table.columns)

    def _changes(self) -> pa.Table:
        rows = self._rows(self._random.randint(1, 6))
        if not self.kind.keys or not self.kind.deletes:
            return rows
        kinds = self._random.choices(["+I", "+I", "-D"], k=len(rows))
        return rows.append_column("_row_kind", pa.array(kinds))

    def _row(self) -> dict[str, Any]:
        number = self._drawn_id()
        values = {"v": self._random.choice(["x", "y", None]), "n": self._random.randint(0, 99)}
        return {"id": number, "p": self._random.choice(_PARTITIONS), **values}

    def _drawn_id(self) -> int:
        """Of append tables each row has another one."""
        if self.kind.keys:
            return self._random.randrange(IDS)
        self._next += 1
        return self._next


_COLUMNS = {"id": pa.int64(), "p": pa.string(), "v": pa.string(), "n": pa.int32()}
