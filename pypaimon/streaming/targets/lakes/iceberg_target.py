"""`IcebergTarget`: a table of Iceberg that follows a stream exactly once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.options.arguments import a_name, needed
from pypaimon.streaming.targets.changes import AnyBatch, GivenKeys
from pypaimon.streaming.targets.column_evolution import evolve_columns, is_equal_in, is_wider
from pypaimon.streaming.targets.lakes.lake_table import LakeTable, kept_by_iceberg
from pypaimon.streaming.targets.plan_transactions import PlanTransactions, TransactionTarget, translate_errors
from pypaimon.streaming.targets.row_staging import PlanStaging
from pypaimon.streaming.targets.target_state import Column, Saved

if TYPE_CHECKING:
    import pyiceberg.catalog as iceberg
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction
else:
    iceberg = LazyModule("pyiceberg.catalog")


class IcebergTarget(TransactionTarget):
    """A table of Iceberg that follows a stream exactly once: one commit of its catalog for each plan (extra `iceberg`).

    The rows of a plan and the position after it are one commit: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there. The position is in the properties of the table, and of the snapshots of its plan, as `paimon.position`.

    With keys the files that hold a key of the plan are rewritten; without keys rows are appended. A full state replaces
    all rows. Columns are added, renamed and dropped as in Paimon. A type is changed if Iceberg promotes the old type
    to it, and refused otherwise. The rows of a plan are written at its end: up to 64 MB of them are kept in memory,
    more in a temporary file. Others may compact the table, and expire its snapshots, between two
    commits.

    Args:
        catalog: A catalog of pyiceberg.
        table: Its name with its namespace, `sales.orders`; made by the first plan if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or another program, has written.

    Raises:
        StreamConfigError: The name has no namespace.
    """

    def __init__(
        self, catalog: iceberg.Catalog, table: str, keys: str | Sequence[str] | None = None, *, replace: bool = False
    ) -> None:
        needed("IcebergTarget: catalog", catalog, "a catalog of pyiceberg", "load_table", "create_table")
        a_name("IcebergTarget: table", table)
        self._plans = PlanTransactions(IcebergRows(catalog, table, keys), replace)


_POSITION, _COLUMNS = "paimon.position", "paimon.columns"
_RETRIES = "commit.retry.num-retries"


class IcebergRows(LakeTable["Table"]):
    """An Iceberg table. The position is in its properties and in the summaries of its snapshots.

    Args:
        catalog: The catalog of the table.
        name: The name of the table, with its namespace.
        keys: See `TargetKeys`.
    """

    def __init__(self, catalog: Catalog, name: str, keys: GivenKeys) -> None:
        if "." not in name:
            raise StreamConfigError(f"table {name!r}: name it with its namespace, such as 'sales.{name}'")
        self._catalog = catalog
        self._name = name
        super().__init__(f"Iceberg table {name}", keys)
        self._replaces = False

    def holds_rows(self) -> bool:
        with self._translated():
            table = self._load()
            return table is not None and table.scan().count() > 0

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        self._before, self._replaces = saved, replaces

    def write(self, batch: AnyBatch) -> None:
        with self._translated():
            if self._plan is None:
                self.keys = self.given_keys.of_batch(batch)
                _refuse_dots(self.keys)
                self._plan = PlanStaging(batch, self._before, self.keys, kept_by_iceberg)
            self._plan.add(batch)

    def _prepare(self, plan: PlanStaging) -> None:
        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            self._table = self._catalog.create_table(self._name, schema=plan.schema)

    def commit(self) -> None:
        table, plan = self._table, self._plan
        assert table is not None and plan is not None
        noted = {_POSITION: self._position}
        with self._translated():
            # Changes this object only. A program that has committed since the position was read may have written the
            # same rows, so that the commit must not be retried on top of them.
            table.metadata.properties[_RETRIES] = "0"
            transaction = table.transaction()
            alter = _IcebergAlter(transaction, plan.schema)
            if self._replaces:
                alter.drop_all()
            evolve_columns(alter, plan.first, plan.columns, None if self._replaces else plan.columns_before)
            transaction.set_properties({**noted, _COLUMNS: plan.columns.to_json()})
            gone = self._gone(plan)
            if gone is not None and table.current_snapshot() is not None:
                with warnings.catch_warnings():
                    # pyiceberg warns if no row is deleted or files are rewritten; both are expected here.
                    warnings.simplefilter("ignore", UserWarning)
                    transaction.delete(gone, noted)
            rows = plan.rows.rows()
            # Also without rows: only a new snapshot makes the catalog check for concurrent commits.
            # pyiceberg appends a reader to unpartitioned tables only.
            transaction.append(rows if table.spec().is_unpartitioned() else rows.read_all(), noted)
            transaction.commit_transaction()
        self._end()

    def _gone(self, plan: PlanStaging) -> BooleanExpression | None:
        from pyiceberg.expressions import AlwaysTrue

        if plan.first.begins_state:
            return AlwaysTrue()
        keys = plan.rows.keys() if self.keys else None
        return None if keys is None or not keys.num_rows else key_filter(keys)

    def _load(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _saved_in(self, table: Table | None) -> Saved | None:
        if table is None or _POSITION not in table.properties:
            return None
        position = table.properties[_POSITION]
        of_it = {
            each.snapshot_id
            for each in table.snapshots()
            if each.summary is not None and each.summary.additional_properties.get(_POSITION) == position
        }
        if of_it and not any(number in of_it for number in _ancestors(table)):
            raise StreamConfigError(
                f"Iceberg table {self._name}: others have rolled it back to before the position that it has saved. "
                "Bring it forward again, or drop it: its position() is None then, and a stream that begins with the "
                "state fills it again."
            )
        return Saved(position, table.properties.get(_COLUMNS))

    def _translated(self) -> AbstractContextManager[None]:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        return translate_errors(self.where, (Exception,), (CommitFailedException, ValidationException))


def _refuse_dots(keys: Sequence[str]) -> None:
    for key in keys:
        if "." in key:
            raise UnsupportedTableError(
                f"key column '{key}': pyiceberg reads the dot as the separator of a nested field, and does not find "
                "the rows of a key. Rename the column."
            )


class _IcebergAlter:
    def __init__(self, transaction: Transaction, schema: pa.Schema) -> None:
        self._transaction = transaction
        self._schema = schema

    def create(self, columns: Sequence[Column]) -> None:
        """Does nothing: a transaction needs a table that exists."""

    def drop_all(self) -> None:
        with self._transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in self._present():
                update.delete_column((name,))

    def is_exact(self, old: str, new: str) -> bool:
        # Iceberg promotes numbers within their kind.
        if new == "DOUBLE":
            return old == "FLOAT"
        return is_wider(old, new) or (old.startswith("TIME") and is_equal_in(old, new))

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        present = self._present()
        return [column for column in columns if column.name not in present]

    def drop(self, name: str) -> None:
        if name in self._present():
            with self._transaction.update_schema(allow_incompatible_changes=True) as update:
                update.delete_column((name,))

    def add(self, column: Column) -> None:
        with self._transaction.update_schema() as update:
            update.union_by_name(pa.schema([self._schema.field(column.name)]))

    def change_type(self, column: Column) -> None:
        from pyiceberg.exceptions import ValidationError

        try:
            self.add(column)
        except (ValidationError, TypeError, ValueError) as error:
            raise StreamConfigError(
                f"column '{column.name}' has type {column.type} now, to which Iceberg does not promote its old type: "
                f"{error}. Begin again in another table, or leave the column out with with_projection(...)."
            ) from error

    def rename(self, old: str, new: str) -> None:
        with self._transaction.update_schema() as update:
            update.rename_column((old,), new)

    def _present(self) -> set[str]:
        return {field.name for field in self._transaction.table_metadata.schema().fields}


def _ancestors(table: Table) -> Iterator[int]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.snapshot_id
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)


def key_filter(keys: pa.Table) -> BooleanExpression:
    from pyiceberg.expressions import And

    names = sorted(keys.column_names, key=lambda name: len(keys[name].unique()))
    *others, last = names
    if not others:
        return _is_one_of(last, keys[last])
    # pyiceberg is slow with many terms, and fast with many values of one term.
    groups = keys.group_by(others).aggregate([(last, "list")])
    terms = [
        reduce(
            And,
            [_is_one_of(name, groups[name].slice(row, 1)) for name in others],
            _is_one_of(last, groups[f"{last}_list"][row].values),
        )
        for row in range(groups.num_rows)
    ]
    return _any_of(terms)


def _is_one_of(name: str, values: pa.Array | pa.ChunkedArray) -> BooleanExpression:
    from pyiceberg import expressions

    of: Any = expressions  # type checkers see pydantic's arguments, not those of its constructors
    terms = [of.IsNull(name)] if values.null_count else []
    kept = values.drop_null()
    if types.is_floating(values.type):
        is_nan = pc.is_nan(kept)
        terms += [of.IsNaN(name)] if pc.any(is_nan).as_py() else []
        kept = kept.filter(pc.invert(is_nan))
    return _any_of([of.In(name, kept.to_pylist()), *terms] if len(kept) else terms)


def _any_of(terms: list[BooleanExpression]) -> BooleanExpression:
    from pyiceberg.expressions import Or

    return terms[0] if len(terms) == 1 else Or(*terms)
