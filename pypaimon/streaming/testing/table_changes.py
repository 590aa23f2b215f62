"""`TableChanges`: random changes of a small table, the rows that it should hold, and the difference from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from pypaimon.streaming.paimon.internals import AtomicType
from pypaimon.streaming.paimon.write_internals import SchemaChange
from pypaimon.streaming.testing.small_table import Change, SmallTable

Rows = list[dict[str, Any]]
_IDS = 12
_FIRST_ID = 2**60 + 1
"""Ids above 2**53 are too close together for a double."""
_LONG = 300
_TEXTS = ["", "it's", 'a "b"', "null", "\u00e4\n", "x" * 30, " both ", "Caf\u00e9 \U0001f600"]


class TableChanges:
    """Changes a table at random, and computes its rows without reading it.

    Args:
        table: An empty table with the default columns of `SmallTable`.
    """

    def __init__(
        self, table: SmallTable, keyed: bool, random: Random, nans: bool = True, infinities: bool = True
    ) -> None:
        self.table = table
        self._keyed = keyed
        self._random = random
        self._nans, self._infinities = nans, infinities
        self._rows: Rows = []
        self._kinds = random.sample(["add", "rename", "widen", "drop", "replace"], 5)
        self._count = 0
        self._lasting = 0
        self._begin()

    def _begin(self) -> None:
        self._texts = ["name"]
        self._number, self._amount = "number", "amount"
        self._greatest = 2**31 - 1

    @property
    def alterations(self) -> int:
        return len(self._kinds)

    def rows(self) -> Rows:
        return deepcopy(self._rows)

    def commit(self) -> None:
        """Commit changes of some keys, several of one key; without keys new rows, one of them twice."""
        changes: list[Change] = []
        for _ in range(self._random.randint(1, 5)):
            changes += self._change(self._random.randrange(_IDS))
        number = self._random.randrange(_IDS)
        for _ in range(2):
            changes += self._set(number) if self._keyed else self._repeat()
        self.table.commit(*changes)

    def commit_lasting(self) -> None:
        row = self._new_row(has_nulls=False)
        self._rows.append(row)
        self.table.commit(row)

    def commit_awkward(self) -> None:
        """Commit rows that no later commit changes, with values that are easily lost."""
        nothing = dict.fromkeys([*self._texts, self._number, self._amount])
        long = f"  {'Long' * (_LONG // 4)} "
        infinite = [float("inf")] if self._infinities else []
        amounts = [0.1, *infinite, *([float("nan")] if self._nans else [])]
        given: Rows = [
            nothing,
            {**nothing, self._texts[0]: long, self._number: -(2**31)},
            {**nothing, self._texts[0]: "", self._number: 0},
            *({**nothing, self._texts[0]: "a", self._amount: amount} for amount in amounts),
        ]
        rows = [{**self._new_row(has_nulls=False), **each} for each in given]
        if not self._keyed:
            rows.append(dict(rows[-1]))
        self._rows += rows
        self.table.commit(*rows)

    def empty(self) -> None:
        self.table.commit(*(("-D", row) for row in self._rows), ("+I", self._row(_IDS)), ("-D", self._row(_IDS)))
        self._rows.clear()

    def alter(self) -> str:
        kind = self._kinds[self._count % len(self._kinds)]
        self._count += 1
        if kind == "widen" and self._greatest < 2**40:
            self.table.alter(SchemaChange.update_column_type(self._number, AtomicType("BIGINT")))
            self._greatest = 2**40
            return f"column {self._number} was widened from INT to BIGINT"
        if kind == "rename":
            return self._rename(self._random.choice([self._texts[0], self._amount]))
        if kind == "drop" and len(self._texts) > 1:
            return self._drop(self._random.choice(self._texts))
        if kind in ("drop", "replace"):
            name = self._texts[0]
            self._drop(name)
            self._add(name)
            return f"column {name} was dropped, and another one of its name was added"
        return self._add(f"added_{self._count}")

    def _rename(self, old: str) -> str:
        new = f"renamed_{self._count}"
        self.table.alter(SchemaChange.rename_column(old, new))
        if old == self._amount:
            self._amount = new
        else:
            self._texts[self._texts.index(old)] = new
        self._rows = [{new if key == old else key: value for key, value in row.items()} for row in self._rows]
        return f"column {old} was renamed to {new}"

    def _drop(self, name: str) -> str:
        self.table.alter(SchemaChange.drop_column(name))
        self._texts.remove(name)
        self._rows = [{key: value for key, value in row.items() if key != name} for row in self._rows]
        return f"column {name} was dropped"

    def _add(self, name: str) -> str:
        self.table.alter(SchemaChange.add_column(name, AtomicType("STRING")))
        self._texts.append(name)
        self._rows = [{**row, name: None} for row in self._rows]
        return f"column {name} was added"

    def make_anew(self) -> None:
        self.table.make_anew()
        self._rows.clear()
        self._begin()

    def _change(self, number: int) -> Sequence[Change]:
        before = self._found(number) if self._keyed else None
        if before is not None and self._random.random() < 0.4:
            self._rows.remove(before)
            return [("-D", before)]
        return self._set(number)

    def _set(self, number: int) -> Sequence[Change]:
        before = self._found(number) if self._keyed else None
        if before is not None:
            self._rows.remove(before)
        self._rows.append(row := self._row(number))
        return [("+I", row)] if before is None else [("-U", before), ("+U", row)]

    def _repeat(self) -> Sequence[Change]:
        self._rows.append(row := dict(self._random.choice(self._rows)))
        return [("+I", row)]

    def _found(self, number: int) -> dict[str, Any] | None:
        return next((row for row in self._rows if row["id"] == _FIRST_ID + number), None)

    def _new_row(self, has_nulls: bool) -> dict[str, Any]:
        self._lasting += 1
        return self._row(_IDS + self._lasting, has_nulls)

    def _row(self, number: int, has_nulls: bool = True) -> dict[str, Any]:
        random = self._random
        row: dict[str, Any] = {name: f"{random.choice(_TEXTS)}{number}" for name in self._texts}
        row[self._number] = random.randint(-self._greatest, self._greatest)
        row[self._amount] = random.uniform(-(10**6), 10**6)
        nulls = [name for name in row if has_nulls and random.random() < 0.2]
        return {"id": _FIRST_ID + number, **row, **dict.fromkeys(nulls)}


def difference(expected: Rows, found: Rows) -> tuple[Rows, Rows]:
    """The missing rows, and the surplus rows."""
    extra = [_comparable(row) for row in found]
    missing = []
    for wanted in map(_comparable, expected):
        if wanted in extra:
            extra.remove(wanted)
        else:
            missing.append(wanted)
    return missing, extra


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that are not null. NaN is replaced by its name, because it is not equal to itself."""
    values = {name: value for name, value in row.items() if value is not None}
    return {name: "NaN" if isinstance(value, float) and value != value else value for name, value in values.items()}


def shown(rows: Rows) -> str:
    if not rows:
        return "none that is missing there"
    return ", ".join(map(str, rows[:3])) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
