"""`TableChanges`: random changes of a small table, and the rows that it holds after them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming.testing.small_table import Change, SmallTable

Rows = list[dict[str, Any]]
_IDS = 12


class TableChanges:
    """Changes a table at random, and knows what it holds: not by reading it.

    Args:
        table: Of the columns that `SmallTable` has by default, empty.
        keyed: Whether `id` is its key; else rows are only added.
        random: What draws the changes.
    """

    def __init__(self, table: SmallTable, keyed: bool, random: Random) -> None:
        self.table = table
        self._keyed = keyed
        self._random = random
        self._rows: Rows = []
        self._columns = ["id", "name", "number", "amount"]
        self._greatest = 2**31 - 1
        self._count = 0
        self._lasting = 0
        self._kinds = random.sample(["add", "rename", "widen"], 3)

    def rows(self) -> Rows:
        """What the table holds now."""
        return deepcopy(self._rows)

    def commit(self) -> None:
        """One to six changes; of one key perhaps several."""
        changes: list[Change] = []
        for _ in range(self._random.randint(1, 6)):
            changes += self._change(self._random.randrange(_IDS))
        self.table.commit(*changes)

    def commit_lasting(self) -> None:
        """One row, with a value in each column, which no later change of rows touches."""
        self._lasting += 1
        row = self._row(_IDS + self._lasting, has_nulls=False)
        self._rows.append(row)
        self.table.commit(row)

    def empty(self) -> None:
        """Delete all rows; only where there are keys."""
        self.table.commit(*(("-D", row) for row in self._rows), ("+I", self._row(_IDS)), ("-D", self._row(_IDS)))
        self._rows.clear()

    def alter(self) -> str:
        """Add, rename or widen a column, each in its turn; says which."""
        self._count += 1
        kind = self._kinds[self._count % len(self._kinds)]
        if kind == "add" or (kind == "widen" and self._greatest == 2**40):
            name = f"added_{self._count}"
            self.table.alter(SchemaChange.add_column(name, AtomicType("STRING")))
            self._columns.append(name)
            self._set_all(lambda row: {**row, name: None})
            return f"column {name} was added"
        if kind == "rename":
            old, new = self._random.choice(self._columns[1:4:2]), f"renamed_{self._count}"
            self.table.alter(SchemaChange.rename_column(old, new))
            self._columns[self._columns.index(old)] = new
            self._set_all(lambda row: {new if key == old else key: value for key, value in row.items()})
            return f"column {old} was renamed to {new}"
        self.table.alter(SchemaChange.update_column_type("number", AtomicType("BIGINT")))
        self._greatest = 2**40
        return "column number was widened from INT to BIGINT"

    def make_anew(self) -> None:
        """Drop the table and make another one, empty."""
        self.table.make_anew()
        self._rows.clear()
        self._columns = ["id", "name", "number", "amount"]
        self._greatest = 2**31 - 1

    def _set_all(self, change: Any) -> None:
        self._rows = [change(row) for row in self._rows]

    def _change(self, number: int) -> Sequence[Change]:
        before = next((row for row in self._rows if row["id"] == number), None) if self._keyed else None
        if before is None:
            self._rows.append(row := self._row(number))
            return [("+I", row)]
        self._rows.remove(before)
        if self._random.random() < 0.4:
            return [("-D", before)]
        self._rows.append(row := self._row(number))
        return [("-U", before), ("+U", row)]

    def _row(self, number: int, has_nulls: bool = True) -> dict[str, Any]:
        row: dict[str, Any] = {"id": number}
        for name in self._columns[1:]:
            if has_nulls and self._random.random() < 0.2:
                row[name] = None
            elif name == "number":
                row[name] = self._random.randint(-self._greatest, self._greatest)
            elif name == self._columns[3]:
                row[name] = self._random.randint(-(10**6), 10**6) / 64
            else:
                row[name] = self._random.choice(["", "it's", 'a "b"', "null", "ä\n", "x" * 30]) + str(number)
        return row
