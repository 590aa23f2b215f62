"""`ParquetTarget`: a directory of Parquet files that follows a table without a primary key exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.formats.parquet_writer import parquet_schema
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_table
from pypaimon.streaming.options.arguments import a_path, needed
from pypaimon.streaming.redaction import without_secrets
from pypaimon.streaming.targets.changes import AnyBatch, TargetKeys, default_keys, inserts
from pypaimon.streaming.targets.column_evolution import refuse_other_columns
from pypaimon.streaming.targets.lakes.plan_files import PlanFiles, plan_files
from pypaimon.streaming.targets.plan_transactions import (
    PlanTransactions,
    TransactionalTable,
    TransactionTarget,
    others_write,
    translate_errors,
)
from pypaimon.streaming.targets.target_state import Saved, SavedState

_POSITION, _COLUMNS, _FIRST = "paimon.position", "paimon.columns", "paimon.first"


class ParquetTarget(TransactionTarget):
    """A directory of Parquet files that follows a table without a primary key exactly once: one file for each plan.

    A file appears when its plan is complete, with the position after it in its metadata: after a crash the program
    continues at `load_position()`, with nothing lost and nothing twice. `replicate(builder, target)` begins there. The
    files are named `plan-000000000001.parquet` and so on; other files in the directory are left alone.

    A full state replaces what is there: the earlier files are removed after its first file appears, so that for a
    moment both exist. Later files have the columns that are added. A column that was renamed, dropped or given another
    type is refused, as are tables with a primary key. Vectors are lists in the files, because Arrow cannot write a null
    vector.

    In a store each file is one conditional write, of at most 5 GiB, and in memory until then: have a stream with large
    commits cut its plans, `with_limits(max_bytes=...)`.

    Args:
        directory: A directory on a local disk, made if it does not exist; or the URI of one in S3 and the like (extra
            `fast`), with the keys among the options, or on HDFS. One program writes to it at a time.
        replace: The state of the table may replace rows that another stream, or another program, has written.
        options: How the store is reached: options of pypaimon's catalog, such as `s3.endpoint` and `s3.access-key`.

    Raises:
        StreamConfigError: The store is not known, or cannot create a file on the condition that there is none; or
            pyarrow is older than 17.
        StoreError: The store failed.
        TargetError: The directory cannot be made.
    """

    def __init__(
        self, directory: str | Path, *, replace: bool = False, options: Mapping[str, str] | None = None
    ) -> None:
        if not hasattr(pq.ParquetWriter, "add_key_value_metadata"):
            raise StreamConfigError(
                f"ParquetTarget needs pyarrow 17 or newer: {pa.__version__} cannot write a position after the rows."
            )
        place = str(a_path("ParquetTarget: directory", directory))
        given = needed("ParquetTarget: options", {} if options is None else options, "a mapping of options", "items")
        texts = {key: str(value) for key, value in given.items()}
        with translate_errors(f"Parquet files in {without_secrets(place)}", (OSError,)):
            self._plans = PlanTransactions(_ParquetTable(plan_files(place, texts)), replace)


class _ParquetTable(TransactionalTable):
    def __init__(self, files: PlanFiles) -> None:
        self._files = files
        self.given_keys = TargetKeys(())
        self.where = files.where
        self._writer: pq.ParquetWriter | None = None
        self._columns: SavedState | None = None
        self._begins_state = False
        self._newest: int | None = None
        """The number of the file that has what was saved last."""
        self._number = self._first = 0

    def saved(self) -> Saved | None:
        """What the newest file has saved. Removes files that a later state has replaced."""
        with self._translated():
            numbers = self._files.numbers()
            self._newest = max(numbers, default=None)
            if self._newest is None:
                return None
            found = self._metadata(self._newest)
            self._remove_before(int(found[_FIRST]), numbers)
            return Saved(found[_POSITION], found[_COLUMNS])

    def holds_rows(self) -> bool:
        """Always False: `saved` finds files that no target has written, and refuses them."""
        return False

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        self._columns = None if saved is None or saved.columns is None else SavedState.from_json(saved.columns)
        self._begins_state = saved is None

    def write(self, batch: AnyBatch) -> None:
        if default_keys(batch):
            raise StreamConfigError(
                f"The table has the primary key {batch.schema.primary_keys}, and files of rows have no keys, so that "
                "each change of a row would be another row: copy it to a DeltaTarget or an IcebergTarget."
            )
        rows = inserts(batch)
        wanted = SavedState.of(batch, [(field.name, str(field.type)) for field in rows.schema], ())
        if batch.begins_state:
            self._begins_state = True
        elif self._columns is not None:
            refuse_other_columns(self._columns, wanted, "the files hold", "in another directory")
        self._columns = wanted
        schema = parquet_schema(rows.schema)
        with self._translated():
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._files.begin(), schema)
            self._writer.write_table(normal_table(rows, schema))

    def save(self, position: str, before: Saved | None) -> Saved | None:
        assert self._writer is not None and self._columns is not None
        with self._translated():
            there = self._newest_metadata()
            if (None if there is None else there[_POSITION]) != (None if before is None else before.position):
                return None
            number = (self._newest or 0) + 1
            first = str(number) if there is None or self._begins_state else there[_FIRST]
            columns = self._columns.to_json()
            self._writer.add_key_value_metadata({_POSITION: position, _COLUMNS: columns, _FIRST: first})
            self._writer.close()
            self._writer = None
            self._files.complete()
        self._number, self._first = number, int(first)
        return Saved(position, columns)

    def commit(self) -> None:
        """Publish the file under its name. Fails if another program has taken the name."""
        with self._translated():
            try:
                self._files.publish(self._number)
            except FileExistsError as error:
                raise others_write() from error
            self._newest = self._number
            if self._begins_state:
                self._remove_before(self._first, self._files.numbers())

    def roll_back(self) -> None:
        writer, self._writer = self._writer, None
        with suppress(Exception):
            if writer is not None:
                writer.close()
        self._files.discard()

    def _newest_metadata(self) -> dict[str, str] | None:
        try:
            return None if self._newest is None else self._metadata(self._newest)
        except FileNotFoundError:
            return None

    def _metadata(self, number: int) -> dict[str, str]:
        found = {key.decode(): value.decode() for key, value in self._files.metadata(number).items()}
        if not {_POSITION, _COLUMNS, _FIRST} <= found.keys():
            name = without_secrets(self._files.name(number))
            raise StreamConfigError(f"{name} was not written by ParquetTarget: give it a directory of its own.")
        return found

    def _remove_before(self, first: int, numbers: Sequence[int]) -> None:
        self._files.remove([number for number in numbers if number < first])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translate_errors(self.where, (OSError, pa.ArrowInvalid, UnfitValueError)):
            try:
                yield
            except pa.ArrowNotImplementedError as error:
                raise UnsupportedTableError(f"Parquet files cannot hold a column: {error}. Leave it out.") from error
