"""`IcebergRows`: a table of Iceberg, to which plans are applied, a commit each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.followed_columns import Column, Columns, follow
from pypaimon.streaming.apply_changes.lake_types import fitted_to_iceberg
from pypaimon.streaming.apply_changes.plan_transactions import Saved
from pypaimon.streaming.apply_changes.staged_rows import StagedRows
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TargetError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction

_POSITION, _COLUMNS = "paimon.position", "paimon.columns"
_RETRIES = "commit.retry.num-retries"


class IcebergRows:
    """A table of Iceberg, which notes the position in its properties and in the summaries of its snapshots.

    Args:
        catalog: That has the table.
        name: Of the table, with its namespace.
        keys: Columns of the key; none: rows are appended.
    """

    def __init__(self, catalog: Catalog, name: str, keys: Sequence[str]) -> None:
        self._catalog = catalog
        self._name = name
        self._keys = list(keys)
        self._staged: StagedRows | None = None
        self._schema = pa.schema([])
        self._columns: Columns | None = None
        self._columns_before: Columns | None = None
        self._begins_state = False
        self._batch: AnyBatch | None = None
        self._table: Table | None = None
        self._position = ""

    def saved(self) -> Saved | None:
        """What the table notes."""
        with self._translated():
            return self._saved_in(self._load())

    def begin(self, saved: Saved | None) -> None:
        """Begin to take rows, which are written at the end of the plan."""
        self._columns_before = None if saved is None or saved.columns is None else Columns.from_json(saved.columns)

    def write(self, batch: AnyBatch) -> None:
        """Take the rows of a batch."""
        sets, gone = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        rows = fitted_to_iceberg(sets)
        if self._staged is None:
            self._columns = Columns.of(batch, [(field.name, str(field.type)) for field in rows.schema])
            self._begins_state, self._batch = batch.begins_state, batch
            self._schema = rows.schema
            self._staged = StagedRows(rows.schema, self._keys)
        with self._translated():
            self._staged.add(rows, None if gone is None else fitted_to_iceberg(gone))

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Note a position; None: others have saved another one than was before."""
        assert self._columns is not None
        with self._translated():
            self._table = self._load()
            there = self._saved_in(self._table)
            if (None if there is None else there.position) != (None if before is None else before.position):
                return None
            if self._table is None:
                self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                self._table = self._catalog.create_table(self._name, schema=self._schema)
        self._position = position
        return Saved(position, self._columns.to_json())

    def commit(self) -> None:
        """Write rows and position in one commit of the catalog."""
        assert self._table is not None and self._staged is not None
        assert self._columns is not None and self._batch is not None
        noted = {_POSITION: self._position}
        with self._translated():
            # Of this object only. Whoever has committed since the position was read may have written the same rows.
            self._table.metadata.properties[_RETRIES] = "0"
            transaction = self._table.transaction()
            follow(_IcebergAlter(transaction, self._schema), self._batch, self._columns, self._columns_before)
            transaction.set_properties({**noted, _COLUMNS: self._columns.to_json()})
            gone = self._gone()
            if gone is not None and self._table.current_snapshot() is not None:
                with warnings.catch_warnings():
                    # That no row is deleted, or that files are rewritten, is as it should be.
                    warnings.simplefilter("ignore", UserWarning)
                    transaction.delete(gone, noted)
            rows = self._staged.rows()
            # No rows are a snapshot too, without which the catalog would not find out that others have committed.
            transaction.append(rows if self._table.spec().is_unpartitioned() else rows.read_all(), noted)
            transaction.commit_transaction()
        self._end()

    def roll_back(self) -> None:
        """Let go of the rows. Files that were written are in no snapshot."""
        self._end()

    def _end(self) -> None:
        staged, self._staged, self._table, self._batch = self._staged, None, None, None
        if staged is not None:
            staged.close()

    def _gone(self) -> BooleanExpression | None:
        """Which rows a plan replaces; None: none."""
        from pyiceberg.expressions import AlwaysTrue

        assert self._staged is not None
        if self._begins_state:
            return AlwaysTrue()
        keys = self._staged.keys() if self._keys else None
        return None if keys is None or not keys.num_rows else _among(keys)

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

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of pyiceberg, of the catalog and of files as one of ours."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            yield
        except PaimonStreamError:
            raise
        except (CommitFailedException, ValidationException) as error:
            raise StreamConfigError(
                f"Iceberg table {self._name}: {error}. Others have committed to it in the same moment. Nothing of the "
                "plan is saved; replicate(...) goes on where the table stands."
            ) from error
        except Exception as error:
            raise TargetError(
                f"Iceberg table {self._name}: {error}. Nothing of the plan is saved. If it passes, replicate(...) goes "
                "on where the table stands."
            ) from error


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

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        present = {field.name for field in self._transaction.table_metadata.schema().fields}
        return [column for column in columns if column.name not in present]

    def drop(self, name: str) -> None:
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


def _ancestors(table: Table) -> Iterator[int]:
    """The ids of the snapshots that the table is made of, the newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.snapshot_id
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)


def _among(keys: pa.Table) -> BooleanExpression:
    """The rows that have one of these keys."""
    from pyiceberg import expressions

    terms: Any = expressions  # type checkers see pydantic's arguments, not those of its constructors
    among: BooleanExpression
    if keys.num_columns == 1:
        (name,) = keys.column_names
        column = keys[name]
        among = terms.In(name, column.drop_null().to_pylist())
        if column.null_count:
            among = terms.Or(among, terms.IsNull(name))
        return among
    each_key = []
    for row in keys.to_pylist():
        same = [terms.IsNull(name) if value is None else terms.EqualTo(name, value) for name, value in row.items()]
        each_key.append(reduce(terms.And, same))
    among = each_key[0] if len(each_key) == 1 else terms.Or(*each_key)
    return among
