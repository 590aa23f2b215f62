"""`ParquetTarget`: a directory of Parquet files that follows a table without a primary key exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.formats.parquet_writer import parquet_schema
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_table
from pypaimon.streaming.options.arguments import a_path
from pypaimon.streaming.targets.changes import AnyBatch, TargetKeys, default_keys, inserts
from pypaimon.streaming.targets.column_evolution import refuse_other_columns
from pypaimon.streaming.targets.plan_transactions import (
    PlanTransactions,
    TransactionalTable,
    TransactionTarget,
    translate_errors,
)
from pypaimon.streaming.targets.target_state import Saved, SavedState

_POSITION, _COLUMNS, _FIRST = "paimon.position", "paimon.columns", "paimon.first"
_PREFIX, _SUFFIX = "plan-", ".parquet"


class ParquetTarget(TransactionTarget):
    """A directory of Parquet files that follows a table without a primary key exactly once: one file for each plan.

    A file appears when its plan is complete, with the position after it in its metadata: after a crash the program
    continues at `load_position()`, with nothing lost and nothing twice. `replicate(builder, target)` begins there. The
    files are named `plan-000000000001.parquet` and so on; other files in the directory are left alone.

    A full state replaces what is there: the earlier files are removed after its first file appears, so that for a
    moment both exist. Later files have the columns that are added. A column that was renamed, dropped or given another
    type is refused, as are tables with a primary key. Vectors are lists in the files, because Arrow cannot write a null
    vector.

    Args:
        directory: A directory on a local disk; made if it does not exist. One program writes to it at a time.
        replace: The state of the table may replace rows that another stream, or another program, has written.

    Raises:
        StreamConfigError: The directory is a URI: other stores cannot publish a whole file under a name that is free.
        TargetError: The directory cannot be made.
    """

    def __init__(self, directory: str | Path, *, replace: bool = False) -> None:
        if "://" in a_path("ParquetTarget: directory", directory):
            raise StreamConfigError(
                f"{directory}: ParquetTarget writes to a directory of this machine. On other stores a DeltaTarget or "
                "an IcebergTarget keeps Parquet files exactly once."
            )
        self._plans = PlanTransactions(_ParquetFiles(Path(directory)), replace)


class _ParquetFiles(TransactionalTable):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.given_keys = TargetKeys(())
        self.where = f"Parquet files in {directory}"
        self._writer: pq.ParquetWriter | None = None
        self._path = directory
        self._columns: SavedState | None = None
        self._begins_state = False
        self._number = self._first = 0
        with self._translated():
            directory.mkdir(parents=True, exist_ok=True)

    def saved(self) -> Saved | None:
        """What the newest file has saved. Removes files that a later state has replaced."""
        with self._translated():
            newest = self._newest()
            if newest is None:
                return None
            found = self._metadata(newest)
            self._remove_before(int(found[_FIRST]))
            return Saved(found[_POSITION], found[_COLUMNS])

    def holds_rows(self) -> bool:
        """Always False: `saved` finds files that no target has written, and refuses them."""
        return False

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        """Begin a hidden file. Removes what a crashed program has left."""
        self._columns = None if saved is None or saved.columns is None else SavedState.from_json(saved.columns)
        self._begins_state = saved is None
        with self._translated():
            for left in self._directory.glob(f".{_PREFIX}*"):
                left.unlink()
        self._path = self._directory / f".{_PREFIX}{uuid4()}"

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
                self._writer = pq.ParquetWriter(self._path, schema)
            self._writer.write_table(normal_table(rows, schema))

    def save(self, position: str, before: Saved | None) -> Saved | None:
        assert self._writer is not None and self._columns is not None
        with self._translated():
            newest = self._newest()
            there = None if newest is None else self._metadata(newest)
            if (None if there is None else there[_POSITION]) != (None if before is None else before.position):
                return None
            number = 1 if newest is None else newest + 1
            first = str(number) if there is None or self._begins_state else there[_FIRST]
            columns = self._columns.to_json()
            self._writer.add_key_value_metadata({_POSITION: position, _COLUMNS: columns, _FIRST: first})
            self._writer.close()
            self._writer = None
            # Before its name appears: a name without its content would count as a plan after a power failure.
            _to_disk(self._path)
        self._number, self._first = number, int(first)
        return Saved(position, columns)

    def commit(self) -> None:
        """Publish the file under its name. Fails if another program has taken the name."""
        with self._translated():
            # A link fails if the name is taken, where a rename would replace the file of another program.
            os.link(self._path, self._file(self._number))
            self._path.unlink()
            # The new name is on disk before the earlier files go: a crash of the machine must not lose both.
            _to_disk(self._directory)
            self._remove_before(self._first)

    def roll_back(self) -> None:
        writer, self._writer = self._writer, None
        with suppress(Exception):
            if writer is not None:
                writer.close()
        self._path.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._directory / f"{_PREFIX}{number:012}{_SUFFIX}"

    def _numbers(self) -> list[int]:
        names = [path.name for path in self._directory.glob(f"{_PREFIX}*{_SUFFIX}")]
        return [int(digits) for name in names if (digits := name[len(_PREFIX) : -len(_SUFFIX)]).isdigit()]

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _metadata(self, number: int) -> dict[str, str]:
        path = self._file(number)
        found = {key.decode(): value.decode() for key, value in (pq.read_metadata(path).metadata or {}).items()}
        if not {_POSITION, _COLUMNS, _FIRST} <= found.keys():
            raise StreamConfigError(f"{path} was not written by ParquetTarget: give it a directory of its own.")
        return found

    def _remove_before(self, first: int) -> None:
        for number in self._numbers():
            if number < first:
                self._file(number).unlink()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translate_errors(self.where, (OSError, pa.ArrowInvalid, UnfitValueError), (FileExistsError,)):
            try:
                yield
            except pa.ArrowNotImplementedError as error:
                raise UnsupportedTableError(f"Parquet files cannot hold a column: {error}. Leave it out.") from error


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
