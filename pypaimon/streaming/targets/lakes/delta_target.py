"""`DeltaTarget`: a Delta table that follows a stream exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSelector, PyFileSystem

from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.options.arguments import a_path
from pypaimon.streaming.targets.changes import AnyBatch, GivenKeys
from pypaimon.streaming.targets.column_evolution import refuse_other_columns
from pypaimon.streaming.targets.lakes.lake_table import LakeTable, fitted_to_delta, has_times_without_zone
from pypaimon.streaming.targets.plan_transactions import PlanTransactions, TransactionTarget, one_line, translate_errors
from pypaimon.streaming.targets.row_staging import IS_GONE, PlanStaging
from pypaimon.streaming.targets.target_state import Saved

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


class DeltaTarget(TransactionTarget):
    """A Delta table that follows a stream exactly once: one commit of Delta for each plan (extra `delta`).

    The rows of a plan and the position after it are one commit: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there. The position is in a file of the folder `_paimon` of the table, which the commit names by the version of its
    app transaction `pypaimon-streaming`.

    With keys a plan is merged; without keys its rows are appended. A full state replaces all rows. Columns are
    added as in Paimon. A column that was renamed, dropped or given another type is refused until a full state replaces
    the columns too. The rows of a plan are written at its end: up to 64 MB of them are kept in memory, more in a
    temporary file. Others may compact or vacuum the table between two commits.

    Args:
        table: Path or URI of the table; made by the first plan if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        storage_options: As deltalake takes them, such as `AWS_REGION`.
        replace: The state of the table may replace rows that another stream, or another program, has written.

    Raises:
        ModuleNotFoundError: deltalake is not installed.
    """

    def __init__(
        self,
        table: str | Path,
        keys: str | Sequence[str] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> None:
        path = a_path("DeltaTarget: table", table)
        with naming_extra("DeltaTarget", {"deltalake": "delta"}):
            import deltalake  # noqa: F401 (better now than after the first read)

        self._plans = PlanTransactions(DeltaRows(path, keys, storage_options), replace)


_APPLICATION = "pypaimon-streaming"
_FOLDER = "_paimon"
_POSITION = "paimon.position"


class DeltaRows(LakeTable["DeltaTable"]):
    """A Delta table, and the files next to it that hold positions.

    A commit names a file by the version of an app transaction, which Delta keeps with the table. The file is written
    before the commit, so that the commit saves the rows and the position together.

    Args:
        uri: The path or URI of the table.
    """

    def __init__(self, uri: str, keys: GivenKeys, storage_options: Mapping[str, str] | None) -> None:
        self._uri = uri.removeprefix("file://")
        super().__init__(f"Delta table {self._uri}", keys)
        self._options = None if storage_options is None else dict(storage_options)
        self._old_files: list[str] | None = None
        """Position files that no commit names after the next one; None: not known yet."""

    def holds_rows(self) -> bool:
        with self._translated():
            table = self._load()
            return table is not None and table.count() > 0

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        """Begin a plan, whose rows are written at its end. A state always replaces the columns too."""
        self._before = saved

    def write(self, batch: AnyBatch) -> None:
        with self._translated():
            if self._plan is None:
                self.keys = self.given_keys.of_batch(batch)
                self._plan = PlanStaging(batch, self._before, self.keys, fitted_to_delta)
                before = self._plan.columns_before
                if before is not None and not batch.begins_state:
                    refuse_other_columns(before, self._plan.columns, "the Delta table holds", "in another one")
            self._plan.add(batch)

    def _prepare(self, plan: PlanStaging) -> None:
        if self._table is not None and not plan.first.begins_state:
            _refuse_dropped_columns(plan, self._table)

    def commit(self) -> None:
        from deltalake import CommitProperties, Transaction

        assert self._plan is not None
        number = randbits(63)
        properties = CommitProperties(
            custom_metadata={_POSITION: self._position},
            # A program that has committed since the position was read may have written the same rows.
            max_commit_retries=0,
            app_transactions=[Transaction(_APPLICATION, number)],
        )
        with self._translated():
            if "://" not in self._uri:
                Path(self._uri).mkdir(parents=True, exist_ok=True)
            old_files = self._old_position_files()
            self._write_position(number)
            if self._table is not None and self.keys and not self._plan.first.begins_state:
                self._merge(self._plan, self._table, number, properties)
            else:
                self._add(self._plan, self._table, properties)
            # Left-over files do no harm.
            with suppress(Exception):
                for path in old_files:
                    self._files().delete_file(path)
            self._old_files = [_path(number)]
        self._end()

    def _add(self, plan: PlanStaging, table: DeltaTable | None, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        rows = plan.rows.rows()
        if table is None:
            write_deltalake(self._uri, rows, mode="error", storage_options=self._options, commit_properties=properties)
        elif plan.first.begins_state:
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)
        else:
            table = _fitted_for(plan, table)
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)

    def _merge(self, plan: PlanStaging, table: DeltaTable, number: int, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        table = _fitted_for(plan, table)
        same = " AND ".join(
            f"(held.{each} = new.{each} OR (held.{each} IS NULL AND new.{each} IS NULL))"
            if plan.rows.has_nulls(key)
            else f"held.{each} = new.{each}"
            for key in self.keys
            for each in [_quoted(key)]
        )
        is_gone, is_kept = f"new.{IS_GONE}", f"NOT new.{IS_GONE}"
        values = {_quoted(name): f"new.{_quoted(name)}" for name in plan.schema.names}
        merger = table.merge(
            plan.rows.changes(),
            same,
            source_alias="new",
            target_alias="held",
            merge_schema=plan.columns != plan.columns_before,
            commit_properties=properties,
        )
        merger.when_matched_delete(is_gone).when_matched_update(values, is_kept).when_not_matched_insert(
            values, is_kept
        ).execute()
        if table.transaction_version(_APPLICATION) != number:
            # Delta commits nothing if no row changes.
            write_deltalake(table, plan.schema.empty_table(), mode="append", commit_properties=properties)

    def _load(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            # Loaded each time: an older DeltaTable object does not see that its table was dropped and recreated.
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _saved_in(self, table: DeltaTable | None) -> Saved | None:
        number = None if table is None else table.transaction_version(_APPLICATION)
        if table is None or number is None:
            return None
        try:
            with self._files().open_input_stream(_path(number)) as stream:
                saved = Saved(**json.loads(stream.read()))
        except (OSError, ValueError, TypeError) as error:
            if self._is_at_another(number):
                return self.saved()
            raise TargetError(
                f"Delta table {self._uri}: the position in {_path(number)} cannot be read: {one_line(error)}. If "
                "the file is lost, delete the table: its position() is None then, and a stream that begins "
                "with the state fills it again."
            ) from error
        if _is_restored_before(table, saved.position):
            raise StreamConfigError(
                f"Delta table {self._uri}: others have restored it to before the position that it has saved. Restore a "
                "version that has it, or delete the table: its position() is None then, and a stream that begins with "
                "the state fills it again."
            )
        return saved

    def _is_at_another(self, number: int) -> bool:
        """Whether another commit was made meanwhile, which has removed the position file of this one."""
        table = self._load()
        return table is None or table.transaction_version(_APPLICATION) != number

    def _old_position_files(self) -> list[str]:
        """Position files of the last commit and of commits that failed."""
        # After the next commit no commit names one of them: a program that wrote one has read an older
        # version, and is refused.
        if self._old_files is None:
            found = self._files().get_file_info(FileSelector(_FOLDER, allow_not_found=True))
            self._old_files = [each.path for each in found]
        return list(self._old_files)

    def _write_position(self, number: int) -> None:
        assert self._plan is not None and self._old_files is not None
        self._old_files.append(_path(number))
        saved = self._plan.saved(self._position)
        text = json.dumps({"position": saved.position, "columns": saved.columns}).encode()
        # deltalake writes a file correctly only from one buffer that holds all of its bytes.
        with self._files().open_output_stream(_path(number), buffer_size=len(text) + 1) as stream:
            stream.write(text)

    def _files(self) -> PyFileSystem:
        from deltalake.fs import DeltaStorageHandler

        return PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    def _translated(self) -> AbstractContextManager[None]:
        from deltalake.exceptions import CommitFailedError

        # deltalake raises plain Exception for some failures.
        return translate_errors(self.where, (Exception,), (CommitFailedError,))


def _refuse_dropped_columns(plan: PlanStaging, table: DeltaTable) -> None:
    # deltalake drops values without a column silently.
    there = {field.name for field in table.schema().fields}
    before = () if plan.columns_before is None else plan.columns_before.columns
    lacking = [column.name for column in before if column.name not in there]
    if lacking:
        raise StreamConfigError(
            f"others have dropped columns {lacking} of the Delta table. Restore a version that has them, or delete the "
            "table: its position() is None then, and a stream that begins with the state fills it again."
        )


def _fitted_for(plan: PlanStaging, table: DeltaTable) -> DeltaTable:
    from deltalake import TableFeatures

    wants = any(has_times_without_zone(field.type) for field in plan.schema)
    # deltalake adds a column of timestamps without time zone also without the table feature for them.
    if wants and "timestampNtz" not in (table.protocol().writer_features or ()):
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    return table


def _is_restored_before(table: DeltaTable, position: str) -> bool:
    version = table.version()
    for entry in _history(table):
        if entry["version"] > version:
            continue
        if _POSITION in entry:
            return bool(entry[_POSITION] != position)
        if entry.get("operation") == "RESTORE":
            restored = entry["operationParameters"].get("version")
            if restored is None:
                # To some moment. An error that could be spared is better than rows that are missing.
                return True
            version = int(restored)
    return False


def _history(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """The commits, the newest one first; they are read as they are asked for."""
    seen, limit = 0, 1
    while True:
        entries = table.history(limit)
        yield from entries[seen:]
        if len(entries) < limit:
            return
        # `history` has a limit and no offset: more of it is read from the newest commit again.
        seen, limit = limit, limit * 16


def _path(number: int) -> str:
    return f"{_FOLDER}/position-{number:016x}.json"


def _quoted(name: str) -> Any:
    return "`" + name.replace("`", "``") + "`"
