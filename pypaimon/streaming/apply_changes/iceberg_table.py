"""`IcebergRows`: a table of Iceberg, to which plans are applied, a commit each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.exact_casts import is_equal_in, is_wider
from pypaimon.streaming.apply_changes.followed_columns import follow
from pypaimon.streaming.apply_changes.iceberg_filters import key_filter
from pypaimon.streaming.apply_changes.keys import GivenKeys, TargetKeys
from pypaimon.streaming.apply_changes.lake_types import kept_by_iceberg
from pypaimon.streaming.apply_changes.plan_transactions import TransactionalTable, is_same_place
from pypaimon.streaming.apply_changes.refusals import translated
from pypaimon.streaming.apply_changes.saved_state import Column, Saved
from pypaimon.streaming.apply_changes.staged_plan import StagedPlan
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction

_POSITION, _COLUMNS = "paimon.position", "paimon.columns"
_RETRIES = "commit.retry.num-retries"


class IcebergRows(TransactionalTable):
    """A table of Iceberg, which notes the position in its properties and in the summaries of its snapshots.

    Args:
        catalog: That has the table.
        name: Of the table, with its namespace.
        keys: See `TargetKeys`.

    Attributes:
        given_keys: As given.
        keys: Columns of the key, as the last batch has them; none: rows are appended.
        where: What the table is called, as an error says it.
    """

    def __init__(self, catalog: Catalog, name: str, keys: GivenKeys) -> None:
        if "." not in name:
            raise StreamConfigError(f"table {name!r}: name it with its namespace, such as 'sales.{name}'")
        self._catalog = catalog
        self._name = name
        self.given_keys = TargetKeys(keys)
        self.keys: list[str] = []
        self.where = f"Iceberg table {name}"
        self._before: Saved | None = None
        self._replaces = False
        self._plan: StagedPlan | None = None
        self._table: Table | None = None
        self._position = ""

    def saved(self) -> Saved | None:
        """What the table notes."""
        with self._translated():
            return self._saved_in(self._load())

    def holds_rows(self) -> bool:
        """Whether it holds any rows."""
        with self._translated():
            table = self._load()
            return table is not None and table.scan().count() > 0

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        """Begin to take rows, which are written at the end of the plan."""
        self._before, self._replaces = saved, replaces

    def write(self, batch: AnyBatch) -> None:
        """Take the rows of a batch."""
        with self._translated():
            if self._plan is None:
                self.keys = self.given_keys.of_batch(batch)
                _refuse_dots(self.keys)
                self._plan = StagedPlan(batch, self._before, self.keys, kept_by_iceberg)
            self._plan.add(batch)

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Note a position; None: others have saved another one than was before."""
        assert self._plan is not None
        with self._translated():
            self._table = self._load()
            if not is_same_place(self._saved_in(self._table), before):
                return None
            if self._table is None:
                self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                self._table = self._catalog.create_table(self._name, schema=self._plan.schema)
        self._position = position
        return self._plan.saved(position)

    def commit(self) -> None:
        """Write rows and position in one commit of the catalog."""
        table, plan = self._table, self._plan
        assert table is not None and plan is not None
        noted = {_POSITION: self._position}
        with self._translated():
            # Of this object only. Whoever has committed since the position was read may have written the same rows.
            table.metadata.properties[_RETRIES] = "0"
            transaction = table.transaction()
            alter = _IcebergAlter(transaction, plan.schema)
            if self._replaces:
                alter.drop_all()
            follow(alter, plan.first, plan.columns, None if self._replaces else plan.columns_before)
            transaction.set_properties({**noted, _COLUMNS: plan.columns.to_json()})
            gone = self._gone(plan)
            if gone is not None and table.current_snapshot() is not None:
                with warnings.catch_warnings():
                    # That no row is deleted, or that files are rewritten, is as it should be.
                    warnings.simplefilter("ignore", UserWarning)
                    transaction.delete(gone, noted)
            rows = plan.rows.rows()
            # No rows are a snapshot too, without which the catalog would not find out that others have committed.
            transaction.append(rows if table.spec().is_unpartitioned() else rows.read_all(), noted)
            transaction.commit_transaction()
        self._end()

    def roll_back(self) -> None:
        """Let go of the rows. Files that were written are in no snapshot."""
        self._end()

    def _end(self) -> None:
        plan, self._plan, self._table = self._plan, None, None
        if plan is not None:
            plan.close()

    def _gone(self, plan: StagedPlan) -> BooleanExpression | None:
        """Which rows a plan replaces; None: none."""
        from pyiceberg.expressions import AlwaysTrue

        if plan.first.begins_state:
            return AlwaysTrue()
        keys = plan.rows.keys() if self.keys else None
        return None if keys is None or not keys.num_rows else key_filter(keys)

    def _load(self) -> Table | None:
        """The table as it is now; None: there is none."""
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
                f"Iceberg table {self._name}: others have rolled it back to before the position that it notes. Bring "
                "it forward again, or drop it: its position() is None then, and a stream from the state on fills it "
                "anew."
            )
        return Saved(position, table.properties.get(_COLUMNS))

    def _translated(self) -> AbstractContextManager[None]:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        return translated(self.where, (Exception,), (CommitFailedException, ValidationException))


def _refuse_dots(keys: Sequence[str]) -> None:
    for key in keys:
        if "." in key:
            raise UnsupportedTableError(
                f"key column '{key}': pyiceberg takes the dot for that between a column and a field inside of it, and "
                "does not find the rows of a key. Rename the column."
            )


class _IcebergAlter:
    """Changes of the columns, in a transaction.

    Args:
        transaction: Of the table.
        schema: Of the rows that are to be written.
    """

    def __init__(self, transaction: Transaction, schema: pa.Schema) -> None:
        self._transaction = transaction
        self._schema = schema

    def create(self, columns: Sequence[Column]) -> None:
        """It is there, or it would have no transactions."""

    def drop_all(self) -> None:
        """Drop all columns."""
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
                f"column '{column.name}' is of type {column.type} now, which Iceberg does not make of the one that it "
                f"had: {error}. Begin anew in another table, or leave the column out with with_projection(...)."
            ) from error

    def rename(self, old: str, new: str) -> None:
        with self._transaction.update_schema() as update:
            update.rename_column((old,), new)

    def _present(self) -> set[str]:
        return {field.name for field in self._transaction.table_metadata.schema().fields}


def _ancestors(table: Table) -> Iterator[int]:
    """The ids of the snapshots that the table is made of, the newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.snapshot_id
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)
