"""`check_target` finds what is wrong with a target, passes those that are right, and says where it looked."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import DuckDBTarget, PaimonTarget, Position
from pypaimon.streaming.targets import is_to_apply, last_changes
from pypaimon.streaming.targets.changes import AnyBatch, inserts
from pypaimon.streaming.testing import SmallTable, check_target
from support.samples import sample_seed, some

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class Store:
    """What outlives a target: rows and a position, saved in one step, or in two by those that are wrong."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.columns: dict[int, str] = {}
        self.position: Position | None = None


class Right:
    """A target as it should be: what a plan comes to is saved with the position behind it."""

    def __init__(self, store: Store, keys: tuple[str, ...]) -> None:
        self.store, self.keys = store, keys
        self.rows: list[dict[str, Any]] = []
        self.columns: dict[int, str] = {}
        self.is_held = False

    def load_position(self) -> Position | None:
        return self.store.position

    def apply(self, batch: AnyBatch) -> None:
        if batch.is_first:
            self.is_held = not self.takes(batch)
            self.rows = self.begun()
        if self.is_held:
            return
        if batch.begins_state:
            self.rows = self.replaced()
        self.follow_columns(batch)
        if self.keys:
            sets, gone = last_changes(batch, self.keys)
            changed = {row["id"] for row in [*sets.to_pylist(), *self.removed(gone.to_pylist())]}
            self.rows = [row for row in self.rows if row["id"] not in changed] + self.set(sets.to_pylist())
        else:
            self.rows += self.set(inserts(batch).to_pylist())
        if batch.is_last or self.saves_each_batch:
            self.save(batch)

    saves_each_batch = False

    def set(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self.kept(row) for row in rows]

    def takes(self, batch: AnyBatch) -> bool:
        return is_to_apply(batch, self.store.position)

    def begun(self) -> list[dict[str, Any]]:
        self.columns = self.store.columns
        return list(self.store.rows)

    def replaced(self) -> list[dict[str, Any]]:
        return []

    def removed(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows

    def follow_columns(self, batch: AnyBatch) -> None:
        names = {int(field.id): field.name for field in batch.schema.fields}
        columns = self.columns or names
        renamed = {old: names[number] for number, old in columns.items() if number in names}
        self.rows = [{new: row.get(old) for old, new in renamed.items()} for row in self.rows]
        self.columns = names

    def kept(self, row: dict[str, Any]) -> dict[str, Any]:
        return row

    def save(self, batch: AnyBatch) -> None:
        # One statement, as a transaction is.
        self.store.__dict__.update(rows=self.rows, columns=self.columns, position=batch.plan_after)


class PositionFirst(Right):
    def save(self, batch: AnyBatch) -> None:
        self.store.position = batch.plan_after
        self.store.__dict__.update(rows=self.rows, columns=self.columns)


class RowsFirst(Right):
    def save(self, batch: AnyBatch) -> None:
        self.store.__dict__.update(rows=self.rows, columns=self.columns)
        self.store.position = batch.plan_after


class SavesEachBatch(Right):
    saves_each_batch = True


class TakesAll(Right):
    """It passes over nothing, and refuses nothing."""

    def takes(self, batch: AnyBatch) -> bool:
        return True


class TakesGaps(Right):
    """It passes over what it holds, and refuses nothing."""

    def takes(self, batch: AnyBatch) -> bool:
        held = self.store.position
        return held is None or batch.plan_after.table != held.table or batch.plan_after > held


class KeepsWhatWasLeft(Right):
    """What was applied of a plan that did not come to its end stays, if the program does."""

    def begun(self) -> list[dict[str, Any]]:
        return self.rows if self.rows else super().begun()


class NeverReplaces(Right):
    def replaced(self) -> list[dict[str, Any]]:
        return self.rows


class NeverDeletes(Right):
    def removed(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return []


class NeverRenames(Right):
    def follow_columns(self, batch: AnyBatch) -> None:
        self.columns = {}


class KeepsDropped(Right):
    def follow_columns(self, batch: AnyBatch) -> None:
        columns, before = self.columns, self.rows
        super().follow_columns(batch)
        dropped = [name for number, name in columns.items() if number not in self.columns]
        for row, was in zip(self.rows, before, strict=True):
            row.update((name, was.get(name)) for name in dropped if name not in row)


class ColumnsByName(Right):
    """A column that was dropped and added again goes on with the values that it had."""

    def follow_columns(self, batch: AnyBatch) -> None:
        names = {field.name for field in batch.schema.fields}
        self.rows = [{name: value for name, value in row.items() if name in names} for row in self.rows]
        self.columns = {}


class Values(Right):
    """It changes values on their way."""

    def value(self, value: Any) -> Any:
        return value

    def kept(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: value if name == "id" else self.value(value) for name, value in row.items()}


class FloatAmounts(Values):
    def value(self, value: Any) -> Any:
        return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value


class RoundedAmounts(Values):
    def value(self, value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value


class NaNIsNull(Values):
    def value(self, value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value


class InfiniteIsNull(Values):
    def value(self, value: Any) -> Any:
        return None if isinstance(value, float) and math.isinf(value) else value


class WrappedNumbers(Values):
    """Its column keeps the type that it had."""

    def value(self, value: Any) -> Any:
        return (value + 2**31) % 2**32 - 2**31 if isinstance(value, int) else value


class TrimmedTexts(Values):
    def value(self, value: Any) -> Any:
        return value.rstrip(" ") if isinstance(value, str) else value


class CutTexts(Values):
    def value(self, value: Any) -> Any:
        return value[:255] if isinstance(value, str) else value


class LatinTexts(Values):
    def value(self, value: Any) -> Any:
        return value.encode("latin-1", "replace").decode("latin-1") if isinstance(value, str) else value


class LowerTexts(Values):
    def value(self, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class EmptyIsNull(Values):
    def value(self, value: Any) -> Any:
        return None if value == "" else value


class NullIsEmpty(Values):
    def value(self, value: Any) -> Any:
        return "" if value is None else value


class NullIsZero(Values):
    def value(self, value: Any) -> Any:
        return 0 if value is None else value


class DoubleIds(Right):
    def kept(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "id": int(float(row["id"]))}


class MergesEqualRows(Right):
    def save(self, batch: AnyBatch) -> None:
        self.rows = [row for number, row in enumerate(self.rows) if repr(row) not in map(repr, self.rows[:number])]
        super().save(batch)


class SkipsRowsWithNulls(Right):
    def set(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if None not in row.values()]


class KeepsFirstChange(Right):
    """Of several changes of a key it takes the first one."""

    def apply(self, batch: AnyBatch) -> None:
        seen: set[int] = set()
        self.first: dict[int, dict[str, Any]] = {}
        for row, kind in zip(batch.rows.to_pylist(), batch.kinds.to_pylist(), strict=True):
            if row["id"] not in seen and kind in ("+I", "+U"):
                self.first[row["id"]] = row
                seen.add(row["id"])
        super().apply(batch)

    def kept(self, row: dict[str, Any]) -> dict[str, Any]:
        return self.first.get(row["id"], row)


class NeverUpdates(Right):
    def set(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        there = {row["id"] for row in self.store.rows}
        return [row for row in rows if row["id"] not in there]


class LastBatchOnly(Right):
    """Of a plan of several batches it keeps the last one."""

    def apply(self, batch: AnyBatch) -> None:
        if not batch.is_first and not self.is_held:
            self.rows = self.begun() if self.keys else list(self.store.rows)
        super().apply(batch)


def told(apply: Callable[[Any, AnyBatch], None]) -> Callable[[Any, AnyBatch], None]:
    """As programs wrap calls, to measure them."""

    @functools.wraps(apply)
    def wrapper(target: Any, batch: AnyBatch) -> None:
        apply(target, batch)

    return wrapper


class WrappedRowsFirst(RowsFirst):
    apply = told(RowsFirst.apply)


class PartialRowsFirst(RowsFirst):
    """Its `apply` has no code of its own, and names nothing that it wraps."""

    def __init__(self, store: Store, keys: tuple[str, ...]) -> None:
        super().__init__(store, keys)
        self.apply = functools.partial(RowsFirst.apply, self)  # type: ignore[method-assign]


class BeginsAnew(Right):
    """It has forgotten where it stands when it is opened again."""

    def __init__(self, store: Store, keys: tuple[str, ...]) -> None:
        super().__init__(store, keys)
        store.position = None


KEYED, APPENDED = ("id",), ()


def check(kind: type[Right], keys: tuple[str, ...], seed: int) -> None:
    stores: dict[str, Store] = {}
    check_target(
        lambda name: kind(stores.setdefault(name, Store()), keys),
        lambda name: stores[name].rows,
        keys=keys,
        histories=1,
        seed=seed,
    )


@pytest.mark.usefixtures("few_kills")
@pytest.mark.parametrize("keys", [KEYED, APPENDED], ids=["keys", "no keys"])
def test_a_target_that_is_right_passes(keys: tuple[str, ...]) -> None:
    check(Right, keys, sample_seed())


WRONG = [
    (PositionFirst, KEYED, "killed at line"),
    (RowsFirst, KEYED, "killed at line"),
    (SavesEachBatch, KEYED, "found"),
    (TakesAll, APPENDED, "found"),
    (TakesGaps, KEYED, "expected an error; found none"),
    (KeepsWhatWasLeft, APPENDED, "rows at position"),
    (NeverReplaces, KEYED, "rows at position"),
    (NeverDeletes, KEYED, "rows at position"),
    (NeverRenames, KEYED, "column .* was "),
    (BeginsAnew, KEYED, "found"),
    (KeepsDropped, KEYED, "was dropped"),
    (ColumnsByName, KEYED, "expected"),
    (FloatAmounts, KEYED, "rows at position"),
    (RoundedAmounts, APPENDED, "rows at position"),
    (NaNIsNull, KEYED, "rows at position"),
    (InfiniteIsNull, KEYED, "rows at position"),
    (WrappedNumbers, KEYED, "widened from INT"),
    (TrimmedTexts, KEYED, "rows at position"),
    (CutTexts, APPENDED, "rows at position"),
    (LatinTexts, KEYED, "rows at position"),
    (LowerTexts, KEYED, "rows at position"),
    (EmptyIsNull, KEYED, "rows at position"),
    (NullIsEmpty, KEYED, "rows at position"),
    (NullIsZero, APPENDED, "rows at position"),
    (DoubleIds, KEYED, "rows at position"),
    (DoubleIds, APPENDED, "rows at position"),
    (MergesEqualRows, APPENDED, "rows at position"),
    (SkipsRowsWithNulls, KEYED, "rows at position"),
    (KeepsFirstChange, KEYED, "rows at position"),
    (NeverUpdates, KEYED, "rows at position"),
    (LastBatchOnly, KEYED, "rows at position"),
    (WrappedRowsFirst, KEYED, "killed at line"),
    (PartialRowsFirst, KEYED, "killed at line"),
]


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    some("wrong targets", WRONG, 5),
    ids=lambda each: each.__name__ if isinstance(each, type) else None,
)
def test_a_target_that_is_wrong_is_found(kind: type[Right], keys: tuple[str, ...], message: str) -> None:
    """With any seed; which one it was, and after which steps, is told."""
    seed = sample_seed()
    with pytest.raises(AssertionError, match=f"(?s){message}") as caught:
        check(kind, keys, seed)
    assert f"(seed={seed})" in str(caught.value)


def opened(warehouse: str, keys: tuple[str, ...]) -> SmallTable:
    """The table of a warehouse, which is made if it is not there."""
    if not Path(warehouse, "db.db", "small").exists():
        return SmallTable(warehouse, keys)
    table = object.__new__(SmallTable)
    table.__dict__.update(catalog=CatalogFactory.create({"warehouse": warehouse}), name="db.small")
    return table


def rows_of_duckdb(file: Path) -> list[dict[str, Any]]:
    with duckdb.connect(str(file)) as database:
        try:
            return database.sql("SELECT * FROM copy").to_arrow_table().to_pylist()
        except duckdb.CatalogException:
            return []


@pytest.mark.parametrize("keys", some("check_target DuckDB", [KEYED, APPENDED], 1))
@pytest.mark.usefixtures("few_kills")
def test_a_table_of_duckdb_is_right(tmp_path: Path, keys: tuple[str, ...]) -> None:
    check_target(
        lambda name: DuckDBTarget(duckdb.connect(str(tmp_path / name)), "copy", keys),
        lambda name: rows_of_duckdb(tmp_path / name),
        keys=keys,
        histories=1,
        seed=sample_seed(),
    )


@pytest.mark.parametrize("keys", some("check_target Paimon", [KEYED, APPENDED], 1))
@pytest.mark.usefixtures("few_kills")
def test_a_table_of_paimon_is_right(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """Its columns stay as they are, so those of its source do."""
    check_target(
        lambda name: PaimonTarget(opened(str(tmp_path / name), keys).table),
        lambda name: opened(str(tmp_path / name), keys).rows(),
        keys=keys,
        schema_changes=False,
        histories=1,
        seed=sample_seed(),
    )


@pytest.mark.parametrize("keys", ["key", ["key"], ("key", "j")])
def test_a_text_is_one_key_column_of_a_small_table(tmp_path: Path, keys: Any) -> None:
    columns = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("key", "j")])
    assert SmallTable(tmp_path, keys, columns).table.primary_keys == (["key"] if keys == "key" else [*keys])
