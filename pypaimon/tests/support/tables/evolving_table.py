"""A table with data evolution, what pypaimon does to its rows by their ids, and what must be in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.handles import EVOLUTION, batch_read, read_with, write_by_stream
from support.tables.streamed_table import Table

FIELDS = {"id": pa.int64(), "a": pa.string(), "b": pa.int32()}


class EvolvingTable:
    """Attributes: `model`: the rows by their ids."""

    def __init__(self, warehouse: Path, *, fields: Mapping[str, pa.DataType] = FIELDS, **options: str) -> None:
        columns = pa.schema(list(fields.items()))
        given = {"deletion_vectors__enabled": "true", **options}
        self.at = Table(warehouse, "evolving", columns=columns, **EVOLUTION, **given)
        self.types = dict(fields)
        self.model: dict[int, dict[str, Any]] = {}
        self._next = 0

    @property
    def handle(self) -> Any:
        return self.at.handle()

    def append(self, *rows: Mapping[str, Any]) -> None:
        data = pa.Table.from_pylist([dict(row) for row in rows], pa.schema(list(self.types.items())))
        write_by_stream(self.handle, data)
        for row in data.to_pylist():
            self.model[self._next] = row
            self._next += 1

    def numbered(self, count: int) -> None:
        """Append rows that differ."""
        first = self._next
        self.append(*({"id": each, "a": f"a{each}", "b": each % 7} for each in range(first, first + count)))

    def update(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        """Set columns of rows, by row id: the same columns of each."""
        (names,) = {tuple(each) for each in values.values()}
        data = {name: pa.array([each[name] for each in values.values()], self.types[name]) for name in names}
        ids = pa.array(list(values), pa.int64())
        self._change(list(names), lambda update: update.update_by_arrow_with_row_id(pa.table({"_ROW_ID": ids, **data})))
        for row_id, each in values.items():
            self.model[row_id] |= each

    def delete(self, *row_ids: int) -> None:
        self._change(None, lambda update: update.delete_by_row_id(list(row_ids)))
        for row_id in row_ids:
            del self.model[row_id]

    def add_column(self, name: str, kind: str = "INT") -> None:
        self.at.catalog.alter_table(self.at.name, [SchemaChange.add_column(name, AtomicType(kind))], False)
        self.types[name] = {"INT": pa.int32(), "BLOB": pa.large_binary()}[kind]
        for row in self.model.values():
            row[name] = None

    def rename_column(self, old: str, new: str) -> None:
        self.at.catalog.alter_table(self.at.name, [SchemaChange.rename_column(old, new)], False)
        self.types = {new if name == old else name: kind for name, kind in self.types.items()}
        self.model = {
            row_id: {new if name == old else name: value for name, value in row.items()}
            for row_id, row in self.model.items()
        }

    def _change(self, names: list[str] | None, change: Any) -> None:
        builder = self.handle.new_batch_write_builder()
        update = builder.new_update()
        commit = builder.new_commit()
        commit.commit(change(update if names is None else update.with_update_type(names)))
        commit.close()

    def rows(self) -> dict[int, dict[str, Any]]:
        """What our reader gives, by row id."""
        builder = stream_read_builder(self.handle, view="row_tracking").with_end(latest=True)
        return self._by_id(read_with(builder))

    def pypaimons(self) -> dict[int, dict[str, Any]]:
        """What pypaimon's reader gives, by row id."""
        return self._by_id(batch_read(self.handle, [*self.types, "_ROW_ID"]))

    def _by_id(self, rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        found = {row["_ROW_ID"]: {name: row[name] for name in self.types} for row in rows}
        assert len(found) == len(rows)
        return found

    def renumber(self) -> None:
        """Rows have got other ids, in their order."""
        there = self.rows()
        gone = sorted(self.model.keys() - there.keys())
        new = dict(zip(sorted(there.keys() - self.model.keys()), gone, strict=True))
        self.model = {each: self.model[new.get(each, each)] for each in there}
        snapshot = TableDirectory.of(self.handle).snapshots.get_latest_snapshot()
        assert snapshot is not None and snapshot.next_row_id is not None
        self._next = snapshot.next_row_id

    def check(self) -> None:
        assert self.rows() == self.model
        assert self.pypaimons() == self.model
